// The order of things: inputs, the steps with what is read between them, and the outputs.
#include "runtime/judge/run/judged_run.h"

#include "runtime/judge/last_uses.h"
#include "runtime/judge/run/output_judge.h"
#include "runtime/judge/run/step_judge.h"

#include "ir/support/store.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <algorithm>

namespace spmd::runtime {

using ir::ValueId;

namespace {

class JudgedRun {
public:
  explicit JudgedRun(const RunSetup &setup)
      : setup_(setup), program_(setup.program), plan_(setup.plan), options_(setup.options),
        reference_(setup.checked, options_.domain == Domain::Field ? Domain::Field : Domain::F64,
                   options_.seed),
        values_(setup_, report_), verdicts_(setup_, values_, report_),
        steps_(setup_, reference_, values_, verdicts_, report_),
        outputs_(setup_, reference_, values_, verdicts_, report_) {
    reference_.take_sizes(options_.sizes);
    reference_.limit_rounds(plan_.max_rounds);
    values_.keep_until(last_uses(program_, plan_, reference_));
  }

  llvm::Expected<RunReport> run() {
    if (options_.mode == CheckMode::SampleCount)
      values_.read_only(options_.drawn);
    if (options_.mode != CheckMode::Off)
      if (llvm::Error failed = inputs())
        return llvm::Expected<RunReport>(std::move(failed));
    if (llvm::Error failed = steps())
      return llvm::Expected<RunReport>(std::move(failed));
    if (options_.mode != CheckMode::Off && options_.mode != CheckMode::SampleCount && !stopped_)
      if (llvm::Error failed = outputs())
        return llvm::Expected<RunReport>(std::move(failed));
    verdicts_.finish();
    return std::move(report_);
  }

private:
  // Steps up to one, those before which something has to be read included.
  using UpTo = llvm::function_ref<llvm::Error(uint32_t)>;

  llvm::Error inputs() {
    if (values_.by_fingerprints())
      if (llvm::Error failed = values_.exchange_fingerprints(plan_.params))
        return failed;
    if (values_.by_fingerprints() && !options_.judges)
      return values_.answer();
    for (PlannedId id : plan_.params) {
      if (!id.valid())
        continue;
      if (!values_.by_fingerprints() || !values_.is_as_given(id))
        if (llvm::Error failed = values_.read_of_all(id))
          return failed;
      const Meaning *own = values_.meaning(id);
      values_.note_latest(id);
      ReferenceValue wanted;
      // An input is what it is; only copies can be wrong.
      wanted.meant = values_.tensors(id).empty() ? nullptr : own;
      wanted.exact = true;
      verdicts_.judge_value(id, wanted, nullptr);
      outputs_.add_input(own ? *own : Meaning());
      if (values_.by_fingerprints()) // nothing reads it again
        values_.forget_meaning(id);
    }
    return values_.ask_for_nothing_more();
  }

  llvm::Error steps() {
    uint32_t done = 0;
    auto run_to = [&](uint32_t last) -> llvm::Error {
      if (last <= done)
        return llvm::Error::success();
      StepRange range{done, last};
      done = last;
      report_.steps = last;
      return setup_.backend.run(range, options_.deadline);
    };
    std::vector<Arrival> arrivals =
        setup_.stepwise() ? arrivals_in_bodies() : std::vector<Arrival>();
    auto next = arrivals.begin();
    auto up_to = [&](uint32_t last) -> llvm::Error {
      for (; next != arrivals.end() && next->step < last; ++next) {
        if (llvm::Error failed = run_to(next->step))
          return failed;
        if (llvm::Error failed = values_.read(next->id, /*may_be_absent=*/true))
          return failed;
      }
      return run_to(last);
    };
    for (uint32_t e = 0; options_.mode != CheckMode::Off && e < plan_.executions.size(); ++e) {
      const Execution &execution = plan_.executions[e];
      const bool replaced = is_unverifiable(execution);
      if (execution.nested || (setup_.stepwise() ? !matters(e, execution) : !replaced))
        continue;
      if (llvm::Error failed =
              setup_.stepwise() ? run_and_read(execution, up_to) : read_results(execution, up_to))
        return failed;
      if (replaced && options_.mode != CheckMode::SampleCount)
        replace_in_reference(plan_.list(execution.results)[0]);
      if (!setup_.stepwise())
        continue;
      if (sampled(e) && options_.judges)
        steps_.judge(execution);
      values_.release(e, outputs_.outputs());
      if (is_last(execution) ||
          (options_.on_progress && !options_.on_progress(e, plan_.executions.size())))
        return stopped_ = true, llvm::Error::success();
    }
    return up_to(plan_.all().last);
  }

  // Whether a step is judged, or makes what is read.
  bool matters(uint32_t e, const Execution &execution) const {
    return sampled(e) || llvm::any_of(plan_.list(execution.results), [&](PlannedId id) {
             return id.valid() && values_.is_read(id);
           });
  }

  // What bodies take is made by no instruction, and gone after the last one that needs it: it is
  // read just before the first one that does.
  struct Arrival {
    uint32_t step;
    PlannedId id;
  };
  std::vector<Arrival> arrivals_in_bodies() const {
    std::vector<Arrival> arrivals;
    for (const Execution &execution : plan_.executions)
      if (!execution.nested && plan_.calls[execution.call].site.valid())
        for (PlannedId id : plan_.list(execution.operands))
          if (id.valid() && values_.is_read(id))
            arrivals.push_back({execution.steps.first, id});
    llvm::stable_sort(arrivals, [](const Arrival &a, const Arrival &b) { return a.step < b.step; });
    return arrivals;
  }

  // A statement that nobody can check, on what takes no part in gradients: the reference goes on
  // from what the ranks have.
  bool is_unverifiable(const Execution &execution) {
    const ir::Inst &inst = program_.insts[execution.inst];
    if (execution.call != 0 || inst.result_count != 1 ||
        reference_.resolve(inst.op).boundary != rules::Boundary::MutateType ||
        !program_.types[setup_.checked.type(inst.first_result)].gradient_free())
      return false;
    const PlannedCall &call = plan_.calls[execution.call];
    return reference_.takes_addends(execution.inst, {call.typing, call.path});
  }
  void replace_in_reference(PlannedId id) {
    if (const Meaning *own = id.valid() ? values_.meaning(id) : nullptr) {
      ValueId value = plan_.values[id].value;
      outputs_.replace(value, *own);
      if (!setup_.stepwise()) // which says it of the step
        report_.add_undecided(fmt::format("{}: what each rank holds of a sum is taken as it is",
                                          ir::print_value(program_, value)));
    }
  }

  llvm::Error run_and_read(const Execution &execution, UpTo up_to) {
    const bool inside = plan_.calls[execution.call].site.valid();
    if (llvm::Error failed = inside ? up_to(execution.steps.first) : llvm::Error::success())
      return failed;
    for (PlannedId id : plan_.list(execution.operands))
      if (llvm::Error failed = id.valid() ? values_.read(id, inside) : llvm::Error::success())
        return failed;
    return read_results(execution, up_to);
  }
  // What nobody reads is gone before the last step of the instruction that made it.
  llvm::Error read_results(const Execution &execution, UpTo up_to) {
    const bool inside = plan_.calls[execution.call].site.valid();
    llvm::ArrayRef<PlannedId> made = plan_.list(execution.results);
    llvm::SmallVector<PlannedId, 2> results(made.begin(), made.end());
    llvm::sort(results, [&](PlannedId a, PlannedId b) {
      return plan_.values[a].until < plan_.values[b].until;
    });
    for (PlannedId id : results) {
      const PlannedValue &value = plan_.values[id];
      if (llvm::Error failed =
              up_to(std::min(execution.steps.last, std::max(value.from, value.until))))
        return failed;
      if (llvm::Error failed = values_.read(id, inside))
        return failed;
      if (value.value.valid())
        values_.note_latest(id);
    }
    return up_to(execution.steps.last);
  }

  bool sampled(uint32_t e) const {
    if (options_.mode == CheckMode::SampleCount)
      return std::binary_search(options_.drawn.begin(), options_.drawn.end(), e);
    return options_.mode == CheckMode::All ||
           ir::mix(options_.seed + 1, e) % std::max(options_.share, 1u) == 0;
  }
  bool is_last(const Execution &execution) const {
    return options_.until.valid() && llvm::any_of(plan_.list(execution.results), [&](PlannedId id) {
             return plan_.values[id].value == options_.until;
           });
  }

  llvm::Error outputs() {
    if (values_.by_fingerprints())
      if (llvm::Error failed = values_.exchange_fingerprints(outputs_.outputs()))
        return failed;
    for (PlannedId id : outputs_.outputs())
      if (id.valid() && !values_.by_fingerprints())
        if (llvm::Error failed = values_.read(id))
          return failed;
    if (!options_.judges)
      return values_.by_fingerprints() ? values_.answer() : llvm::Error::success();
    outputs_.judge();
    return values_.ask_for_nothing_more();
  }

  RunSetup setup_;
  ir::Program &program_;
  const Plan &plan_;
  const JudgeOptions &options_;
  RunReport report_;
  Reference reference_;
  RankValues values_;
  Verdicts verdicts_;
  StepJudge steps_;
  OutputJudge outputs_;
  bool stopped_ = false;
};

} // namespace

llvm::Expected<RunReport> run_judged(checker::CheckedProgram &program, const Plan &plan,
                                     const World &world, Backend &backend,
                                     const JudgeOptions &options) {
  return JudgedRun({program, program.mutable_program(), plan, world, backend, options}).run();
}

} // namespace spmd::runtime
