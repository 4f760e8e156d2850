// Coordinates are enumerated, mesh by mesh: strides need not be multiples of one another.
#include "runtime/plan/world.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {
namespace {

using ir::AxisId;

struct RankCoordinates {
  int64_t number;
  llvm::SmallVector<int64_t, 4> at; // by axis
};

llvm::Error too_many(const ir::Program &program, const ir::Mesh &mesh) {
  return make_error(fmt::format("mesh `{}` has more than the {} ranks that a run simulates",
                                program.strings[mesh.name].str(), kMaxRanks));
}

// All ranks of a mesh, in row-major order of its axes; none if there are too many.
std::optional<std::vector<RankCoordinates>> ranks_of(const ir::Mesh &mesh) {
  std::vector<RankCoordinates> ranks = {{mesh.offset, {}}};
  for (const ir::Axis &axis : mesh.axes) {
    if (axis.flattened) {
      for (RankCoordinates &rank : ranks)
        rank.at.push_back(0);
      continue;
    }
    int64_t size = axis.size();
    if (size <= 0 || size > kMaxRanks / static_cast<int64_t>(ranks.size()))
      return std::nullopt;
    llvm::SmallVector<int64_t, 16> steps = ir::ranks_of(axis.layout, 0);
    std::vector<RankCoordinates> more;
    for (const RankCoordinates &rank : ranks)
      for (int64_t i = 0; i < size; ++i) {
        more.push_back({rank.number + steps[static_cast<size_t>(i)], rank.at});
        more.back().at.push_back(i);
      }
    ranks = std::move(more);
  }
  return ranks;
}

} // namespace

llvm::Expected<World> World::make(const ir::Program &program) {
  World world;
  std::vector<std::vector<RankCoordinates>> found;
  for (const ir::Mesh &mesh : program.meshes.all()) {
    std::optional<std::vector<RankCoordinates>> ranks = ranks_of(mesh);
    if (!ranks)
      return too_many(program, mesh);
    for (const RankCoordinates &rank : *ranks)
      world.numbers_.push_back(rank.number);
    found.push_back(std::move(*ranks));
  }
  llvm::sort(world.numbers_);
  world.numbers_.erase(std::unique(world.numbers_.begin(), world.numbers_.end()),
                       world.numbers_.end());
  for (size_t m = 0; m < found.size(); ++m) {
    const ir::Mesh &mesh = program.meshes[ir::MeshId{static_cast<uint16_t>(m)}];
    MeshRanks &made = world.meshes_.emplace_back();
    made.indices.assign(world.numbers_.size(), kNowhere);
    for (uint8_t a = 0; a < mesh.axes.size(); ++a) {
      const ir::Axis &axis = mesh.axes[a];
      made.sizes.push_back(axis.size());
      made.pieces.emplace_back(axis.pieces.begin(), axis.pieces.end());
      if (!axis.flattened)
        made.pieces.back() = {AxisId{a}};
    }
    for (RankCoordinates &rank : found[m]) {
      RankId id = *world.find(rank.number);
      made.indices[id] = static_cast<uint32_t>(made.ranks.size());
      made.ranks.push_back(id);
      made.at.push_back(std::move(rank.at));
    }
  }
  return world;
}

std::optional<RankId> World::find(int64_t number) const {
  auto at = llvm::lower_bound(numbers_, number);
  if (at == numbers_.end() || *at != number)
    return std::nullopt;
  return static_cast<RankId>(at - numbers_.begin());
}

int64_t World::axis_size(ir::MeshId mesh, AxisId axis) const {
  return meshes_[mesh.index].sizes[axis.index];
}

int64_t World::coordinate(ir::MeshId mesh, AxisId axis, RankId rank) const {
  const MeshRanks &at = meshes_[mesh.index];
  SPMD_CHECK(at.indices[rank] != kNowhere, "a rank that is not on the mesh");
  int64_t index = 0;
  for (AxisId piece : at.pieces[axis.index])
    index = index * at.sizes[piece.index] + at.at[at.indices[rank]][piece.index];
  return index;
}

int64_t World::index(ir::MeshId mesh, llvm::ArrayRef<AxisId> axes, RankId rank) const {
  int64_t index = 0;
  for (AxisId axis : axes)
    index = index * axis_size(mesh, axis) + coordinate(mesh, axis, rank);
  return index;
}

int64_t World::count(ir::MeshId mesh, llvm::ArrayRef<AxisId> axes) const {
  int64_t count = 1;
  for (AxisId axis : axes)
    count *= axis_size(mesh, axis);
  return count;
}

Groups World::groups(ir::MeshId mesh, llvm::ArrayRef<AxisId> axes) const {
  const MeshRanks &at = meshes_[mesh.index];
  llvm::SmallVector<AxisId, 8> used, left;
  for (AxisId axis : axes)
    used.append(at.pieces[axis.index].begin(), at.pieces[axis.index].end());
  for (uint8_t a = 0; a < at.pieces.size(); ++a)
    if (at.pieces[a].size() == 1 && at.pieces[a][0] == AxisId{a} &&
        !llvm::is_contained(used, AxisId{a}))
      left.push_back(AxisId{a});
  Groups groups;
  groups.size_ = static_cast<size_t>(count(mesh, axes));
  groups.members_.assign(at.ranks.size(), 0);
  groups.in_group_.assign(numbers_.size(), {0, 0});
  for (RankId rank : at.ranks) {
    int64_t group = index(mesh, left, rank), position = index(mesh, axes, rank);
    groups.members_[static_cast<size_t>(group) * groups.size_ + static_cast<size_t>(position)] =
        rank;
    groups.in_group_[rank] = {static_cast<uint32_t>(group), static_cast<uint32_t>(position)};
  }
  return groups;
}

} // namespace spmd::runtime
