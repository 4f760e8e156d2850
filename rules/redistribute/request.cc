// What may be asked of the planner, and the problem of numbers that it is.
#include "rules/redistribute/request.h"
#include "rules/kinds/scale.h"
#include "rules/redistribute/ends.h"
#include "rules/redistribute/numeric_problem.h"
#include "rules/shapes/extent_facts.h"
#include "rules/shards/sizes.h"
#include "rules/transitions/axes.h"
#include "rules/transitions/blocks.h"
#include "rules/violations/meshes.h"
#include "rules/violations/shards.h"
#include "rules/violations/transitions.h"

#include "ir/claims.h"
#include "ir/mesh/axis_scale.h"
#include "ir/mesh/symbols.h"

#include <fmt/format.h>

namespace spmd::rules::redistribute {

using ir::AxisId;
using ir::AxisSet;
using ir::Combiner;
using ir::Kind;
using ir::WrittenKind;

std::optional<Kind> kind_at(const ir::Type &type, const ir::Type &other, AxisId axis) {
  if (std::optional<Kind> kind = type.kind(axis))
    return kind;
  std::optional<Kind> wanted = other.kind(axis);
  if (type.zero().contains(axis) && wanted && *wanted != Kind::Varying)
    return wanted;
  if (type.either().contains(axis))
    return wanted && is_replicated(*wanted) ? *wanted : Kind::Replicate;
  return std::nullopt;
}

WrittenKind word_at(const ir::Type &type, const ir::Type &other, AxisId axis) {
  if (std::optional<unsigned> dim = type.dim(axis))
    return {
        .form = WrittenKind::Form::Shard, .kind = Kind::Varying, .dim = static_cast<int8_t>(*dim)};
  WrittenKind word{.kind = kind_at(type, other, axis).value_or(Kind::Replicate)};
  if (word.kind == Kind::Partial && !type.zero().contains(axis))
    word.combiner = type.combiner(axis);
  return word;
}

AxisSet changed_axes(const ir::Program &program, const ir::Type &from, const ir::Type &to) {
  AxisSet changed;
  for (AxisId axis : program.meshes[from.mesh()].typed_axes())
    if (from.kind(axis) != to.kind(axis) || from.dim(axis) != to.dim(axis) ||
        (from.dim(axis) && from.order(axis) != to.order(axis)))
      changed |= axis;
  return changed;
}

namespace {

constexpr int64_t kMostBytes = int64_t(1) << 53; // of a tensor: prices stay within numbers

bool is_list(const ir::Type &type, AxisId axis) {
  return type.kind(axis) == Kind::Varying && !type.dim(axis);
}

// The axes that a plan may use: those of which both ends are known, other than lists.
AxisSet planned_axes(const ir::Program &program, const ir::Type &source, const ir::Type &target) {
  AxisSet axes;
  for (AxisId axis : program.meshes[source.mesh()].typed_axes())
    if (kind_at(source, target, axis) && kind_at(target, source, axis) && !is_list(source, axis) &&
        !is_list(target, axis))
      axes |= axis;
  return axes;
}

} // namespace

std::optional<Violation> refuse(ir::Program &program, const Request &request) {
  const ir::Type source = program.types[request.source], target = program.types[request.target];
  if (source.mesh() != target.mesh())
    return MeshChange{{0},
                      program.strings[program.meshes[source.mesh()].name].str(),
                      program.strings[program.meshes[target.mesh()].name].str()};
  bool gradient = !source.gradient_free() && !target.gradient_free();
  AxisSet unlisted, unowned, unsummed, mismatched;
  Combiner had = Combiner::Sum, asked = Combiner::Sum, odd = Combiner::Sum;
  for (AxisId axis : program.meshes[source.mesh()].typed_axes()) {
    std::optional<Kind> from = kind_at(source, target, axis), to = kind_at(target, source, axis);
    if (!from || !to)
      continue;
    if (is_list(source, axis) != is_list(target, axis))
      unlisted |= axis;
    bool pending = from == Kind::Partial, to_pending = to == Kind::Partial;
    Combiner first = pending ? source.combiner(axis) : Combiner::Sum;
    Combiner second = to_pending ? target.combiner(axis) : Combiner::Sum;
    if (pending && to_pending && first != second) {
      mismatched |= axis;
      had = first, asked = second;
    } else if (gradient && pending != to_pending &&
               (first != Combiner::Sum || second != Combiner::Sum)) {
      unsummed |= axis;
      odd = pending ? first : second;
    }
    // Of a value without a gradient, too: no row leads there.
    if (from == Kind::Replicate && to == Kind::Reduced && !source.of(Kind::Reduced).contains(axis))
      unowned |= axis;
  }
  if (unlisted)
    return NoSpec{{0}, {}, unlisted};
  if (mismatched)
    return ReductionMismatch{{0}, had, asked, mismatched};
  if (unowned)
    return ReducedWithoutOwner{{0}, unowned};
  if (unsummed)
    return NonSumGradient{{0}, odd, unsummed};
  if (!target.scale.valid()) // it is not known, and no scale differs from it
    return std::nullopt;
  return scale_differs(
      program, source, target.scale,
      fmt::format("{} is asked for", ir::print_scale(program, target.scale, target.mesh())), {0});
}

bool can_be_planned(const ir::Program &program, const Request &request) {
  if (!request.shape.valid() || !program.shapes[request.shape].ranked)
    return false;
  const ir::Shape &shape = program.shapes[request.shape];
  int64_t bytes = ir::info(shape.dtype).bytes;
  for (ir::Extent extent : shape.dims)
    if (__builtin_mul_overflow(bytes, known_divisor(program, extent), &bytes) || bytes > kMostBytes)
      return false;
  return shape.dims.size() <= kMostDims;
}

namespace {

// The blocks are those that axes of these sizes make of the dimension, nested.
bool follows_the_rule(const ir::Program &program, const ir::UnevenDim &dim,
                      llvm::ArrayRef<int64_t> sizes) {
  if (!dim.global.is_number() || (!dim.sizes.valid() && !dim.block.is_number()))
    return false;
  llvm::SmallVector<int64_t, 16> starts = nested_starts(dim.global.number(), sizes);
  const ir::AttrList *stated = dim.sizes.valid() ? &program.lists[dim.sizes] : nullptr;
  if (stated && stated->items.size() + 1 != starts.size())
    return false;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    int64_t left = dim.global.number() - starts[i];
    int64_t length = stated ? stated->items[i].as_integer() : std::min(dim.block.number(), left);
    if (length != starts[i + 1] - starts[i])
      return false;
  }
  return true;
}

} // namespace

std::optional<Violation> refuse_blocks(ir::Program &program, const TensorInfo &value) {
  if (!value.sizes.valid())
    return std::nullopt;
  const ir::Type type = program.types[value.type];
  const ir::Mesh &mesh = program.meshes[type.mesh()];
  for (const ir::UnevenDim &dim : program.shard_sizes[value.sizes].dims) {
    AxisSet set;
    llvm::SmallVector<int64_t, 4> sizes;
    for (AxisId axis : ir::shards_of(type, dim.dim)) {
      set |= axis;
      sizes.push_back(mesh[axis].size());
    }
    if (!follows_the_rule(program, dim, sizes))
      return UnevenShard{{0}, static_cast<int64_t>(dim.dim), set};
  }
  return std::nullopt;
}

namespace {

void set_prices(const ir::Program &program, const ir::Mesh &mesh, const Topology &topology,
                llvm::ArrayRef<AxisId> axes, Prices &prices) {
  prices.launch = topology.launch;
  if (!topology.in_time)
    return;
  for (AxisId axis : axes) {
    auto link = topology.axes.find(program.strings[mesh[axis].name]);
    const Topology::Link &of = link == topology.axes.end() ? topology.otherwise : link->second;
    prices.alpha.push_back(of.latency);
    prices.beta.push_back(of.per_byte);
  }
}

} // namespace
NumericProblem to_numeric_problem(ir::Program &program, const Request &request,
                                  const Topology &topology) {
  const ir::Type source = program.types[request.source], target = program.types[request.target];
  const ir::Mesh &mesh = program.meshes[source.mesh()];
  NumericProblem posed;
  Problem &problem = posed.problem;
  bool free = source.gradient_free() || target.gradient_free();
  const AxisSet planned = planned_axes(program, source, target);
  // Axes that are not planned, such as unknown ones, leave no gap among those of a dimension.
  auto place_in_dim = [&](const ir::Type &type, AxisId id) {
    unsigned outer = 0;
    for (AxisId each : planned)
      outer += type.dim(each) == type.dim(id) && type.order(each) < type.order(id);
    return outer;
  };
  auto place = [&](State &state, const ir::Type &type, const ir::Type &other, AxisId id) {
    unsigned axis = problem.axis_count();
    Kind kind = *kind_at(type, other, id);
    if (kind == Kind::Varying)
      state.shard(axis, *type.dim(id), place_in_dim(type, id));
    else if (kind == Kind::Partial)
      state.partial |= one(axis);
    else if (kind == Kind::Invariant && !free)
      state.invariant |= one(axis);
    return kind;
  };
  for (AxisId id : planned) {
    unsigned axis = problem.axis_count();
    Kind from = place(problem.source, source, target, id);
    Kind to = place(problem.target, target, source, id);
    bool pending = from == Kind::Partial && !source.zero().contains(id);
    Combiner combiner = pending               ? source.combiner(id)
                        : to == Kind::Partial ? target.combiner(id)
                                              : Combiner::Sum;
    problem.combiners.push_back(static_cast<uint8_t>(combiner));
    if (to == Kind::Partial) {
      problem.may_keep |= one(axis);
      if (combiner == Combiner::Sum)
        problem.may_zero_fill |= one(axis);
    }
    if (to == Kind::Reduced && !free)
      problem.owned |= one(axis);
    problem.sizes.push_back(ir::assumed_ranks(program, mesh[id].size()));
    posed.axes.push_back(id);
  }
  const ir::Shape shape = program.shapes[request.shape];
  for (ir::Extent extent : shape.dims) {
    problem.extents.push_back(known_divisor(program, ir::assumed(program, extent)));
  }
  problem.element_bytes = std::max<int64_t>(1, ir::info(shape.dtype).bytes);
  problem.has_invariant = problem.source.invariant | problem.target.invariant;
  problem.gradient = request.gradient && !free;
  for (const State *state : {&problem.source, &problem.target}) {
    Spec spec(*state, problem.axis_count(), problem.rank());
    for (unsigned dim = 0; dim < problem.rank(); ++dim) {
      int64_t ranks = 1;
      for (uint8_t axis : spec.of(dim))
        ranks = times_ranks(ranks, problem.sizes[axis]);
      problem.even &= problem.extents[dim] % ranks == 0;
    }
  }
  problem.cap = request.cap != kOwnCap ? request.cap
                                       : std::max(bytes_of(problem, problem.source),
                                                  bytes_of(problem, problem.target));
  set_prices(program, mesh, topology, posed.axes, problem.prices);
  problem.prepare();
  return posed;
}

} // namespace spmd::rules::redistribute
