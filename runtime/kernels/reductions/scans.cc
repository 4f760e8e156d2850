// Running sums, products and extrema; differences; histograms.
#include "runtime/kernels/reductions/scans.h"

#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/functions/pointwise.h"
#include "runtime/kernels/lines.h"

namespace spmd::runtime {

namespace {

template <class T> constexpr bool kIsNumber = !std::is_same_v<T, Residue>;

// What was met so far joined with the next element; attribute `reverse`: from the end.
template <class Join, class T> llvm::Error run_scan(const Call<T> &call) {
  View<const T> a = call.operand("a");
  bool reverse = rules::flag_attr(call.site.app, "reverse");
  Lines lines = lines_of(call.site, a);
  for (int64_t line = 0; line < lines.count(); ++line) {
    T sum;
    for (int64_t i = 0; i < lines.length(); ++i) {
      int64_t at = lines.position(line, reverse ? lines.length() - 1 - i : i);
      sum = i == 0 ? a[at] : Join()(sum, a[at]);
      call.results[0][at] = sum;
    }
  }
  return llvm::Error::success();
}
struct JoinSum {
  template <class T> T operator()(T sum, T x) const { return sum + x; }
};
struct JoinProduct {
  template <class T> T operator()(T sum, T x) const { return sum * x; }
};
struct JoinLogSum {
  template <class T> T operator()(T sum, T x) const {
    if (plain(sum) == plain(x) && std::isinf(plain(x)))
      return x;
    T least = plain(sum) < plain(x) ? sum : x;
    T most = larger(sum, x);
    return most + log1p(exp(least - most));
  }
};

// Of equal elements the last one, as torch has it.
template <bool kLargest, class T> llvm::Error run_extreme(const Call<T> &call) {
  View<const T> a = call.operand("a");
  Lines lines = lines_of(call.site, a);
  bool has_positions = call.results.size() > 1 && call.results[1];
  for (int64_t line = 0; line < lines.count(); ++line) {
    int64_t best = 0;
    for (int64_t i = 0; i < lines.length(); ++i) {
      double x = plain(a[lines.position(line, i)]), so_far = plain(a[lines.position(line, best)]);
      if (std::isnan(x) || (!std::isnan(so_far) && (kLargest ? x >= so_far : x <= so_far)))
        best = i;
      if (call.results[0])
        call.results[0][lines.position(line, i)] = a[lines.position(line, best)];
      if (has_positions)
        call.results[1][lines.position(line, i)] = T(static_cast<double>(best));
    }
  }
  return llvm::Error::success();
}

// torch's gradient: differences of neighbours on both sides, one-sided at the ends (`edge_order`
// 1), one result per dimension named; `spacing` is one number.
template <class T> llvm::Error gradient(const Call<T> &call) {
  View<const T> a = call.operand("a");
  const rules::Application &app = call.site.app;
  if (rules::number_attr(app, {"edge_order"}).value_or(1) != 1)
    return cannot_run(call.site, "its ends are of first order only");
  const ir::AttrValue *stated = rules::any_attr(app, {"spacing", "spacing_scalar", "scalar"});
  if (stated && stated->form == ir::AttrForm::List)
    return cannot_run(call.site, "its spacing is one number");
  double step = call.site.number_attr(
      "spacing", call.site.number_attr("spacing_scalar", call.site.number_attr("scalar", 1)));
  for (unsigned r = 0; r < call.results.size(); ++r) {
    std::optional<rules::Numbers> dims = rules::dim_numbers(app);
    unsigned dim = dims ? *rules::place_of((*dims)[r], a.rank()) : r;
    Lines lines(*a.dims, {dim});
    int64_t last = lines.length() - 1;
    for (int64_t line = 0; call.results[r] && line < lines.count(); ++line)
      for (int64_t i = 0; i <= last; ++i) {
        int64_t low = std::max<int64_t>(i - 1, 0), high = std::min(i + 1, last);
        call.results[r][lines.position(line, i)] =
            (a[lines.position(line, high)] - a[lines.position(line, low)]) /
            (step * static_cast<double>(high - low));
      }
  }
  return llvm::Error::success();
}

// f(x, i) of the elements of each line, for as many i as the result has along it.
template <class T, class F> llvm::Error each_result(const Call<T> &call, F f) {
  View<const T> a = call.operand("a");
  View<T> out = call.results[0];
  Lines lines = lines_of(call.site, a);
  Lines results(*out.dims, call.site.dims(out.rank()));
  for (int64_t line = 0; line < lines.count(); ++line)
    f(Line<const T>(lines, line, a.data), Line<T>(results, line, out.data));
  return llvm::Error::success();
}
template <class T> llvm::Error diff(const Call<T> &call) {
  if constexpr (kIsNumber<T>)
    if (call.site.variant() == Variant::Gradient)
      return gradient(call);
  auto order = rules::number_attr(call.site.app, {"n"}).value_or(1);
  return each_result(call, [&](const Line<const T> &x, const Line<T> &y) {
    std::vector<T> rest;
    for (int64_t i = 0; i < x.size(); ++i)
      rest.push_back(x[i]);
    for (int64_t pass = 0; pass < order && !rest.empty(); ++pass) {
      for (size_t i = 0; i + 1 < rest.size(); ++i)
        rest[i] = rest[i + 1] - rest[i];
      rest.pop_back();
    }
    for (int64_t i = 0; i < y.size(); ++i)
      y[i] = rest[static_cast<size_t>(i)];
  });
}
template <class T> llvm::Error cumulative_trapezoid(const Call<T> &call) {
  T half = constant<T>(call.site.number_attr("dx", 1) / 2);
  return each_result(call, [&](const Line<const T> &x, const Line<T> &y) {
    T sum = T();
    for (int64_t i = 0; i < y.size(); ++i)
      y[i] = sum = sum + half * (x[i] + x[i + 1]);
  });
}
template <class T> llvm::Error trapezoid(const Call<T> &call) {
  View<const T> a = call.operand("a");
  T half = constant<T>(call.site.number_attr("dx", 1) / 2);
  Lines lines = lines_of(call.site, a);
  for (int64_t line = 0; line < lines.count(); ++line) {
    Line<const T> x(lines, line, a.data);
    T sum = T();
    for (int64_t i = 0; i + 1 < x.size(); ++i)
      sum = sum + half * (x[i] + x[i + 1]);
    call.results[0][line] = sum;
  }
  return llvm::Error::success();
}
template <class T> llvm::Error trace(const Call<T> &call) {
  View<const T> a = call.operand("a");
  T sum = T();
  for (int64_t i = 0; i < std::min(a.dim(0), a.dim(1)); ++i)
    sum = sum + a[i * a.dim(1) + i];
  call.results[0][0] = sum;
  return llvm::Error::success();
}

// Counts between `min` and `max`, or between the extrema of the data where these are one;
// `histogram`: edges as a second result.
llvm::Error histc(const Call<double> &call) {
  View<const double> a = call.operand("a");
  View<double> out = call.results[0];
  double low = call.site.number_attr("min", 0), high = call.site.number_attr("max", 0);
  if (low == high && a.size() > 0) {
    low = *std::min_element(a.data, a.data + a.size());
    high = *std::max_element(a.data, a.data + a.size());
  }
  if (low == high)
    low -= 1, high += 1;
  auto bins = static_cast<double>(out.size());
  for (int64_t i = 0; i < a.size(); ++i)
    if (a[i] >= low && a[i] <= high)
      out[static_cast<int64_t>(std::min(bins - 1, (a[i] - low) / (high - low) * bins))] += 1;
  if (call.results.size() > 1 && call.results[1])
    for (int64_t i = 0; i < call.results[1].size(); ++i)
      call.results[1][i] = low + (high - low) * static_cast<double>(i) / bins;
  return llvm::Error::success();
}
llvm::Error bincount(const Call<double> &call) {
  View<const double> a = call.operand("a");
  View<double> out = call.results[0];
  for (int64_t i = 0; i < a.size(); ++i) {
    if (!(a[i] >= 0 && a[i] < static_cast<double>(out.size())))
      return cannot_run(call.site, "an element is no index of the result");
    out[static_cast<int64_t>(a[i])] += 1;
  }
  return llvm::Error::success();
}

// A number for the program's host; `is_nonzero` and the like round it.
llvm::Error item(const Call<double> &call) {
  View<const double> a = call.operand("a");
  if (a.size() != call.results[0].size())
    return cannot_run(call.site, "its operand has more elements than one");
  const Variant variant = call.site.variant();
  for (int64_t i = 0; i < a.size(); ++i)
    call.results[0][i] = variant == Variant::Truth   ? a[i] != 0
                         : variant == Variant::Whole ? std::trunc(a[i])
                                                     : a[i];
  return llvm::Error::success();
}

template <class Join> constexpr KernelDef scan(std::string_view row) {
  return {.row = row,
          .real = run_scan<Join, double>,
          .complex = run_scan<Join, Complex>,
          .taped = run_scan<Join, Var>,
          .composed = composed_scan};
}
template <bool kLargest> constexpr KernelDef extreme(std::string_view row) {
  return {.row = row, .real = run_extreme<kLargest, double>, .taped = run_extreme<kLargest, Var>};
}

} // namespace

llvm::ArrayRef<KernelDef> scan_kernels() {
  static constexpr KernelDef kernels[] = {
      scan<JoinSum>("cumsum"),
      scan<JoinProduct>("cumprod"),
      {.row = "logcumsumexp",
       .real = run_scan<JoinLogSum, double>,
       .taped = run_scan<JoinLogSum, Var>},
      extreme<true>("cummax"),
      extreme<false>("cummin"),
      {.row = "diff", .real = diff<double>, .complex = diff<Complex>, .taped = diff<Var>},
      {.row = "cumulative_trapezoid",
       .real = cumulative_trapezoid<double>,
       .complex = cumulative_trapezoid<Complex>,
       .taped = cumulative_trapezoid<Var>},
      {.row = "trapezoid",
       .real = trapezoid<double>,
       .complex = trapezoid<Complex>,
       .taped = trapezoid<Var>},
      {.row = "trace", .real = trace<double>, .complex = trace<Complex>, .taped = trace<Var>},
      {.row = "histc", .real = histc},
      {.row = "bincount", .real = bincount},
      {.row = "item", .real = item, .composed = composed_item},
  };
  return kernels;
}

} // namespace spmd::runtime
