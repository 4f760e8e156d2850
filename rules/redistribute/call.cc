// The ends of a call: what the operand is, what is asked for, and why that cannot be.
#include "rules/redistribute/call.h"

#include "rules/boundary/claims.h"
#include "rules/redistribute/ends.h"
#include "rules/redistribute/plan.h"
#include "rules/redistribute/verify.h"
#include "rules/shards/sizes.h"
#include "rules/transitions/axes.h"
#include "rules/transitions/call.h"
#include "rules/violations/operands.h"
#include "rules/violations/transitions.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"
#include "ir/mesh/axis_scale.h"

namespace spmd::rules::redistribute {
namespace {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;

const ir::Claim *claim_of(const Application &app) {
  const ir::AttrValue *attr = app.attr("type");
  return attr && attr->form == ir::AttrForm::Claim ? &app.program.claims[attr->as<ir::ClaimId>()]
                                                   : nullptr;
}

struct Ends {
  Request request;
  ir::ShapeId stated; // local, of the result
  std::optional<Violation> problem;
};

// Where specs are no matter a value is a list.
ir::Type seen(const Application &app, ir::Type type) {
  type.drop_shards(app.local_axes());
  type.renumber_shard_orders();
  if (!app.op_context().grad)
    type.set_gradient_free(true);
  return type;
}

// Axes that the type does not name keep what they are, unless they cut a dimension: it would not be
// said whether they still do.
AxisSet complete(ir::Type &target, const ir::Type &source) {
  AxisSet unsaid;
  for (AxisId axis : source.claimed() - target.claimed()) {
    if (source.dim(axis)) {
      unsaid |= axis;
      continue;
    }
    take_kinds(target, source, axis);
    if (source.of(Kind::Partial).contains(axis) && !source.zero().contains(axis))
      target.set_combiner(axis, source.combiner(axis));
  }
  return unsaid;
}

std::optional<Ends> ends_of(const Application &app) {
  llvm::SmallVector<uint32_t, 2> operands = operands_of(app);
  const ir::Claim claim = *claim_of(app);
  Ends ends;
  auto wrong = [&](Violation violation) {
    ends.problem = std::move(violation);
    return ends;
  };
  if (operands.size() != 1)
    return wrong(OperandMismatch{"a value", operands.empty() ? "none is given" : "a list"});
  ir::Program &program = app.program;
  const TensorInfo arg = app.args[operands[0]];
  ir::Type source = seen(app, app.type(arg));
  // Without kinds, of axes with one rank alone: the rest is asked for below.
  ir::Type stated;
  stated.set_mesh(source.mesh());
  if (claim.type.valid())
    stated = program.types[claim.type];
  ir::Type target = ir::canonical_scale(program, stated);
  if (target.mesh() == source.mesh()) {
    target = seen(app, target);
    if (AxisSet unsaid = complete(target, source))
      return wrong(
          AttributeMismatch{"to", "a kind on " + ir::print_axes(program, source.mesh(), unsaid)});
  }
  if (std::optional<Violation> beyond = drop_shards_beyond(program, target, arg.shape))
    return wrong(std::move(*beyond));
  target.set_gradient_free(source.gradient_free());
  // What an axis of unknown kind cuts, the whole tensor has more of: neither is known.
  if (!(source.unknown - target.unknown))
    ends.request.shape = global_shape(program, source, arg);
  ends.request.source = program.types.add(source);
  ends.request.target = program.types.add(target);
  ends.stated = claim.shape;
  if (std::optional<Violation> refused = refuse(program, ends.request))
    return wrong(std::move(*refused));
  if (std::optional<Violation> blocks = refuse_blocks(program, arg))
    return wrong(std::move(*blocks));
  return ends;
}

} // namespace

bool states_whole_type(const Application &app) {
  return app.op.transition == TransitionOp::Redistribute && claim_of(app);
}

void apply_whole_type(const Application &app, Outcome &out) {
  forget_results(app, out);
  for (const char *key : {"axis", "group", "src", "dst"})
    if (app.attr(key)) {
      out.violations.push_back(AttributeMismatch{key, "left out, because a type is stated"});
      return;
    }
  Ends ends = *ends_of(app);
  if (ends.problem) {
    out.violations.push_back(std::move(*ends.problem));
    return;
  }
  if (app.results.empty())
    return;
  ir::Program &program = app.program;
  out.types[0] = ends.request.target;
  const ir::Type from = program.types[ends.request.source], to = program.types[ends.request.target];
  // R|I that the operand is not is for the uses to decide.
  for (AxisId axis : (to.either() - to.zero()) - from.either())
    out.inferred.push_back(
        {axis, word_at(from, to, axis), {.form = ir::WrittenKind::Form::Either}});
  TensorInfo result{ends.request.target, ends.stated, {}};
  if (ends.request.shape.valid())
    result = arg_of(program, ends.request.target, ends.request.shape);
  ir::DType asked = ends.stated.valid() ? program.shapes[ends.stated].dtype : ir::DType::Unknown;
  ir::DType had = result.shape.valid() ? program.shapes[result.shape].dtype : ir::DType::Unknown;
  if (asked != had && asked != ir::DType::Unknown && had != ir::DType::Unknown) {
    out.violations.push_back(ShapeMismatch{"the element types of both ends",
                                           std::string(ir::info(asked).word),
                                           std::string(ir::info(had).word)});
    return;
  }
  for (ir::ShapeId stated : {ends.stated, app.results[0].shape})
    if (std::optional<Violation> differs =
            shape_differs(program, "the result", stated, result.shape)) {
      add_shape(std::move(*differs), out);
      if (!out.violations.empty())
        return;
    }
  out.shapes[0] = result.shape;
  out.sizes[0] = result.sizes;
}

const ir::Claim *stated_gradient(const Application &app) {
  const ir::AttrValue *attr =
      app.op.transition == TransitionOp::Redistribute ? app.attr("grad") : nullptr;
  return attr && attr->form == ir::AttrForm::Claim ? &app.program.claims[attr->as<ir::ClaimId>()]
                                                   : nullptr;
}

std::optional<BackwardRedistribution> backward_redistribution(const Application &app,
                                                              const TensorInfo &source,
                                                              const TensorInfo &result) {
  const ir::Claim *claim = stated_gradient(app);
  if (!claim || app.type(source).gradient_free() || !app.op_context().grad)
    return std::nullopt;
  ir::Program &program = app.program;
  BackwardRedistribution way;
  ir::Type from = app.type(result).dual(), to = app.type(source).dual();
  ir::Type by = claim->type.valid() ? program.types[claim->type] : ir::Type();
  by.set_mesh(from.mesh());
  AxisSet unsaid = complete(by, from);
  by.scale = from.scale = to.scale;
  way.shape = global_shape(program, app.type(source), source);
  way.from = program.types.add(from);
  way.by = program.types.add(by);
  way.to = program.types.add(to);
  if (unsaid || !claim->type.valid()) {
    way.problem = AttributeMismatch{"grad", "a kind on each axis that the gradient cuts"};
    return way;
  }
  way.problem = refuse(program, {way.from, way.by, way.shape});
  if (!way.problem)
    way.problem = refuse(program, {way.by, way.to, way.shape});
  return way;
}

void judge_stated_gradient(const Application &app, Outcome &out) {
  llvm::SmallVector<uint32_t, 2> operands = operands_of(app);
  for (size_t i = 0; i < operands.size() && i < app.results.size(); ++i)
    if (std::optional<BackwardRedistribution> way = backward_redistribution(
            app, app.args[operands[i]], {out.types[i], out.shapes[i], out.sizes[i]});
        way && way->problem) {
      out.violations.push_back(std::move(*way->problem));
      return;
    }
}

std::optional<Request> request_of(const Application &app) {
  std::optional<Ends> ends = ends_of(app);
  if (!ends || ends->problem || !can_be_planned(app.program, ends->request))
    return std::nullopt;
  return ends->request;
}

ir::AxisSet communicated_axes(const Application &app) {
  std::optional<Request> request = request_of(app);
  if (!request)
    return {};
  bool gradient = app.op_context().grad && !app.program.types[request->source].gradient_free();
  AxisSet axes;
  Planner planner(app.program);
  for (const Step &step : planner.plan(*request).steps)
    if (step.hops || (gradient && step.backward_hops))
      for (AxisId axis : step.axes)
        axes |= axis;
  return axes;
}

} // namespace spmd::rules::redistribute
