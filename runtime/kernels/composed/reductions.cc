// Extremes with their positions, norms, truths, counts and running sums, each along the dimensions
// that the row names.
#include "runtime/kernels/composed/composition.h"
#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/positions.h"
#include "runtime/kernels/reductions/matrix_norm.h"

#include "rules/shapes/attrs.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <utility>

namespace spmd::runtime {

namespace {

using Symbols = llvm::ArrayRef<TracedNumber>;

struct Along {
  const DeviceArray *x = nullptr;
  llvm::SmallVector<unsigned, 4> dims;
  Dims kept; // those are 1

  explicit Along(Composition &of) : x(of.operand("a")) {
    if (!x)
      return;
    dims = of.context.dims(static_cast<unsigned>(x->dims->size()));
    kept = Composition::without(*x->dims, dims);
  }
};

bool combine(Composition &of, const Along &along, const DeviceArray &out,
             Composition::Formula formula, SpmdCombiner combiner = kSpmdSum) {
  return of.make(of.as(out, along.kept), *along.x->dims, *along.x, formula, combiner);
}

// The first place of the extreme, counted in the order of the dimensions; of a NaN, if there is
// one.
bool make_place(Composition &of, const Along &along, const DeviceArray &most,
                const DeviceArray &out) {
  const Dims &over = *along.x->dims;
  Strided place{of.positions(1, 0, 1), Strides(over.size(), 0)};
  int64_t stride = 1;
  for (size_t d = over.size(); d-- > 0;)
    if (llvm::is_contained(along.dims, d))
      place.strides[d] = stride, stride *= over[d];
  return of.make_along(
      over, stretched(of.as(out, along.kept), over),
      {stretched(*along.x, over), stretched(most, over), place},
      [](Symbols s) {
        if (isnan(s[0]))
          return s[2];
        return s[0] == s[1] ? s[2] : TracedNumber(HUGE_VAL);
      },
      kSpmdMin);
}

} // namespace

bool composed_extreme_position(Composition &of) {
  const Along along(of);
  if (of.by || !along.x || along.x->size() == 0)
    return false;
  const bool only_position = of.context.row.equation.equation.result_count == 1;
  const DeviceArray most = of.temporary(along.kept);
  const SpmdCombiner combiner = of.context.row.variant == Variant::Largest ? kSpmdMax : kSpmdMin;
  auto same = [](Symbols s) { return s[0]; };
  if (!combine(of, along, most, same, combiner))
    return false;
  if (only_position)
    return make_place(of, along, most, *of.result(0));
  const DeviceArray *place = of.result(1);
  return of.make(of.as(*of.result(0), along.kept), along.kept, most, same) &&
         (!place || make_place(of, along, most, *place));
}

// Each place joins all that come before it: short lines alone, longer ones take too much of the
// square of their length.
bool composed_scan(Composition &of) {
  constexpr int64_t kLongestLine = 2048;
  const Along along(of);
  const bool sums = !of.context.row.equation.equation.has_function;
  const DeviceArray *from = of.by ? of.only_gradient(0) : along.x;
  if (!along.x || !from || along.dims.size() != 1 || (of.by && !sums))
    return false;
  const unsigned dim = along.dims[0];
  const int64_t length = (*from->dims)[dim];
  if (length > kLongestLine)
    return false;
  // What flows back comes from the positions that an element went to.
  const bool reverse = rules::flag_attr(of.context.app, "reverse") != of.by.has_value();
  Dims over = *from->dims;
  over.push_back(length);
  Strided out{*of.result(0), strides_of(*from->dims)}, read{*from, strides_of(*from->dims)};
  Strided here{of.positions(1, 0, 1), Strides(over.size(), 0)}, there = here;
  out.strides.push_back(0), read.strides.push_back(std::exchange(read.strides[dim], 0));
  here.strides[dim] = 1, there.strides.back() = 1;
  return of.make_along(
      over, out, {read, here, there},
      [&](Symbols s) {
        const bool joins = reverse ? s[1] <= s[2] : s[2] <= s[1];
        return joins ? s[0] : TracedNumber(sums ? 0.0 : 1.0);
      },
      sums ? kSpmdSum : kSpmdProd);
}

// `all`, `any`, `count_nonzero`.
bool composed_truth(Composition &of) {
  const Along along(of);
  if (of.by || !along.x || of.context.variant() == Variant::Odd)
    return false;
  auto truth = [](Symbols s) { return s[0] == 0.0 ? TracedNumber(0.0) : TracedNumber(1.0); };
  if (of.context.row.dtype == rules::DTypeRule::Index)
    return combine(of, along, *of.result(0), truth);
  const bool all = of.context.row.variant == Variant::All;
  // Of no elements all are true.
  if (along.x->size() == 0)
    return of.fill(*of.result(0), all);
  return combine(of, along, *of.result(0), truth, all ? kSpmdMin : kSpmdMax);
}

bool composed_norm(Composition &of) {
  const Along along(of);
  if (of.by || !along.x || along.x->size() == 0 ||
      is_matrix_norm(of.context, static_cast<unsigned>(along.x->dims->size())))
    return false;
  const double order = norm_order(of.context);
  auto size = [](Symbols s) { return abs(s[0]); };
  const DeviceArray &out = *of.result(0);
  if (std::isinf(order))
    return combine(of, along, out, size, order > 0 ? kSpmdMax : kSpmdMin);
  if (order == 1)
    return combine(of, along, out, size);
  if (order == 0)
    return combine(of, along, out,
                   [](Symbols s) { return s[0] == 0.0 ? TracedNumber(0.0) : TracedNumber(1.0); });
  const DeviceArray sum = of.temporary(along.kept);
  return combine(of, along, sum,
                 [&](Symbols s) { return order == 2 ? s[0] * s[0] : pow(abs(s[0]), order); }) &&
         of.make(of.as(out, along.kept), along.kept, sum, [&](Symbols s) {
           if (order == 2)
             return sqrt(s[0]);
           return s[0] == 0.0 ? TracedNumber(0.0) : pow(s[0], 1 / order);
         });
}

bool composed_item(Composition &of) {
  const DeviceArray *a = of.operand("a"), &to = *of.result(0);
  if (of.by || !a || a->size() != to.size())
    return false;
  const Variant variant = of.context.variant();
  const Dims over = {to.size()};
  return of.make(of.as(to, over), over, of.as(*a, over), [&](Symbols s) {
    if (variant == Variant::Truth)
      return s[0] == 0.0 ? TracedNumber(0.0) : TracedNumber(1.0);
    return variant == Variant::Whole ? trunc(s[0]) : s[0];
  });
}

} // namespace spmd::runtime
