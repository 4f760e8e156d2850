// The sizes of the blocks into which axes cut one dimension, and what views do to them.
#pragma once

#include "rules/application.h"

#include "ir/program.h"

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

// Where each block begins, and one more at the end: each axis, outermost first, cuts what the outer
// ones left into pieces of ceil(length / size), the last ones short or empty.
llvm::SmallVector<int64_t, 16> nested_starts(int64_t extent, llvm::ArrayRef<int64_t> sizes);
// The same of a dimension that axes cut; `rank` is counted as the program does, and `length` is the
// length of its block. None if there are too many blocks to write them out.
struct NestedBlocks {
  Blocks blocks;
  int64_t length = 0;
};
std::optional<NestedBlocks> nested_blocks(ir::Program &program, const ir::Mesh &mesh,
                                          llvm::ArrayRef<ir::AxisId> axes, int64_t extent,
                                          int64_t rank);

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

// What a declaration says of the sizes of its shards; none: they are even.
struct DeclaredSizes {
  ir::ShardSizesId sizes;
  std::optional<Violation> problem; // local and global extents that do not belong together
};
// Shapes are local and global extents; global: none if not stated. `rank`: of which the local ones
// are, 0 if any.
DeclaredSizes declared_sizes(ir::Program &program, const ir::Type &type, ir::ShapeId local,
                             ir::ShapeId global, int64_t rank);

// Warns of the dimensions that blocks of different size cut along axes whose shards become the own
// tensors of ranks.
void warn_uneven_shards(const ir::Program &program, const Arg &arg, ir::AxisSet local,
                        OperandIndex operand, llvm::SmallVectorImpl<Violation> &out);

// Sizes of the shards of a value whose type becomes `after`: every rank of the axes that a
// dimension gains holds a part of one shape. `stated`: what a declaration says of them; where it
// says something else, that is reported.
ir::ShardSizesId joined_sizes(ir::Program &program, const Arg &before, const ir::Type &after,
                              std::optional<ir::ShardSizesId> stated,
                              llvm::SmallVectorImpl<Violation> &out);

// Makes unknown the axes that cut a dimension that a tensor of this shape does not have, and says
// which.
std::optional<Violation> drop_shards_beyond(const ir::Program &program, ir::Type &type,
                                            ir::ShapeId shape);

// The extents of all ranks together; none where they cannot be determined.
ir::ShapeId global_shape(ir::Program &program, const ir::Type &type, const Arg &arg);

} // namespace spmd::rules
