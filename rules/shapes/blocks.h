// The sizes of the blocks into which a dimension is cut, and what views do to them.
#pragma once

#include "ir/program.h"

#include "llvm/ADT/ArrayRef.h"

#include <optional>
#include <string>

namespace spmd::rules {

// Even, or as ir::UnevenDim says.
class Blocks {
public:
  Blocks() = default;
  explicit Blocks(const ir::UnevenDim &dim)
      : even_(false), global_(dim.global), block_(dim.block), sizes_(dim.sizes) {}

  bool even() const { return even_; }
  ir::UnevenDim as_dim(unsigned dim) const { return {dim, global_, block_, sizes_}; }
  ir::Extent global() const { return global_; }
  ir::Extent block() const { return block_; }
  ir::AttrListId sizes() const { return sizes_; }
  friend bool operator==(const Blocks &, const Blocks &) = default;

private:
  bool even_ = true;
  ir::Extent global_, block_;
  ir::AttrListId sizes_;
};

inline constexpr int64_t kMaxBlocks = 1 << 16; // written out one by one
using BlockLengths = llvm::SmallVector<int64_t, 8>;

// Of these lengths, written out. None where a length, or all of them together, are no extent.
std::optional<Blocks> blocks_of(ir::Program &program, llvm::ArrayRef<int64_t> lengths);
// Every block of that many, one by one; none if they are even, no numbers, or too many.
std::optional<BlockLengths> lengths_of(const ir::Program &program, const Blocks &blocks,
                                       int64_t ranks);

// Where each block begins, and one more at the end: each axis, outermost first, cuts what the outer
// ones left into pieces of ceil(length / size), the last ones short or empty.
llvm::SmallVector<int64_t, 16> nested_starts(int64_t extent, llvm::ArrayRef<int64_t> sizes);

// The product; none if either is not known or it leaves the numbers.
std::optional<ir::Extent> times(ir::Program &program, ir::Extent a, std::optional<ir::Extent> b);

// The blocks of the leading part of a dimension whose other parts have `inner` elements together.
// None where a block would end inside of one index.
std::optional<Blocks> divided(ir::Program &program, const Blocks &blocks, ir::Extent inner);
// The blocks of a dimension that is merged of the cut one and `inner` elements.
std::optional<Blocks> multiplied(ir::Program &program, const Blocks &blocks, ir::Extent inner);
// Single elements cut by outer axes, and a dimension cut by inner ones, merged. None where it
// cannot be written down.
std::optional<Blocks> joined(ir::Program &program, const Blocks &outer, int64_t outer_ranks,
                             const Blocks &inner, int64_t inner_ranks);
// `even`, `4 of 14`, `3, 3, 1`
std::string print(const ir::Program &program, const Blocks &blocks);

} // namespace spmd::rules
