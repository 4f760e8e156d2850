// The global judgment of an equation: on which dimension of each result an axis lies, what is
// summed across ranks, and what no partition spec can say. Reads the factors of the same row as
// shapes do. Source: rules/README.md, "Shards"; DESIGN.md of spmd_types, "Shard propagation".
#pragma once

#include "rules/factors/factors.h"

#include "ir/type.h"

namespace spmd::rules {

struct ShardInput {
  const Application &app;
  const Equation &equation;
  const Binding &binding;
  const FactorMap &map;
  ir::AxisSet axes; // judged here: global ones
};

// What one result is, axis by axis.
struct ShardResult {
  ir::AxisSet sharded; // axes on which an operand of the sum is sharded: the others are no matter
  ir::AxisSet bad;     // reported, or nothing is known: the result is unknown there
  ir::AxisSet summed;  // the sharded dimension is summed: P, if that is stated
  ir::AxisSet from_shape_only; // only operands that give extents are sharded: kinds do not show it
  ir::AxisSet divided;         // they cut a dimension by whose extent on one rank a mean divides
  struct AxisShard {
    ir::AxisId axis;
    uint8_t dim, order;
  };
  llvm::SmallVector<AxisShard, 4> axis_shards; // axes that shard the result
  ir::ShardSizesId sizes;                      // none: evenly
};

// `result`: place among the declared results. Violations that were reported for another result are
// not added twice.
ShardResult judge_shards(const ShardInput &input, const Sum &sum, unsigned result,
                         llvm::SmallVectorImpl<Violation> &out);

// What a declaration says of the sizes of its shards; none: they are even.
struct DeclaredSizes {
  ir::ShardSizesId sizes;
  std::optional<Violation> problem; // local and global extents that do not belong together
};
// Shapes are local and global extents; global: none if not stated. `rank`: of which the local ones
// are, 0 if any.
DeclaredSizes declared_sizes(ir::Program &program, const ir::Type &type, ir::ShapeId local,
                             ir::ShapeId global, int64_t rank);

// Warns of the dimensions that blocks of different size cut along axes whose shards are taken for a
// list.
void warn_uneven_lists(const ir::Program &program, const Arg &arg, ir::AxisSet lists,
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
