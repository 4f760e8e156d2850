// Commands of a device, carried out on the host one element after another: addresses are pointers.
#pragma once

#include "runtime/commands/scalar.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace spmd::test {

inline void carry_out(const SpmdMove &move) {
  const int64_t count = device::iterations(move.extents, 0, move.loops);
  int64_t at[kSpmdLoops];
  for (int64_t place = 0; place < count; ++place) {
    device::unravel(move.extents, 0, move.loops, place, at);
    std::memcpy(reinterpret_cast<char *>(move.to) +
                    device::dot(move.to_strides, at, move.loops) * move.bytes,
                reinterpret_cast<const char *>(move.from) +
                    device::dot(move.from_strides, at, move.loops) * move.bytes,
                move.bytes);
  }
}

inline void carry_out(const SpmdLoopNest &nest) {
  const uint32_t outer = nest.loops - nest.inner;
  const int64_t count = device::iterations(nest.extents, 0, outer),
                inner = device::iterations(nest.extents, outer, nest.loops);
  int64_t at[kSpmdLoops];
  for (int64_t place = 0; place < count; ++place) {
    device::unravel(nest.extents, 0, outer, place, at);
    double value = device::neutral(nest.combiner);
    for (int64_t k = 0; k < inner; ++k) {
      device::unravel(nest.extents, outer, nest.loops, k, at);
      const double more = device::evaluate_at(nest, at);
      value = nest.inner ? device::combined(nest.combiner, value, more) : more;
    }
    device::finish(nest, at, value);
  }
}

// As cuBLASLt does it for some sizes.
inline double product_to_add(double product, uint32_t out_element) {
  return device::bytes_of(out_element) < 4 ? device::rounded(product, out_element) : product;
}

// Libraries add the products of narrow numbers in float, in an order of their own.
template <class Sum> double product_at(const SpmdMatrices &each, int64_t b, int64_t r, int64_t c) {
  Sum sum = 0;
  for (int64_t k = each.inner; k-- > 0;)
    sum += static_cast<Sum>(
        device::load(each.a, each.element, b * each.a_batch + r * each.a_row + k * each.a_inner) *
        device::load(each.b, each.element,
                     b * each.b_batch + k * each.b_inner + c * each.b_column));
  return sum * static_cast<Sum>(each.factor);
}

inline void carry_out(const SpmdMatrices &each) {
  for (int64_t b = 0; b < each.batch; ++b)
    for (int64_t r = 0; r < each.rows; ++r)
      for (int64_t c = 0; c < each.columns; ++c) {
        const int64_t place = b * each.out_batch + r * each.out_row + c * each.out_column;
        double sum = device::bytes_of(each.element) > 4 ? product_at<double>(each, b, r, c)
                                                        : product_at<float>(each, b, r, c);
        if (each.adds)
          sum = product_to_add(sum, each.out_element) +
                device::load(each.out, each.out_element, place);
        device::store(each.out, each.out_element, place, sum);
      }
}

inline void carry_out(const SpmdSort &each) {
  std::vector<uint64_t> keys(static_cast<size_t>(each.length));
  std::vector<uint32_t> order(keys.size());
  for (int64_t r = 0; r < each.rows; ++r) {
    for (size_t i = 0; i < keys.size(); ++i)
      keys[i] = device::order_key(
          device::load(each.keys, each.element,
                       r * each.row_stride + static_cast<int64_t>(i) * each.stride),
          each.descending);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
    for (size_t i = 0; i < order.size(); ++i)
      device::store(each.order, kSpmdU32, r * each.length + static_cast<int64_t>(i), order[i]);
  }
}

// As the order tells it, so that a wrong one is seen.
inline void carry_out(const SpmdScatter &each) {
  const bool adds = each.form == kSpmdAddRows;
  auto entry_at = [&](int64_t i) {
    return adds ? static_cast<int64_t>(device::load(each.order, kSpmdU32, i)) : i;
  };
  std::vector<double> row(static_cast<size_t>(each.width));
  for (int64_t i = 0; i < each.entries;) {
    const int64_t place = device::scatter_row(each, entry_at(i));
    std::fill(row.begin(), row.end(), 0.0);
    int64_t end = i;
    for (; end < each.entries && device::scatter_row(each, entry_at(end)) == place; ++end)
      for (int64_t c = 0; c < each.width; ++c) {
        const double value = device::load(each.from, each.from_element,
                                          entry_at(end) * each.from_entry + c * each.from_stride);
        double &cell = row[static_cast<size_t>(c)];
        cell = adds ? cell + value : value;
      }
    i = end;
    if (place < 0 || place >= each.rows)
      continue;
    for (int64_t c = 0; c < each.width; ++c) {
      const int64_t to = place * each.to_row + c * each.to_stride;
      const double before = adds ? device::load(each.to, each.to_element, to) : 0;
      device::store(each.to, each.to_element, to, before + row[static_cast<size_t>(c)]);
    }
  }
}

} // namespace spmd::test
