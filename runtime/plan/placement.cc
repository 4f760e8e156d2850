// Blocks from the partition spec: the row-major index on the axes of a dimension says which block.
#include "runtime/plan/placement.h"

#include "rules/derivative.h"
#include "rules/ops/registry.h"

#include "ir/claims.h"
#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {
namespace {} // namespace

llvm::SmallVector<int64_t, 8> block_lengths(const ir::Program &program, const ir::UnevenDim &dim,
                                            int64_t blocks) {
  llvm::SmallVector<int64_t, 8> lengths;
  if (dim.sizes.valid()) {
    for (const ir::AttrValue &item : program.lists[dim.sizes].items)
      lengths.push_back(item.as_integer());
    if (static_cast<int64_t>(lengths.size()) != blocks)
      lengths.clear();
    return lengths;
  }
  if (!dim.global.is_number() || !dim.block.is_number())
    return lengths;
  int64_t left = dim.global.number();
  for (int64_t i = 0; i < blocks; ++i) {
    lengths.push_back(std::min(left, dim.block.number()));
    left -= lengths.back();
  }
  return lengths;
}

llvm::Expected<Dims> dims_of(const ir::Program &program, ir::ShapeId shape,
                             const llvm::Twine &who) {
  if (!shape.valid() || !program.shapes[shape].ranked)
    return make_error(who.str() + " has extents that are not known");
  Dims dims;
  for (ir::Extent extent : program.shapes[shape].dims) {
    if (!extent.is_number())
      return make_error(fmt::format("{} has the extent `{}`, which has no value", who.str(),
                                    ir::print(extent, program.exprs, program.strings)));
    dims.push_back(extent.number());
  }
  return dims;
}

llvm::Expected<Placement> Placement::make(const ir::Program &program, const World &world,
                                          const rules::TensorInfo &value, const llvm::Twine &who) {
  llvm::Expected<Dims> local = dims_of(program, value.shape, who);
  if (!local)
    return local.takeError();
  const ir::Type &type = program.types[value.type];
  Placement made;
  made.mesh_ = type.mesh();
  made.dtype_ = program.shapes[value.shape].dtype;
  made.whole_ = *local;
  for (unsigned d = 0; d < local->size(); ++d) {
    Cut cut{d, ir::shards_of(type, d), {}, {}};
    if (cut.axes.empty())
      continue;
    int64_t blocks = world.count(type.mesh(), cut.axes), first = 0;
    const ir::UnevenDim *uneven =
        value.sizes.valid() ? program.shard_sizes[value.sizes].find(d) : nullptr;
    if (uneven)
      cut.lengths = block_lengths(program, *uneven, blocks);
    else
      cut.lengths.assign(static_cast<size_t>(blocks), (*local)[d]);
    if (cut.lengths.empty())
      return make_error(
          fmt::format("{} has shards in dimension {} whose sizes are not known", who.str(), d));
    for (int64_t length : cut.lengths) {
      cut.firsts.push_back(first);
      first += length;
      made.even_ &= length == cut.lengths.front();
    }
    made.whole_[d] = first;
    made.cuts_.push_back(std::move(cut));
  }
  return made;
}

Block Placement::block(const World &world, RankId rank) const {
  Block block{whole_, Dims(whole_.size(), 0), whole_};
  for (const Cut &cut : cuts_) {
    size_t at = static_cast<size_t>(world.index(mesh_, cut.axes, rank));
    block.dims[cut.dim] = cut.lengths[at];
    block.first[cut.dim] = cut.firsts[at];
  }
  return block;
}

llvm::SmallVector<ir::AxisId, 4> per_rank_axes(const ir::Type &type) {
  llvm::SmallVector<ir::AxisId, 4> axes;
  for (ir::AxisId axis : type.of(ir::Kind::Varying) - type.sharded())
    axes.push_back(axis);
  return axes;
}

uint64_t draw_op(uint64_t path, ir::InstId inst) { return ir::mix(path, inst.index + 1); }

// Rows without random numbers need not be looked for.
static bool may_draw(const ir::Program &program, llvm::StringRef op) {
  const rules::OpDef *row = rules::resolve_spelling(op, program.dialect_name()).row;
  return !row || row->choose || row->equation.equation.has_generator;
}

ir::InstId drawn_by(const ir::Program &program, ir::InstId inst) {
  ir::ValueId of = program.insts[inst].bwd_of;
  std::optional<rules::DerivativeName> name =
      rules::read_derivative_name(program.op_name(program.insts[inst].op));
  if (!of.valid() || !name || !may_draw(program, name->op))
    return inst;
  for (ir::InstId before = inst; before.index-- > 0;) {
    const ir::Inst &made = program.insts[before];
    if (of.index - made.first_result.index < made.result_count)
      return before;
  }
  return inst;
}

uint64_t body_path(uint64_t path, ir::InstId site, uint64_t round) {
  return ir::mix(draw_op(path, site), round + 1);
}

uint64_t draw_stream(const World &world, ir::MeshId mesh, llvm::ArrayRef<ir::AxisId> per_rank,
                     RankId rank) {
  return per_rank.empty() ? 0 : 1 + static_cast<uint64_t>(world.index(mesh, per_rank, rank));
}

} // namespace spmd::runtime
