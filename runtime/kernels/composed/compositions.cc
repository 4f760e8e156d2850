// Statistics of rows as tensors whose extents along the rows are 1, then what is made of each
// element and them.
#include "runtime/kernels/composed/compositions.h"

#include "ir/support/arrays.h"
#include "runtime/kernels/composed/composition.h"
#include "runtime/kernels/norms/norms.h"
#include "runtime/tensor/number.h"

#include "rules/factors/shape_rule.h"
#include "rules/shapes/attrs.h"

namespace spmd::runtime {

namespace {

using Symbols = llvm::ArrayRef<TracedNumber>;

// The dimensions that the row names are 1.
Dims kept_dims(const Composition &of, const DeviceArray &x) {
  return Composition::without(*x.dims, of.context.dims(static_cast<unsigned>(x.dims->size())));
}

} // namespace

bool RowExponentials::make(Composition &of, const DeviceArray &x, const Dims &kept, double sign) {
  most = of.temporary(kept), sum = of.temporary(kept);
  return of.make(
             most, *x.dims, x, [&](Symbols s) { return sign * s[0]; }, kSpmdMax) &&
         of.make(sum, *x.dims, {x, most}, [&](Symbols s) { return exp(sign * s[0] - s[1]); });
}

bool composed_softmax(Composition &of) {
  const DeviceArray *x = of.operand("a"), *g = of.by ? of.only_gradient(0) : nullptr;
  if (!x || (of.by && !g))
    return false;
  const bool logarithm = of.context.row.variant == Variant::Logarithm;
  const double sign = of.context.row.variant == Variant::Negated ? -1 : 1;
  const Dims kept = kept_dims(of, *x);
  RowExponentials row;
  if (!row.make(of, *x, kept, sign))
    return false;
  auto y = [&](Symbols s) { // of x, largest, sum
    TracedNumber less = sign * s[0] - s[1];
    return logarithm ? less - log(s[2]) : exp(less) / s[2];
  };
  if (!of.by)
    return of.make(*of.result(0), *x->dims, {*x, row.most, row.sum}, y);
  const DeviceArray sum = of.temporary(kept); // of g, or of g y
  return of.make(sum, *x->dims, {*x, row.most, row.sum, *g}, [&](Symbols s) {
    return logarithm ? s[3] : s[3] * y(s);
  }) && of.make(*of.result(0), *x->dims, {*x, row.most, row.sum, *g, sum}, [&](Symbols s) {
    return logarithm ? s[3] - exp(y(s)) * s[4] : sign * (y(s) * (s[3] - s[4]));
  });
}

bool composed_softmax_backward(Composition &of) {
  const DeviceArray *y = of.operand("y"), *g = of.operand("g");
  if (of.by || !y || !g)
    return false;
  const bool logarithm = of.context.row.variant == Variant::Logarithm;
  const DeviceArray sum = of.temporary(kept_dims(of, *y));
  return of.make(sum, *y->dims, {*y, *g}, [&](Symbols s) {
    return logarithm ? s[1] : s[1] * s[0];
  }) && of.make(*of.result(0), *y->dims, {*y, *g, sum}, [&](Symbols s) {
    return logarithm ? s[1] - exp(s[0]) * s[2] : s[0] * (s[1] - s[2]);
  });
}

namespace {

// x less its mean, over its deviation; both of the trailing dimensions.
class Standardised {
public:
  explicit Standardised(Composition &of)
      : of_(of), centred_(of.context.row.variant == Variant::LayerNorm) {}

  bool make(const DeviceArray *mean, const DeviceArray *rstd) {
    const DeviceArray *x = of_.operand("x");
    if (!x)
      return false;
    x_ = *x;
    auto rank_of = [&](std::string_view name) {
      const DeviceArray *at = of_.operand(name);
      return at ? std::optional(static_cast<unsigned>(at->dims->size())) : std::nullopt;
    };
    const size_t rank = x->dims->size(),
                 spans = std::min<size_t>(norm_spans(of_.context, rank_of), rank);
    llvm::SmallVector<unsigned, 4> along;
    for (size_t d = rank - spans; d < rank; ++d)
      along.push_back(static_cast<unsigned>(d));
    kept_ = Composition::without(*x->dims, along);
    size_ = static_cast<double>(count(ir::as_array(*x->dims).take_back(spans)));
    return statistics(mean, rstd);
  }

  const Dims &dims() const { return *x_.dims; }
  // To each of a row, and from all of a row: their means.
  bool means(const DeviceArray &out, llvm::ArrayRef<DeviceArray> inputs,
             Composition::Formula formula) {
    return of_.make(out, dims(), inputs, formula, kSpmdSum, size_);
  }
  DeviceArray of_rows() { return of_.temporary(kept_); }
  // A result that has one number for each row.
  bool tell_rows(const DeviceArray *result, const DeviceArray &from) {
    return !result || of_.make(of_.as(*result, kept_), kept_, from, [](Symbols s) { return s[0]; });
  }
  const DeviceArray &mean() const { return mean_; }
  const DeviceArray &rstd() const { return rstd_; }
  const DeviceArray &values() const { return values_; }
  bool is_centred() const { return centred_; }

private:
  bool statistics(const DeviceArray *mean, const DeviceArray *rstd) {
    mean_ = of_rows(), rstd_ = of_rows(), values_ = of_.temporary(dims());
    const double eps = norm_eps(of_.context, centred_);
    if (mean)
      mean_ = of_.as(*mean, kept_);
    else if (!(centred_ ? means(mean_, x_, [](Symbols s) { return s[0]; })
                        : of_.make(mean_, kept_, {}, [](Symbols) { return TracedNumber(0.0); })))
      return false;
    if (rstd) {
      rstd_ = of_.as(*rstd, kept_);
    } else {
      const DeviceArray squares = of_rows();
      if (!means(squares, {x_, mean_}, [](Symbols s) { return (s[0] - s[1]) * (s[0] - s[1]); }) ||
          !of_.make(rstd_, kept_, squares, [&](Symbols s) { return 1.0 / sqrt(s[0] + eps); }))
        return false;
    }
    return of_.make(values_, dims(), {x_, mean_, rstd_},
                    [](Symbols s) { return (s[0] - s[1]) * s[2]; });
  }

  Composition &of_;
  bool centred_;
  DeviceArray x_, mean_, rstd_, values_;
  Dims kept_;
  double size_ = 1;
};

// Gradients of x, w and b from that of y; null: not asked for.
bool norm_gradients(Composition &of, Standardised &row, const DeviceArray &g,
                    const DeviceArray *to_x, const DeviceArray *to_w, const DeviceArray *to_b) {
  if (to_w && !of.make(*to_w, row.dims(), {g, row.values()}, [](Symbols s) { return s[0] * s[1]; }))
    return false;
  if (to_b && !of.make(*to_b, row.dims(), g, [](Symbols s) { return s[0]; }))
    return false;
  if (!to_x)
    return true;
  const DeviceArray *w = of.operand("w");
  DeviceArray scaled = g; // by the weights
  if (w) {
    scaled = of.temporary(row.dims());
    if (!of.make(scaled, row.dims(), {g, *w}, [](Symbols s) { return s[0] * s[1]; }))
      return false;
  }
  const DeviceArray mean = row.of_rows(), product = row.of_rows();
  const bool centred = row.is_centred();
  return row.means(mean, scaled, [&](Symbols s) { return centred ? s[0] : TracedNumber(0.0); }) &&
         row.means(product, {scaled, row.values()}, [](Symbols s) { return s[0] * s[1]; }) &&
         of.make(*to_x, row.dims(), {scaled, row.values(), row.rstd(), mean, product},
                 [](Symbols s) { return s[2] * (s[0] - s[3] - s[1] * s[4]); });
}

} // namespace

bool composed_layer_norm(Composition &of) {
  Standardised row(of);
  if (!row.make(nullptr, nullptr))
    return false;
  if (of.by) {
    const DeviceArray *g = of.only_gradient(0), *to = of.result(0);
    return g && norm_gradients(of, row, *g, of.is_by("x") ? to : nullptr,
                               of.is_by("w") ? to : nullptr, of.is_by("b") ? to : nullptr);
  }
  const DeviceArray *w = of.operand("w"), *b = of.operand("b");
  llvm::SmallVector<DeviceArray, 3> inputs = {row.values()};
  for (const DeviceArray *each : {w, b})
    if (each)
      inputs.push_back(*each);
  auto y = [&](Symbols s) {
    TracedNumber value = w ? s[0] * s[1] : s[0];
    return b ? value + s.back() : value;
  };
  return of.make(*of.result(0), row.dims(), inputs, y) &&
         (!row.is_centred() || row.tell_rows(of.result(1), row.mean())) &&
         row.tell_rows(of.result(row.is_centred() ? 2 : 1), row.rstd());
}

bool composed_layer_norm_backward(Composition &of) {
  const DeviceArray *g = of.operand("g");
  Standardised row(of);
  if (of.by || !g || !row.make(of.operand("u"), of.operand("s")))
    return false;
  const DeviceArray *to[3] = {};
  for (unsigned k = 0; of.result(k); ++k)
    to[rules::row_result(of.context.app, k)] = of.result(k);
  return norm_gradients(of, row, *g, to[0], to[1], to[2]);
}

bool composed_extreme(Composition &of) {
  const DeviceArray *x = of.operand("a");
  return !of.by && x &&
         of.make(
             of.as(*of.result(0), kept_dims(of, *x)), *x->dims, *x, [](Symbols s) { return s[0]; },
             of.context.row.variant == Variant::Largest ? kSpmdMax : kSpmdMin);
}

bool composed_sum_squares(Composition &of) {
  const DeviceArray *x = of.operand("a");
  return !of.by && x &&
         of.make(of.as(*of.result(0), kept_dims(of, *x)), *x->dims, *x,
                 [](Symbols s) { return s[0] * s[0]; });
}

bool composed_logsumexp(Composition &of) {
  const DeviceArray *x = of.operand("a");
  if (of.by || !x)
    return false;
  const Dims kept = kept_dims(of, *x);
  RowExponentials row;
  return row.make(of, *x, kept, 1) &&
         of.make(of.as(*of.result(0), kept), kept, {row.most, row.sum},
                 [](Symbols s) { return isfinite(s[0]) ? s[0] + log(s[1]) : s[0]; });
}

} // namespace spmd::runtime
