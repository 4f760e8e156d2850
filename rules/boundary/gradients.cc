// Rules of the ops where gradients enter and leave a program (rules/README.md, "Gradients").
#include "rules/violations/gradients.h"
#include "rules/boundary/claims.h"
#include "rules/boundary/contract.h"
#include "rules/boundary/loss.h"
#include "rules/boundary/rule.h"
#include "rules/shards/sizes.h"
#include "rules/violations/operands.h"

#include "ir/mesh/axis_scale.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {

using ir::Type;

void apply_backward(const Application &app, Outcome &out) {
  for (Violation &violation : loss_violations(app.program, {}, seen_operand(app, 0)))
    out.violations.push_back(std::move(violation));
  pass_first(app, out);
}

// The dual, where the operand tells which one that is; the scale of the root without its own.
void apply_grad(const Application &app, Outcome &out) {
  if (app.args.size() < 2) {
    out.violations.push_back(OperandMismatch{"a `backward` before it", "there is none"});
    return;
  }
  Type type = seen_operand(app, 0);
  const Type &root = app.type(app.args[1]);
  Type dual = type.dual();
  dual.set_unknown((type.either() - type.zero()) | type.combining() | type.unknown);
  if (root.mesh() == type.mesh())
    dual.set_unknown(root.unknown);
  dual.scale = ir::quotient(app.program, root.scale, type.scale);
  dual.set_gradient_free(true);
  give_like_first(app, out, dual);
}

// Operands: the parameter, its gradient after the reductions of its contract, a value of the type
// that is needed.
void apply_step(const Application &app, Outcome &out) {
  const unsigned needed = app.args.size() > 2 ? 2 : 0;
  Contract contract;
  contract.needed = seen_operand(app, needed);
  Type gradient = seen_operand(app, 1);
  llvm::SmallVector<Violation, 2> found;
  check_step(app.program, contract, gradient, {1}, found);
  bool other_shard = llvm::any_of(
      found, [](const Violation &violation) { return violation.is<GradientTypeMismatch>(); });
  for (Violation &violation : found)
    out.violations.push_back(std::move(violation));
  if (other_shard)
    return; // and so other extents
  if (std::optional<Violation> differs = value_shape_differs(
          app.program, "the gradient and what it moves", app.args[needed], app.args[1]))
    add_shape(std::move(*differs), out);
}

void apply_to_local(const Application &app, Outcome &out) {
  const Type &type = app.type(app.args[0]);
  const ir::AttrValue *grad = app.attr("grad");
  if (grad && grad->form == ir::AttrForm::Claim && !type.gradient_free() && app.op_context().grad) {
    ir::TypeId stated = app.program.claims[grad->as<ir::ClaimId>()].type;
    llvm::SmallVector<Violation, 1> found;
    if (stated.valid()) {
      Type gradient = Type(app.program.types[stated]).without_shards(app.local_axes());
      for (ir::AxisId axis : (gradient.of(ir::Kind::Varying) - gradient.sharded()) & type.sharded())
        gradient.set_shard(axis, *type.dim(axis), type.order(axis)); // as the local value is
      check_declared_gradient(app.program, {}, type.without_shards(app.local_axes()), gradient,
                              found);
    }
    for (Violation &violation : found)
      out.violations.push_back(std::move(violation));
  }
  warn_uneven_shards(app.program, app.args[0], app.global_axes(), {0}, out.violations);
  give_result(app, out, seen_operand(app, 0).without_shards(), app.args[0].shape);
}

} // namespace spmd::rules
