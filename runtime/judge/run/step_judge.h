// One step of a run: what its results mean against what the reference makes of what its operands
// mean.
#pragma once

#include "runtime/judge/run/verdicts.h"

namespace spmd::runtime {

class StepJudge {
public:
  StepJudge(const RunSetup &setup, Reference &reference, RankValues &values, Verdicts &verdicts,
            RunReport &report)
      : setup_(setup), reference_(reference),
        bounds_(reference, setup.options.domain, setup.options.order), values_(values),
        verdicts_(verdicts), report_(report) {}

  // Its operands and results were read.
  void judge(const Execution &execution);

private:
  // What the reference has for the results, and what explains a difference or shows a mistake.
  struct Wanted {
    explicit Wanted(const Meanings &meant) : meant(meant) {}
    const Meanings &meant;
    Meanings bounds;
    std::vector<Reduction> reductions;
    ir::AxisSet acted;
  };

  bool is_call(const Execution &execution);
  void judge_results(const Execution &execution, const Wanted &wanted);
  llvm::Expected<Meanings> content_of_storage(ir::InstId alias, BodySite site);
  llvm::Expected<Meanings> received(const Execution &execution);
  int64_t ranks_along(ir::AxisSet axes, const PlannedValue &value) const;
  void find_bounds(const Execution &execution, BodySite site, Wanted &wanted);

  const RunSetup &setup_;
  Reference &reference_;
  Bounds bounds_;
  RankValues &values_;
  Verdicts &verdicts_;
  RunReport &report_;
};

} // namespace spmd::runtime
