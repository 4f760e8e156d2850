// The ranks of a run: all ranks that some mesh of the program names, and where each stands on the
// axes of each mesh. Ranks are counted here from 0 without gaps, in the order of their numbers.
#pragma once

#include "ir/program.h"
#include "ir/support/arrays.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <vector>

namespace spmd::runtime {

using RankId = uint32_t;

inline constexpr int64_t kMaxRanks = 1 << 14; // that a run simulates

// The ranks of a mesh in groups along some of its axes: a group holds all coordinates on these axes
// in row-major order of the axes as listed, outermost first; groups are ordered by what is left.
class Groups {
public:
  size_t count() const { return size_ ? members_.size() / size_ : 0; }
  size_t size() const { return size_; } // ranks per group
  llvm::ArrayRef<RankId> operator[](size_t group) const {
    return ir::as_array(members_).slice(group * size_, size_);
  }
  // For ranks of the mesh.
  uint32_t group_of(RankId rank) const { return in_group_[rank].first; }
  uint32_t position(RankId rank) const { return in_group_[rank].second; }

private:
  friend class World;
  size_t size_ = 0;
  std::vector<RankId> members_;
  std::vector<std::pair<uint32_t, uint32_t>> in_group_; // by rank; of no use off the mesh
};

class World {
public:
  // An error: more ranks than a run simulates.
  static llvm::Expected<World> make(const ir::Program &program);

  uint32_t size() const { return static_cast<uint32_t>(numbers_.size()); }
  int64_t number(RankId rank) const { return numbers_[rank]; } // as meshes count ranks
  std::optional<RankId> find(int64_t number) const;
  // In row-major order of the axes of the mesh.
  llvm::ArrayRef<RankId> ranks(ir::MeshId mesh) const { return meshes_[mesh.index].ranks; }
  bool on(ir::MeshId mesh, RankId rank) const {
    return meshes_[mesh.index].indices[rank] != kNowhere;
  }
  int64_t axis_size(ir::MeshId mesh, ir::AxisId axis) const;
  // Of any axis, flattened ones included. The rank must be on the mesh.
  int64_t coordinate(ir::MeshId mesh, ir::AxisId axis, RankId rank) const;
  // The row-major index of the coordinates on these axes, outermost first; 0 for none.
  int64_t index(ir::MeshId mesh, llvm::ArrayRef<ir::AxisId> axes, RankId rank) const;
  int64_t count(ir::MeshId mesh, llvm::ArrayRef<ir::AxisId> axes) const; // ranks along them
  Groups groups(ir::MeshId mesh, llvm::ArrayRef<ir::AxisId> axes) const;

private:
  static constexpr uint32_t kNowhere = ~0u;
  struct MeshRanks {
    std::vector<RankId> ranks;
    std::vector<uint32_t> indices;       // by rank: index into `ranks`, or kNowhere
    llvm::SmallVector<int64_t, 4> sizes; // by axis; of a flattened one as a whole
    std::vector<llvm::SmallVector<ir::AxisId, 2>> pieces; // by axis: itself, or what it is made of
    std::vector<llvm::SmallVector<int64_t, 4>> at;        // by place: coordinate on each axis
  };
  std::vector<int64_t> numbers_; // ascending
  std::vector<MeshRanks> meshes_;
};

} // namespace spmd::runtime
