// Reductions other than sums: a function of the elements along some dimensions. Of equal elements
// the first one counts.
#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/functions/pointwise.h"
#include "runtime/kernels/integral.h"
#include "runtime/kernels/lines.h"
#include "runtime/kernels/norms/softmax.h"
#include "runtime/kernels/reductions/matrix_norm.h"
#include "runtime/kernels/reductions/scans.h"
#include "runtime/kernels/rows.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace spmd::runtime {

namespace {

template <class T> using Elements = Line<const T>;

// A functor: constructed from a KernelContext; fills kResults numbers from the elements of one
// line.
template <class F, class T> llvm::Error run_reduction(const Call<T> &call) {
  if (llvm::Error error = check_functor<F>(call.context))
    return error;
  F f(call.context);
  View<const T> a = call.operand(0u);
  Lines lines = lines_of(call.context, a);
  T results[F::kResults];
  for (int64_t line = 0; line < lines.count(); ++line) {
    f(Elements<T>(lines, line, a.data), results);
    for (unsigned r = 0; r < F::kResults && r < call.results.size(); ++r)
      if (call.results[r])
        call.results[r][line] = results[r];
  }
  return llvm::Error::success();
}

template <class F>
constexpr KernelDef smooth(std::string_view row, decltype(KernelDef::composed) composed = nullptr) {
  return {.row = row,
          .real = run_reduction<F, double>,
          .taped = run_reduction<F, Var>,
          .composed = composed};
}
template <class F> constexpr KernelDef smooth_of_complex(std::string_view row) {
  KernelDef made = smooth<F>(row);
  made.complex = run_reduction<F, Complex>;
  return made;
}
template <class F>
constexpr KernelDef stepped(std::string_view row,
                            decltype(KernelDef::composed) composed = nullptr) {
  return {.row = row, .real = run_reduction<F, double>, .composed = composed};
}

struct OneResult {
  explicit OneResult(const KernelContext &) {}
  static constexpr unsigned kResults = 1;
};
struct TwoResults {
  explicit TwoResults(const KernelContext &) {}
  static constexpr unsigned kResults = 2;
};

// Sums.

struct SumRounded : OneResult {
  using OneResult::OneResult;
  void operator()(const Elements<double> &x, double *out) const {
    *out = 0;
    for (int64_t i = 0; i < x.size(); ++i)
      *out += std::trunc(x[i]);
  }
};
struct SumSquares : OneResult {
  using OneResult::OneResult;
  template <class T> void operator()(const Elements<T> &x, T *out) const {
    *out = 0.0;
    for (int64_t i = 0; i < x.size(); ++i)
      *out += x[i] * x[i];
  }
};
struct PowSum : OneResult {
  explicit PowSum(const KernelContext &context)
      : OneResult(context), power(context.number_attr("ord", 2)) {}
  template <class T> void operator()(const Elements<T> &x, T *out) const {
    *out = 0.0;
    for (int64_t i = 0; i < x.size(); ++i)
      if (plain(x[i]) != 0)
        *out += power == 2 ? x[i] * x[i] : pow(abs(T(x[i])), T(power));
  }
  double power;
};
struct CountNonzero : OneResult {
  using OneResult::OneResult;
  template <class T> void operator()(const Elements<T> &x, T *out) const {
    double found = 0;
    for (int64_t i = 0; i < x.size(); ++i)
      found += truth(x[i]);
    *out = found;
  }
};
struct NanSum : OneResult {
  explicit NanSum(const KernelContext &context)
      : OneResult(context), mean(context.row.variant == Variant::Mean) {}
  template <class T> void operator()(const Elements<T> &x, T *out) const {
    double found = 0;
    *out = 0.0;
    for (int64_t i = 0; i < x.size(); ++i)
      if (!std::isnan(plain(x[i]))) {
        *out += x[i];
        ++found;
      }
    if (mean)
      *out = *out / found;
  }
  bool mean;
};
struct Prod : OneResult {
  using OneResult::OneResult;
  template <class T> void operator()(const Elements<T> &x, T *out) const {
    *out = 1.0;
    for (int64_t i = 0; i < x.size(); ++i)
      *out *= x[i];
  }
};
struct LogSumExp : OneResult {
  using OneResult::OneResult;
  template <class T> void operator()(const Elements<T> &x, T *out) const {
    *out = log_sum_exp(x, x.size());
  }
};

// Moments. `correction`, or `unbiased`; the deviation of equal numbers has derivative 0.
struct Moments {
  explicit Moments(const KernelContext &context) {
    correction = rules::any_attr(context.app, {"unbiased"})
                     ? static_cast<double>(rules::flag_attr(context.app, "unbiased"))
                     : context.number_attr("correction", context.number_attr("ddof", 1));
    root = context.row.variant == Variant::Root;
  }
  template <class T> void fill(const Elements<T> &x, T &spread, T &mean) const {
    auto n = static_cast<double>(x.size());
    T sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < x.size(); ++i)
      sum += x[i];
    mean = sum / n;
    for (int64_t i = 0; i < x.size(); ++i)
      squares += (x[i] - mean) * (x[i] - mean);
    T variance = squares / std::max(0.0, n - correction);
    spread = !root ? variance : plain(variance) == 0 ? T(0.0) : sqrt(variance);
  }
  double correction;
  bool root;
};
struct Spread : Moments {
  using Moments::Moments;
  static constexpr unsigned kResults = 1;
  template <class T> void operator()(const Elements<T> &x, T *out) const {
    T mean;
    fill(x, out[0], mean);
  }
};
struct SpreadAndMean : Moments {
  using Moments::Moments;
  static constexpr unsigned kResults = 2;
  template <class T> void operator()(const Elements<T> &x, T *out) const {
    fill(x, out[0], out[1]);
  }
};

// Extrema.

// Whether `a` comes before `b` as the larger (the smaller) one; NaN comes before all.
template <bool kLargest, class T> bool beats(const T &a, const T &b) {
  double x = plain(a), y = plain(b);
  return !std::isnan(y) && (std::isnan(x) || (kLargest ? x > y : x < y));
}
template <bool kLargest, class T> int64_t extreme_position(const Elements<T> &x) {
  int64_t best = 0;
  for (int64_t i = 1; i < x.size(); ++i)
    if (beats<kLargest>(x[i], x[best]))
      best = i;
  return best;
}
template <bool kLargest> struct Extreme : OneResult {
  using OneResult::OneResult;
  template <class T> void operator()(const Elements<T> &x, T *out) const {
    *out = x[extreme_position<kLargest>(x)];
  }
};
template <bool kLargest> struct ExtremePosition : OneResult {
  using OneResult::OneResult;
  void operator()(const Elements<double> &x, double *out) const {
    *out = static_cast<double>(extreme_position<kLargest>(x));
  }
};
template <bool kLargest> struct ExtremeAndPosition : TwoResults {
  using TwoResults::TwoResults;
  template <class T> void operator()(const Elements<T> &x, T *out) const {
    int64_t place = extreme_position<kLargest>(x);
    out[0] = x[place];
    out[1] = static_cast<double>(place);
  }
};
struct BothExtremes : TwoResults {
  using TwoResults::TwoResults;
  template <class T> void operator()(const Elements<T> &x, T *out) const {
    out[0] = x[extreme_position<false>(x)];
    out[1] = x[extreme_position<true>(x)];
  }
};

// Of sorted elements.

// Positions in the order of their elements, equal ones by place; NaN come last, or are left out.
template <class T> std::vector<int64_t> sorted_positions(const Elements<T> &x, bool drop_nan) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < x.size(); ++i)
    if (!drop_nan || !std::isnan(plain(x[i])))
      positions.push_back(i);
  std::stable_sort(positions.begin(), positions.end(), [&](int64_t a, int64_t b) {
    double u = plain(x[a]), v = plain(x[b]);
    return u < v || (std::isnan(v) && !std::isnan(u));
  });
  return positions;
}
template <bool kDropNan> struct Median : TwoResults { // the lower one of two
  using TwoResults::TwoResults;
  template <class T> void operator()(const Elements<T> &x, T *out) const {
    std::vector<int64_t> positions = sorted_positions(x, kDropNan);
    // A NaN is the median of what contains one.
    bool has_nan = positions.empty() || std::isnan(plain(x[positions.back()]));
    int64_t place = positions.empty()
                        ? 0
                        : positions[has_nan ? positions.size() - 1 : (positions.size() - 1) / 2];
    for (int64_t i = 0; has_nan && i < x.size() && !std::isnan(plain(x[place])); ++i)
      place = i;
    out[0] = x[place];
    out[1] = static_cast<double>(place);
  }
};

// What stands between two sorted elements: attribute `interpolation`.
enum class Interpolation : uint8_t { Line, Lower, Higher, Nearest, Midpoint };
Interpolation interpolation_of(const KernelContext &context) {
  return llvm::StringSwitch<Interpolation>(rules::word_attr(context.app, {"interpolation"}))
      .Case("lower", Interpolation::Lower)
      .Case("higher", Interpolation::Higher)
      .Case("nearest", Interpolation::Nearest)
      .Case("midpoint", Interpolation::Midpoint)
      .Default(Interpolation::Line);
}
template <class T> T quantile_of(const Elements<T> &x, T q, Interpolation between, bool drop_nan) {
  std::vector<int64_t> positions = sorted_positions(x, drop_nan);
  if (positions.empty() || std::isnan(plain(x[positions.back()])))
    return kNaN;
  T at = q * static_cast<double>(positions.size() - 1);
  double low = std::floor(plain(at)), high = std::ceil(plain(at));
  auto element = [&](double i) { return x[positions[static_cast<size_t>(i)]]; };
  switch (between) {
  case Interpolation::Lower:
    return element(low);
  case Interpolation::Higher:
    return element(high);
  case Interpolation::Nearest:
    return element(std::nearbyint(plain(at)));
  case Interpolation::Line:
  case Interpolation::Midpoint:
    break;
  }
  T share = between == Interpolation::Midpoint ? T(low == high ? 0.0 : 0.5) : at - low;
  return element(low) + share * (element(high) - element(low));
}
// Results of several q stand one after the other.
template <class T> llvm::Error quantile(const Call<T> &call) {
  const KernelContext &context = call.context;
  View<const T> a = call.operand("a"), q = call.operand("q");
  const Interpolation between = interpolation_of(context);
  bool drop_nan = context.variant() == Variant::SkipsNan;
  Lines lines = lines_of(context, a);
  double number = context.number(context.operand("q")).value_or(context.number_attr("q", kNaN));
  for (int64_t k = 0, size = q ? q.size() : 1; k < size; ++k)
    for (int64_t line = 0; line < lines.count(); ++line)
      call.results[0][k * lines.count() + line] =
          quantile_of(Elements<T>(lines, line, a.data), q ? q[k] : T(number), between, drop_nan);
  return llvm::Error::success();
}

// Truth.

struct All : OneResult {
  using OneResult::OneResult;
  void operator()(const Elements<double> &x, double *out) const {
    *out = 1;
    for (int64_t i = 0; i < x.size(); ++i)
      *out = *out != 0 && x[i] != 0;
  }
};
struct Any : OneResult { // `reduce_xor`: an odd number of them
  explicit Any(const KernelContext &context)
      : OneResult(context), odd(context.variant() == Variant::Odd) {}
  void operator()(const Elements<double> &x, double *out) const {
    int64_t found = 0;
    for (int64_t i = 0; i < x.size(); ++i)
      found += x[i] != 0;
    *out = odd ? found % 2 : found > 0;
  }
  bool odd;
};

// Norms of vectors: `p` or `ord`. Of matrices: matrix_norm.h.
struct Norm : OneResult {
  explicit Norm(const KernelContext &context) : OneResult(context), order(norm_order(context)) {}
  template <class T> void operator()(const Elements<T> &x, T *out) const {
    T sum = 0.0;
    if (std::isinf(order)) {
      for (int64_t i = 0; i < x.size(); ++i) {
        T size = abs(x[i]);
        if (i == 0 || (order > 0 ? beats<true>(size, sum) : beats<false>(size, sum)))
          sum = size;
      }
      *out = sum;
      return;
    }
    for (int64_t i = 0; i < x.size(); ++i)
      sum += power(abs(x[i]));
    bool keeps = order == 0 || order == 1 || plain(sum) == 0;
    *out = keeps ? sum : order == 2 ? sqrt(sum) : pow(sum, T(1 / order));
  }
  template <class T> T power(T x) const {
    if (order == 0)
      return T(plain(x) != 0 ? 1.0 : 0.0);
    return order == 1 ? x : order == 2 ? x * x : pow(x, T(order));
  }
  double order;
};
template <class T> llvm::Error norm(const Call<T> &call) {
  View<const T> a = call.operand("a");
  if (is_matrix_norm(call.context, a.rank()))
    return matrix_norm(call);
  return run_reduction<Norm>(call);
}

// Of two tensors.

template <class F, bool kStretches> llvm::Error compare(const Call<double> &call) {
  F f(call.context);
  PointOperands<2, double> operands(call);
  Dims dims = broadcast_dims(operands.dims());
  bool same = kStretches || operands.dims()[0] == operands.dims()[1];
  each_point(operands, dims, {},
             [&](int64_t, int64_t, double a, double b) { same = same && f(a, b) != 0; });
  call.results[0][0] = same;
  return llvm::Error::success();
}
struct Same {
  explicit Same(const KernelContext &) {}
  double operator()(double a, double b) const { return a == b; }
};

} // namespace

llvm::ArrayRef<KernelDef> reduction_kernels() {
  static const llvm::SmallVector<KernelDef, 0> kernels = [] {
    llvm::SmallVector<KernelDef, 0> all = {
        stepped<SumRounded>("sum_rounded"),
        smooth<SumSquares>("sum_squares", composed_sum_squares),
        smooth<PowSum>("powsum"),
        stepped<CountNonzero>("count_nonzero", composed_truth),
        smooth<NanSum>("nansum"),
        smooth<NanSum>("nanmean"),
        smooth<Extreme<true>>("amax", composed_extreme),
        smooth<Extreme<false>>("amin", composed_extreme),
        smooth_of_complex<Prod>("prod"),
        stepped<ExtremePosition<true>>("argmax", composed_extreme_position),
        stepped<ExtremePosition<false>>("argmin", composed_extreme_position),
        smooth<Spread>("var"),
        smooth<Spread>("std"),
        smooth<SpreadAndMean>("var_mean"),
        smooth<SpreadAndMean>("std_mean"),
        {.row = "norm", .real = norm<double>, .taped = norm<Var>, .composed = composed_norm},
        {.row = "matrix_norm", .real = norm<double>, .taped = norm<Var>},
        {.row = "quantile", .real = quantile<double>, .taped = quantile<Var>},
        smooth<LogSumExp>("logsumexp", composed_logsumexp),
        smooth<Median<false>>("median"),
        smooth<Median<true>>("nanmedian"),
        stepped<All>("all", composed_truth),
        stepped<Any>("any", composed_truth),
        smooth<ExtremeAndPosition<true>>("max.dim", composed_extreme_position),
        smooth<ExtremeAndPosition<false>>("min.dim", composed_extreme_position),
        smooth<BothExtremes>("aminmax"),
        {.row = "equal", .real = compare<Same, false>},
        {.row = "allclose", .real = compare<Isclose, true>},
    };
    llvm::append_range(all, scan_kernels());
    return all;
  }();
  return kernels;
}

} // namespace spmd::runtime
