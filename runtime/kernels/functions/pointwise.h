// Kernels made of a function of numbers. A functor F is constructed from a KernelContext, where it
// reads attributes, and called with one number per operand of the row, in the row's order:
// `template <class T> T operator()(T a, ...) const`. What stands for no operand is passed as 0. If
// there is `static llvm::Error check(const KernelContext &)`, it says first what cannot be carried
// out. Operands are stretched from the right. Gradients are those of Dual.
//
// A functor of one number may do many at once, as exactly as narrow results need: `bool has_many()
// const`,
// `void many(const double *x, double *values, double *slopes, size_t n) const`; null: not asked
// for.
#pragma once

#include "runtime/commands/traced_number.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/kernel.h"
#include "runtime/tensor/number.h"
#include "runtime/tensor/scratch.h"

#include "llvm/ADT/STLExtras.h"

#include <array>
#include <utility>

namespace spmd::runtime {

// A function without attributes, as a functor.
template <class Lambda> struct Plain {
  explicit Plain(const KernelContext &) {}
  template <class... T> auto operator()(T... x) const requires std::invocable<Lambda, T...> {
    return Lambda{}(x...);
  }
};

template <class F> llvm::Error check_functor(const KernelContext &context) {
  if constexpr (requires { F::check(context); })
    return F::check(context);
  return llvm::Error::success();
}

// kSmooth: bit k says that there is a derivative by operand k. Where it is not there: all of them.
template <class F> llvm::Error check_derivative(const VjpCall &vjp) {
  if constexpr (requires { F::kSmooth; })
    if (!(F::kSmooth >> vjp.operand & 1))
      return cannot_run(vjp.call.context,
                        "it has no derivative by operand " + llvm::Twine(vjp.operand));
  return check_functor<F>(vjp.call.context);
}

// The N first operands of a row: tensors, or numbers instead of them.
template <unsigned N, class T> class PointOperands {
public:
  explicit PointOperands(const Call<T> &call) {
    for (unsigned k = 0; k < N; ++k) {
      if (View<const T> view = call.operand(k)) {
        data_[k] = view.data;
        dims_[k] = *view.dims;
        continue;
      }
      numbers_[k] = constant<T>(call.context.number(k).value_or(0));
      data_[k] = &numbers_[k];
    }
  }
  PointOperands(const PointOperands &) = delete;

  llvm::ArrayRef<llvm::ArrayRef<int64_t>> dims() const { return dims_; }
  const T *data(unsigned k) const { return data_[k]; }

private:
  std::array<llvm::ArrayRef<int64_t>, N> dims_;
  std::array<const T *, N> data_;
  std::array<T, N> numbers_;
};

// f(i, j, x...) for each element i of `dims`, with the elements of the operands that meet there and
// the place j in a tensor of extents `also` that does.
template <unsigned N, class T, class F>
void each_point(const PointOperands<N, T> &operands, llvm::ArrayRef<int64_t> dims,
                llvm::ArrayRef<int64_t> also, F &&f) {
  llvm::SmallVector<llvm::ArrayRef<int64_t>, N + 1> all;
  llvm::append_range(all, operands.dims());
  all.push_back(also);
  Broadcast broadcast(dims, all);
  broadcast.runs([&](int64_t first, const int64_t *offsets, int64_t count) {
    [&]<size_t... k>(std::index_sequence<k...>) {
      const T *from[] = {operands.data(k) + offsets[k]...};
      const int64_t steps[] = {broadcast.step(k)...}, step = broadcast.step(N), j = offsets[N];
      // Loops that the compiler makes vectors of.
      if ((... && (steps[k] == 1)) && step == 1)
        for (int64_t i = 0; i < count; ++i)
          f(first + i, j + i, from[k][i]...);
      else if ((... && (steps[k] == 1)))
        for (int64_t i = 0; i < count; ++i)
          f(first + i, j + i * step, from[k][i]...);
      else
        for (int64_t i = 0; i < count; ++i)
          f(first + i, j + i * step, from[k][i * steps[k]]...);
    }
    (std::make_index_sequence<N>());
  });
}

// The derivative of f by its argument in one place.
template <unsigned Place, class F, class... T> double slope_at(const F &f, T... x) {
  return [&]<size_t... k>(std::index_sequence<k...>) {
    return f(Dual<double>(x, k == Place ? 1.0 : 0.0)...).slope();
  }
  (std::index_sequence_for<T...>());
}

// Whether F does many numbers at once, of which this is worth `result`.
template <class F> bool does_many(const F &f, const KernelContext &context, ir::DType result) {
  if constexpr (requires { f.has_many(); })
    return f.has_many() && context.domain == Domain::Declared && unit_roundoff(result) >= 0x1p-24;
  return false;
}

template <class F, unsigned N, class T> llvm::Error run_pointwise(const Call<T> &call) {
  if (llvm::Error error = check_functor<F>(call.context))
    return error;
  F f(call.context);
  View<T> out = call.results[0];
  if constexpr (N == 1 && std::is_same_v<T, double> && requires { f.has_many(); })
    if (View<const T> x = call.operand(0u); out && x && does_many(f, call.context, out.dtype)) {
      f.many(x.data, out.data, nullptr, static_cast<size_t>(x.size()));
      return llvm::Error::success();
    }
  if (out)
    each_point(PointOperands<N, T>(call), *out.dims, {},
               [&](int64_t i, int64_t, auto... x) { out[i] = f(x...); });
  return llvm::Error::success();
}

// Adds weight(i) times the derivative by the asked operand at each element i of `dims`. `fresh`:
// what the result holds counts as zero.
template <class F, unsigned N, class Weight>
void add_slopes(const VjpCall &vjp, const F &f, llvm::ArrayRef<int64_t> dims, Weight weight,
                bool fresh = false) {
  const View<double> &to = vjp.result;
  if constexpr (N == 1 && requires { f.has_many(); })
    if (View<const double> x = vjp.call.operand(0u);
        x && does_many(f, vjp.call.context, to.dtype)) {
      Scratch<double> slopes;
      slopes.cells.resize(static_cast<size_t>(x.size()));
      f.many(x.data, nullptr, slopes.cells.data(), slopes.cells.size());
      const double *slope = slopes.cells.data();
      for (int64_t i = 0; i < x.size(); ++i) {
        double w = weight(i);
        to[i] = (fresh ? 0 : to[i]) + (w != 0 ? w * slope[i] : 0);
      }
      return;
    }
  PointOperands<N, double> operands(vjp.call);
  bool assigns = fresh && llvm::ArrayRef<int64_t>(*to.dims) == dims;
  if (fresh && !assigns)
    std::fill_n(to.data, to.size(), 0.0);
  auto add = [&](auto place) {
    auto slope = [&](int64_t i, auto... x) {
      double w = weight(i);
      return w != 0 ? w * slope_at<place()>(f, x...) : 0;
    };
    if (assigns)
      each_point(operands, dims, *to.dims,
                 [&](int64_t i, int64_t j, auto... x) { to[j] = slope(i, x...); });
    else
      each_point(operands, dims, *to.dims,
                 [&](int64_t i, int64_t j, auto... x) { to[j] += slope(i, x...); });
  };
  [&]<unsigned... k>(std::integer_sequence<unsigned, k...>) {
    (void)((vjp.operand == k && (add(std::integral_constant<unsigned, k>()), true)) || ...);
  }
  (std::make_integer_sequence<unsigned, N>());
}

template <class F, unsigned N> llvm::Error add_pointwise(const VjpCall &vjp, bool fresh) {
  if (llvm::Error error = check_derivative<F>(vjp))
    return error;
  View<const double> g = vjp.gradients[0];
  if (g)
    add_slopes<F, N>(
        vjp, F(vjp.call.context), *g.dims, [&](int64_t i) { return g[i]; }, fresh);
  else if (fresh)
    std::fill_n(vjp.result.data, vjp.result.size(), 0.0);
  return llvm::Error::success();
}
template <class F, unsigned N> llvm::Error vjp_pointwise(const VjpCall &vjp) {
  return add_pointwise<F, N>(vjp, true);
}

// The functor as a scalar program, once it is run on numbers that write down how they are made.
template <class F, unsigned N, bool kDerived>
std::optional<ScalarProgram> trace_pointwise(const KernelContext &context,
                                             std::optional<unsigned> derivative) {
  return [&]<size_t... k>(std::index_sequence<k...>)->std::optional<ScalarProgram> {
    if (llvm::Error error = check_functor<F>(context)) {
      llvm::consumeError(std::move(error));
      return std::nullopt;
    }
    auto input = [&](unsigned place) {
      return context.members(place) ? TracedNumber::input(place)
                                    : TracedNumber(context.number(place).value_or(0));
    };
    F f(context);
    if (!derivative)
      return record([&] { return TracedNumber(f(input(k)...)); });
    if constexpr (requires { F::kSmooth; })
      if (!(F::kSmooth >> *derivative & 1))
        return std::nullopt;
    if constexpr (kDerived)
      return record([&] {
        auto value = f(Dual<TracedNumber>(input(k), *derivative == k ? 1.0 : 0.0)...);
        return slope_times(TracedNumber::input(kGradientInput), value.slope());
      });
    else
      return std::nullopt;
  }
  (std::make_index_sequence<N>());
}
template <class F, unsigned N, bool kDerived>
constexpr auto tracer() -> decltype(KernelDef::traced) {
  return [&]<size_t... k>(std::index_sequence<k...>)->decltype(KernelDef::traced) {
    if constexpr (std::is_invocable_v<F, decltype((void)k, TracedNumber())...>)
      return trace_pointwise<F, N, kDerived>;
    else
      return nullptr;
  }
  (std::make_index_sequence<N>());
}

// Equality up to tolerances, as torch has it.
struct Isclose {
  explicit Isclose(const KernelContext &context)
      : relative(context.number_attr("rtol", 1e-5)), absolute(context.number_attr("atol", 1e-8)),
        nan_equal(rules::flag_attr(context.app, "equal_nan")) {}
  double operator()(double a, double b) const {
    if (std::isnan(a) && std::isnan(b))
      return nan_equal;
    return a == b || (std::isfinite(b) && std::abs(a - b) <= absolute + relative * std::abs(b));
  }
  double relative, absolute;
  bool nan_equal;
};

// A row of N operands.
template <class F, unsigned N> constexpr KernelDef pointwise(std::string_view row) {
  return {.row = row,
          .real = run_pointwise<F, N, double>,
          .vjp = vjp_pointwise<F, N>,
          .assigns = true,
          .vjp_assigns = true,
          .traced = tracer<F, N, true>()};
}
// The same for a function that complex numbers have, too.
template <class F, unsigned N> constexpr KernelDef analytic(std::string_view row) {
  KernelDef made = pointwise<F, N>(row);
  made.complex = run_pointwise<F, N, Complex>;
  return made;
}
// The same for what is exact modulo a prime.
template <class F, unsigned N> constexpr KernelDef exact(std::string_view row) {
  KernelDef made = analytic<F, N>(row);
  made.modular = run_pointwise<F, N, Residue>;
  return made;
}
// Without a derivative.
template <class F, unsigned N> constexpr KernelDef stepwise(std::string_view row) {
  return {.row = row,
          .real = run_pointwise<F, N, double>,
          .assigns = true,
          .traced = tracer<F, N, false>()};
}

// Rows that are a lambda of one or two numbers.
template <class L> constexpr KernelDef real1(std::string_view row, L) {
  return pointwise<Plain<L>, 1>(row);
}
template <class L> constexpr KernelDef real2(std::string_view row, L) {
  return pointwise<Plain<L>, 2>(row);
}
template <class L> constexpr KernelDef complex1(std::string_view row, L) {
  return analytic<Plain<L>, 1>(row);
}
template <class L> constexpr KernelDef step1(std::string_view row, L) {
  return stepwise<Plain<L>, 1>(row);
}
template <class L> constexpr KernelDef step2(std::string_view row, L) {
  return stepwise<Plain<L>, 2>(row);
}
// Comparisons that complex numbers have, too.
template <class L> constexpr KernelDef equal2(std::string_view row, L) {
  KernelDef made = stepwise<Plain<L>, 2>(row);
  made.complex = run_pointwise<Plain<L>, 2, Complex>;
  return made;
}
// Of which a complex operand makes another function.
template <class L, class C> constexpr KernelDef both1(std::string_view row, L, C) {
  KernelDef made = pointwise<Plain<L>, 1>(row);
  made.complex = run_pointwise<Plain<C>, 1, Complex>;
  return made;
}
template <unsigned N, class C>
constexpr KernelDef of_complex(std::string_view row, C,
                               decltype(KernelDef::composed) composed = nullptr) {
  return {.row = row, .complex = run_pointwise<Plain<C>, N, Complex>, .composed = composed};
}

// Parts of the family of pointwise rows.
llvm::ArrayRef<KernelDef> step_kernels();
llvm::ArrayRef<KernelDef> condition_kernels();

} // namespace spmd::runtime
