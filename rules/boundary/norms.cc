// Norms of lists of gradients over axes, and clipping by them: the sum of squares is local per
// member, then over `axis`, so that every member must be spread over each of these axes.
#include "rules/boundary/norms.h"

#include "rules/kinds/scale.h"
#include "rules/transitions/axes.h"
#include "rules/violations/local.h"
#include "rules/violations/norms.h"

namespace spmd::rules {
namespace {

using ir::AxisSet;
using ir::Kind;
using ir::Type;

// The norm of all operands; what is wrong with one is reported.
std::optional<Type> norm_type(const Application &app, Outcome &out) {
  AxisSet summed;
  if (app.attr("axis") || app.attr("group")) {
    std::optional<CallAxes> axes = resolve_axes(app, {.kind = Kind::Varying}, out);
    if (!axes)
      return std::nullopt;
    summed = axes->all();
  }
  AxisSet typed = app.mesh().typed_axes(), varying, unknown;
  bool gradient_free = true;
  for (uint32_t i = 0; i < app.args.size(); ++i) {
    const Type &type = app.type(app.args[i]);
    AxisSet zero = type.zero(), partial = type.of(Kind::Partial) - zero;
    AxisSet same = type.same_on_all_ranks() - zero;
    if (partial)
      out.violations.push_back(PartialIntoNonlinear{{i}, partial});
    if (same & summed)
      out.violations.push_back(NormOvercount{{i}, same & summed});
    AxisSet missed = (type.sharded() & app.global_axes()) - summed;
    if (missed)
      out.violations.push_back(NormUndercount{{i}, missed});
    AxisSet wrong = partial | (same & summed) | missed;
    std::optional<Violation> scaled =
        scale_differs(app.program, type, app.program.one(), "1 is needed", {i});
    if (scaled && !wrong)
      out.violations.push_back(std::move(*scaled));
    unknown |= type.unknown | wrong;
    varying |= type.of(Kind::Varying) - summed - missed;
    gradient_free &= type.gradient_free();
  }
  Type norm;
  norm.set_mesh(app.op_context().mesh);
  norm.set_kind(typed, Kind::Replicate);
  norm.set_kind(varying, Kind::Varying);
  norm.set_unknown(unknown & typed);
  norm.set_gradient_free(gradient_free || !app.op_context().grad);
  return norm;
}

ir::ShapeId number_like_first(const Application &app) {
  ir::Shape shape;
  if (const ir::Shape *first = app.args.empty() ? nullptr : app.shape(app.args[0]))
    shape.dtype = first->dtype;
  return app.program.shapes.add(std::move(shape));
}

void give(const Application &app, unsigned result, const Type &type, ir::ShapeId shape,
          Outcome &out) {
  out.types[result] = app.program.types.add(type);
  out.shapes[result] = app.results[result].shape.valid() ? app.results[result].shape : shape;
}

} // namespace

void total_norm(const Application &app, Outcome &out) {
  if (std::optional<Type> norm = norm_type(app, out); norm && !app.results.empty())
    give(app, 0, *norm, number_like_first(app), out);
}

void clip_norm(const Application &app, Outcome &out) {
  std::optional<Type> norm = norm_type(app, out);
  if (!norm)
    return;
  // The gradients, behind the norm if there is one result more.
  size_t count = app.results.size(), members = app.args.size(), first = count != members;
  if (first && count)
    give(app, 0, *norm, number_like_first(app), out);
  for (size_t i = 0; first + i < count && i < members; ++i) {
    unsigned result = static_cast<unsigned>(first + i);
    Type type = app.type(app.args[i]).without_shards(app.local_axes());
    type.set_kind(norm->of(Kind::Varying) - type.unknown - type.of(Kind::Varying), Kind::Varying);
    type.drop_shards(norm->unknown);
    type.set_unknown(norm->unknown);
    give(app, result, type, app.args[i].shape, out);
    out.sizes[result] = app.args[i].sizes;
  }
}

} // namespace spmd::rules
