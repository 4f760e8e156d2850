// Everything goes through blocks: a concatenation is blocks put one behind the other.
#include "tests/soundness/array.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace spmd::soundness {

int64_t count(llvm::ArrayRef<int64_t> dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t(1), std::multiplies<>());
}

Array Array::zeros(Dims dims) {
  size_t size = static_cast<size_t>(count(dims));
  return {std::move(dims), std::vector<Residue>(size)};
}

namespace {
thread_local const char *misfit = nullptr;
} // namespace

void note_misfit(const char *what) { misfit = misfit ? misfit : what; }
const char *take_misfit() { return std::exchange(misfit, nullptr); }

uint64_t mix(uint64_t hash, uint64_t more) {
  hash = (hash ^ more) * 0x9E3779B97F4A7C15ull;
  hash ^= hash >> 32;
  hash *= 0xD6E8FEB86659FD93ull;
  return hash ^ (hash >> 29);
}

void add_to(Array &sum, const Array &more) {
  if (sum.data.size() != more.data.size())
    return note_misfit("addends of different extents");
  for (size_t i = 0; i < more.data.size(); ++i)
    sum.data[i] += more.data[i];
}

Array times(Array array, Residue factor) {
  for (Residue &each : array.data)
    each *= factor;
  return array;
}

Residue power(int64_t base, int64_t exponent) {
  Residue result = 1, factor = exponent < 0 ? Residue(base).inverse() : Residue(base);
  for (int64_t i = exponent < 0 ? -exponent : exponent; i; --i)
    result *= factor;
  return result;
}

namespace {

// Calls `f(place in the whole, place in the block)` for every element of the block.
template <class F> void for_block(const Dims &whole, const Block &block, F &&f) {
  size_t rank = whole.size();
  if (block.dims.size() != rank || block.first.size() != rank)
    return note_misfit("a block of another rank");
  for (size_t d = 0; d < rank; ++d)
    if (block.first[d] < 0 || block.first[d] + block.dims[d] > whole[d])
      return note_misfit("a block beyond its whole");
  Dims at(rank, 0);
  for (int64_t place = 0, size = count(block.dims); place < size; ++place) {
    int64_t from = 0;
    for (size_t d = 0; d < rank; ++d)
      from = from * whole[d] + block.first[d] + at[d];
    f(static_cast<size_t>(from), static_cast<size_t>(place));
    for (size_t d = rank; d-- > 0;) {
      if (++at[d] < block.dims[d])
        break;
      at[d] = 0;
    }
  }
}

Dims without(Dims dims, size_t dim) {
  dims.erase(dims.begin() + static_cast<ptrdiff_t>(dim));
  return dims;
}
Dims with(Dims dims, size_t dim, int64_t extent) {
  dims.insert(dims.begin() + static_cast<ptrdiff_t>(dim), extent);
  return dims;
}

} // namespace

Array take(const Array &whole, const Block &block) {
  Array part = Array::zeros(block.dims);
  for_block(whole.dims, block, [&](size_t from, size_t to) { part.data[to] = whole.data[from]; });
  return part;
}

void put(Array &whole, const Block &block, const Array &part, bool add) {
  if (count(block.dims) != static_cast<int64_t>(part.data.size()))
    return note_misfit("a part that is not as large as its block");
  for_block(whole.dims, block, [&](size_t to, size_t from) {
    whole.data[to] = add ? whole.data[to] + part.data[from] : part.data[from];
  });
}

Array concat(llvm::ArrayRef<Array> pieces, size_t dim) {
  Dims dims = pieces[0].dims;
  for (const Array &piece : pieces.drop_front()) {
    if (dim >= dims.size() || piece.dims.size() != dims.size())
      return note_misfit("pieces that cannot be joined"), pieces[0];
    dims[dim] += piece.dims[dim];
  }
  Array whole = Array::zeros(dims);
  Block block{Dims(dims.size(), 0), {}};
  for (const Array &piece : pieces) {
    block.dims = piece.dims;
    put(whole, block, piece, false);
    block.first[dim] += piece.dims[dim];
  }
  return whole;
}

Array stack(llvm::ArrayRef<Array> pieces, size_t dim) {
  Arrays widened;
  for (const Array &piece : pieces)
    if (dim > piece.dims.size())
      return note_misfit("no such dimension to stack along"), pieces[0];
  for (const Array &piece : pieces)
    widened.push_back({with(piece.dims, dim, 1), piece.data});
  return concat(widened, dim);
}

Arrays split(const Array &whole, llvm::ArrayRef<int64_t> lengths, size_t dim) {
  Arrays pieces;
  if (dim >= whole.dims.size())
    return note_misfit("no such dimension to cut"), Arrays(lengths.size(), whole);
  Block block{Dims(whole.dims.size(), 0), whole.dims};
  for (int64_t length : lengths) {
    block.dims[dim] = length;
    pieces.push_back(take(whole, block));
    block.first[dim] += length;
  }
  return pieces;
}

Array flip(const Array &whole, llvm::ArrayRef<int64_t> dims) {
  Array made = whole;
  for (int64_t dim : dims) {
    auto d = static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(made.dims.size()) : dim);
    if (d >= made.dims.size())
      return note_misfit("no such dimension to flip"), whole;
    Arrays rows = split(made, Dims(static_cast<size_t>(made.dims[d]), 1), d);
    std::reverse(rows.begin(), rows.end());
    if (!rows.empty())
      made = concat(rows, d);
  }
  return made;
}

Arrays unbind(const Array &whole, size_t dim) {
  if (dim >= whole.dims.size())
    return note_misfit("no such dimension to unbind"), Arrays();
  Arrays pieces = split(whole, Dims(static_cast<size_t>(whole.dims[dim]), 1), dim);
  for (Array &piece : pieces)
    piece.dims = without(piece.dims, dim);
  return pieces;
}

} // namespace spmd::soundness
