// Partition specs, and the sizes of blocks, follow their dimensions.
#include "rules/shards/stacked.h"

namespace spmd::rules {

using ir::AxisId;
using ir::Type;

namespace {

bool is_dimension(int dim) { return dim >= 0 && dim < static_cast<int>(ir::kMaxDims); }

// Each dimension is the one `by` positions further; what has no place then is dropped.
void move_spec(ir::Program &program, int by, TensorInfo &arg) {
  Type type = program.types[arg.type];
  auto moved = [&](AxisId axis) { return static_cast<int>(*type.dim(axis)) + by; };
  for (AxisId axis : type.sharded())
    if (!is_dimension(moved(axis)))
      type.drop_shards(axis);
  for (AxisId axis : type.sharded())
    type.set_shard(axis, static_cast<unsigned>(moved(axis)), type.order(axis));
  arg.type = program.types.add(type);
  if (!arg.sizes.valid())
    return;
  ir::ShardSizes sizes;
  for (ir::UnevenDim each : program.shard_sizes[arg.sizes].dims) {
    int dim = static_cast<int>(each.dim) + by;
    if (!is_dimension(dim))
      continue;
    each.dim = static_cast<unsigned>(dim);
    sizes.dims.push_back(each);
  }
  arg.sizes = sizes.dims.empty() ? ir::ShardSizesId() : program.shard_sizes.add(std::move(sizes));
}

} // namespace

TensorInfo entry_of(ir::Program &program, TensorInfo whole) {
  if (whole.type.valid())
    move_spec(program, -1, whole);
  if (!whole.shape.valid())
    return whole;
  ir::Shape shape = program.shapes[whole.shape];
  if (!shape.ranked || shape.dims.empty()) {
    whole.shape = {};
    return whole;
  }
  shape.dims.erase(shape.dims.begin());
  whole.shape = program.shapes.add(std::move(shape));
  return whole;
}

TensorInfo stack_of(ir::Program &program, TensorInfo each, std::optional<ir::Extent> length) {
  if (each.type.valid())
    move_spec(program, 1, each);
  bool known = each.shape.valid() && length && program.shapes[each.shape].ranked;
  if (!known) {
    each.shape = {};
    return each;
  }
  ir::Shape shape = program.shapes[each.shape];
  shape.dims.insert(shape.dims.begin(), *length);
  each.shape = program.shapes.add(std::move(shape));
  return each;
}

} // namespace spmd::rules
