// Windows that slide along dimensions: pools, interpolation, patches.
#pragma once

#include "runtime/kernels/positions.h"

#include <utility>

namespace spmd::runtime {

// What is added before and behind a dimension.
struct Margin {
  int64_t low = 0, high = 0;
};
// Attribute `padding` as pairs, one for each of `count` dimensions; zeros if it is not there.
std::optional<llvm::SmallVector<Margin, 4>> margins_of(const KernelContext &context, size_t count);

// One dimension of a pool: window p covers the positions start + k * dilation, k < size.
struct Window {
  int64_t size = 1, stride = 1, pad = 0, dilation = 1;
};

// Per place of the result the positions of the operand that it is made of, with weights.
using Taps = std::vector<std::vector<std::pair<int64_t, double>>>;

// The positions of one dimension that each window covers, with weight 1; `covered`: how many
// positions each window has if padding counts, `high` of it behind the end.
Taps taps_of(const Window &window, int64_t in, int64_t out, int64_t high,
             std::vector<int64_t> &covered);
// As many windows as there are results, as equal as can be.
Taps adaptive_taps(int64_t in, int64_t out);

// How many dimensions, the last ones, a pool slides along, and its window in each.
std::optional<llvm::SmallVector<Window, 4>> pool_windows(const KernelContext &context,
                                                         unsigned rank);

// Calls f(to, from, weight) for all pairs of a result and an operand that meet: dimensions that
// `taps` leaves out come first and are the same in both.
template <class F>
void each_tap(const Dims &from, const Dims &to, const std::vector<Taps> &taps, const F &f) {
  size_t lead = to.size() - taps.size();
  Strides steps = strides_of(from), to_steps = strides_of(to);
  int64_t inner = lead ? to_steps[lead - 1] : count(to),
          from_inner = lead ? steps[lead - 1] : count(from);
  Dims positions(to.begin() + static_cast<ptrdiff_t>(lead), to.end());
  int64_t outer = inner ? count(to) / inner : 0;
  std::vector<std::pair<int64_t, double>> met, next;
  int64_t at = 0;
  for (Walk walk(positions); walk; ++walk, ++at) {
    met.assign(1, {0, 1});
    for (size_t i = 0; i < taps.size(); ++i) {
      next.clear();
      for (auto [base, weight] : met)
        for (auto [place, more] :
             taps[i][static_cast<size_t>(walk.index(static_cast<unsigned>(i)))])
          next.push_back({base + place * steps[lead + i], weight * more});
      std::swap(met, next);
    }
    for (int64_t o = 0; o < outer; ++o)
      for (const std::pair<int64_t, double> &pair : met)
        f(o * inner + at, o * from_inner + pair.first, pair.second);
  }
}

} // namespace spmd::runtime
