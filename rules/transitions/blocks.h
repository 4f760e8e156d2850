// How a collective changes the blocks of one dimension: joined or cut, evenly or not. Extents are
// numbers or expressions, of which the facts of the program say what divides them.
#pragma once

#include "rules/application.h"
#include "rules/shapes/extent_facts.h"

#include <optional>
#include <string>

namespace spmd::rules {

// One dimension of a tensor as one rank sees it.
struct BlockDim {
  std::optional<ir::Extent> local;       // none: it cannot be determined
  llvm::SmallVector<ir::AxisId, 2> axes; // that shard it, outermost first
  std::optional<ir::UnevenDim> uneven;   // none: cut evenly
};

class BlockMoves {
public:
  BlockMoves(ir::Program &program, const ir::Mesh &mesh) : program_(program), mesh_(mesh) {}

  // What keeps the blocks from being joined or cut so.
  struct Problem {
    enum class Form : uint8_t { None, Lengths, Indivisible };
    Form form = Form::None;
    std::string stated, found; // Lengths: the lengths of the call, those of the blocks
    std::string extent;        // Indivisible
  };
  // Joins the blocks along the `count` innermost axes of the dimension. `lengths`: of these blocks,
  // where the call states them.
  Problem join(BlockDim &dim, unsigned count, std::optional<llvm::ArrayRef<int64_t>> lengths);
  // Cuts each block into one piece per rank of these axes, which become the innermost: of the
  // lengths that are stated, else each axis, outermost first, into pieces of ceil(length / size).
  Problem cut(BlockDim &dim, llvm::ArrayRef<ir::AxisId> axes,
              std::optional<llvm::ArrayRef<int64_t>> lengths);

  int64_t ranks_of(llvm::ArrayRef<ir::AxisId> axes) const; // saturated

private:
  using Lengths = llvm::SmallVector<int64_t, 8>;

  // The length of each block; none if it is not a number or there are too many.
  std::optional<Lengths> lengths_of(const BlockDim &dim, int64_t blocks) const;
  // Sets what these lengths come to, and the local extent.
  void set(BlockDim &dim, llvm::ArrayRef<int64_t> lengths);
  Problem cut_stated(BlockDim &dim, llvm::ArrayRef<ir::AxisId> axes,
                     llvm::ArrayRef<int64_t> lengths, int64_t outer);
  Problem cut_evenly(BlockDim &dim, llvm::ArrayRef<ir::AxisId> axes, int64_t n);
  // The lengths after cutting each block by the rule; none where lengths are no numbers, or too
  // many.
  std::optional<Lengths> ruled_lengths(const BlockDim &dim, llvm::ArrayRef<ir::AxisId> axes,
                                       int64_t outer) const;
  // The block of the rank that the program was recorded on.
  int64_t own_block(llvm::ArrayRef<ir::AxisId> axes) const;
  std::string print(ir::Extent extent) const;

  ir::Program &program_;
  const ir::Mesh &mesh_;
};

} // namespace spmd::rules
