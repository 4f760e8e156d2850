// Finds roots, parameters that are stepped, and values whose gradient is asked for.
#include "checker/walk/gradients/gradient_boundary.h"

#include "checker/program_queries.h"

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;
using rules::Boundary;

GradientBoundary::GradientBoundary(const ir::Program &program, rules::Rules &rules)
    : program_(program) {
  for (uint32_t i = 0; i < program.params.size(); ++i)
    if (program.params[i].role == ir::Role::Param)
      params_[program.params[i].value.index] = i;
  uint32_t losses = 0;
  for (const ir::Output &out : program.outputs)
    if (out.role == ir::OutputRole::Grad && out.of.valid())
      stepped_.insert(out.of.index);
    else if (out.role == ir::OutputRole::Loss)
      loss_ = losses++ == 0 ? out.value : ValueId();
  starts_.push_back(program.main.first.index);
  for (const ir::Function &function : program.functions)
    if (!function.opaque && function.body.first.valid())
      starts_.push_back(function.body.first.index);
  llvm::sort(starts_);
  std::vector<uint8_t> other(program.strings.size()); // spellings that mean no op of the boundary
  llvm::ArrayRef<ir::Inst> insts = program.insts.all();
  for (uint32_t i = 0; i < insts.size(); ++i) {
    uint8_t &known = other[insts[i].op.index];
    if (known)
      continue;
    Boundary boundary = rules.resolve(insts[i].op).boundary;
    if (boundary == Boundary::None)
      known = true;
    else
      note(InstId{i}, boundary);
  }
}

void GradientBoundary::note(InstId id, Boundary op) {
  if (op != Boundary::Backward && op != Boundary::Step && op != Boundary::Grad)
    return;
  llvm::ArrayRef<ir::Operand> operands = program_.operand_lists[program_.insts[id].operands];
  if (operands.empty() || !operands.front().is_value())
    return;
  if (op == Boundary::Step)
    stepped_.insert(operands.front().index);
  else if (op == Boundary::Grad)
    asked_.push_back(operands.front().as_value());
  else
    roots_.push_back({id, operands.front().as_value()});
}

ValueId GradientBoundary::root_before(InstId id) const {
  auto root = llvm::partition_point(roots_, [&](const auto &r) { return r.first < id; });
  if (root == roots_.begin())
    return {};
  uint32_t body = *std::prev(llvm::upper_bound(starts_, id.index));
  --root;
  return root->first.index >= body ? root->second : ValueId();
}

ValueId GradientBoundary::root_of(Place place) const {
  ValueId root = place.form == Place::Form::Inst ? root_before(place.as_inst()) : ValueId();
  return root.valid() ? root : loss_;
}

bool GradientBoundary::needs_gradient(ValueId value) {
  if (!needs_gradient_.empty())
    return needs_gradient_[value.index];
  needs_gradient_.assign(program_.values.size(), true);
  for (const ir::Param &param : program_.params)
    needs_gradient_[param.value.index] =
        param.role == ir::Role::Param ||
        program_.values[param.value].requires_grad == ir::Tristate::True;
  for (ValueId asked : asked_)
    needs_gradient_[asked.index] = true;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    bool needs = llvm::any_of(tensors_of(program_, InstId{i}),
                              [&](ValueId operand) { return needs_gradient_[operand.index]; });
    for (uint32_t r = 0; r < inst.result_count; ++r)
      needs_gradient_[inst.result(r).index] = needs;
  }
  return needs_gradient_[value.index];
}

std::optional<uint32_t> GradientBoundary::param_of(ValueId value) const {
  auto at = value.valid() ? params_.find(value.index) : params_.end();
  return at == params_.end() ? std::nullopt : std::optional(at->second);
}

} // namespace spmd::checker
