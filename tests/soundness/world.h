// The ranks of a program, where they are on its meshes, and which block of a value each of them
// holds.
#pragma once

#include "tests/soundness/array.h"

#include "ir/program.h"

namespace spmd::soundness {

using RankList = llvm::SmallVector<uint8_t, 16>;

class World {
public:
  explicit World(const ir::Program &program);

  unsigned size() const { return size_; }
  // Of a rank along a layout, row-major over its atoms; -1 for a rank that the mesh does not have.
  int64_t coordinate(ir::MeshId mesh, llvm::ArrayRef<ir::Atom> layout, unsigned rank) const;
  int64_t coordinate(ir::MeshId mesh, ir::AxisId axis, unsigned rank) const {
    return coordinate(mesh, program_.meshes[mesh][axis].layout, rank);
  }
  // The ranks that a call along the layout joins, in its order; one list per group.
  std::vector<RankList> groups(ir::MeshId mesh, llvm::ArrayRef<ir::Atom> layout) const;
  // The rank whose coordinates on some axes are those of `rank`, on all others those of `base`.
  unsigned moved(ir::MeshId mesh, ir::AxisSet axes, unsigned base, unsigned rank) const;

private:
  const ir::Program &program_;
  unsigned size_ = 1;
};

// What is known of a value.
struct Typed {
  ir::TypeId type;
  ir::ShapeId shape; // of the first rank
  ir::ShardSizesId sizes;
};

// How the blocks of a value lie in the tensor that they are parts of. `listed`: axes on which the
// pieces form a list and join to nothing, whatever the type says.
class Placement {
public:
  Placement(const ir::Program &program, const World &world, const Typed &value,
            ir::AxisSet listed = {});

  // False where an extent is no number, or the blocks are not known.
  bool known() const { return known_; }
  Dims whole(unsigned rank) const { return place(rank).second; }
  Block block(unsigned rank) const { return place(rank).first; }
  ir::AxisSet cut() const { return cut_; } // axes that shard a dimension and are not listed

private:
  struct Dim {
    llvm::SmallVector<ir::AxisId, 2> axes; // outermost first
    llvm::SmallVector<int64_t, 8> lengths; // per shard
  };
  std::pair<Block, Dims> place(unsigned rank) const;

  const ir::Program &program_;
  const World &world_;
  ir::MeshId mesh_;
  ir::AxisSet cut_;
  llvm::SmallVector<Dim, 4> dims_;
  bool known_ = true;
};

// The number that a scale is, exactly. `only`: the sizes of these axes alone count.
Residue scale_number(const ir::Program &program, ir::ScaleId scale);
Residue scale_number(const ir::Program &program, ir::ScaleId scale, ir::MeshId mesh,
                     ir::AxisSet only);

} // namespace spmd::soundness
