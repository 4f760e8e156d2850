// Tensors joined and taken apart along one dimension, and turned around it.
#include "runtime/kernels/moves/moves.h"

namespace spmd::runtime {

using llvm::Expected;

namespace {

// A part of dimension `dim` of a dense array, as the box of all of it: `first` elements into it.
Box part_box(llvm::ArrayRef<int64_t> part, llvm::ArrayRef<int64_t> whole, unsigned dim,
             int64_t first) {
  Box box = box_between(part, part, whole);
  box.to = first * box.to_strides[dim];
  return box;
}

void swap_ends(Box &box) {
  std::swap(box.from, box.to);
  std::swap(box.from_strides, box.to_strides);
}

// The extents that a member has where the spelling gives it more dimensions.
Dims joined_dims(Variant variant, Dims dims) {
  if (variant == Variant::ColumnVectors && dims.size() < 2)
    return {count(dims), 1};
  if ((variant == Variant::Rows || variant == Variant::Depth) && dims.size() < 2)
    dims = {1, count(dims)};
  if (variant == Variant::Depth && dims.size() == 2)
    dims.push_back(1);
  if (dims.empty())
    dims = {1};
  return dims;
}

Expected<unsigned> joined_dim(const MoveSite &at, size_t rank) {
  switch (at.context.variant()) {
  case Variant::Columns:
  case Variant::ColumnVectors:
    return rank > 1 ? 1 : 0;
  case Variant::Rows:
    return 0;
  case Variant::Depth:
    return 2;
  default:
    return at.dim(rank, 0, 1);
  }
}

// Rows of all members in all combinations, the last member fastest.
Expected<Moves> cartesian_prod(const MoveSite &at, unsigned members) {
  const Dims &to = *at.results[0];
  Moves moves;
  int64_t inner = to.empty() ? 1 : to[0];
  for (unsigned k = 0; k < members; ++k) {
    unsigned arg = *at.arg("a", k);
    int64_t extent = count(at.dims(arg));
    if (extent == 0)
      return moves;
    int64_t outer = inner ? to[0] / inner : 0;
    inner /= extent;
    int64_t width = members;
    moves.list.push_back({arg,
                          0,
                          {{outer, extent, inner},
                           {0, 1, 0},
                           {extent * inner * width, inner * width, width},
                           0,
                           k}});
  }
  return moves;
}

} // namespace

Expected<Moves> cat(const MoveSite &at) {
  const Variant variant = at.context.variant();
  unsigned members = at.context.members(at.context.operand("a"));
  const Dims &to = *at.results[0];
  if (variant == Variant::Padded)
    return cannot_run(at.context, "its chunks are padded");
  if (variant == Variant::Combinations && members > 1)
    return cartesian_prod(at, members);
  Expected<unsigned> dim = joined_dim(at, std::max<size_t>(to.size(), 1));
  if (!dim)
    return dim.takeError();
  Moves moves;
  int64_t first = 0;
  for (unsigned k = 0; k < members; ++k) {
    unsigned arg = *at.arg("a", k);
    Dims dims = joined_dims(variant, at.dims(arg));
    if (dims.size() == 1 && dims[0] == 0)
      continue; // joins anything
    bool fits = dims.size() == to.size() && first + dims[*dim] <= to[*dim];
    for (unsigned d = 0; fits && d < dims.size(); ++d)
      fits = d == *dim || dims[d] == to[d];
    if (!fits)
      return cannot_run(at.context, "its operands do not fit into the result");
    moves.list.push_back({arg, 0, part_box(dims, to, *dim, first)});
    first += dims[*dim];
  }
  if (!to.empty() && first != to[*dim])
    return wrong_number(at.context, first, to[*dim]);
  return moves;
}

Expected<Moves> stack(const MoveSite &at) {
  const Dims &to = *at.results[0];
  unsigned members = at.context.members(at.context.operand("a"));
  Expected<unsigned> dim = at.dim(to.size(), 0, 1);
  if (!dim)
    return dim.takeError();
  Moves moves;
  for (unsigned k = 0; k < members; ++k) {
    unsigned arg = *at.arg("a", k);
    Dims part = at.dims(arg);
    part.insert(part.begin() + std::min<size_t>(*dim, part.size()), 1);
    Dims want = to;
    want[*dim] = 1;
    if (part != want || k >= to[*dim])
      return cannot_run(at.context, "its operands do not fit into the result");
    moves.list.push_back({arg, 0, part_box(part, to, *dim, k)});
  }
  return moves;
}

Expected<Moves> block_diag(const MoveSite &at) {
  const Dims &to = *at.results[0];
  Moves moves;
  int64_t row = 0, column = 0;
  for (unsigned k = 0; k < at.context.members(at.context.operand("a")); ++k) {
    unsigned arg = *at.arg("a", k);
    Dims dims = at.dims(arg);
    while (dims.size() < 2)
      dims.insert(dims.begin(), 1);
    if (dims.size() != 2 || to.size() != 2 || row + dims[0] > to[0] || column + dims[1] > to[1])
      return cannot_run(at.context, "its operands do not fit into the result");
    Box box = box_between(dims, dims, to);
    box.to = row * to[1] + column;
    moves.list.push_back({arg, 0, std::move(box)});
    row += dims[0], column += dims[1];
  }
  return moves;
}

// Results one after the other; where they lack the dimension, each is one entry of it.
Expected<Moves> split(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  const Dims &from = at.dims(arg);
  const Variant variant = at.context.variant();
  bool unbinds = variant == Variant::Entries;
  Expected<unsigned> dim = variant == Variant::Columns
                               ? Expected<unsigned>(from.size() > 1 ? 1u : 0u)
                           : variant == Variant::Rows ? Expected<unsigned>(0u)
                                                      : at.dim(from.size(), 0, unbinds ? 1 : 2);
  if (!dim)
    return dim.takeError();
  Moves moves;
  int64_t first = 0;
  for (unsigned k = 0; k < at.results.size(); ++k) {
    if (!at.results[k])
      return cannot_run(at.context, "the extents of one of its results are not known");
    Dims part = *at.results[k];
    if (unbinds && part.size() + 1 == from.size())
      part.insert(part.begin() + *dim, 1);
    if (part.size() != from.size() || first + part[*dim] > from[*dim])
      return cannot_run(at.context, "its results are no parts of the operand");
    Box box = part_box(part, from, *dim, first);
    swap_ends(box);
    first += part[*dim];
    moves.list.push_back({arg, k, std::move(box)});
  }
  return moves;
}

// By as many positions as are stated per dimension, or, without any, of the tensor laid flat.
Expected<Moves> roll(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  Dims dims = at.dims(arg);
  const Variant variant = at.context.variant();
  llvm::SmallVector<std::pair<unsigned, int64_t>, 4> shifts;
  if (variant == Variant::ToMiddle || variant == Variant::FromMiddle) {
    for (unsigned d : at.context.dims(static_cast<unsigned>(dims.size())))
      shifts.push_back({d, (dims[d] + (variant == Variant::FromMiddle)) / 2});
  } else {
    std::optional<rules::Numbers> by = rules::numbers_attr(at.context.app, {"shifts", "shift"});
    rules::Numbers along = rules::dim_numbers(at.context.app).value_or(rules::Numbers());
    if (!by)
      return cannot_run(at.context, "its attributes do not say by how much");
    if (along.empty()) {
      dims = {count(dims)};
      along = {0};
    }
    for (size_t i = 0; i < along.size(); ++i) {
      std::optional<unsigned> place = rules::place_of(along[i], dims.size());
      if (!place || (by->size() != along.size() && by->size() != 1))
        return cannot_run(at.context, "its shifts and dimensions do not go together");
      shifts.push_back({*place, (*by)[by->size() == 1 ? 0 : i]});
    }
  }
  Dims total(dims.size(), 0);
  for (auto [d, shift] : shifts)
    if (dims[d])
      total[d] = (((total[d] + shift) % dims[d]) + dims[d]) % dims[d];
  Moves moves;
  moves.list.push_back({arg, 0, box_of(dims)});
  for (unsigned d = 0; d < dims.size(); ++d) {
    if (total[d] == 0)
      continue;
    llvm::SmallVector<Move, 4> cut;
    for (const Move &move : moves.list) {
      int64_t step = strides_of(dims)[d];
      Move front = move, back = move; // the front goes behind what comes from the back
      front.box.extents[d] = dims[d] - total[d];
      front.box.to += total[d] * step;
      back.box.extents[d] = total[d];
      back.box.from += (dims[d] - total[d]) * step;
      cut.push_back(front);
      cut.push_back(back);
    }
    moves.list = std::move(cut);
  }
  return moves;
}

} // namespace spmd::runtime
