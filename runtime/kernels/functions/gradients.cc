// Backward rows of functions of one number: the derivative of the function itself, read off Dual,
// so that these rows have derivatives again.
#include "runtime/kernels/functions/activations.h"
#include "runtime/kernels/functions/pointwise.h"
#include "runtime/kernels/rows.h"

namespace spmd::runtime {

namespace {

template <class F, class T> T derivative(const F &f, T x) { return f(Dual<T>(x, T(1.0))).slope(); }

template <class F> struct Gated {
  explicit Gated(const KernelContext &context) : f(context) {}
  static llvm::Error check(const KernelContext &context) { return check_functor<F>(context); }
  template <class T> T operator()(T g, T x) const { return g * derivative(f, x); }
  F f;
};
template <class F> llvm::Error run_gated(const Call<double> &call) {
  View<const double> g = call.operand(0u), x = call.operand(1u);
  View<double> to = call.results[0];
  F f(call.context);
  bool same_dims = g && x && to && *g.dims == *to.dims && *x.dims == *to.dims;
  if constexpr (requires { f.has_many(); })
    if (same_dims && does_many(f, call.context, to.dtype)) {
      if (llvm::Error error = check_functor<F>(call.context))
        return error;
      f.many(x.data, nullptr, to.data, static_cast<size_t>(x.size()));
      for (int64_t i = 0; i < x.size(); ++i)
        to[i] *= g[i];
      return llvm::Error::success();
    }
  return run_pointwise<Gated<F>, 2, double>(call);
}

// These have the result of the forward op as operand.
struct FromSigmoid {
  explicit FromSigmoid(const KernelContext &) {}
  template <class T> T operator()(T g, T y) const { return g * y * (1.0 - y); }
};
struct FromTanh {
  explicit FromTanh(const KernelContext &) {}
  template <class T> T operator()(T g, T y) const { return g * (1.0 - y * y); }
};
struct EluBackward { // either, as `is_result` says
  explicit EluBackward(const KernelContext &context)
      : elu(context), from_result(rules::flag_attr(context.app, "is_result")) {}
  template <class T> T operator()(T g, T x) const {
    if (!from_result)
      return g * derivative(elu, x);
    return x > 0.0 ? elu.scale * g : g * elu.input_scale * (x + elu.alpha * elu.scale);
  }
  Elu elu;
  bool from_result;
};

struct DivBackwardOther {
  explicit DivBackwardOther(const KernelContext &) {}
  template <class T> T operator()(T g, T a, T b) const { return -g * a / (b * b); }
};

// Two results of the same three operands.
template <class F, class G> llvm::Error two_of_three(const Call<double> &call) {
  if (llvm::Error error = run_pointwise<F, 3, double>(call))
    return error;
  return run_pointwise<G, 3, double>({call.context, call.args, call.results.drop_front()});
}
template <class F, class G> llvm::Error vjp_two_of_three(const VjpCall &vjp) {
  if (llvm::Error error = add_pointwise<F, 3>(vjp, false))
    return error;
  return add_pointwise<G, 3>(
      {vjp.call, vjp.gradients.drop_front(), vjp.operand, vjp.member, vjp.result}, false);
}

struct SwigluBackwardGate {
  explicit SwigluBackwardGate(const KernelContext &context) : silu(context) {}
  template <class T> T operator()(T g, T u, T z) const { return g * u * derivative(silu, z); }
  Silu silu;
};
struct SwigluBackwardUp {
  explicit SwigluBackwardUp(const KernelContext &context) : silu(context) {}
  template <class T> T operator()(T g, T, T z) const { return g * silu(z); }
  Silu silu;
};
llvm::Error swiglu_backward(const Call<double> &call) {
  return two_of_three<SwigluBackwardGate, SwigluBackwardUp>(call);
}
llvm::Error vjp_swiglu_backward(const VjpCall &vjp) {
  return vjp_two_of_three<SwigluBackwardGate, SwigluBackwardUp>(vjp);
}

struct PreluBackwardInput {
  explicit PreluBackwardInput(const KernelContext &) {}
  template <class T> T operator()(T g, T a, T w) const { return a > 0.0 ? g : g * w; }
};
struct PreluBackwardWeight {
  explicit PreluBackwardWeight(const KernelContext &) {}
  template <class T> T operator()(T g, T a, T) const { return a > 0.0 ? 0.0 * g : g * a; }
};
llvm::Error prelu_backward(const Call<double> &call) {
  return two_of_three<PreluBackwardInput, PreluBackwardWeight>(call);
}
llvm::Error vjp_prelu_backward(const VjpCall &vjp) {
  return vjp_two_of_three<PreluBackwardInput, PreluBackwardWeight>(vjp);
}

template <class F> constexpr KernelDef gated(std::string_view row) {
  KernelDef made = pointwise<Gated<F>, 2>(row);
  made.real = run_gated<F>;
  return made;
}

} // namespace

llvm::ArrayRef<KernelDef> gradient_kernels() {
  static constexpr KernelDef kernels[] = {
      gated<Gelu>("gelu_backward"),
      gated<Silu>("silu_backward"),
      gated<Relu>("threshold_backward"),
      gated<LeakyRelu>("leaky_relu_backward"),
      gated<Hardtanh>("hardtanh_backward"),
      gated<Hardsigmoid>("hardsigmoid_backward"),
      gated<Hardswish>("hardswish_backward"),
      gated<Hardshrink>("hardshrink_backward"),
      gated<Softshrink>("softshrink_backward"),
      gated<Softplus>("softplus_backward"),
      gated<Mish>("mish_backward"),
      gated<Logit>("logit_backward"),
      gated<Logsigmoid>("log_sigmoid_backward"),
      pointwise<FromSigmoid, 2>("sigmoid_backward"),
      pointwise<FromTanh, 2>("tanh_backward"),
      pointwise<EluBackward, 2>("elu_backward"),
      pointwise<DivBackwardOther, 3>("div_backward_other"),
      {.row = "swiglu_backward", .real = swiglu_backward, .vjp = vjp_swiglu_backward},
      {.row = "prelu_backward", .real = prelu_backward, .vjp = vjp_prelu_backward},
  };
  return kernels;
}

} // namespace spmd::runtime
