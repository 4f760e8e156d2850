// Blocks that are exchanged as one tensor: a dimension is split into as many parts as there are
// ranks, the parts are moved in front of all else and exchanged, and what came is moved beside the
// dimension that the axis cuts, so that both are one again. By its dimensions such a collective
// moves what it does not cut, as that of lists (block_lists.h); views and permutations are
// followed here.
#pragma once

#include "checker/gradual/blocks/block_lists.h"

#include "rules/factors/factors.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"

#include <vector>

namespace spmd::checker {

class AllToAllViews {
public:
  // Extents of the dimensions of a value; none: they are not known.
  using Extents = std::optional<llvm::SmallVector<int64_t, 6>>;

  // The result has the elements of the operand, in dimensions that the map says.
  void move(ir::ValueId operand, const Extents &before, ir::ValueId result, const Extents &after,
            const rules::FactorMap &map);
  // The result is the operand as it is.
  void copy(ir::ValueId operand, ir::ValueId result);
  // Of a collective that exchanges parts of the first dimension.
  void exchange(const rules::Application &app, ir::ValueId operand, const Extents &before,
                ir::ValueId result, const Extents &after);
  // Whether what came by such a collective was put together again: then the dimensions of its
  // result are others than those of its operand, although they are as long.
  bool is_joined(ir::ValueId result) const { return returned_.contains(result.index); }

  // What was put together again at this value; null: nothing.
  const BlockLists::Joined *joined(ir::ValueId value) const {
    auto found = joined_.find(value.index);
    return found == joined_.end() ? nullptr : &found->second;
  }

  // Of the tensor that was split and of what was put together: dimensions that both have.
  llvm::SmallVector<std::pair<unsigned, unsigned>, 4> kept(ir::ValueId value) const {
    return kept_.lookup(value.index);
  }

private:
  // A run of a dimension of the tensor that was split, behind `outer` others of its kind.
  struct Run {
    int dim; // kRanks: the parts that came from the ranks
    int64_t outer, extent;
  };
  static constexpr int kRanks = -1;
  using Dim = llvm::SmallVector<Run, 2>;
  struct Track {
    ir::ValueId of;
    llvm::SmallVector<int64_t, 6> extents; // of `of`
    std::vector<Dim> dims;
    ir::AxisSet axes;   // along which it was exchanged
    ir::ValueId came;   // the result of that exchange
    unsigned split = 0; // the dimension of `of` whose parts were
    int64_t ranks = 1;
  };
  using Tracks = llvm::SmallVector<Track, 2>; // from different views, the last one last
  static bool refine(Dim &runs, llvm::ArrayRef<int64_t> factors, std::vector<Dim> &parts);
  static bool move(Track &track, const rules::FactorMap &map, const Extents &after);
  static Track track_of(ir::ValueId value, const Extents &extents);
  static std::optional<BlockLists::Joined> join(const Track &track, const Extents &extents);
  void keep(Tracks tracks, ir::ValueId value, const Extents &extents);

  llvm::DenseMap<uint32_t, Tracks> tracks_; // by value
  llvm::DenseMap<uint32_t, BlockLists::Joined> joined_;
  llvm::DenseMap<uint32_t, llvm::SmallVector<std::pair<unsigned, unsigned>, 4>> kept_; // likewise
  llvm::DenseSet<uint32_t> returned_; // results of exchanges that were put together again
};

} // namespace spmd::checker
