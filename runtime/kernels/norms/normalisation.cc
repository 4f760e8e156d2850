// Softmax and its relatives; division by norms.
#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/draws.h"
#include "runtime/kernels/functions/pointwise.h"
#include "runtime/kernels/lines.h"
#include "runtime/kernels/norms/norms.h"
#include "runtime/kernels/norms/softmax.h"
#include "runtime/kernels/rows.h"
#include "runtime/tensor/scratch.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

namespace {

// y from x, where y has the extents of x: f(line of x, line of y) for each line along `dim`.
template <class T, class F>
void each_line(const KernelContext &context, View<const T> x, View<T> y, F f) {
  Lines lines = lines_of(context, x);
  for (int64_t line = 0; line < lines.count(); ++line)
    f(Line<const T>(lines, line, x.data), Line<T>(lines, line, y.data));
}
// The same with two tensors read.
template <class T, class F>
void each_line(const KernelContext &context, View<const T> x, View<const T> g, View<T> y, F f) {
  Lines lines = lines_of(context, x);
  for (int64_t line = 0; line < lines.count(); ++line)
    f(Line<const T>(lines, line, x.data), Line<const T>(lines, line, g.data),
      Line<T>(lines, line, y.data));
}

// softmax, log_softmax, softmin.

template <class T> struct Negated {
  Line<const T> x;
  T operator[](int64_t i) const { return -x[i]; }
};
template <class X, class T> void softmax_line(const X &x, const Line<T> &y, bool logarithm) {
  Scratch<T> p;
  if (!logarithm)
    softmax_of(x, y.size(), p.cells);
  T log = logarithm ? log_sum_exp(x, y.size(), p.cells) : T(0.0);
  for (int64_t i = 0; i < y.size(); ++i)
    y[i] = logarithm ? x[i] - log : p.cells[static_cast<size_t>(i)];
}
template <class T> llvm::Error softmax(const Call<T> &call) {
  bool logarithm = call.context.row.variant == Variant::Logarithm,
       negative = call.context.row.variant == Variant::Negated;
  each_line(call.context, call.operand("a"), call.results[0],
            [&](const Line<const T> &x, const Line<T> &y) {
              if (negative)
                softmax_line(Negated<T>{x}, y, false);
              else
                softmax_line(x, y, logarithm);
            });
  return llvm::Error::success();
}
// The gradient of x from that of y and y itself: y (g - sum of g y), or with a logarithm g - exp(y)
// sum of g.
template <class Y, class T>
void softmax_gradient(const Y &y, const Line<const T> &g, const Line<T> &dx, bool logarithm) {
  T sum = 0.0;
  for (int64_t i = 0; i < g.size(); ++i)
    sum += logarithm ? g[i] : g[i] * y[i];
  for (int64_t i = 0; i < g.size(); ++i)
    dx[i] = logarithm ? g[i] - exp(y[i]) * sum : y[i] * (g[i] - sum);
}
template <class T> llvm::Error softmax_backward(const Call<T> &call) {
  bool logarithm = call.context.row.variant == Variant::Logarithm;
  each_line(call.context, call.operand("y"), call.operand("g"), call.results[0],
            [&](const Line<const T> &y, const Line<const T> &g, const Line<T> &dx) {
              softmax_gradient(y, g, dx, logarithm);
            });
  return llvm::Error::success();
}
llvm::Error vjp_softmax(const VjpCall &vjp) {
  if (!vjp.gradients[0])
    return llvm::Error::success();
  View<const double> x = vjp.call.operand("a");
  std::vector<double> y(static_cast<size_t>(x.size()));
  View<double> result{x.dims, y.data(), x.dtype};
  if (llvm::Error error = softmax<double>({vjp.call.context, vjp.call.args, result}))
    return error;
  bool logarithm = vjp.call.context.row.variant == Variant::Logarithm;
  double sign = vjp.call.context.row.variant == Variant::Negated ? -1 : 1;
  each_line(vjp.call.context, View<const double>{x.dims, y.data(), x.dtype}, vjp.gradients[0],
            vjp.result,
            [&](const Line<const double> &y, const Line<const double> &g, const Line<double> &dx) {
              softmax_gradient(y, g, dx, logarithm);
              for (int64_t i = 0; sign < 0 && i < dx.size(); ++i)
                dx[i] = -dx[i];
            });
  return llvm::Error::success();
}

// Of scores to which noise of Gumbel's distribution is added, divided by `tau`. `hard`: one for the
// largest and zeros, with the gradient of what is not.
template <class T> llvm::Error gumbel_softmax(const Call<T> &call) {
  View<const T> a = call.operand("a");
  double tau = call.context.number_attr("tau", 1);
  bool hard = rules::flag_attr(call.context.app, "hard");
  uint64_t key = key_of(call);
  WholePositions whole(a);
  std::vector<T> noisy;
  for (int64_t i = 0; i < a.size(); ++i)
    noisy.push_back((a[i] - std::log(Draw(key, whole(i)).exponential())) / tau);
  each_line(call.context, View<const T>{a.dims, noisy.data(), a.dtype}, call.results[0],
            [&](const Line<const T> &x, const Line<T> &y) {
              softmax_line(x, y, false);
              int64_t best = 0;
              for (int64_t i = 1; i < y.size(); ++i)
                best = plain(y[i]) > plain(y[best]) ? i : best;
              for (int64_t i = 0; hard && i < y.size(); ++i)
                y[i] = y[i] + ((i == best) - plain(y[i]));
            });
  return llvm::Error::success();
}

// Norms as divisors.

// The p-norm of n numbers; its derivative at 0 is 0.
template <class X> auto norm_of(const X &x, int64_t n, double p) {
  using T = std::decay_t<decltype(x[0])>;
  T sum = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    T size = abs(x[i]);
    if (std::isinf(p))
      sum = larger(sum, size);
    else
      sum += p == 2 ? size * size : p == 1 ? size : pow(size, T(p));
  }
  if (std::isinf(p) || p == 1 || plain(sum) == 0)
    return sum;
  return p == 2 ? sqrt(sum) : pow(sum, T(1 / p));
}

template <class T> llvm::Error normalize(const Call<T> &call) {
  double p = call.context.number_attr("p", 2), eps = call.context.number_attr("eps", 1e-12);
  each_line(call.context, call.operand("a"), call.results[0],
            [&](const Line<const T> &x, const Line<T> &y) {
              T norm = larger(norm_of(x, x.size(), p), T(eps));
              for (int64_t i = 0; i < x.size(); ++i)
                y[i] = x[i] / norm;
            });
  return llvm::Error::success();
}

template <class T> llvm::Error cosine_similarity(const Call<T> &call) {
  double eps = call.context.number_attr("eps", 1e-8);
  PointOperands<2, T> operands(call);
  Dims dims = broadcast_dims(operands.dims());
  std::vector<T> a(static_cast<size_t>(count(dims))), b = a;
  each_point(operands, dims, {}, [&](int64_t i, int64_t, T x, T y) {
    a[static_cast<size_t>(i)] = x;
    b[static_cast<size_t>(i)] = y;
  });
  Lines lines(dims, call.context.dims(static_cast<unsigned>(dims.size())));
  for (int64_t line = 0; line < lines.count(); ++line) {
    Line<const T> x(lines, line, a.data()), y(lines, line, b.data());
    T dot = 0.0;
    for (int64_t i = 0; i < x.size(); ++i)
      dot += x[i] * y[i];
    call.results[0][line] =
        dot / (larger(norm_of(x, x.size(), 2), T(eps)) * larger(norm_of(y, y.size(), 2), T(eps)));
  }
  return llvm::Error::success();
}

// All dimensions of v but `dim` share a length, which g sets; the norms are the second result.
Lines vectors_of(const KernelContext &context, const Dims &dims) {
  auto rank = static_cast<unsigned>(dims.size());
  unsigned kept = *rules::place_of(rules::dim_number(context.app).value_or(0), rank);
  llvm::SmallVector<unsigned, 4> along;
  for (unsigned d = 0; d < rank; ++d)
    if (d != kept)
      along.push_back(d);
  return Lines(dims, along);
}
template <class T> llvm::Error weight_norm(const Call<T> &call) {
  View<const T> v = call.operand("v"), g = call.operand("g");
  Lines lines = vectors_of(call.context, *v.dims);
  for (int64_t line = 0; line < lines.count(); ++line) {
    Line<const T> x(lines, line, v.data);
    T norm = norm_of(x, x.size(), 2);
    for (int64_t i = 0; call.results[0] && i < x.size(); ++i)
      call.results[0][lines.position(line, i)] = x[i] * (g[line] / norm);
    if (call.results.size() > 1 && call.results[1])
      call.results[1][line] = norm;
  }
  return llvm::Error::success();
}

template <class T> llvm::Error weight_norm_backward(const Call<T> &call) {
  View<const T> y = call.operand("y"), v = call.operand("v"), g = call.operand("g"),
                s = call.operand("s");
  Lines lines = vectors_of(call.context, *v.dims);
  for (int64_t line = 0; line < lines.count(); ++line) {
    Line<const T> x(lines, line, v.data), flow(lines, line, y.data);
    T norm = s[line], along(0.0);
    for (int64_t i = 0; i < x.size(); ++i)
      along += x[i] / norm * flow[i];
    for (int64_t i = 0; call.results[0] && i < x.size(); ++i)
      call.results[0][lines.position(line, i)] = g[line] / norm * (flow[i] - x[i] / norm * along);
    if (call.results.size() > 1 && call.results[1])
      call.results[1][line] = along;
  }
  return llvm::Error::success();
}

constexpr KernelDef softmax_row(std::string_view row) {
  return {.row = row, .real = softmax<double>, .vjp = vjp_softmax, .composed = composed_softmax};
}

} // namespace

llvm::ArrayRef<KernelDef> normalisation_kernels() {
  static const llvm::SmallVector<KernelDef, 0> kernels = [] {
    llvm::SmallVector<KernelDef, 0> all = {
        softmax_row("softmax"),
        softmax_row("log_softmax"),
        softmax_row("softmin"),
        {.row = "softmax_backward",
         .real = softmax_backward<double>,
         .taped = softmax_backward<Var>,
         .composed = composed_softmax_backward},
        {.row = "log_softmax_backward",
         .real = softmax_backward<double>,
         .taped = softmax_backward<Var>,
         .composed = composed_softmax_backward},
        {.row = "gumbel_softmax", .real = gumbel_softmax<double>, .taped = gumbel_softmax<Var>},
        {.row = "normalize", .real = normalize<double>, .taped = normalize<Var>},
        {.row = "cosine_similarity",
         .real = cosine_similarity<double>,
         .taped = cosine_similarity<Var>},
        {.row = "weight_norm", .real = weight_norm<double>, .taped = weight_norm<Var>},
        {.row = "weight_norm_backward",
         .real = weight_norm_backward<double>,
         .taped = weight_norm_backward<Var>},
    };
    llvm::append_range(all, norm_kernels());
    return all;
  }();
  return kernels;
}

} // namespace spmd::runtime
