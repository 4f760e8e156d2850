// What a declaration says of the sizes of shards, and what they are along axes of a mesh.
#pragma once

#include "rules/application.h"
#include "rules/shapes/blocks.h"

namespace spmd::rules {

// Blocks of a dimension that axes cut (nested_starts); `rank` is counted as the program does, and
// `length` is the length of its block. None if there are too many blocks to write them out.
struct NestedBlocks {
  Blocks blocks;
  int64_t length = 0;
};
std::optional<NestedBlocks> nested_blocks(ir::Program &program, const ir::Mesh &mesh,
                                          llvm::ArrayRef<ir::AxisId> axes, int64_t extent,
                                          int64_t rank);

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
void warn_uneven_shards(const ir::Program &program, const TensorInfo &arg, ir::AxisSet local,
                        OperandIndex operand, llvm::SmallVectorImpl<Violation> &out);

// Sizes of the shards of a value whose type becomes `after`: every rank of the axes that a
// dimension gains holds a part of one shape. `stated`: what a declaration says of them; where it
// says something else, that is reported.
ir::ShardSizesId joined_sizes(ir::Program &program, const TensorInfo &before, const ir::Type &after,
                              std::optional<ir::ShardSizesId> stated,
                              llvm::SmallVectorImpl<Violation> &out);

// Makes unknown the axes that cut a dimension that a tensor of this shape does not have, and says
// which.
std::optional<Violation> drop_shards_beyond(const ir::Program &program, ir::Type &type,
                                            ir::ShapeId shape);

// The extents of all ranks together; none where they cannot be determined.
ir::ShapeId global_shape(ir::Program &program, const ir::Type &type, const TensorInfo &arg);

} // namespace spmd::rules
