// The reference runs once; gradients are its derivative, or those that were recorded with the
// program.
#include "runtime/judge/run/output_judge.h"

#include "runtime/judge/gradient_carriers.h"
#include "runtime/tensor/bits_hash.h"

#include "ir/support/store.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::AxisSet;
using ir::Kind;
using ir::ValueId;

OutputJudge::OutputJudge(const RunSetup &setup, Reference &reference, RankValues &values,
                         Verdicts &verdicts, RunReport &report)
    : setup_(setup), reference_(reference), values_(values), verdicts_(verdicts), report_(report) {
  if (setup.options.mode == CheckMode::SampleCount)
    return;
  outputs_.assign(setup.plan.outputs.begin(), setup.plan.outputs.end());
  for (const Plan::OptimizerInput &stepped : setup.plan.optimizer_inputs)
    outputs_.push_back(stepped.gradient);
}

void OutputJudge::judge() {
  for (PlannedId id : setup_.plan.outputs)
    if (id.valid())
      add_digest(id);
  if (llvm::any_of(inputs_, [](const Meaning &meaning) { return meaning.pieces.empty(); }))
    return report_.add_undecided("an input holds nothing that has a meaning");
  ReferenceRun run(reference_);
  run.replace_values(replaced_);
  if (llvm::Error failed = run.run(inputs_)) {
    std::string reason = llvm::toString(std::move(failed));
    for (PlannedId id : outputs_)
      if (id.valid() && !setup_.stepwise())
        verdicts_.judge_value(id, {}, &reason);
    return report_.add_undecided(std::move(reason));
  }
  for (PlannedId id : outputs_)
    if (id.valid())
      judge_output(id, run.find(setup_.plan.values[id].value));
  if (setup_.options.recorded.empty())
    judge_derived_gradients(run);
  else if (setup_.options.tier == Tier::Real)
    judge_recorded_gradients(run);
}

void OutputJudge::add_digest(PlannedId id) {
  for (const Fingerprint &print : values_.fingerprints(id))
    report_.digest = ir::mix(report_.digest, print.bits);
  if (values_.fingerprints(id).empty())
    for (const Tensor &tensor : values_.tensors(id))
      report_.digest = ir::mix(report_.digest, bits_hash(tensor));
}

// What went through many steps: exact, or for steps to judge.
void OutputJudge::judge_output(PlannedId id, const Meaning *meant) {
  if (!meant || (!setup_.exact() && setup_.stepwise()))
    return;
  ReferenceValue wanted;
  wanted.meant = meant;
  wanted.exact = setup_.exact();
  verdicts_.judge_value(id, wanted, nullptr);
}

void OutputJudge::judge_recorded_gradients(ReferenceRun &run) {
  GradientReport &gradients = report_.gradients;
  for (const RecordedGradient &each :
       compare_recorded(reference_, run, inputs_, replaced_, setup_.options.recorded)) {
    if (each.form == RecordedGradient::Form::NotCompared) {
      gradients.left.push_back({each.value, each.text});
      continue;
    }
    ++gradients.compared;
    if (each.form == RecordedGradient::Form::Wrong) {
      verdicts_.refute_gradient(each);
      continue;
    }
    verdicts_.uphold_gradient(each.value);
    if (!each.text.empty())
      gradients.zero.push_back(each.value);
  }
}

// The derivative of what the program means against the gradients that the run left.
void OutputJudge::judge_derived_gradients(ReferenceRun &run) {
  ValueId loss = find_loss();
  if (!loss.valid() || !setup_.exact())
    return;
  // What `step` reads may be a gradient times what the program computes: a norm, a number of
  // tokens.
  for (const SteppedGradient &stepped : stepped_gradients(reference_, run))
    verdicts_.add_gradient(stepped.value, stepped.param);
  llvm::SmallVector<PlannedId, 8> found;
  llvm::SmallVector<ValueId, 8> of;
  for (PlannedId id : outputs_) {
    if (!id.valid() || llvm::is_contained(found, id))
      continue;
    ValueId param = verdicts_.gradient_of(setup_.plan.values[id].value);
    if (param.valid()) {
      found.push_back(id);
      of.push_back(param);
    }
  }
  if (found.empty())
    return;
  llvm::Expected<Meanings> gradients = run.gradients(loss, of);
  if (!gradients)
    return report_.add_undecided("the reference gradient: " +
                                 llvm::toString(gradients.takeError()));
  for (size_t i = 0; i < found.size(); ++i) {
    Meaning &want = (*gradients)[i];
    if (want.pieces.empty()) {
      // None flows: zero everywhere.
      std::optional<Meaning> zero = values_.zero_of(found[i]);
      if (!zero)
        continue;
      want = std::move(*zero);
    }
    if (scale_to_one_device(found[i], want))
      judge_output(found[i], &want);
  }
}

// What `step` reads is of the loss of one device. False, and said: nobody knows which that is.
bool OutputJudge::scale_to_one_device(PlannedId id, Meaning &want) {
  const Plan &plan = setup_.plan;
  if (llvm::none_of(plan.optimizer_inputs,
                    [&](const Plan::OptimizerInput &s) { return s.gradient == id; }))
    return true;
  const PlannedValue &value = plan.values[id];
  const ir::Type &type = setup_.program.types[value.known.type];
  std::optional<AxisSet> per_rank = values_.per_rank_axes(id);
  bool pending = !(type.of(Kind::Partial) - type.zero()).empty();
  if (!per_rank || pending || *per_rank != want.per_rank)
    return true; // its contract sums it
  llvm::ArrayRef<LossRoot> derived = setup_.options.derived;
  AxisSet mean, assumed;
  for (const LossRoot &root : derived)
    mean |= root.mean, assumed |= root.assumed;
  if (mean.empty() && assumed.empty())
    return true;
  if (assumed || derived.size() > 1) {
    report_.add_undecided(
        fmt::format("{}: nothing tells whether the loss of one device is the mean of "
                    "those of the ranks or their sum (--losses)",
                    ir::print_value(setup_.program, value.value)));
    return false;
  }
  int64_t ranks = Grid(setup_.program.meshes[derived.front().mesh], mean).size();
  for (Tensor &piece : want.pieces)
    multiply(piece, 1, ranks);
  return true;
}

// The loss output, or the value whose gradient the backward starts with as ones.
ValueId OutputJudge::find_loss() {
  const ir::Program &program = setup_.program;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    const rules::ResolvedOp &op = reference_.resolve(inst.op);
    if (inst.result_count != 1 || !op.row || op.row->constant == rules::OpDef::Constant::No)
      continue;
    llvm::ArrayRef<ir::Operand> operands = program.operand_lists[inst.operands];
    if (operands.size() == 1 && operands[0].is_value() &&
        program.values[inst.first_result].grad_of == operands[0].as_value())
      return operands[0].as_value();
  }
  return {};
}

} // namespace spmd::runtime
