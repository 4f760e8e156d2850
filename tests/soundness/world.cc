// Ranks are numbers of the world; every mesh counts from its own offset.
#include "tests/soundness/world.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace spmd::soundness {

using ir::AxisId;
using ir::AxisSet;

World::World(const ir::Program &program) : program_(program) {
  for (const ir::Mesh &mesh : program.meshes)
    size_ = std::max(size_, static_cast<unsigned>(mesh.offset + mesh.rank_count()));
}

int64_t World::coordinate(ir::MeshId mesh, llvm::ArrayRef<ir::Atom> layout, unsigned rank) const {
  int64_t at = 0, own = static_cast<int64_t>(rank) - program_.meshes[mesh].offset;
  for (const ir::Atom &atom : layout)
    at = at * atom.size + own / atom.stride % atom.size;
  return own < 0 ? -1 : at;
}

std::vector<RankList> World::groups(ir::MeshId mesh, llvm::ArrayRef<ir::Atom> layout) const {
  std::vector<RankList> found;
  for (unsigned rank = 0; rank < size_; ++rank) {
    if (coordinate(mesh, layout, rank) != 0)
      continue;
    RankList group = {static_cast<uint8_t>(rank)};
    for (const ir::Atom &atom : llvm::reverse(layout)) {
      RankList longer;
      for (int64_t c = 0; c < atom.size; ++c)
        for (uint8_t each : group)
          longer.push_back(static_cast<uint8_t>(each + c * atom.stride));
      group = std::move(longer);
    }
    // The outermost atom varies slowest.
    llvm::sort(group, [&](uint8_t a, uint8_t b) {
      return coordinate(mesh, layout, a) < coordinate(mesh, layout, b);
    });
    found.push_back(std::move(group));
  }
  return found;
}

unsigned World::moved(ir::MeshId mesh, AxisSet axes, unsigned base, unsigned rank) const {
  int64_t at = base;
  int64_t offset = program_.meshes[mesh].offset;
  for (AxisId axis : axes)
    for (const ir::Atom &atom : program_.meshes[mesh][axis].layout) {
      int64_t from = (at - offset) / atom.stride % atom.size;
      int64_t to = (static_cast<int64_t>(rank) - offset) / atom.stride % atom.size;
      at += (to - from) * atom.stride;
    }
  return static_cast<unsigned>(at);
}

Placement::Placement(const ir::Program &program, const World &world, const Typed &value,
                     AxisSet listed)
    : program_(program), world_(world), mesh_(program.types[value.type].mesh()) {
  const ir::Type &type = program.types[value.type];
  const ir::Shape &shape = program.shapes[value.shape];
  const ir::ShardSizes *sizes = value.sizes.valid() ? &program.shard_sizes[value.sizes] : nullptr;
  cut_ = type.sharded() - listed;
  for (unsigned d = 0; d < shape.dims.size(); ++d) {
    Dim dim;
    int64_t shards = 1;
    for (AxisId axis : type.sharded())
      if (type.dim(axis) == d) {
        dim.axes.push_back(axis);
        shards *= program.meshes[mesh_][axis].size();
      }
    llvm::sort(dim.axes, [&](AxisId a, AxisId b) { return type.order(a) < type.order(b); });
    if (!shape.dims[d].is_number()) {
      known_ = false;
      return;
    }
    const ir::UnevenDim *uneven = sizes ? sizes->find(d) : nullptr;
    int64_t left = uneven && !uneven->sizes.valid() ? uneven->global.number() : 0;
    for (int64_t s = 0; s < shards; ++s) {
      int64_t length = shape.dims[d].number();
      if (uneven && uneven->sizes.valid()) {
        length = program.lists[uneven->sizes].items[static_cast<size_t>(s)].as_integer();
      } else if (uneven) {
        length = std::min(left, uneven->block.number());
        left -= length;
      }
      dim.lengths.push_back(length);
    }
    dims_.push_back(std::move(dim));
  }
}

std::pair<Block, Dims> Placement::place(unsigned rank) const {
  Block block;
  Dims whole;
  for (const Dim &dim : dims_) {
    int64_t own = 0;
    for (AxisId axis : dim.axes)
      own = own * program_.meshes[mesh_][axis].size() + world_.coordinate(mesh_, axis, rank);
    int64_t first = 0, all = 0;
    for (int64_t s = 0; s < static_cast<int64_t>(dim.lengths.size()); ++s) {
      // Shards with other coordinates on a listed axis are parts of other tensors.
      bool same = true;
      int64_t rest = s;
      for (AxisId axis : llvm::reverse(dim.axes)) {
        int64_t size = program_.meshes[mesh_][axis].size();
        same &= cut_.contains(axis) || rest % size == world_.coordinate(mesh_, axis, rank);
        rest /= size;
      }
      if (!same)
        continue;
      first += s < own ? dim.lengths[static_cast<size_t>(s)] : 0;
      all += dim.lengths[static_cast<size_t>(s)];
    }
    block.first.push_back(first);
    block.dims.push_back(dim.lengths[static_cast<size_t>(own)]);
    whole.push_back(all);
  }
  return {std::move(block), std::move(whole)};
}

namespace {

// `dp`, `dense.dp`, or a piece `[2:4]`.
int64_t base_size(const ir::Program &program, llvm::StringRef base) {
  int64_t size = 1;
  if (base.consume_front("[")) {
    base.split(':').first.getAsInteger(10, size);
    return size;
  }
  llvm::StringRef mesh_name = base.contains('.') ? base.split('.').first : "";
  llvm::StringRef axis_name = base.contains('.') ? base.split('.').second : base;
  for (const ir::Mesh &mesh : program.meshes)
    if (mesh_name.empty() || program.strings[mesh.name] == mesh_name)
      for (const ir::Axis &axis : mesh.axes)
        if (program.strings[axis.name] == axis_name)
          return axis.size();
  return size;
}

template <class F>
Residue number(const ir::Program &program, ir::ScaleId id, F &&counts, bool numbers) {
  if (!id.valid())
    return 1;
  const ir::Scale &scale = program.scales[id];
  Residue value = numbers ? Residue(scale.numerator) * Residue(scale.denominator).inverse() : 1;
  for (const ir::ScaleFactor &factor : scale.factors)
    if (counts(factor.base))
      value *= power(base_size(program, program.strings[factor.base]), factor.exponent);
  return value;
}

} // namespace

Residue scale_number(const ir::Program &program, ir::ScaleId scale) {
  return number(
      program, scale, [](ir::StringId) { return true; }, true);
}

Residue scale_number(const ir::Program &program, ir::ScaleId scale, ir::MeshId mesh, AxisSet only) {
  return number(
      program, scale,
      [&](ir::StringId base) {
        std::optional<AxisId> axis = program.meshes[mesh].find(base);
        return axis && only.contains(program.meshes[mesh].pieces_of(*axis));
      },
      false);
}

} // namespace spmd::soundness
