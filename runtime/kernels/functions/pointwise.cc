// Functions of one, two or three numbers. What an equation says in full (`mul`, `square`) has a row
// here only where an attribute, complex numbers or speed ask for it.
#include "runtime/kernels/functions/pointwise.h"

#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/functions/activations.h"
#include "runtime/kernels/integral.h"
#include "runtime/kernels/rows.h"
#include "runtime/loops/exponentials.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

using ir::DType;

Gelu::Gelu(const KernelContext &context)
    : tanh_form(rules::word_attr(context.app, {"approximate"}) == "tanh" ||
                rules::flag_attr(context.app, "approximate")) {}

llvm::Error Gelu::check(const KernelContext &context) {
  llvm::StringRef word = rules::word_attr(context.app, {"approximate"});
  if (word.empty() || word == "none" || word == "tanh")
    return llvm::Error::success();
  return cannot_run(context, "attribute `approximate` is `" + word + "`");
}

namespace {

constexpr size_t kBlock = 256; // numbers that are done at once: they stay near

} // namespace

// x times the share of the normal distribution below x.
void Gelu::many(const double *x, double *values, double *slopes, size_t n) const {
  double below[kBlock], density[kBlock];
  for (size_t first = 0; first < n; first += kBlock) {
    size_t size = std::min(kBlock, n - first);
    normal_distribution(x + first, below, density, size);
    for (size_t i = 0; values && i < size; ++i)
      values[first + i] = x[first + i] * below[i];
    for (size_t i = 0; slopes && i < size; ++i)
      slopes[first + i] = below[i] + x[first + i] * density[i];
  }
}

// By e = exp(-|x|), which is at most 1: the sigmoid is 1 / (1 + e) or e / (1 + e).
void Silu::many(const double *x, double *values, double *slopes, size_t n) const {
  double e[kBlock];
  for (size_t first = 0; first < n; first += kBlock) {
    size_t size = std::min(kBlock, n - first);
    for (size_t i = 0; i < size; ++i)
      e[i] = -std::abs(x[first + i]);
    exponentials(e, 0, e, size);
    for (size_t i = 0; values && i < size; ++i)
      values[first + i] = x[first + i] * ((x[first + i] < 0 ? e[i] : 1) / (1 + e[i]));
    for (size_t i = 0; slopes && i < size; ++i) {
      double part = 1 / (1 + e[i]), sigmoid = (x[first + i] < 0 ? e[i] : 1) * part;
      slopes[first + i] = sigmoid + x[first + i] * (e[i] * part * part);
    }
  }
}

namespace {

// Attributes.

struct Add {
  explicit Add(const KernelContext &context) : alpha(context.number_attr("alpha", 1)) {}
  template <class T> T operator()(T a, T b) const {
    return alpha == 1 ? a + b : a + constant<T>(alpha) * b;
  }
  double alpha;
};
struct Sub {
  explicit Sub(const KernelContext &context) : alpha(context.number_attr("alpha", 1)) {}
  template <class T> T operator()(T a, T b) const {
    return alpha == 1 ? a - b : a - constant<T>(alpha) * b;
  }
  double alpha;
};
struct Addcmul {
  explicit Addcmul(const KernelContext &context) : value(context.number_attr("value", 1)) {}
  template <class T> T operator()(T c, T a, T b) const { return c + constant<T>(value) * a * b; }
  double value;
};
struct Addcdiv {
  explicit Addcdiv(const KernelContext &context) : value(context.number_attr("value", 1)) {}
  template <class T> T operator()(T c, T a, T b) const { return c + value * a / b; }
  double value;
};
struct Sqrt { // or `cbrt`
  explicit Sqrt(const KernelContext &context) : cubic(context.variant() == Variant::CubeRoot) {}
  template <class T> T operator()(T x) const {
    if constexpr (!std::is_same_v<T, Complex>)
      if (cubic)
        return cbrt(x);
    return sqrt(x);
  }
  bool cubic;
};
struct Lgamma { // or `mvlgamma` of order `p`
  explicit Lgamma(const KernelContext &context)
      : order(static_cast<int>(context.number_attr("p", 1))) {}
  template <class T> T operator()(T x) const {
    T sum = lgamma(x) + order * (order - 1) / 4.0 * std::log(kPi);
    for (int i = 1; i < order; ++i)
      sum += lgamma(x - i / 2.0);
    return sum;
  }
  int order;
};
struct Digamma { // or `polygamma` of order `n`
  explicit Digamma(const KernelContext &context)
      : order(static_cast<int>(context.number_attr("n", 0))) {}
  template <class T> T operator()(T x) const {
    return order > 0 ? polygamma(order, x) : digamma(x);
  }
  int order;
};
struct Ndtr {
  explicit Ndtr(const KernelContext &) {}
  static llvm::Error check(const KernelContext &context) {
    if (context.variant() == Variant::Inverse)
      return cannot_run(context, "it has no kernel");
    return llvm::Error::success();
  }
  template <class T> T operator()(T x) const { return 0.5 * erfc(-x * M_SQRT1_2); }
};
struct Pow {
  explicit Pow(const KernelContext &) {}
  template <class T> T operator()(T a, T b) const { return pow(a, b); }
};
struct Celu {
  explicit Celu(const KernelContext &context) : alpha(context.number_attr("alpha", 1)) {}
  template <class T> T operator()(T x) const { return x > 0.0 ? x : alpha * expm1(x / alpha); }
  double alpha;
};
struct NanToNum {
  explicit NanToNum(const KernelContext &context) {
    double largest = std::numeric_limits<double>::max();
    DType dtype = context.dtype(0);
    if (dtype == DType::F32)
      largest = std::numeric_limits<float>::max();
    else if (dtype == DType::F16)
      largest = 65504;
    else if (dtype == DType::BF16)
      largest = 0x1.FEp127;
    nan = context.number_attr("nan", 0);
    above = context.number_attr("posinf", largest);
    below = context.number_attr("neginf", -largest);
  }
  template <class T> T operator()(T x) const {
    auto number = plain(x);
    return isnan(number)          ? T(nan)
           : number == kInfinity  ? T(above)
           : number == -kInfinity ? T(below)
                                  : x;
  }
  double nan, above, below;
};
struct Clamp {
  explicit Clamp(const KernelContext &context)
      : has_low(is_there(context, 1, "min")), has_high(is_there(context, 2, "max")),
        low(context.number_attr("min", 0)), high(context.number_attr("max", 0)),
        low_given(!context.binding.missing(1)), high_given(!context.binding.missing(2)) {}
  static bool is_there(const KernelContext &context, unsigned operand, llvm::StringRef name) {
    return !context.binding.missing(operand) || rules::any_attr(context.app, {name});
  }
  template <class T> T operator()(T x, T lo, T hi) const {
    if (has_low)
      x = larger(x, low_given ? lo : T(low));
    return has_high ? smaller(x, high_given ? hi : T(high)) : x;
  }
  bool has_low, has_high;
  double low, high;
  bool low_given, high_given;
};

// Quotients.

struct Div { // integers by integers into integers: cut off
  explicit Div(const KernelContext &context) : cut(is_integral(context.result_dtype())) {}
  template <class T> T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, TracedNumber>)
      return cut ? trunc(a / b) : a / b;
    else
      return a / b;
  }
  bool cut;
};
template <class T, class Rest> T remainder_of(T a, T b, Rest rest) {
  if constexpr (std::is_same_v<T, Rest>)
    return rest;
  else
    return a - b * T(round((plain(a) - rest) / plain(b)));
}

template <class T> T product_or_zero(T a, T b, T logarithm) {
  bool zero = plain(a) == 0 && !(plain(b) > 0) && !isnan(plain(b));
  return zero ? T(0.0) : a * logarithm;
}
template <class T> T log_sum(T a, T b, double base) {
  if (plain(a) == plain(b) && isinf(plain(a)))
    return a;
  T most = larger(a, b), least = plain(a) < plain(b) ? a : b;
  double log = std::log(base);
  return most + log1p(exp((least - most) * log)) / log;
}
} // namespace

// For the real and the imaginary part.
static KernelDef of_parts(KernelDef made) {
  made.composed = composed_sum_of_parts;
  return made;
}

llvm::ArrayRef<KernelDef> pointwise_kernels() {
#define X1(...) [](auto x) -> decltype(x) { return __VA_ARGS__; }
#define X2(...) [](auto a, auto b) -> decltype(a) { return __VA_ARGS__; }
  static const llvm::SmallVector<KernelDef, 0> kernels = [] {
    llvm::SmallVector<KernelDef, 0> all = {
        of_parts(exact<Add, 2>("add")),
        of_parts(exact<Sub, 2>("sub")),
        analytic<Div, 2>("div"),
        exact<Addcmul, 3>("addcmul"),
        analytic<Addcdiv, 3>("addcdiv"),
        of_complex<1>("conj", X1(std::conj(x)), composed_conj),
        both1("imag", X1(0.0 * x), X1(x.imag())),
        of_complex<2>("complex", X2(a + b * Complex(0, 1))),
        of_complex<2>("polar", X2(a * std::exp(b * Complex(0, 1)))),
        real2("ldexp", X2(a * exp2(b))),
        real2("xlogy", X2(product_or_zero(a, b, log(b)))),
        real2("xlog1py", X2(product_or_zero(a, b + 1.0, log1p(b)))),

        complex1("exp", X1(exp(x))),
        complex1("exp2", X1(exp2(x))),
        complex1("expm1", X1(expm1(x))),
        complex1("sin", X1(sin(x))),
        complex1("cos", X1(cos(x))),
        complex1("tan", X1(tan(x))),
        complex1("sinh", X1(sinh(x))),
        complex1("cosh", X1(cosh(x))),
        complex1("tanh", X1(tanh(x))),
        complex1("asin", X1(asin(x))),
        complex1("acos", X1(acos(x))),
        complex1("atan", X1(atan(x))),
        complex1("asinh", X1(asinh(x))),
        complex1("acosh", X1(acosh(x))),
        complex1("atanh", X1(atanh(x))),
        complex1("log", X1(log(x))),
        complex1("log2", X1(log2(x))),
        complex1("log10", X1(log10(x))),
        complex1("log1p", X1(log1p(x))),
        analytic<Sqrt, 1>("sqrt"),
        complex1("rsqrt", X1(rsqrt(x))),
        complex1("reciprocal", X1(1.0 / x)),
        complex1("sigmoid", X1(sigmoid(x))),
        both1("abs", X1(abs(x)), X1(std::abs(x))),
        both1("angle", X1(x < 0.0 ? decltype(x)(kPi) : 0.0 * x), X1(std::arg(x))),
        both1("sgn", X1((x > 0.0) - (x < 0.0)), X1(x == 0.0 ? x : x / std::abs(x))),

        real1("erf", X1(erf(x))),
        real1("erfc", X1(erfc(x))),
        real1("erfinv", X1(erfinv(x))),
        pointwise<Lgamma, 1>("lgamma"),
        pointwise<Digamma, 1>("digamma"),
        pointwise<Logit, 1>("logit"),
        pointwise<Ndtr, 1>("ndtr"),
        real1("entr", X1(x < 0.0 ? decltype(x)(-kInfinity) : -product_or_zero(x, x, log(x)))),
        real1("sinc", X1(plain(x) == 0 ? 1.0 + 0.0 * x : sin(kPi * x) / (kPi * x))),

        pointwise<Relu, 1>("relu"),
        pointwise<Gelu, 1>("gelu"),
        pointwise<Silu, 1>("silu"),
        pointwise<Elu, 1>("elu"),
        real1("selu", X1(1.0507009873554804934193349852946 *
                         (x > 0.0 ? x : 1.6732632423543772848170429916717 * expm1(x)))),
        pointwise<Celu, 1>("celu"),
        pointwise<LeakyRelu, 1>("leaky_relu"),
        pointwise<Mish, 1>("mish"),
        pointwise<Softplus, 1>("softplus"),
        real1("softsign", X1(x / (1.0 + abs(x)))),
        real1("tanhshrink", X1(x - tanh(x))),
        pointwise<Hardtanh, 1>("hardtanh"),
        pointwise<Hardsigmoid, 1>("hardsigmoid"),
        pointwise<Hardswish, 1>("hardswish"),
        pointwise<Hardshrink, 1>("hardshrink"),
        pointwise<Softshrink, 1>("softshrink"),
        real1("relu6", X1(bordered(x, 0, 6))),
        pointwise<Logsigmoid, 1>("logsigmoid"),
        real2("prelu", X2(a > 0.0 ? a : b * a)),
        real2("swiglu", X2(a * sigmoid(a) * b)),
        real2("geglu", X2(0.5 * a * erfc(-a * M_SQRT1_2) * b)),
        real2("reglu", X2(a > 0.0 ? a * b : decltype(a)(0.0))),

        real1("frac", X1(x - trunc(x))),
        pointwise<NanToNum, 1>("nan_to_num"),

        analytic<Pow, 2>("pow"),
        analytic<Pow, 2>("float_power"),
        real2("atan2", X2(atan2(a, b))),
        real2("hypot", X2(hypot(a, b))),
        real2("logaddexp", X2(log_sum(a, b, M_E))),
        real2("logaddexp2", X2(log_sum(a, b, 2))),
        real2("maximum", X2(larger(a, b))),
        real2("minimum", X2(smaller(a, b))),
        real2("fmax", X2(isnan(plain(a))   ? b
                         : isnan(plain(b)) ? a
                                           : larger(a, b))),
        real2("fmin", X2(isnan(plain(a))   ? b
                         : isnan(plain(b)) ? a
                                           : smaller(a, b))),
        real2("copysign", X2(signbit(plain(a)) != signbit(plain(b)) ? -a : a)),
        real2("remainder", X2(remainder_of(a, b, floored_remainder(plain(a), plain(b))))),
        real2("fmod", X2(remainder_of(a, b, fmod(plain(a), plain(b))))),
        pointwise<Clamp, 3>("clamp"),

    };
    llvm::append_range(all, step_kernels());
    llvm::append_range(all, condition_kernels());
    return all;
  }();
#undef X1
#undef X2
  return kernels;
}

} // namespace spmd::runtime
