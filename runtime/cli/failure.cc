// Ranks that are in the same step are reported together.
#include "runtime/cli/failure.h"

#include "rules/violations/commands/runs.h"

#include "checker/program_queries.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <map>

namespace spmd::runtime {
namespace {

std::string print_ranks(llvm::ArrayRef<uint32_t> ranks) {
  constexpr size_t kMost = 16;
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < kMost; ++i)
    text += fmt::format("{}{}", i ? ", " : "", ranks[i]);
  return ranks.size() > kMost ? fmt::format("{} and {} more", text, ranks.size() - kMost) : text;
}

// Of a step, or of the last one before it that an instruction asked for. Not valid: there is none.
ir::InstId inst_at(const Plan &plan, uint32_t step) {
  for (uint64_t i = std::min<uint64_t>(uint64_t(step) + 1, plan.steps.size()); i-- > 0;)
    if (plan.steps[i].inst.valid())
      return plan.steps[i].inst;
  return {};
}

std::string print_step(const ir::Program &program, const Plan &plan, uint32_t index) {
  ir::InstId at = inst_at(plan, index);
  if (!at.valid())
    return fmt::format("step {}", index);
  const ir::Inst &inst = program.insts[at];
  std::string op = program.op_name(inst.op).str();
  if (inst.result_count > 0)
    op = fmt::format("{} = {}", ir::print(program.values[inst.first_result].name, program.strings),
                     op);
  return fmt::format("step {}, `{}`", index, op);
}

class FailureReport {
public:
  FailureReport(const TeamFailure &failure, const ir::Program &program, const Plan &plan)
      : failure_(failure), program_(program), plan_(plan) {}

  // `blamed`: only of the ranks that the failure names, or only of the others.
  std::string text(bool blamed) const {
    std::map<std::pair<uint64_t, std::string>, std::vector<uint32_t>> together;
    for (uint32_t rank = 0; rank < failure_.where.size(); ++rank)
      if (const auto &where = failure_.where[rank];
          where && llvm::is_contained(failure_.ranks, rank) == blamed)
        together[{where->progress, doing(*where)}].push_back(rank);
    std::string text;
    for (const auto &[what, ranks] : together)
      text +=
          fmt::format("{}rank {} {}", text.empty() ? "" : ", ", print_ranks(ranks), what.second);
    return text;
  }

  // The step of those who wait; of those who are blamed where it is known.
  checker::Place place(bool blamed) const {
    const RankStatus *found = nullptr;
    for (bool ask : {blamed, false})
      for (uint32_t rank = 0; rank < failure_.where.size() && !found; ++rank)
        if (const auto &where = failure_.where[rank];
            where && where->progress && llvm::is_contained(failure_.ranks, rank) == ask)
          found = &*where;
    ir::InstId at = found ? inst_at(plan_, found->step) : ir::InstId();
    // What was derived stands nowhere; what it was derived from does.
    if (at.valid() && program_.insts[at].bwd_of.valid())
      at = checker::defining_inst(program_, program_.insts[at].bwd_of);
    return at.valid() ? checker::Place::inst(at) : checker::Place{checker::Place::Form::File, ~0u};
  }

private:
  std::string doing(const RankStatus &where) const {
    if (where.progress == 0)
      return "has not begun";
    std::string step = print_step(program_, plan_, where.step);
    switch (where.doing) {
    case Activity::Computing:
      return "is in " + step;
    case Activity::Exchanging:
      return "waits in " + step;
    case Activity::Judging:
    case Activity::Preparing:
    case Activity::Waiting:
      break;
    }
    return "is past " + step;
  }

  const TeamFailure &failure_;
  const ir::Program &program_;
  const Plan &plan_;
};

} // namespace

std::optional<checker::Finding> finding_of(const TeamFailure &failure, const ir::Program &program,
                                           const Plan &plan, int64_t seconds,
                                           const std::string &needed) {
  FailureReport report(failure, program, plan);
  std::string ranks = print_ranks(failure.ranks);
  switch (failure.form) {
  case TeamFailure::Form::Lost:
    return checker::Finding{
        rules::RunLostRank{ranks, "its process ended, or its host is gone", report.text(false)},
        report.place(false)};
  case TeamFailure::Form::Late: {
    std::string own = report.text(true);
    return checker::Finding{rules::RunTimeout{ranks, seconds,
                                              own.empty() ? "it does not answer" : own,
                                              report.text(false)},
                            report.place(!own.empty())};
  }
  case TeamFailure::Form::Memory:
    return checker::Finding{rules::RunMemory{needed, "less than that", "", ranks},
                            report.place(true)};
  case TeamFailure::Form::Error:
    break;
  }
  return std::nullopt;
}

} // namespace spmd::runtime
