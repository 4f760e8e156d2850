// The table of boundary ops and their rules. Each rule is one function of types and attributes.
#include "rules/boundary/boundary.h"

#include "rules/boundary/claims.h"
#include "rules/boundary/norms.h"
#include "rules/boundary/rule.h"
#include "rules/kinds/scale.h"
#include "rules/shapes/extent_facts.h"
#include "rules/shards/remesh.h"
#include "rules/shards/sizes.h"
#include "rules/transitions/axes.h"
#include "rules/violations/claims.h"
#include "rules/violations/control.h"
#include "rules/violations/gradients.h"
#include "rules/violations/operands.h"
#include "rules/violations/shards.h"
#include "rules/violations/transitions.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::rules {
namespace {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::Type;

bool complain(Outcome &out, std::string attribute, std::string expected) {
  out.violations.push_back(AttributeMismatch{std::move(attribute), std::move(expected)});
  return false;
}

// A claim about a value on the current mesh, and the shape that was stated with it.
struct StatedClaim {
  Type before, after; // what the operand must be; what the result then is
  ir::ShapeId shape, global;
};

// On axes that only a region made local a claim says what the value is to the outside.
Type on_mesh(const Application &app, const Type &stated, Outcome &out) {
  Type type = ir::canonical_scale(app.program, stated);
  if (type.mesh() == app.op_context().mesh)
    return type.without_shards(app.program.local_axes(app.op_context().mesh));
  Remeshed moved = remesh(app.program, type, app.op_context().mesh, {0});
  if (moved.violation)
    out.violations.push_back(std::move(*moved.violation));
  return moved.type.without_shards(app.program.local_axes(app.op_context().mesh));
}

// Sets S(i), the axes in the order of the call; false if the operand has no dimension i.
bool set_shard_word(const Application &app, Type &type, const CallAxes &axes, int64_t dim) {
  const ir::Shape *shape = app.args.empty() ? nullptr : app.shape(app.args[0]);
  int64_t rank = shape && shape->ranked ? static_cast<int64_t>(shape->dims.size()) : ir::kMaxDims;
  if (dim < 0 && shape && shape->ranked)
    dim += rank;
  if (dim < 0 || dim >= rank)
    return false;
  unsigned order = 0;
  for (const WrittenAxis &written : axes.written)
    for (AxisId axis : written.axes)
      type.set_shard(axis, static_cast<unsigned>(dim), order++);
  type.drop_shards(app.program.local_axes(app.op_context().mesh));
  return true;
}

bool set_word(const Application &app, Type &type, const CallAxes &call, const ir::AttrValue *attr) {
  if (!attr || attr->form != ir::AttrForm::Kind)
    return false;
  ir::WrittenKind word = attr->as_kind();
  AxisSet axes = call.all();
  if (word.form == ir::WrittenKind::Form::Shard)
    return set_shard_word(app, type, call, word.dim);
  if (word.form == ir::WrittenKind::Form::Either) {
    type.set_either(axes);
  } else if (word.form == ir::WrittenKind::Form::Unknown) {
    type.set_unknown(axes);
  } else {
    type.set_kind(axes, word.kind);
    for (AxisId axis : axes &type.of(Kind::Partial))
      type.set_combiner(axis, word.combiner);
  }
  return true;
}

// `type`, or `axis` with `src`, `dst` or both; false, with a violation, if neither is stated.
bool read_claim(const Application &app, StatedClaim &claim, Outcome &out) {
  claim.before.set_mesh(app.op_context().mesh);
  claim.after = claim.before;
  const ir::AttrValue *type = app.attr("type");
  if (type && type->form == ir::AttrForm::Claim) {
    for (const char *key : {"axis", "group", "src", "dst"})
      if (app.attr(key))
        return complain(out, key, "left out, because a type is stated");
    ir::Claim stated = app.program.claims[type->as<ir::ClaimId>()];
    claim.shape = stated.shape;
    claim.global = stated.global_shape;
    if (stated.type.valid())
      claim.before = claim.after = on_mesh(app, app.program.types[stated.type], out);
    return true;
  }
  const ir::AttrValue *src = app.attr("src"), *dst = app.attr("dst");
  if (!src && !dst)
    return complain(out, "type", "a type");
  std::optional<CallAxes> axes = resolve_axes(app, {}, out);
  if (!axes)
    return false;
  bool read = set_word(app, claim.before, *axes, src ? src : dst) &&
              set_word(app, claim.after, *axes, dst ? dst : src);
  return read || complain(out, src ? "src" : "dst", "a kind");
}

ir::TypeId restricted_id(const Application &app, const Type &type, AxisSet axes) {
  return app.program.types.add(restricted(type, axes));
}

// Checks the first operand and returns what is known of it then.
Type check_first(const Application &app, const Type &claim, Outcome &out, Spec spec,
                 const std::optional<ShapesDiffer> &shapes = std::nullopt) {
  Type found = seen_operand(app, 0);
  ClaimCheck check = check_claim(found, claim, found.gradient_free(), spec);
  if (check.mismatched || shapes) {
    AxisSet axes = check.mismatched | (shapes ? shapes->axes : AxisSet());
    AxisSet shown = axes ? axes : found.claimed() & claim.claimed();
    out.violations.push_back(ClaimMismatch{{},
                                           restricted_id(app, found, shown),
                                           restricted_id(app, claim, shown),
                                           axes,
                                           shapes ? shapes->found : "",
                                           shapes ? shapes->claimed : ""});
  }
  if (check.unowned)
    out.violations.push_back(ReducedWithoutOwner{{0}, check.unowned});
  return check.type;
}

// How the blocks are cut of which the claim states all together; else `known`.
ir::ShardSizesId sizes_of(const Application &app, const Type &type, ir::ShapeId local,
                          ir::ShapeId global, ir::ShardSizesId known, Outcome &out) {
  if (!global.valid() || type.unknown || !app.global_axes())
    return known;
  DeclaredSizes stated =
      declared_sizes(app.program, type, local, global, app.program.rank.value_or(0));
  if (stated.problem)
    out.violations.push_back(std::move(*stated.problem));
  return stated.sizes;
}

// The scale that a value must have here; else it is unknown.
void need_scale(const Application &app, unsigned i, ir::ScaleId needed, Type &made, Outcome &out) {
  Type found = app.type(app.args[i]);
  found.set_unknown(
      made.unknown); // along an axis on which it is another thing its factor means nothing
  std::string text = ir::print_scale(app.program, needed, found.mesh()) + " is needed";
  std::optional<Violation> differs =
      scale_differs(app.program, found, needed, std::move(text), {static_cast<uint32_t>(i)});
  if (differs)
    out.violations.push_back(std::move(*differs));
  made.scale = differs ? ir::ScaleId() : needed;
}

// What a claim of another word than the first makes of it: it may say how pieces join, and nothing
// else.
Type refined(const Application &app, const Type &found, const Type &claim, Outcome &out) {
  ClaimCheck check = check_claim(found, claim, found.gradient_free(), Spec::Joined);
  if (AxisSet wrong = check.mismatched | check.unowned)
    out.violations.push_back(ClaimMismatch{
        {}, restricted_id(app, found, wrong), restricted_id(app, claim, wrong), wrong});
  return check.type;
}

// A claim refines: it says how pieces join that came out of a region or of to_local.
void assert_type(const Application &app, Outcome &out) {
  StatedClaim claim;
  if (!read_claim(app, claim, out))
    return;
  if (!claim.shape.valid())
    take_order(claim.before, app.type(app.args[0]));
  std::optional<ShapesDiffer> differ =
      claimed_shape_differs(app.program, app.args[0], claim.before, claim.shape, claim.global,
                            app.global_axes(), out.undecided);
  if (differ) {
    claim.global = {}; // of another shape than the operand has
    if (app.op.boundary == Boundary::FromLocal) {
      out.violations.push_back(ShapeMismatch{"the operand and the type stated for it",
                                             differ->claimed, differ->found, differ->axes});
      differ.reset();
    }
  }
  Type type = check_first(app, claim.before, out, Spec::Joined, differ);
  if (app.attr("dst"))
    type = refined(app, type, claim.after, out);
  if (app.attr("type"))
    need_scale(app, 0, claim.before.scale, type, out);
  ir::ShapeId shape = app.args[0].shape.valid() ? app.args[0].shape : claim.shape;
  ir::ShardSizesId sizes = app.args[0].sizes;
  if (app.type(app.args[0]).sharded() != type.sharded()) {
    std::optional<ir::ShardSizesId> stated;
    if (claim.global.valid() && !type.unknown && app.global_axes())
      stated = sizes_of(app, type, shape, claim.global, sizes, out);
    sizes = joined_sizes(app.program, app.args[0], type, stated, out.violations);
  }
  give_result(app, out, type, shape, sizes);
}

// The data change by the factor, and what is meant does not.
void rescale(const Application &app, Outcome &out) {
  const ir::AttrValue *by = app.attr("by");
  if (!by || by->form != ir::AttrForm::Scale) {
    complain(out, "by", "a product or quotient of sizes");
    return;
  }
  Type type = seen_operand(app, 0);
  ir::ScaleId factor =
      ir::canonical_scale(app.program, by->as<ir::ScaleId>(), app.op_context().mesh);
  type.scale = ir::product(app.program, type.scale, factor);
  give_like_first(app, out, type);
}

void mutate_type(const Application &app, Outcome &out) {
  StatedClaim claim;
  if (!read_claim(app, claim, out))
    return;
  bool checked = app.attr("src");
  Type type = checked ? check_first(app, claim.before, out, Spec::Compared) : seen_operand(app, 0);
  AxisSet taken = claim.after.claimed() - (checked ? type.unknown : AxisSet());
  type.drop_shards(taken);
  for (const ir::KindInfo &row : ir::kKinds)
    type.of(row.kind) = (type.of(row.kind) - taken) | (claim.after.of(row.kind) & taken);
  type.unknown = (type.unknown - taken) | (claim.after.unknown & taken);
  for (AxisId axis : taken - type.of(Kind::Varying))
    type.set_combiner(axis, claim.after.combiner(axis));
  for (unsigned dim = 0; dim < ir::kMaxDims; ++dim)
    join_shards(type, claim.after, dim);
  if (claim.after.scale != app.program.one())
    type.scale = claim.after.scale;
  if (taken)
    out.violations.push_back(UncheckedClaim{{}, restricted_id(app, claim.after, taken)});
  // Blocks are those of the operand as long as the same axes cut it.
  bool moved = type.shard_dim != app.type(app.args[0]).shard_dim ||
               type.shard_order != app.type(app.args[0]).shard_order;
  give_result(app, out, type, app.args[0].shape,
              sizes_of(app, type, app.args[0].shape, claim.global,
                       moved ? ir::ShardSizesId() : app.args[0].sizes, out));
}

// A random state: what is claimed of it, and no gradient.
void rng(const Application &app, Outcome &out) {
  StatedClaim claim;
  if (!read_claim(app, claim, out))
    return;
  claim.after.set_gradient_free(true);
  give_result(app, out, claim.after, claim.shape);
}

void fork(const Application &app, Outcome &out) {
  std::optional<CallAxes> axes = resolve_axes(app, {}, out);
  if (!axes)
    return;
  Type type = seen_operand(app, 0);
  type.drop_shards(axes->all());
  type.set_kind(axes->all() - type.unknown, Kind::Varying);
  type.set_gradient_free(true);
  give_result(app, out, type, app.args[0].shape);
}

void axis_index(const Application &app, Outcome &out) {
  std::optional<CallAxes> axes = resolve_axes(app, {}, out);
  if (!axes)
    return;
  Type type;
  type.set_mesh(app.op_context().mesh);
  type.set_kind(app.mesh().typed_axes(), Kind::Replicate);
  type.set_kind(axes->all(), Kind::Varying);
  type.set_gradient_free(true);
  ir::Shape scalar;
  scalar.dtype = ir::DType::I64;
  ir::ShapeId declared = app.results.empty() ? ir::ShapeId{} : app.results[0].shape;
  give_result(app, out, type,
              declared.valid() ? declared : app.program.shapes.add(std::move(scalar)));
}

// The view of new storage that an older view, if the program shows it, was of the old one: whoever
// knows what was written gives it the type of that.
void alias(const Application &app, Outcome &out) {
  const bool viewed = app.args.size() > 1;
  give_result(app, out, seen_operand(app, 0), viewed ? app.args[1].shape : ir::ShapeId{},
              viewed ? app.args[1].sizes : app.args[0].sizes);
}

std::optional<ir::MeshId> target_mesh(const Application &app) {
  const ir::AttrValue *attr = app.attr("mesh");
  if (!attr || attr->form != ir::AttrForm::String)
    return std::nullopt;
  llvm::ArrayRef<ir::Mesh> meshes = app.program.meshes.all();
  const auto *found =
      llvm::find_if(meshes, [&](const ir::Mesh &m) { return m.name == attr->as<ir::StringId>(); });
  if (found == meshes.end())
    return std::nullopt;
  return ir::MeshId{static_cast<uint16_t>(found - meshes.begin())};
}

void reinterpret_mesh(const Application &app, Outcome &out) {
  std::optional<ir::MeshId> mesh = target_mesh(app);
  if (!mesh) {
    complain(out, "mesh", "a mesh of the program");
    return;
  }
  Remeshed moved = remesh(app.program, seen_operand(app, 0), *mesh, {0});
  if (moved.violation)
    out.violations.push_back(std::move(*moved.violation));
  Type type = moved.type;
  const ir::AttrValue *attr = app.attr("type");
  ir::TypeId stated;
  if (attr && attr->form == ir::AttrForm::Claim)
    stated = app.program.claims[attr->as<ir::ClaimId>()].type;
  if (stated.valid() && app.program.types[stated].mesh() == *mesh) {
    AxisSet local =
        counterparts(app.program, app.op_context().mesh, app.op_context().local, *mesh) |
        app.program.local_axes(*mesh);
    Type claim = app.program.types[stated].without_shards(local);
    ClaimCheck check = check_claim(type, claim, type.gradient_free());
    if (AxisSet wrong = check.mismatched | check.unowned)
      out.violations.push_back(
          ClaimMismatch{{},
                        restricted_id(app, type, wrong),
                        restricted_id(app, claim, wrong),
                        counterparts(app.program, *mesh, wrong, app.op_context().mesh)});
    type = check.type;
  }
  give_like_first(app, out, type);
}

void report(const Application &app, Outcome &out) {
  Type type = seen_operand(app, 0);
  AxisSet one_number = type.same_on_all_ranks();
  AxisSet wrong = type.claimed() - one_number - type.unknown;
  if (!wrong) {
    need_scale(app, 0, app.program.one(), type, out);
    return give_like_first(app, out, type);
  }
  Type needed;
  needed.set_mesh(type.mesh());
  needed.set_either(wrong);
  out.violations.push_back(
      ClaimMismatch{{}, restricted_id(app, type, wrong), restricted_id(app, needed, wrong), wrong});
}

// New content of a buffer: its type stays.
void store(const Application &app, Outcome &out) {
  Type before = seen_operand(app, 0), after = seen_operand(app, 1);
  if (std::optional<Violation> differs = value_shape_differs(
          app.program, "the content and what it replaces", app.args[0], app.args[1]))
    add_shape(std::move(*differs), out);
  bool gradient_free = before.gradient_free() || after.gradient_free();
  ClaimCheck check = check_claim(after, before, gradient_free);
  AxisSet changed = check.mismatched | check.unowned;
  AxisSet partial = changed & (after.of(Kind::Partial) - after.zero());
  if (partial)
    out.violations.push_back(PartialState{{}, partial});
  if (AxisSet other = changed - partial)
    out.violations.push_back(MutationChangesType{
        {0}, restricted_id(app, before, other), restricted_id(app, after, other), other});
  if (Type kept = before; !changed)
    need_scale(app, 1, before.scale, kept, out);
  pass_first(app, out);
}

// What another stage sent is what the program says that it is.
void recv(const Application &app, Outcome &out) {
  if (app.results.empty() || !app.results[0].declared.valid())
    return;
  Type type = on_mesh(app, app.program.types[app.results[0].declared], out);
  ir::ShapeId shape = app.results[0].shape;
  bool differentiable = !shape.valid() || ir::differentiable(app.program.shapes[shape].dtype);
  type.set_gradient_free(!app.op_context().grad || !differentiable);
  Outcome ignored; // extents that do not belong together are reported with the declaration
  give_result(app, out, type, shape,
              sizes_of(app, type, shape, app.results[0].global, {}, ignored));
}

// To the next coordinate of the axis: each rank then holds the block of its neighbour.
void send(const Application &app, Outcome &out) {
  pass_first(app, out);
  if (!app.attr("axis") && !app.attr("group"))
    return;
  std::optional<CallAxes> axes = resolve_axes(app, {}, out);
  if (!axes)
    return;
  Type type = seen_operand(app, 0);
  AxisSet moved = axes->all() & type.sharded();
  if (!moved)
    return;
  out.violations.push_back(NoShardRule{{0}, moved});
  type.drop_shards(moved);
  type.set_unknown(moved);
  give_like_first(app, out, type);
}

void token(const Application &app, Outcome &out) {
  Type type;
  type.set_mesh(app.op_context().mesh);
  type.set_either(app.mesh().typed_axes());
  type.set_gradient_free(true);
  give_result(app, out, type, {});
}

// What a recording of all ranks has seen: there is nothing to infer.
void diverge(const Application &app, Outcome &out) {
  RanksDiverge seen;
  bool stated = true;
  seen.fill([&](const char *key, std::string &text) {
    const ir::AttrValue *attr = app.attr(key);
    if (stated && (!attr || attr->form != ir::AttrForm::String))
      stated = complain(out, key, "a text");
    if (stated)
      text = app.program.strings[attr->as<ir::StringId>()].str();
  });
  if (stated)
    out.violations.push_back(std::move(seen));
}

// Likewise for what a call on all devices and one on a single device have shown.
void unlike(const Application &app, Outcome &out) {
  const ir::AttrValue *value = app.attr("value"), *ratio = app.attr("ratio");
  const bool whole = ratio && ratio->form == ir::AttrForm::Integer;

  if (!value || value->form != ir::AttrForm::String) {
    complain(out, "value", "a text");
    return;
  }
  if (!whole && (!ratio || ratio->form != ir::AttrForm::Float)) {
    complain(out, "ratio", "a number");
    return;
  }
  const double times = whole ? static_cast<double>(ratio->as_integer()) : ratio->as_number();
  if (std::string factor = describe_gradient_ratio(times); !factor.empty())
    out.violations.push_back(
        UnlikeOneDevice{app.program.strings[value->as<ir::StringId>()].str(), std::move(factor)});
}

// The attributes of a claim: a type, or kinds on axes.
constexpr std::string_view kClaim = "type: type, axis: axes, group: any, src: kinds, dst: kinds";
constexpr std::string_view kAxes = "axis: axes, group: any";

constexpr BoundaryOp kBoundaryOps[] = {
    {Boundary::AssertType, 1, assert_type,
     "checks the stated type of a value and passes the value on", kClaim, BoundaryData::Same},
    {Boundary::MutateType, 1, mutate_type,
     "replaces the type of a value by the stated one, without proof", kClaim, BoundaryData::Same},
    {Boundary::ToLocal, 1, apply_to_local,
     "takes the local part out of a sharded value: S(i) becomes V", "grad: type",
     BoundaryData::Same},
    {Boundary::FromLocal, 1, assert_type,
     "states how local parts join: V becomes the S(i) of its type", kClaim, BoundaryData::Same},
    {Boundary::Rng, 0, rng, "a random state, equal (R) or different (V) along each axis", kClaim,
     BoundaryData::State},
    {Boundary::Fork, 1, fork, "a random state that differs along an axis", kAxes,
     BoundaryData::State},
    {Boundary::AxisIndex, 0, axis_index, "the coordinate of a rank along an axis: V there", kAxes},
    {Boundary::Scale, 1, rescale,
     "multiplies the data by axis sizes and leaves the meaning as it is", "by: factor",
     BoundaryData::Altered, 0, /*own_backward=*/true},
    {Boundary::Alias, 1, alias, "an older view, of the new content of its base", "",
     BoundaryData::Altered},
    {Boundary::ReinterpretMesh, 1, reinterpret_mesh,
     "the same data seen on another mesh over the same ranks", "mesh: mesh, type: type",
     BoundaryData::Same},
    {Boundary::Backward, 1, apply_backward,
     "roots the gradients: its operand is a loss, invariant or partial on every axis", "",
     BoundaryData::Own, kHasSideEffects},
    {Boundary::Grad, 1, apply_grad,
     "the gradient of a value: partial where it is replicate, replicate where it is partial, else "
     "of its type",
     "", BoundaryData::Own, kHasSideEffects},
    {Boundary::Step, 2, apply_step, "the optimizer: a parameter and its gradient", "",
     BoundaryData::None, kWritesOperand | kHasSideEffects},
    {Boundary::TotalNorm, 1, total_norm,
     "the norm of a list of gradients, squares summed over the axes", kAxes, BoundaryData::Norms},
    {Boundary::ClipNorm, 1, clip_norm, "scales gradients so that their total norm is bounded",
     "axis: axes, group: any, max_norm: number", BoundaryData::Norms},
    {Boundary::Report, 1, report, "publishes a number, which must be the same on every rank", "",
     BoundaryData::Same, kResultsOutliveProgram | kHasSideEffects},
    {Boundary::Store, 2, store, "the new content of a buffer, of the type of the buffer", "",
     BoundaryData::Own, kWritesOperand | kResultsOutliveProgram | kHasSideEffects},
    {Boundary::Send, 1, send, "hands a value to another rank; untyped across stages",
     "axis: axes, group: any, peer: whole, tag: any", BoundaryData::Own, kHasSideEffects},
    {Boundary::Recv, 0, recv, "receives a value, whose type is stated", "peer: whole, tag: any",
     BoundaryData::Own, kHasSideEffects},
    {Boundary::Wait, 1, pass_first, "the value of an asynchronous op", "", BoundaryData::Same},
    {Boundary::Token, 0, token, "orders effects; carries no data", "", BoundaryData::None},
    {Boundary::Diverge, 0, diverge,
     "ranks that run different collectives here, seen when all of them ran",
     "call: word, ranks: word, instead: word, others: word, stack: word, other_stack: word",
     BoundaryData::None, kHasSideEffects},
    {Boundary::Unlike, 0, unlike,
     "a result that was seen to differ from what one device makes of the same data",
     "value: word, ratio: number", BoundaryData::None, kHasSideEffects},
};

constexpr CallOp kCallOps[] = {
    {Boundary::Call, "runs a function of the program", "body: function"},
    {Boundary::Checkpoint, "runs a function of the program, and again in backward",
     "body: function"},
    {Boundary::LocalMap, "runs a body in which some axes are local",
     "body: function, axis: axes, group: any, in_types: types, out_types: types"},
    {Boundary::Scan, "runs a body once per entry of dimension 0",
     "body: function, consts: count, carry: count, length: count, reverse: flag"},
    {Boundary::Cond, "runs one of two bodies", "then: function, else: function"},
    {Boundary::While, "runs a body as long as a condition holds",
     "cond: function, body: function, consts: count"},
};

// Whether a type is among the attributes, under that name.
constexpr bool has_type(std::string_view attributes) {
  constexpr std::string_view kType = "type: type";
  return attributes.substr(0, kType.size()) == kType ||
         attributes.find(", type: type") != std::string_view::npos;
}

// A row is found by its number, and each has a line for the manual. Readers know which have a type.
constexpr bool is_complete() {
  auto place = static_cast<unsigned>(Boundary::None);
  for (const BoundaryOp &row : kBoundaryOps)
    if (static_cast<unsigned>(row.op) != ++place || row.manual.empty() ||
        ir::kBoundaryNames[place].states_type != has_type(row.attributes))
      return false;
  for (const CallOp &row : kCallOps)
    if (static_cast<unsigned>(row.op) != ++place || row.manual.empty())
      return false;
  return true;
}
static_assert(is_complete());

// Null if the checker types it, or if it is none.
const BoundaryOp *row_of(Boundary op) {
  size_t place = static_cast<size_t>(op) - 1;
  return op != Boundary::None && place < std::size(kBoundaryOps) ? &kBoundaryOps[place] : nullptr;
}
bool holds(Boundary op, BoundaryData data) {
  const BoundaryOp *row = row_of(op);
  return row && row->data == data;
}
bool has_effect(Boundary op, uint8_t effect) {
  const BoundaryOp *row = row_of(op);
  return row && row->effects & effect;
}

} // namespace

Type seen_operand(const Application &app, unsigned i) {
  Type type = app.type(app.args[i]).without_shards(app.local_axes());
  if (!app.op_context().grad)
    type.set_gradient_free(true);
  return type;
}

void give_result(const Application &app, Outcome &out, const Type &stated, ir::ShapeId shape,
                 ir::ShardSizesId sizes) {
  if (app.results.empty())
    return;
  Type type = stated;
  if (std::optional<Violation> beyond = drop_shards_beyond(app.program, type, shape))
    out.violations.push_back(std::move(*beyond));
  out.types[0] = app.program.types.add(type);
  out.shapes[0] = shape;
  out.sizes[0] = sizes;
}

void give_like_first(const Application &app, Outcome &out, const Type &type) {
  give_result(app, out, type, app.args[0].shape, app.args[0].sizes);
}

void pass_first(const Application &app, Outcome &out) {
  give_like_first(app, out, seen_operand(app, 0));
}

llvm::ArrayRef<BoundaryOp> boundary_ops() { return kBoundaryOps; }

llvm::ArrayRef<CallOp> call_ops() { return kCallOps; }

bool is_same_data(Boundary op) { return holds(op, BoundaryData::Same); }
bool passes_data(Boundary op) { return is_same_data(op) || holds(op, BoundaryData::Altered); }
bool is_random_state(Boundary op) { return holds(op, BoundaryData::State); }
bool holds_no_data(Boundary op) { return is_random_state(op) || holds(op, BoundaryData::None); }
bool takes_norm(Boundary op) { return holds(op, BoundaryData::Norms); }
bool writes_first(Boundary op) { return has_effect(op, kWritesOperand); }
bool results_outlive_program(Boundary op) { return has_effect(op, kResultsOutliveProgram); }
bool acts(Boundary op) { return has_effect(op, kHasSideEffects); }
bool is_own_backward(Boundary op) {
  const BoundaryOp *row = row_of(op);
  return row && row->own_backward;
}

void apply_boundary(const Application &app, Outcome &out) {
  const BoundaryOp *op = row_of(app.op.boundary);
  SPMD_CHECK(op, "no row of that boundary op");
  if (app.args.size() >= op->operands)
    return op->apply(app, out);
  out.violations.push_back(OperandMismatch{std::to_string(op->operands) + " values",
                                           std::to_string(app.args.size()) + " given"});
}

} // namespace spmd::rules
