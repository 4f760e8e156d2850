// Commands of a device, carried out on the host one element after another: addresses are pointers.
#pragma once

#include "runtime/device/scalar.h"

namespace spmd::test {

inline void carry_out(const SpmdMove &move) {
  const int64_t count = device::places(move.extents, 0, move.loops);
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

inline void carry_out(const SpmdNest &nest) {
  const uint32_t outer = nest.loops - nest.inner;
  const int64_t count = device::places(nest.extents, 0, outer),
                inner = device::places(nest.extents, outer, nest.loops);
  int64_t at[kSpmdLoops];
  for (int64_t place = 0; place < count; ++place) {
    device::unravel(nest.extents, 0, outer, place, at);
    double value = device::neutral(nest.combiner);
    for (int64_t k = 0; k < inner; ++k) {
      device::unravel(nest.extents, outer, nest.loops, k, at);
      const double more = device::worth(nest, at);
      value = nest.inner ? device::combined(nest.combiner, value, more) : more;
    }
    device::finish(nest, at, value);
  }
}

inline void carry_out(const SpmdMatrices &each) {
  for (int64_t b = 0; b < each.batch; ++b)
    for (int64_t r = 0; r < each.rows; ++r)
      for (int64_t c = 0; c < each.columns; ++c) {
        double sum = 0;
        for (int64_t k = 0; k < each.inner; ++k)
          sum += device::load(each.a, each.element,
                              b * each.a_batch + r * each.a_row + k * each.a_inner) *
                 device::load(each.b, each.element,
                              b * each.b_batch + k * each.b_inner + c * each.b_column);
        const int64_t place = b * each.out_batch + r * each.out_row + c * each.out_column;
        sum *= each.factor;
        if (each.adds)
          sum += device::load(each.out, each.out_element, place);
        device::store(each.out, each.out_element, place, sum);
      }
}

} // namespace spmd::test
