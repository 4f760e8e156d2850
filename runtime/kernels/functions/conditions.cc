// Choices by a condition, and gates by one half of the operand.
#include "runtime/kernels/functions/activations.h"
#include "runtime/kernels/functions/pointwise.h"

namespace spmd::runtime {

namespace {

struct MaskedScale {
  explicit MaskedScale(const KernelContext &context) : scale(context.number_attr("scale", 1)) {}
  template <class T> T operator()(T a, T m) const { return constant<T>(scale) * a * m; }
  double scale;
};

struct Where {
  explicit Where(const KernelContext &) {}
  template <class T> T operator()(T c, T x, T y) const { return truth(c) ? x : y; }
};
struct MaskedFill {
  explicit MaskedFill(const KernelContext &) {}
  template <class T> T operator()(T a, T m, T v) const { return truth(m) ? v : a; }
};

// The case that the condition counts: y first, then the list x. f(i, place of the element in the
// case, member or -1, condition).
template <class T, class F> void each_case(const Call<T> &call, llvm::ArrayRef<int64_t> dims, F f) {
  View<const T> chosen = call.operand("c");
  Broadcast broadcast(dims, {*chosen.dims});
  broadcast.runs([&](int64_t first, const int64_t *offsets, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      f(first + i, static_cast<int64_t>(plain(chosen[offsets[0] + i * broadcast.step(0)])) - 1);
  });
}
template <class T> llvm::Error select_cases(const Call<T> &call) {
  View<const T> first = call.operand("y");
  int64_t last = int64_t(call.context.members(call.context.operand("x"))) - 1;
  View<T> out = call.results[0];
  each_case(call, *out.dims, [&](int64_t i, int64_t member) {
    out[i] =
        member < 0 ? first[i] : call.operand("x", static_cast<unsigned>(std::min(member, last)))[i];
  });
  return llvm::Error::success();
}
llvm::Error vjp_select_cases(const VjpCall &vjp) {
  bool of_first = vjp.operand == vjp.call.context.operand("y");
  int64_t asked = of_first ? -1 : static_cast<int64_t>(vjp.member);
  View<const double> g = vjp.gradients[0];
  if (g && vjp.operand != vjp.call.context.operand("c"))
    each_case(vjp.call, *g.dims, [&](int64_t i, int64_t member) {
      if (std::max<int64_t>(member, -1) == asked)
        vjp.result[i] = g[i];
    });
  return llvm::Error::success();
}

// A function of two halves of one dimension.
template <class T, class F>
void each_half(const Call<T> &call, View<const T> a, llvm::ArrayRef<int64_t> half, F f) {
  llvm::SmallVector<unsigned, 4> dims = call.context.dims(a.rank());
  int64_t inner = count(llvm::ArrayRef<int64_t>(half).drop_front(dims[0])); // of one half
  for (int64_t i = 0, size = count(half); i < size; ++i) {
    int64_t first = i + i / inner * inner;
    f(i, first, first + inner);
  }
}
// `fused_swiglu` gates by the first half, torch's glu by the second.
template <class T> T gated(const KernelContext &context, T first, T second) {
  return context.variant() == Variant::GatesByFirst ? Silu(context)(first) * second
                                                    : first * sigmoid(second);
}
template <class T> llvm::Error glu(const Call<T> &call) {
  View<const T> a = call.operand("a");
  View<T> out = call.results[0];
  each_half(call, a, *out.dims, [&](int64_t i, int64_t first, int64_t second) {
    out[i] = gated(call.context, a[first], a[second]);
  });
  return llvm::Error::success();
}
template <class T> llvm::Error glu_backward(const Call<T> &call) {
  View<const T> a = call.operand("a"), g = call.operand("g");
  View<T> out = call.results[0];
  each_half(call, a, *g.dims, [&](int64_t i, int64_t first, int64_t second) {
    T gate = sigmoid(a[second]);
    out[first] = g[i] * gate;
    out[second] = g[i] * a[first] * gate * (1.0 - gate);
  });
  return llvm::Error::success();
}
llvm::Error vjp_glu(const VjpCall &vjp) {
  View<const double> a = vjp.call.operand("a"), g = vjp.gradients[0];
  auto gate = [&](auto x, auto y) { return gated(vjp.call.context, x, y); };
  if (g)
    each_half(vjp.call, a, *g.dims, [&](int64_t i, int64_t first, int64_t second) {
      vjp.result[first] = g[i] * slope_at<0>(gate, a[first], a[second]);
      vjp.result[second] = g[i] * slope_at<1>(gate, a[first], a[second]);
    });
  return llvm::Error::success();
}

} // namespace

llvm::ArrayRef<KernelDef> condition_kernels() {
  static constexpr KernelDef kernels[] = {
      exact<MaskedScale, 2>("masked_scale"),
      exact<Where, 3>("where"),
      exact<MaskedFill, 3>("masked_fill"),
      {.row = "select_cases",
       .real = select_cases<double>,
       .complex = select_cases<Complex>,
       .vjp = vjp_select_cases},
      {.row = "glu", .real = glu<double>, .vjp = vjp_glu},
      {.row = "glu_backward", .real = glu_backward<double>, .taped = glu_backward<Var>},
  };
  return kernels;
}

} // namespace spmd::runtime
