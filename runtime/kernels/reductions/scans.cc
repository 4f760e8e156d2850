// Running sums, products and extrema; differences; histograms.
#include "runtime/kernels/reductions/scans.h"

#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/functions/pointwise.h"
#include "runtime/kernels/lines.h"

namespace spmd::runtime {

namespace {

// What was met so far joined with the next element; attribute `reverse`: from the end.
template <class Join, class T> llvm::Error run_scan(const Call<T> &call) {
  View<const T> a = call.operand("a");
  bool reverse = rules::flag_attr(call.context.app, "reverse");
  Lines lines = lines_of(call.context, a);
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
  Lines lines = lines_of(call.context, a);
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

// f(x, i) of the elements of each line, for as many i as the result has along it.
template <class T, class F> llvm::Error each_result(const Call<T> &call, F f) {
  View<const T> a = call.operand("a");
  View<T> out = call.results[0];
  Lines lines = lines_of(call.context, a);
  Lines results(*out.dims, call.context.dims(out.rank()));
  for (int64_t line = 0; line < lines.count(); ++line)
    f(Line<const T>(lines, line, a.data), Line<T>(results, line, out.data));
  return llvm::Error::success();
}
template <class T> llvm::Error diff(const Call<T> &call) {
  if (call.context.variant() == Variant::Gradient)
    return cannot_run(call.context, "`gradient` has no kernel");
  auto order = rules::number_attr(call.context.app, {"n"}).value_or(1);
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
template <class T> llvm::Error trace(const Call<T> &call) {
  View<const T> a = call.operand("a");
  T sum = T();
  for (int64_t i = 0; i < std::min(a.dim(0), a.dim(1)); ++i)
    sum = sum + a[i * a.dim(1) + i];
  call.results[0][0] = sum;
  return llvm::Error::success();
}

llvm::Error bincount(const Call<double> &call) {
  View<const double> a = call.operand("a");
  View<double> out = call.results[0];
  for (int64_t i = 0; i < a.size(); ++i) {
    if (!(a[i] >= 0 && a[i] < static_cast<double>(out.size())))
      return cannot_run(call.context, "an element is no index of the result");
    out[static_cast<int64_t>(a[i])] += 1;
  }
  return llvm::Error::success();
}

// A number for the program's host; `is_nonzero` and the like round it.
llvm::Error item(const Call<double> &call) {
  View<const double> a = call.operand("a");
  if (a.size() != call.results[0].size())
    return cannot_run(call.context, "its operand has more elements than one");
  const Variant variant = call.context.variant();
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
      {.row = "trace", .real = trace<double>, .complex = trace<Complex>, .taped = trace<Var>},
      {.row = "bincount", .real = bincount},
      {.row = "item", .real = item, .composed = composed_item},
  };
  return kernels;
}

} // namespace spmd::runtime
