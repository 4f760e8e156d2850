// Forward: by what the gradient of each parameter is multiplied, from the backward to the
// optimizer.
#include "checker/gradual/step/expert_gradients.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/gradual/gradual.h"
#include "checker/operand_list.h"
#include "checker/program_queries.h"

#include "rules/apply.h"
#include "rules/kinds/scale.h"
#include "rules/transitions/call.h"
#include "rules/transitions/transition.h"
#include "rules/violations/gradients.h"

#include "ir/mesh/axis_scale.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <map>
#include <optional>

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::ScaleId;
using ir::ValueId;
using rules::Computes;

namespace {

class ExpertGradients {
public:
  ExpertGradients(ir::Program &program, CheckResult &result)
      : program_(program), result_(result), by_kinds_(result.gradual->by_kinds()), rules_(program) {
  }

  void run();

private:
  // A gradient on its way: that of which parameter, what it was multiplied with, and the axes over
  // which it was summed.
  struct Gradient {
    ValueId param;
    ScaleId scale; // none: not known
    AxisSet summed;
    friend bool operator==(const Gradient &, const Gradient &) = default;
  };

  void follow_exchanges(const ir::Inst &inst, const rules::Application &app);
  void follow_gradients(InstId id, const rules::Application &app);
  std::optional<Gradient> passed(const rules::Application &app,
                                 llvm::ArrayRef<ValueId> operands) const;
  ScaleId multiplied(const rules::Application &app, ScaleId scale) const;
  bool may_be_ranks(double factor) const;
  AxisSet find_data_axes();
  void judge(AxisId axis);
  bool is_experts(ValueId param, AxisId axis) const;
  ir::MeshId mesh() const { return program_.contexts[ir::ContextId{0}].mesh; }

  ir::Program &program_;
  CheckResult &result_;
  const CheckResult &by_kinds_; // of the first pass: in the second one, more is unknown
  rules::Rules rules_;
  OperandList operands_;                   // of the instruction
  std::map<uint32_t, Gradient> gradients_; // by value
  std::map<uint32_t, Gradient> used_;      // by parameter, as the optimizer gets it
  // By value of the backward: axes over which something that it is made of was exchanged, and those
  // over which something was summed.
  llvm::DenseMap<uint32_t, AxisSet> exchanged_, added_;
};

void ExpertGradients::follow_exchanges(const ir::Inst &inst, const rules::Application &app) {
  AxisSet exchanged, added;
  for (ValueId value : operands_.values) {
    exchanged |= exchanged_.lookup(value.index);
    added |= added_.lookup(value.index);
  }
  if (app.op.transition == rules::TransitionOp::AllToAll)
    exchanged |= rules::communicated_axes(app);
  else if (app.op.form == rules::OpForm::Transition)
    added |= rules::communicated_axes(app);
  for (uint32_t r = 0; r < inst.result_count && (exchanged || added); ++r) {
    exchanged_[inst.result(r).index] = exchanged;
    added_[inst.result(r).index] = added;
  }
}

// A literal that may be a number of ranks says nothing.
bool ExpertGradients::may_be_ranks(double factor) const {
  for (AxisId axis : program_.meshes[mesh()].typed_axes())
    for (double number : {std::abs(factor), std::abs(1 / factor)}) {
      const auto ranks = double(program_.meshes[mesh()].axes[axis.index].size());
      const double times = std::round(number / ranks);
      if (ranks > 1 && times >= 1 && std::abs(number - times * ranks) <= 1e-6 * number)
        return true;
    }
  return false;
}

ScaleId ExpertGradients::multiplied(const rules::Application &app, ScaleId scale) const {
  if (app.op.boundary == rules::Boundary::Scale) {
    const ir::AttrValue *by = app.attr("by");
    return by && by->form == ir::AttrForm::Scale
               ? ir::product(program_, scale,
                             ir::canonical_scale(program_, by->as<ScaleId>(), mesh()))
               : ScaleId();
  }
  const std::optional<double> factor = factor_of(app.op, operands_);
  return factor && may_be_ranks(*factor) ? ScaleId() : scale;
}

// What an instruction makes of a gradient that it moves, multiplies by a number or sums over ranks.
std::optional<ExpertGradients::Gradient>
ExpertGradients::passed(const rules::Application &app, llvm::ArrayRef<ValueId> operands) const {
  std::optional<Gradient> of;
  for (ValueId value : operands)
    if (const auto at = gradients_.find(value.index); at != gradients_.end()) {
      if (of && !(*of == at->second))
        return std::nullopt;
      of = at->second;
    }
  if (!of)
    return std::nullopt;
  if (app.op.form == rules::OpForm::Transition) {
    const ir::AttrValue *by = app.attr("op");
    const auto combiner = by ? rules::combiner_of(program_, *by) : std::optional(ir::Combiner::Sum);
    if (rules::unstated_words(app.op.transition).reduces) {
      of->summed |= rules::communicated_axes(app);
      if (combiner == ir::Combiner::Avg)
        of->scale = ir::quotient(program_, of->scale,
                                 ir::axes_scale(program_, mesh(), rules::communicated_axes(app)));
      else if (combiner != ir::Combiner::Sum)
        of->scale = ScaleId();
    }
    return of;
  }
  const bool scales = is_product(app.op) || app.op.boundary == rules::Boundary::Scale;
  if (scales)
    of->scale = multiplied(app, of->scale);
  else if (!moves_elements(app.op) && app.op.form != rules::OpForm::Boundary)
    return std::nullopt;
  return of;
}

void ExpertGradients::follow_gradients(InstId id, const rules::Application &app) {
  const ir::Inst &inst = program_.insts[id];
  llvm::SmallVector<ValueId, 4> operands;
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    const ValueId result = inst.result(r);
    operands_.operands_of_result(r, inst.result_count, operands);
    const ValueId of = program_.values[result].grad_of;
    const ir::Param *param = of.valid() ? program_.find_param(of) : nullptr;
    if (std::optional<Gradient> gradient = passed(app, operands))
      gradients_[result.index] = *gradient;
    else if (param && param->role == ir::Role::Param)
      gradients_[result.index] = {of, program_.one(), {}};
    if (inst.phase != ir::Phase::Optimizer)
      continue;
    const ir::Param *written = program_.find_param(storage_of(program_, result));
    if (written && (written->role == ir::Role::Param || written->role == ir::Role::OptState))
      for (ValueId value : operands)
        if (const auto at = gradients_.find(value.index); at != gradients_.end())
          used_[at->second.param.index] = at->second;
  }
}

// Along which a loss is stated to be an addend of the whole; none where the backward exchanges
// nothing, as in most programs.
AxisSet ExpertGradients::find_data_axes() {
  AxisSet axes;
  bool exchanges = false;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    const rules::TransitionOp op = rules_.resolve(inst.op).transition;
    const bool backward = inst.phase == ir::Phase::Backward;
    exchanges |= backward && op == rules::TransitionOp::AllToAll;
    if (op == rules::TransitionOp::Reinterpret && !backward && inst.result_count != 0)
      axes |= program_.types[by_kinds_.types[inst.first_result.index]].of(Kind::Partial);
  }
  return exchanges ? axes : AxisSet();
}

// Each rank has its own, and its gradient is made of what other ranks have sent, and no sum.
bool ExpertGradients::is_experts(ValueId param, AxisId axis) const {
  if (!program_.types[by_kinds_.types[param.index]].of(Kind::Varying).contains(axis))
    return false;
  bool exchanged = false;
  for (const auto &[value, gradient] : gradients_) {
    if (gradient.param != param)
      continue;
    exchanged |= exchanged_.lookup(value).contains(axis);
    if (added_.lookup(value).contains(axis) || gradient.summed.contains(axis) ||
        result_.proved[value].contains(axis)) // whose scale is known
      return false;
  }
  return exchanged;
}

void ExpertGradients::judge(AxisId axis) {
  std::optional<int32_t> shared; // how often its size is in the gradients of other parameters
  for (const auto &[param, gradient] : used_) {
    if (!gradient.summed.contains(axis))
      continue;
    if (!gradient.scale.valid())
      return;
    const int32_t found = ir::exponent_of(program_, gradient.scale, mesh(), axis);
    if (shared.value_or(found) != found)
      return;
    shared = found;
  }
  if (!shared)
    return;
  for (const auto &[param, gradient] : used_) {
    if (!gradient.scale.valid() || !is_experts(ValueId{param}, axis))
      continue;
    const int32_t found = ir::exponent_of(program_, gradient.scale, mesh(), axis);
    if (found == *shared)
      continue;
    const ScaleId ranks = ir::axis_scale(program_, mesh(), axis);
    ScaleId needed = gradient.scale;
    for (int32_t i = found; i != *shared; i += found < *shared ? 1 : -1)
      needed = found < *shared ? ir::product(program_, needed, ranks)
                               : ir::quotient(program_, needed, ranks);
    ir::Type type;
    type.set_mesh(mesh());
    type.scale = gradient.scale;
    const std::string other =
        "those of the parameters that all ranks have " + ir::print_scale(program_, needed, mesh());
    auto differs = rules::scale_differs(program_, type, needed, other, {}, ValueId{param});
    if (!differs)
      continue;
    if (auto *mismatch = differs->as<rules::ScaleMismatch>())
      mismatch->what = "the gradient of ";
    const auto at =
        static_cast<uint32_t>(program_.find_param(ValueId{param}) - program_.params.data());
    result_.findings.push_back({*differs, Place{Place::Form::Param, at}});
    result_.findings.back().inferred = true;
  }
}

void ExpertGradients::run() {
  const AxisSet data = find_data_axes();
  if (data.empty())
    return;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    const rules::ResolvedOp &op = rules_.resolve(inst.op);
    operands_.read(program_, inst.operands);
    if (inst.phase != ir::Phase::Backward && inst.phase != ir::Phase::Optimizer)
      continue;
    const auto args = operands_.args(by_kinds_.types, by_kinds_.shapes);
    const rules::Application app{program_, op, inst.attrs, inst.context, operands_.slots, args, {}};
    if (inst.phase == ir::Phase::Backward)
      follow_exchanges(inst, app);
    follow_gradients(InstId{i}, app);
  }
  for (AxisId axis : data)
    judge(axis);
}

} // namespace

void judge_expert_gradients(ir::Program &program, CheckResult &result) {
  ExpertGradients(program, result).run();
}

} // namespace spmd::checker
