// Edges of the typed world: what states a type, scales, or asks for gradients.
#include "tests/soundness/run.h"

#include "checker/check.h"
#include "checker/operand_list.h"

#include <fmt/format.h>

namespace spmd::soundness {

using ir::AxisSet;
using ir::Kind;
using ir::ValueId;

// As the instruction sees it, then as the type of its result says.
Run::NodeId Run::edge(const ir::Inst &inst, ValueId value) {
  Typed before = typed(value), after = typed(inst.result(0));
  const ir::Type &from = program_.types[before.type], &to = program_.types[after.type];
  AxisSet entered = program_.local_axes(program_.contexts[inst.context]) & from.sharded();
  NodeId at = multiplied(seen(value, inst.context), 1);
  if (side_ == Side::Ranks || !(from.mesh() == to.mesh()) ||
      (!entered && from.sharded() == to.sharded()))
    return at;
  return relisted(at, before, entered, after, {});
}

bool Run::boundary(const ir::Inst &inst, rules::Boundary op) {
  using enum rules::Boundary;
  checker::OperandList operands;
  operands.read(program_, inst.operands);
  if (op == Backward) {
    differentiate(operands.values[0]);
    before_root_ = inst.first_result.valid() ? inst.first_result.index : ~0u;
    return true;
  }
  if (op == Grad) {
    if (!root_.valid())
      return fail("a gradient of nothing");
    NodeId of = node(operands.values[0]);
    define(inst.result(0), add({nodes_[of]->value.rep, gradient_of(of)}));
    return true;
  }
  if (op == Scale) {
    const ir::AttrValue *by = program_.find(inst.attrs, "by");
    ir::MeshId mesh = program_.contexts[inst.context].mesh;
    if (!by || by->form != ir::AttrForm::Scale)
      return fail("a scale without a factor");
    auto written = by->as<ir::ScaleId>();
    // Of an axis that is local everywhere nothing is meant: its size counts on both sides.
    Residue factor = side_ == Side::Ranks
                         ? scale_number(program_, written)
                         : scale_number(program_, written, mesh, program_.local_axes(mesh));
    define(inst.result(0), multiplied(edge(inst, operands.values[0]), factor));
    return true;
  }
  if (op == Report || op == Store || op == Step || op == Token)
    return inst.result_count == 0 ||
           fail(fmt::format("{} with a result", rules::boundary_name(op)));
  bool passes =
      op == AssertType || op == FromLocal || op == ToLocal || op == Alias || op == ReinterpretMesh;
  if (!passes)
    return fail(std::string(rules::boundary_name(op)));
  if (inst.result_count == 0)
    return true;
  Typed before = typed(operands.values[0]), after = typed(inst.result(0));
  const ir::Type &from = program_.types[before.type], &to = program_.types[after.type];
  if (side_ == Side::Whole && !(from.mesh() == to.mesh()) &&
      (from.of(Kind::Varying) - from.sharded()))
    return fail("a list on another mesh");
  define(inst.result(0), edge(inst, operands.values[0]));
  return true;
}

} // namespace spmd::soundness
