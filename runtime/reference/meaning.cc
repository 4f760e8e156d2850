// Axis by axis: what all hold is read once, what is pending is summed, blocks are put in their
// pointers.
#include "runtime/reference/meaning.h"

#include "ir/claims.h"
#include "ir/mesh/axis_scale.h"
#include "ir/support/check.h"
#include "ir/support/error.h"
#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;

namespace {

// Where blocks of one dimension begin; the last entry is the end.
llvm::Expected<llvm::SmallVector<int64_t, 8>> starts_of(const ir::Program &program,
                                                        ir::Extent local, int64_t blocks,
                                                        const ir::UnevenDim *uneven) {
  auto number = [&](ir::Extent extent) -> llvm::Expected<int64_t> {
    if (extent.is_number())
      return extent.number();
    return make_error(fmt::format("the extent {} has no value",
                                  ir::print(extent, program.exprs, program.strings)));
  };
  llvm::SmallVector<int64_t, 8> starts{0};
  if (uneven && uneven->sizes.valid()) {
    for (const ir::AttrValue &size : program.lists[uneven->sizes].items)
      starts.push_back(starts.back() + size.as_integer());
    return starts;
  }
  llvm::Expected<int64_t> length = number(uneven ? uneven->block : local);
  if (!length)
    return length.takeError();
  int64_t end = *length * blocks;
  if (uneven) {
    llvm::Expected<int64_t> global = number(uneven->global);
    if (!global)
      return global.takeError();
    end = *global;
  }
  for (int64_t i = 1; i <= blocks; ++i)
    starts.push_back(std::min(i * *length, end));
  return starts;
}

bool starts_with_nothing(ir::Combiner combiner) {
  return combiner == ir::Combiner::Sum || combiner == ir::Combiner::Avg ||
         combiner == ir::Combiner::Xor;
}

Tensor ones_like(const Tensor &like) {
  Tensor made = zeros_like(like, like.dims);
  made.visit([](auto &cells) {
    for (auto &cell : cells)
      cell = 1;
  });
  return made;
}

} // namespace

Grid::Grid(const ir::Mesh &mesh, AxisSet axes) : axes_(axes) {
  for (AxisId axis : axes)
    extents_.push_back(mesh[axis].size());
}

Grid::Coordinates Grid::coordinates(int64_t position) const {
  Coordinates at{};
  size_t i = extents_.size();
  llvm::SmallVector<AxisId, 4> order;
  for (AxisId axis : axes_)
    order.push_back(axis);
  while (i-- > 0) {
    at[order[i].index] = position % extents_[i];
    position /= extents_[i];
  }
  return at;
}

int64_t Grid::position(const Coordinates &at) const {
  int64_t position = 0;
  size_t i = 0;
  for (AxisId axis : axes_)
    position = position * extents_[i++] + at[axis.index];
  return position;
}

bool is_first(const Grid::Coordinates &at, AxisSet axes) {
  for (AxisId axis : axes)
    if (at[axis.index] != 0)
      return false;
  return true;
}

AxisSet per_rank_axes(const ir::Program &program, const ir::Type &type) {
  AxisSet typed = program.meshes[type.mesh()].typed_axes();
  AxisSet open = type.unknown | (typed - type.claimed());
  return ((type.of(Kind::Varying) - type.sharded()) | open) & typed;
}

llvm::Expected<Distribution> Distribution::make(const ir::Program &program,
                                                const rules::TensorInfo &value) {
  SPMD_CHECK(value.type.valid(), "a value that was typed");
  Distribution made;
  made.type_ = program.types[value.type];
  const ir::Mesh &mesh = program.meshes[made.type_.mesh()];
  made.ranks_ = Grid(mesh, mesh.typed_axes());
  made.per_rank_ = Grid(mesh, runtime::per_rank_axes(program, made.type_));
  AxisSet sharded = (made.type_.sharded() & mesh.typed_axes()) - made.per_rank_.axes();
  made.shards_ = Grid(mesh, sharded);
  for (AxisId axis : mesh.typed_axes())
    made.sizes_[axis.index] = mesh[axis].size();
  AxisSet pending = made.type_.of(Kind::Partial) - made.type_.zero() - made.per_rank_.axes();
  for (AxisId axis : pending &mesh.typed_axes())
    made.pending_.push_back(axis);
  if (!value.shape.valid() || !program.shapes[value.shape].ranked)
    return make_error("its shape is not known");
  const ir::Shape &shape = program.shapes[value.shape];
  made.dtype_ = shape.dtype;
  if (shape.dtype == ir::DType::Unknown)
    return make_error("its element type is not known");
  for (unsigned dim = 0; dim < shape.dims.size(); ++dim) {
    Dimension &one = made.dims_.emplace_back();
    int64_t blocks = 1;
    for (AxisId axis : ir::shards_of(made.type_, dim))
      if (sharded.contains(axis)) {
        one.axes.push_back(axis);
        blocks *= mesh[axis].size();
      }
    if (one.axes.empty() && !shape.dims[dim].is_number())
      continue;
    const ir::UnevenDim *uneven = value.sizes.valid() && !one.axes.empty()
                                      ? program.shard_sizes[value.sizes].find(dim)
                                      : nullptr;
    auto starts = starts_of(program, shape.dims[dim], blocks, uneven);
    if (!starts)
      return starts.takeError();
    one.starts = std::move(*starts);
    if (one.starts.size() != static_cast<size_t>(blocks) + 1)
      return make_error(fmt::format("dimension {} has {} blocks for {} ranks", dim,
                                    one.starts.size() - 1, blocks));
  }
  return made;
}

size_t Distribution::block_at(const Dimension &dim, const Grid::Coordinates &at) const {
  int64_t block = 0;
  for (AxisId axis : dim.axes)
    block = block * sizes_[axis.index] + at[axis.index];
  return static_cast<size_t>(block);
}

Dims Distribution::dims_at(const Grid::Coordinates &at) const {
  Dims dims;
  for (const Dimension &dim : dims_) {
    size_t block = block_at(dim, at);
    dims.push_back(dim.starts.empty() ? kOpen : dim.starts[block + 1] - dim.starts[block]);
  }
  return dims;
}

Dims Distribution::first_at(const Grid::Coordinates &at) const {
  Dims first;
  for (const Dimension &dim : dims_)
    first.push_back(dim.starts.empty() ? 0 : dim.starts[block_at(dim, at)]);
  return first;
}

bool Distribution::open() const {
  return llvm::any_of(dims_, [](const Dimension &dim) { return dim.starts.empty(); });
}

std::vector<Dims> dims_of(llvm::ArrayRef<Tensor> tensors) {
  std::vector<Dims> dims;
  for (const Tensor &tensor : tensors)
    dims.push_back(tensor.dims);
  return dims;
}

Dims Distribution::dims_on(int64_t rank, llvm::ArrayRef<Dims> held) const {
  Grid::Coordinates at = ranks_.coordinates(rank);
  Dims dims = dims_at(at);
  for (AxisId axis : ranks_.axes() - per_rank_.axes())
    at[axis.index] = 0;
  const Dims &first = held[static_cast<size_t>(ranks_.position(at))];
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] == kOpen && first.size() == dims.size())
      dims[i] = first[i];
  return dims;
}
Dims Distribution::first_on(int64_t rank) const { return first_at(ranks_.coordinates(rank)); }

Dims Distribution::whole() const {
  Dims dims;
  for (const Dimension &dim : dims_)
    dims.push_back(dim.starts.empty() ? kOpen : dim.starts.back());
  return dims;
}

// Pieces of a list may differ in extents that no axis cuts: they are as the data are.
Dims Distribution::piece_dims(const Dims &first) const {
  Dims extents = first;
  for (size_t i = 0; i < extents.size(); ++i)
    if (!dims_[i].axes.empty())
      extents[i] = dims_[i].starts.back();
  return extents;
}

std::vector<Distribution::Addends> Distribution::blocks_of(Grid::Coordinates at) const {
  std::vector<Addends> blocks;
  for (int64_t i = 0; i < shards_.size(); ++i) {
    Grid::Coordinates shard = shards_.coordinates(i);
    for (AxisId axis : shards_.axes())
      at[axis.index] = shard[axis.index];
    Addends &ranks = blocks.emplace_back(Addends{ranks_.position(at)});
    for (AxisId axis : pending_) {
      const int64_t step = stride_of(axis);
      for (size_t known = ranks.size(), k = 0; k < known; ++k)
        for (int64_t j = 1; j < sizes_[axis.index]; ++j)
          ranks.push_back(ranks[k] + j * step);
    }
  }
  return blocks;
}

// Between neighbours on an axis.
int64_t Distribution::stride_of(AxisId axis) const {
  Grid::Coordinates at{};
  at[axis.index] = 1;
  return ranks_.position(at);
}

bool Distribution::adds_up() const {
  return llvm::all_of(pending_, [&](AxisId axis) {
    ir::Combiner combiner = type_.combiner(axis);
    return combiner == ir::Combiner::Sum || combiner == ir::Combiner::Avg;
  });
}

Tensor Distribution::assembled(llvm::ArrayRef<const Tensor *> held, Grid::Coordinates at) const {
  const Tensor &first = *held[static_cast<size_t>(ranks_.position(at))];
  if (shards_.axes().empty())
    return first;
  Tensor made = zeros_like(first, piece_dims(first.dims));
  for (int64_t i = 0; i < shards_.size(); ++i) {
    Grid::Coordinates shard = shards_.coordinates(i);
    for (AxisId axis : shards_.axes())
      at[axis.index] = shard[axis.index];
    const Tensor &block = *held[static_cast<size_t>(ranks_.position(at))];
    copy_block(block, Dims(block.dims.size(), 0), made, first_at(at), block.dims);
  }
  return made;
}

Tensor Distribution::joined(llvm::ArrayRef<const Tensor *> held, Grid::Coordinates at,
                            llvm::ArrayRef<AxisId> pending) const {
  if (pending.empty())
    return assembled(held, at);
  AxisId axis = pending.front();
  Tensor sum = joined(held, at, pending.drop_front());
  for (at[axis.index] = 1; at[axis.index] < sizes_[axis.index]; ++at[axis.index])
    combine_into(sum, joined(held, at, pending.drop_front()), type_.combiner(axis));
  return sum;
}

Meaning Distribution::denote(llvm::ArrayRef<const Tensor *> held) const {
  SPMD_CHECK(static_cast<int64_t>(held.size()) == ranks_.size(), "one tensor for each rank");
  Meaning meaning{per_rank_.axes(), {}};
  for (int64_t i = 0; i < per_rank_.size(); ++i)
    meaning.pieces.push_back(joined(held, per_rank_.coordinates(i), pending_));
  return meaning;
}

Meaning Distribution::denote_magnitudes(llvm::ArrayRef<const Tensor *> held) const {
  std::vector<Tensor> sizes;
  std::vector<const Tensor *> pointers;
  for (const Tensor *tensor : held)
    sizes.push_back(magnitudes(*tensor));
  for (const Tensor &tensor : sizes)
    pointers.push_back(&tensor);
  return denote(pointers);
}

std::vector<Tensor> Distribution::place(const Meaning &meaning) const {
  SPMD_CHECK(meaning.per_rank == per_rank_axes() &&
                 static_cast<int64_t>(meaning.pieces.size()) == per_rank_.size(),
             "a meaning of this type");
  std::vector<Tensor> held;
  for (int64_t rank = 0; rank < ranks_.size(); ++rank) {
    Grid::Coordinates at = ranks_.coordinates(rank);
    const Tensor &whole = meaning.pieces[static_cast<size_t>(per_rank_.position(at))];
    Dims extents = whole.dims, cut = dims_at(at), first(extents.size(), 0), begin = first_at(at);
    for (size_t i = 0; i < extents.size(); ++i)
      if (!dims_[i].axes.empty())
        extents[i] = cut[i], first[i] = begin[i];
    held.push_back(block_of(whole, first, extents));
    for (AxisId axis : pending_)
      if (ir::Combiner combiner = type_.combiner(axis); at[axis.index] != 0) {
        if (starts_with_nothing(combiner))
          held.back() = zeros_like(held.back(), held.back().dims);
        else if (combiner == ir::Combiner::Prod)
          held.back() = ones_like(held.back());
      }
  }
  return held;
}

std::vector<int64_t> ranks_of_mesh(const ir::Mesh &mesh) {
  llvm::SmallVector<AxisId, 4> axes;
  for (AxisId axis : mesh.typed_axes())
    axes.push_back(axis);
  llvm::SmallVector<int64_t, 16> ranks = ir::ranks_of(ir::layout_of_axes(mesh, axes), mesh.offset);
  return {ranks.begin(), ranks.end()};
}

Meaning reframed(const ir::Program &program, const Meaning &meaning, const Distribution &from,
                 const Distribution &to) {
  bool same_mesh = from.type().mesh() == to.type().mesh();
  if (from.per_rank_axes().empty() && to.per_rank_axes().empty())
    return meaning;
  if (same_mesh && from.per_rank_axes() == to.per_rank_axes())
    return meaning;
  std::vector<Tensor> held = from.place(meaning);
  std::vector<const Tensor *> seen;
  for (const Tensor &tensor : held)
    seen.push_back(&tensor);
  if (same_mesh)
    return to.denote(seen);
  std::vector<int64_t> have = ranks_of_mesh(program.meshes[from.type().mesh()]);
  std::vector<const Tensor *> moved;
  for (int64_t rank : ranks_of_mesh(program.meshes[to.type().mesh()])) {
    auto at = llvm::find(have, rank);
    SPMD_CHECK(at != have.end(), "meshes over the same ranks");
    moved.push_back(seen[static_cast<size_t>(at - have.begin())]);
  }
  return to.denote(moved);
}

namespace {

// The extent that a base of a scale stands for: the size of an axis, or the value of a symbol.
std::optional<int64_t> base_value(ir::Program &program, ir::StringId base, ir::MeshId mesh) {
  if (std::optional<AxisId> axis = ir::named_in(program, program.meshes[mesh], base))
    return program.meshes[mesh][*axis].size();
  // A piece that no axis is by itself goes by its layout, `[size:stride]`.
  llvm::StringRef text = program.strings[base];
  int64_t size = 0;
  if (text.consume_front("[") && !text.consumeInteger(10, size) && ir::starts_with(text, ":"))
    return size;
  for (const ir::Mesh &other : program.meshes)
    if (std::optional<AxisId> axis = ir::named_in(program, other, base))
      return other[*axis].size();
  for (const ir::SymbolInfo &symbol : program.symbols)
    if (symbol.name == base)
      return symbol.min && symbol.min == symbol.max ? symbol.min : symbol.hint;
  return std::nullopt;
}

} // namespace

std::optional<Rational> number_of(ir::Program &program, ir::ScaleId id, ir::MeshId mesh) {
  if (!id.valid())
    return std::nullopt;
  const ir::Scale scale = program.scales[id];
  Rational number{scale.numerator, scale.denominator};
  for (const ir::ScaleFactor &factor : scale.factors) {
    std::optional<int64_t> value = base_value(program, factor.base, mesh);
    if (!value)
      return std::nullopt;
    int64_t &part = factor.exponent > 0 ? number.first : number.second;
    for (int32_t i = 0; i < std::abs(factor.exponent); ++i)
      if (__builtin_mul_overflow(part, *value, &part))
        return std::nullopt;
  }
  return number;
}

} // namespace spmd::runtime
