// Functions that jump from value to value: rounding, comparisons, bits, casts.
#include "ir/support/strings.h"
#include "runtime/kernels/functions/pointwise.h"
#include "runtime/kernels/integral.h"

#include <bit>
#include <functional>
#include <numeric>

namespace spmd::runtime {

using ir::DType;

namespace {

int64_t whole(double x) { return static_cast<int64_t>(x); }

struct Round { // to even, or away from zero as jax's default is; `decimals` digits
  explicit Round(const KernelContext &context)
      : unit(std::pow(10, -context.number_attr("decimals", 0))) {
    llvm::StringRef word = rules::word_attr(context.app, {"rounding_method"});
    away = ir::ends_with(word, "AWAY_FROM_ZERO") || context.number_attr("rounding_method", 1) == 0;
  }
  double operator()(double x) const {
    double scaled = x / unit, near = away ? std::round(scaled) : std::nearbyint(scaled);
    return near * unit;
  }
  double unit;
  bool away;
};
struct FloorDivide { // `rounding_mode`; `mulhi`: the upper half of a product
  explicit FloorDivide(const KernelContext &context)
      : cut(rules::word_attr(context.app, {"rounding_mode"}) == "trunc"),
        upper_bits(context.variant() == Variant::UpperHalf ? bits_of(context.dtype(0)) : 0) {}
  double operator()(double a, double b) const {
    if (upper_bits)
      return static_cast<double>(static_cast<__int128>(whole(a)) * whole(b) >> upper_bits);
    if (cut)
      return std::trunc(a / b);
    // As torch: so that a = q b + rest holds where a / b is rounded.
    double rest = std::fmod(a, b), quotient = (a - rest) / b;
    if (b == 0)
      return std::floor(a / b);
    if (rest != 0 && (b < 0) != (rest < 0))
      quotient -= 1;
    return quotient == 0 ? std::copysign(0.0, a / b) : std::round(quotient);
  }
  TracedNumber operator()(TracedNumber a, TracedNumber b) const {
    if (upper_bits)
      return TracedNumber::untraceable();
    if (cut)
      return trunc(a / b);
    if (b == 0.0)
      return floor(a / b);
    const TracedNumber rest = fmod(a, b);
    TracedNumber quotient = (a - rest) / b;
    if (rest != 0.0 && (b < 0.0) != (rest < 0.0))
      quotient = quotient - 1.0;
    if (quotient == 0.0)
      return TracedNumber::of(kSpmdCopysign, 0.0, a / b);
    // Near a whole number: the nearest one. Beyond 2^52 all are whole.
    return abs(quotient) < 0x1p52 ? floor(quotient + 0.5) : quotient;
  }
  bool cut;
  unsigned upper_bits;
};

// Bits.

// Of truth values a device knows what comes out.
template <class Whole, class Truth> struct Bitwise {
  explicit Bitwise(const KernelContext &context)
      : truths(context.dtype(0) == DType::Bool && context.dtype(1) == DType::Bool) {}
  double operator()(double a, double b) const {
    return static_cast<double>(Whole()(whole(a), whole(b)));
  }
  TracedNumber operator()(TracedNumber a, TracedNumber b) const {
    return truths ? Truth()(a, b) : TracedNumber::untraceable();
  }
  bool truths;
};
struct BothBits {
  TracedNumber operator()(TracedNumber a, TracedNumber b) const { return a * b; }
};
struct EitherBit {
  TracedNumber operator()(TracedNumber a, TracedNumber b) const { return a + b - a * b; }
};
struct OneOfTwo {
  TracedNumber operator()(TracedNumber a, TracedNumber b) const { return abs(a - b); }
};

struct BitwiseNot { // or `population_count`, `clz`
  explicit BitwiseNot(const KernelContext &context)
      : bits(bits_of(context.dtype(0))), counts(context.variant() == Variant::CountsBits),
        leads(context.variant() == Variant::LeadingZeros) {}
  double operator()(double x) const {
    if (counts)
      return __builtin_popcountll(bit_pattern(x, bits));
    if (leads)
      return x == 0 ? bits : __builtin_clzll(bit_pattern(x, bits)) - (64 - static_cast<int>(bits));
    return bits == 1 ? x == 0 : -x - 1;
  }
  unsigned bits;
  bool counts, leads;
};
struct RightShift { // arithmetic; `shift_right_logical`: zeros come in
  explicit RightShift(const KernelContext &context)
      : bits(bits_of(context.dtype(0))), logical(context.variant() == Variant::LogicalShift) {}
  double operator()(double a, double b) const {
    bool beyond = b < 0 || b >= bits;
    if (logical)
      return beyond ? 0 : static_cast<double>(bit_pattern(a, bits) >> whole(b));
    return static_cast<double>(whole(a) >> (beyond ? 63 : whole(b)));
  }
  unsigned bits;
  bool logical;
};

// Casts that do more than rounding, which follows each op.

struct Cast { // `reduce_precision`: to a float of so many bits
  explicit Cast(const KernelContext &context)
      : fraction(context.variant() == Variant::ReducedPrecision &&
                         context.domain == Domain::Declared
                     ? static_cast<int>(context.number_attr("mantissa_bits", 52))
                     : 52),
        exponent(static_cast<int>(context.number_attr("exponent_bits", 11))) {}
  template <class T> T operator()(T x) const {
    if constexpr (std::is_same_v<T, TracedNumber>)
      return fraction < 52 ? TracedNumber::untraceable() : x;
    else if constexpr (std::is_same_v<T, double>)
      return fraction < 52 && std::isfinite(x) && x != 0 ? reduced(x) : x;
    else
      return x;
  }
  double reduced(double x) const {
    int bias = (1 << (exponent - 1)) - 1;
    double unit = std::ldexp(1.0, std::max(std::ilogb(x), 1 - bias) - fraction);
    double near = std::nearbyint(x / unit) * unit;
    return std::ilogb(near) > bias ? std::copysign(kInfinity, near) : near;
  }
  int fraction, exponent;
};
struct CastRound {
  explicit CastRound(const KernelContext &) {}
  static llvm::Error check(const KernelContext &context) {
    if (context.variant() == Variant::Quantised)
      return cannot_run(context, "scale and zero point of its operand are not known");
    return llvm::Error::success();
  }
  template <class T> T operator()(T x) const { return x; } // what follows every op rounds it
};
struct Bitcast {
  explicit Bitcast(const KernelContext &context)
      : from(context.dtype(0)), to(context.result_dtype()) {}
  static llvm::Error check(const KernelContext &context) {
    DType from = context.dtype(0), to = context.result_dtype();
    if (ir::info(from).bytes != ir::info(to).bytes || ir::info(from).bytes > 4)
      return cannot_run(context, "only element types of one size of at most 32 bits are cast");
    return llvm::Error::success();
  }
  double operator()(double x) const { return decode(encode(x, from), to); }
  DType from, to;
};

// With scales and zero points: one each, or one per index of dimension `axis`. `fake_...`: back to
// real numbers.
llvm::Error quantize(const Call<double> &call) {
  const KernelContext &context = call.context;
  View<const double> a = call.operand("a"), s = call.operand("s"), z = call.operand("z");
  View<double> out = call.results[0];
  std::optional<int64_t> axis = rules::number_attr(context.app, {"axis"});
  unsigned rank = a.rank(), place = rules::place_of(axis.value_or(0), rank).value_or(0);
  int64_t inner = count(llvm::ArrayRef<int64_t>(*a.dims).drop_front(std::min(place + 1, rank)));
  bool per_index = (s && s.size() > 1) || (z && z.size() > 1);
  bool fake = context.variant() == Variant::Simulated;
  std::optional<double> number = context.number(context.operand("s"));
  double scale = number.value_or(context.number_attr("scale", 1));
  number = context.number(context.operand("z"));
  double zero = number.value_or(context.number_attr("zero_point", 0));
  double least = context.number_attr("quant_min", -kInfinity);
  double most = context.number_attr("quant_max", kInfinity);
  for (int64_t i = 0; i < a.size(); ++i) {
    int64_t k = per_index ? i / inner % a.dim(place) : 0;
    double step = s ? s[s.size() > 1 ? k : 0] : scale, shift = z ? z[z.size() > 1 ? k : 0] : zero;
    double level = std::clamp(std::nearbyint(a[i] / step) + shift, least, most);
    out[i] = fake ? (level - shift) * step : level;
  }
  return llvm::Error::success();
}

// Comparisons.

bool is_below(double a, double b) { // in jax's total order
  auto key = [](double x) {
    auto bits = std::bit_cast<int64_t>(x);
    return bits < 0 ? bits ^ std::numeric_limits<int64_t>::max() : bits;
  };
  return key(a) < key(b);
}
struct Eq {
  explicit Eq(const KernelContext &context) : total(context.variant() == Variant::TotalOrder) {}
  template <class T> T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, TracedNumber>)
      if (total)
        return TracedNumber::untraceable();
    if constexpr (std::is_same_v<T, double>)
      if (total)
        return !is_below(a, b) && !is_below(b, a);
    return T(a == b ? 1.0 : 0.0);
  }
  bool total;
};
struct Lt {
  explicit Lt(const KernelContext &context) : total(context.variant() == Variant::TotalOrder) {}
  template <class T> T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, TracedNumber>)
      return total ? TracedNumber::untraceable() : TracedNumber(double(a < b));
    else
      return total ? is_below(a, b) : a < b;
  }
  bool total;
};
struct Le {
  explicit Le(const KernelContext &context) : total(context.variant() == Variant::TotalOrder) {}
  template <class T> T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, TracedNumber>)
      return total ? TracedNumber::untraceable() : TracedNumber(double(a <= b));
    else
      return total ? !is_below(b, a) : a <= b;
  }
  bool total;
};
constexpr KernelDef equality() {
  KernelDef made = stepwise<Eq, 2>("eq");
  made.complex = run_pointwise<Eq, 2, Complex>;
  return made;
}

} // namespace

llvm::ArrayRef<KernelDef> step_kernels() {
#define X1(...) [](auto x) -> decltype(x) { return __VA_ARGS__; }
#define X2(...) [](auto a, auto b) -> decltype(a) { return __VA_ARGS__; }
#define BITS(...) [](double a, double b) -> double { return __VA_ARGS__; }
  static constexpr KernelDef kernels[] = {
      analytic<Cast, 1>("cast"),
      step1("ceil", X1(ceil(x))),
      step1("floor", X1(floor(x))),
      stepwise<Round, 1>("round"),
      step1("trunc", X1(trunc(x))),
      step1("sign", X1((x > 0) - (x < 0))),
      step1("signbit", X1(signbit(x))),
      step1("isnan", X1(isnan(x))),
      step1("isinf", X1(isinf(x))),
      step1("isfinite", X1(isfinite(x))),
      step1("isneginf", X1(x == -kInfinity)),
      step1("isposinf", X1(x == kInfinity)),
      both1("isreal", X1(1.0 + 0.0 * x == 1.0 || x != x), X1(x.imag() == 0 ? 1.0 : 0.0)),
      step1("logical_not", X1(x == 0)),
      stepwise<BitwiseNot, 1>("bitwise_not"),
      stepwise<CastRound, 1>("cast_round"),
      stepwise<Bitcast, 1>("bitcast"),
      {.row = "quantize", .real = quantize},
      stepwise<FloorDivide, 2>("floor_divide"),
      step2("heaviside", X2(a == 0 ? b : a > 0)),
      step2("nextafter", X2(nextafter(a, b))),
      equality(),
      equal2("ne", X2(decltype(a)(a != b ? 1.0 : 0.0))),
      stepwise<Lt, 2>("lt"),
      stepwise<Le, 2>("le"),
      step2("gt", X2(a > b)),
      step2("ge", X2(a >= b)),
      stepwise<Isclose, 2>("isclose"),
      step2("logical_and", X2(a != 0 && b != 0)),
      step2("logical_or", X2(a != 0 || b != 0)),
      step2("logical_xor", X2((a != 0) != (b != 0))),
      stepwise<Bitwise<std::bit_and<>, BothBits>, 2>("bitwise_and"),
      stepwise<Bitwise<std::bit_or<>, EitherBit>, 2>("bitwise_or"),
      stepwise<Bitwise<std::bit_xor<>, OneOfTwo>, 2>("bitwise_xor"),
      step2("bitwise_left_shift", BITS(std::ldexp(a, static_cast<int>(b)))),
      stepwise<RightShift, 2>("bitwise_right_shift"),
      step2("gcd", BITS(static_cast<double>(std::gcd(whole(a), whole(b))))),
      step2("lcm", BITS(static_cast<double>(std::lcm(whole(a), whole(b))))),
  };
#undef X1
#undef X2
#undef BITS
  return kernels;
}

} // namespace spmd::runtime
