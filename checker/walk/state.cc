// What is known and what is reported, while a program is walked.
#include "checker/walk/state.h"

#include "checker/program_queries.h"

#include "rules/boundary/claims.h"
#include "rules/shards/remesh.h"
#include "rules/violations/gradients.h"

#include "ir/mesh/axis_scale.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

WalkState::WalkState(ir::Program &program, const CheckOptions &options, CheckResult &result)
    : program(program), options(options), result(result), rules(program, options.memoise),
      storage(program, result.shapes, rules), kept(program.values.size()) {
  result.types.resize(program.values.size());
  result.shapes.resize(program.values.size());
  result.sizes.resize(program.values.size());
}

// No set of axes has these bits.
static constexpr uint32_t kUnasked = ~0u;

AxisSet WalkState::local_axes(ir::MeshId mesh, ir::ContextId id) const {
  const ir::Context &context = program.contexts[id];
  const bool own = context.mesh == mesh;
  const size_t at = 2 * size_t(own ? id.index : mesh.index) + own;
  if (at >= local_axes_.size())
    local_axes_.resize(at + 1, kUnasked);
  uint32_t &known = local_axes_[at];
  if (known == kUnasked)
    known = (own ? program.local_axes(context) : program.local_axes(mesh)).bits();
  return AxisSet(static_cast<uint16_t>(known));
}

Type WalkState::seen(ir::TypeId declared, ir::ContextId context) const {
  Type type = ir::canonical_scale(program, program.types[declared]);
  return type.without_shards(local_axes(type.mesh(), context));
}

Type WalkState::remapped_to(const Type &type, ir::MeshId mesh) {
  return type.mesh() == mesh ? type : rules::remesh(program, type, mesh, {}).type;
}

ir::TypeId WalkState::as_kind(Type type, ir::AxisId axis, Kind kind) {
  type.set_kind(axis, kind);
  return on_axes(type, axis);
}

ir::TypeId WalkState::on_axes(const Type &type, AxisSet axes) {
  return intern(rules::restricted(type, axes));
}

bool WalkState::gradient_free(const ir::Value &value, bool by_rule) const {
  if (value.shape.valid()) {
    ir::DType dtype = program.shapes[value.shape].dtype;
    if (dtype != ir::DType::Unknown && !ir::differentiable(dtype))
      return true;
  }
  return value.requires_grad == ir::Tristate::Unstated ? by_rule
                                                       : value.requires_grad == ir::Tristate::False;
}

// The optimizer reads a gradient again and again; its wrong scale is reported where it does so
// first.
bool WalkState::scale_was_reported(Place place, const rules::ScaleMismatch &wrong) {
  bool inst = place.form == Place::Form::Inst;
  if (body_result != &main || (!inst && place.form != Place::Form::Output))
    return false;
  ValueId value = wrong.value;
  if (!value.valid() && inst) {
    llvm::SmallVector<ValueId, 4> tensors = tensors_of(program, place.as_inst());
    value = wrong.operand.index < tensors.size() ? tensors[wrong.operand.index] : value;
  }
  if (!value.valid())
    return false;
  ValueId root = storage.root(value);
  root = root.valid() ? root : value;
  Place first = first_scale_.try_emplace(root.index, place).first->second;
  bool again = inst ? program.insts[place.as_inst()].phase == ir::Phase::Optimizer
                    : program.outputs[place.index].role == ir::OutputRole::Grad ||
                          program.outputs[place.index].role == ir::OutputRole::State;
  return again && first != place;
}

void WalkState::report(Place place, rules::Violation violation, uint32_t application) {
  bool inferred = false;
  if (inference) {
    if (!inference->admits(place, violation))
      return;
    inferred = inference->stands_on_inference(place, violation);
  }
  if (const auto *wrong = violation.as<rules::ScaleMismatch>())
    if (scale_was_reported(place, *wrong))
      return;
  Finding finding{std::move(violation), place, application, false, {}};
  finding.inferred = inferred;
  body_result->entries.push_back({std::move(finding)});
}

rules::Violation WalkState::named(rules::Violation violation) const {
  if (operands.values.empty())
    return violation;
  ValueId *value = violation.value();
  const rules::OperandIndex *operand = violation.operand();
  if (value && !value->valid())
    *value = operands.values[operand ? operand->index : 0];
  return violation;
}

bool WalkState::was_reported(InstId id) const {
  for (const BodyResult::Entry &entry : llvm::reverse(body_result->entries)) {
    if (entry.body != BodyResult::kNone || entry.finding->place != Place::inst(id))
      return false;
    if (entry.finding->severity() != rules::Severity::Info)
      return true;
  }
  return false;
}

} // namespace spmd::checker
