// The sizes of shards: as a declaration says them, and as values that are joined have them.
#include "rules/shards/sizes.h"

#include "rules/shapes/extent_facts.h"
#include "rules/transitions/axes.h"
#include "rules/violations/operands.h"
#include "rules/violations/shards.h"
#include "rules/violations/transitions.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"
#include "ir/mesh/symbols.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::rules {

using ir::AxisId;
using ir::AxisSet;
using ir::Extent;
using ir::set_of;
using Numbers = BlockLengths;

namespace {

// The place of a rank among the blocks of a dimension.
int64_t block_index(const ir::Mesh &mesh, llvm::ArrayRef<AxisId> axes, int64_t rank) {
  int64_t index = 0, offset = rank - mesh.offset;
  for (AxisId axis : axes)
    for (const ir::Atom &atom : mesh[axis].layout)
      index = index * atom.size + offset / atom.stride % atom.size;
  return index;
}

} // namespace

std::optional<NestedBlocks> nested_blocks(ir::Program &program, const ir::Mesh &mesh,
                                          llvm::ArrayRef<AxisId> axes, int64_t extent,
                                          int64_t rank) {
  llvm::SmallVector<int64_t, 4> counts;
  for (AxisId axis : axes)
    counts.push_back(mesh[axis].size());
  int64_t ranks = size_of(mesh, set_of(axes)), index = block_index(mesh, axes, rank);
  if (ir::is_symbolic(program, ranks))
    return std::nullopt;
  if (ranks > kMaxBlocks && axes.size() == 1) { // blocks of one length, until no element is left
    int64_t block = (extent + ranks - 1) / ranks;
    NestedBlocks nested;
    nested.length = std::clamp<int64_t>(extent - std::max<int64_t>(0, index) * block, 0, block);
    if (block * ranks != extent)
      nested.blocks = Blocks(ir::UnevenDim{0, Extent(extent), Extent(block), {}});
    return nested;
  }
  if (ranks > kMaxBlocks)
    return std::nullopt;
  llvm::SmallVector<int64_t, 16> starts = nested_starts(extent, counts);
  Numbers lengths;
  bool even = true, follows = true; // the first block, until no element is left
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    lengths.push_back(starts[i + 1] - starts[i]);
    even &= lengths.back() == lengths.front();
    follows &= lengths.back() == std::min(lengths.front(), extent - starts[i]);
  }
  NestedBlocks nested;
  nested.length =
      lengths[std::min(static_cast<size_t>(std::max<int64_t>(0, index)), lengths.size() - 1)];
  if (even)
    return nested;
  std::optional<Blocks> listed = blocks_of(program, lengths);
  nested.blocks = follows || !listed
                      ? Blocks(ir::UnevenDim{0, Extent(extent), Extent(lengths.front()), {}})
                      : *listed;
  return nested;
}

void warn_uneven_shards(const ir::Program &program, const TensorInfo &arg, AxisSet local,
                        OperandIndex operand, llvm::SmallVectorImpl<Violation> &out) {
  if (!arg.sizes.valid() || !local)
    return;
  for (const ir::UnevenDim &each : program.shard_sizes[arg.sizes].dims)
    if (AxisSet axes = set_of(ir::shards_of(program.types[arg.type], each.dim)) & local)
      out.push_back(UnevenList{operand, static_cast<int64_t>(each.dim), axes});
}

namespace {

// The blocks of a dimension that some of the axes cut as `known` says, and the others into equal
// parts.
std::optional<Blocks> with_more_axes(ir::Program &program, const ir::Mesh &mesh,
                                     const Blocks &known, llvm::ArrayRef<AxisId> cut,
                                     llvm::ArrayRef<AxisId> all) {
  std::optional<Numbers> lengths = lengths_of(program, known, size_of(mesh, set_of(cut)));
  int64_t ranks = size_of(mesh, set_of(all));
  if (!lengths || ranks > kMaxBlocks || ir::is_symbolic(program, ranks))
    return std::nullopt;
  Numbers made;
  for (int64_t k = 0; k < ranks; ++k) {
    int64_t place = 0, inner = ranks;
    for (AxisId axis : all) {
      int64_t size = mesh[axis].size();
      inner /= size;
      if (llvm::is_contained(cut, axis))
        place = place * size + k / inner % size;
    }
    made.push_back((*lengths)[static_cast<size_t>(place)]);
  }
  return blocks_of(program, made);
}

} // namespace

ir::ShardSizesId joined_sizes(ir::Program &program, const TensorInfo &before, const ir::Type &after,
                              std::optional<ir::ShardSizesId> stated,
                              llvm::SmallVectorImpl<Violation> &out) {
  if (!before.sizes.valid())
    return stated.value_or(ir::ShardSizesId());
  const ir::Mesh &mesh = program.meshes[after.mesh()];
  ir::ShardSizes sizes;
  bool joins = false;
  for (const ir::UnevenDim &each : ir::ShardSizes(program.shard_sizes[before.sizes]).dims) {
    llvm::SmallVector<AxisId, 2> cut = ir::shards_of(program.types[before.type], each.dim),
                                 all = ir::shards_of(after, each.dim);
    if (cut == all) {
      sizes.dims.push_back(each);
      continue;
    }
    joins = true;
    std::optional<Blocks> made = with_more_axes(program, mesh, Blocks(each), cut, all);
    if (!made) {
      out.push_back(StridedUneven{{0}, static_cast<int64_t>(each.dim), set_of(all)});
      return {};
    }
    const ir::UnevenDim *claimed =
        stated && stated->valid() ? program.shard_sizes[*stated].find(each.dim) : nullptr;
    Blocks given = claimed ? Blocks(*claimed) : Blocks();
    std::optional<Numbers> lengths = lengths_of(program, given, size_of(mesh, set_of(all)));
    if (stated && (!lengths || lengths != lengths_of(program, *made, 0)))
      out.push_back(ShapeMismatch{fmt::format("the shards of dimension {} that parts of one shape "
                                              "make and those that are stated",
                                              each.dim),
                                  print(program, *made), print(program, given), set_of(all)});
    sizes.dims.push_back(made->as_dim(each.dim));
  }
  if (!joins)
    return stated.value_or(before.sizes);
  // Of dimensions that were even nothing but the statement is known.
  if (stated && stated->valid())
    for (const ir::UnevenDim &each : program.shard_sizes[*stated].dims)
      if (!sizes.find(each.dim))
        sizes.dims.push_back(each);
  llvm::sort(sizes.dims,
             [](const ir::UnevenDim &a, const ir::UnevenDim &b) { return a.dim < b.dim; });
  return program.shard_sizes.add(std::move(sizes));
}

DeclaredSizes declared_sizes(ir::Program &program, const ir::Type &type, ir::ShapeId local_id,
                             ir::ShapeId global_id, int64_t rank) {
  if (!local_id.valid() || !global_id.valid())
    return {};
  const ir::Shape local = program.shapes[local_id], global = program.shapes[global_id];
  auto differs = [&](std::string what, AxisSet axes = {}) {
    return DeclaredSizes{{},
                         ShapeMismatch{std::move(what), ir::print_shape(program, global_id),
                                       ir::print_shape(program, local_id), axes}};
  };
  if (!local.ranked || !global.ranked)
    return {};
  if (local.dims.size() != global.dims.size())
    return differs("the numbers of dimensions of the global and the local shape");
  const ir::Mesh &mesh = program.meshes[type.mesh()];
  bool has_lists = !(type.of(ir::Kind::Varying) - type.sharded()).empty();
  ir::ShardSizes sizes;
  for (unsigned d = 0; d < local.dims.size(); ++d) {
    llvm::SmallVector<AxisId, 2> axes = ir::shards_of(type, d);
    int64_t ranks = size_of(mesh, set_of(axes));
    Extent have = local.dims[d], all = global.dims[d];
    std::optional<Extent> even = product(program, have, ir::rank_extent(program, ranks));
    if (even == all || (axes.empty() && has_lists) ||
        (even && compare(program, *even, all) == Equality::Equal))
      continue;
    bool numbers = have.is_number() && all.is_number() && !ir::is_symbolic(program, ranks);
    bool differ = axes.empty() && compare(program, have, all) == Equality::Different;
    if (numbers || differ) {
      std::optional<NestedBlocks> nested;
      if (numbers)
        nested = nested_blocks(program, mesh, axes, all.number(), rank);
      if (axes.empty() || !nested || have.number() != nested->length)
        return differs(
            fmt::format("dimension {} of the global shape, cut into {}, and of the local "
                        "shape,",
                        d, ir::print_ranks(program, ranks)),
            set_of(axes));
      if (!nested->blocks.even())
        sizes.dims.push_back(nested->blocks.as_dim(d));
    } else if (!axes.empty()) {
      sizes.dims.push_back({d, all, have, {}});
    }
  }
  if (sizes.dims.empty())
    return {};
  return {program.shard_sizes.add(std::move(sizes)), std::nullopt};
}

std::optional<Violation> drop_shards_beyond(const ir::Program &program, ir::Type &type,
                                            ir::ShapeId shape) {
  if (!shape.valid() || !program.shapes[shape].ranked)
    return std::nullopt;
  size_t rank = program.shapes[shape].dims.size();
  AxisSet beyond;
  unsigned named = 0;
  for (AxisId axis : type.sharded())
    if (unsigned dim = *type.dim(axis); dim >= rank) {
      beyond |= axis;
      named = dim;
    }
  if (!beyond)
    return std::nullopt;
  type.drop_shards(beyond);
  type.set_unknown(beyond);
  return AttributeMismatch{fmt::format("S({})", named), fmt::format("one of {} dimensions", rank)};
}

ir::ShapeId global_shape(ir::Program &program, const ir::Type &type, const TensorInfo &arg) {
  if (!arg.shape.valid() || !program.shapes[arg.shape].ranked)
    return {};
  ir::Shape shape = program.shapes[arg.shape];
  for (unsigned d = 0; d < shape.dims.size(); ++d) {
    const ir::UnevenDim *uneven =
        arg.sizes.valid() ? program.shard_sizes[arg.sizes].find(d) : nullptr;
    int64_t ranks = size_of(program.meshes[type.mesh()], set_of(ir::shards_of(type, d)));
    std::optional<Extent> extent =
        uneven ? uneven->global : product(program, shape.dims[d], ir::rank_extent(program, ranks));
    if (!extent)
      return {};
    shape.dims[d] = *extent;
  }
  return program.shapes.add(std::move(shape));
}

} // namespace spmd::rules
