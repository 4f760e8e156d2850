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

} // namespace spmd::rules
