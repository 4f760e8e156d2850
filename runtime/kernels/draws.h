// What random rows hash: a key of the op and of the state given to it, and positions in the whole.
#pragma once

#include "runtime/kernels/positions.h"
#include "runtime/tensor/draw.h"
#include "runtime/tensor/number.h"

#include <bit>

namespace spmd::runtime {

inline uint64_t word_of(double x) { return std::bit_cast<uint64_t>(x); }
inline uint64_t word_of(Complex x) { return joined(word_of(x.real()), word_of(x.imag())); }
inline uint64_t word_of(Residue x) { return x.value(); }
inline uint64_t word_of(Var x) { return word_of(x.value()); }

template <class T> uint64_t hash_of(uint64_t key, View<const T> tensor) {
  for (int64_t i = 0; tensor && i < tensor.size(); ++i)
    key = joined(key, word_of(tensor[i]));
  return key;
}

template <class T> uint64_t key_of(const Call<T> &call) {
  const KernelContext &context = call.context;
  uint64_t key = joined(joined(scrambled(context.seed), context.op), context.stream);
  const rules::Slot *state = context.binding.generator;
  for (unsigned k = 0; state && k < state->count; ++k)
    key = hash_of(key, call.args[state->first + k]);
  return key;
}

// For each element of a block its place in the whole, row by row. The first `leading` dimensions
// distinguish positions, the others share them.
class WholePositions {
public:
  template <class T>
  explicit WholePositions(View<T> block, unsigned leading = ~0u)
      : own_(*block.dims), first_(block.first),
        strides_(strides_of(block.whole ? *block.whole : own_)), steps_(strides_of(own_)) {
    for (unsigned d = std::min<unsigned>(leading, block.rank()); d < block.rank(); ++d)
      strides_[d] = 0;
  }
  uint64_t operator()(int64_t at) const {
    int64_t place = 0;
    for (size_t d = 0; d < own_.size(); ++d) {
      int64_t here = at / steps_[d] % own_[d] + (first_ ? (*first_)[d] : 0);
      place += here * strides_[d];
    }
    return static_cast<uint64_t>(place);
  }

private:
  Dims own_;
  const Dims *first_;
  Strides strides_, steps_;
};

} // namespace spmd::runtime
