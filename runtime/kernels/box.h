// Boxes of elements that are copied from one array to another, each with strides of its own: all
// that views, cuts and joins come to.
#pragma once

#include "runtime/kernels/positions.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

// `from` and `to` count elements from the starts of the arrays to the first element of the box.
struct Box {
  Dims extents;
  Strides from_strides, to_strides;
  int64_t from = 0, to = 0;
};

// Loops that neither array interrupts are one; extents of 1 are gone. The loop with the smallest
// steps in `to` is the innermost.
Box simplified(const Box &box);

namespace detail {

// The two innermost loops, in tiles: one of them may run across the other's rows.
template <class T, class Put>
void put_plane(const T *from, T *to, int64_t rows, int64_t from_row, int64_t to_row, int64_t n,
               int64_t from_step, int64_t to_step, Put put) {
  constexpr int64_t kTile = 64;
  int64_t tile = from_step == 1 || rows == 1 ? n : kTile;
  for (int64_t first = 0; first < n; first += tile)
    for (int64_t i = 0; i < rows; ++i) {
      const T *a = from + i * from_row;
      T *b = to + i * to_row;
      int64_t last = std::min(first + tile, n);
      if (from_step == 1 && to_step == 1)
        for (int64_t k = first; k < last; ++k)
          put(b[k], a[k]);
      else
        for (int64_t k = first; k < last; ++k)
          put(b[k * to_step], a[k * from_step]);
    }
}

} // namespace detail

template <class T, class Put> void put_box(const T *from, T *to, const Box &stated, Put put) {
  const Box box = simplified(stated);
  size_t rank = box.extents.size();
  if (llvm::is_contained(box.extents, 0))
    return;
  from += box.from, to += box.to;
  auto extent = [&](size_t back) { return back <= rank ? box.extents[rank - back] : 1; };
  auto from_step = [&](size_t back) { return back <= rank ? box.from_strides[rank - back] : 0; };
  auto to_step = [&](size_t back) { return back <= rank ? box.to_strides[rank - back] : 0; };
  size_t outer = rank > 2 ? rank - 2 : 0;
  Strides place(outer, 0);
  while (true) {
    detail::put_plane(from, to, extent(2), from_step(2), to_step(2), extent(1), from_step(1),
                      to_step(1), put);
    size_t l = outer;
    for (; l-- > 0;) {
      bool more = ++place[l] < box.extents[l];
      int64_t steps = more ? 1 : 1 - box.extents[l];
      from += steps * box.from_strides[l], to += steps * box.to_strides[l];
      if (more)
        break;
      place[l] = 0;
    }
    if (l == size_t(-1))
      return;
  }
}

template <class T> void copy_box(const T *from, T *to, const Box &box) {
  put_box(from, to, box, [](T &cell, const T &value) { cell = value; });
}
template <class T> void add_box(const T *from, T *to, const Box &box) {
  put_box(from, to, box, [](T &cell, const T &value) { cell += value; });
}

} // namespace spmd::runtime
