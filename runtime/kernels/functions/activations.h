// Functions of one number, with attributes, that their own backward rows share.
#pragma once

#include "runtime/kernels/kernel.h"
#include "runtime/tensor/number.h"

namespace spmd::runtime {

// x where it lies inside, else the border, where the derivative is 0.
template <class T> T bordered(T x, double low, double high) {
  return x <= low ? T(low) : x >= high ? T(high) : x;
}

struct Relu { // `threshold`: with attributes
  explicit Relu(const KernelContext &context)
      : threshold(context.number_attr("threshold", 0)), value(context.number_attr("value", 0)) {}
  template <class T> T operator()(T x) const { return x <= threshold ? T(value) : x; }
  double threshold, value;
};

struct Gelu {
  explicit Gelu(const KernelContext &context);
  static llvm::Error check(const KernelContext &context);
  template <class T> T operator()(T x) const {
    if (tanh_form)
      return 0.5 * x * (1.0 + tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
    return 0.5 * x * erfc(-x * M_SQRT1_2);
  }
  bool has_many() const { return !tanh_form; }
  void many(const double *x, double *values, double *slopes, size_t n) const;
  bool tanh_form;
};

struct Silu {
  explicit Silu(const KernelContext &) {}
  template <class T> T operator()(T x) const { return x * sigmoid(x); }
  bool has_many() const { return true; }
  void many(const double *x, double *values, double *slopes, size_t n) const;
};

struct Elu {
  explicit Elu(const KernelContext &context)
      : alpha(context.number_attr("alpha", 1)), scale(context.number_attr("scale", 1)),
        input_scale(context.number_attr("input_scale", 1)) {}
  template <class T> T operator()(T x) const {
    return x > 0.0 ? scale * x : scale * alpha * expm1(input_scale * x);
  }
  double alpha, scale, input_scale;
};

struct LeakyRelu {
  explicit LeakyRelu(const KernelContext &context)
      : slope(context.number_attr("negative_slope", 0.01)) {}
  template <class T> T operator()(T x) const { return x > 0.0 ? x : slope * x; }
  double slope;
};

struct Mish {
  explicit Mish(const KernelContext &) {}
  template <class T> T operator()(T x) const { return x * tanh(softplus(x)); }
};

struct Softplus {
  explicit Softplus(const KernelContext &context)
      : beta(context.number_attr("beta", 1)), threshold(context.number_attr("threshold", 20)) {}
  template <class T> T operator()(T x) const {
    return beta * x > threshold ? x : softplus(beta * x) / beta;
  }
  double beta, threshold;
};

struct Hardtanh {
  explicit Hardtanh(const KernelContext &context)
      : low(context.number_attr("min_val", -1)), high(context.number_attr("max_val", 1)) {}
  template <class T> T operator()(T x) const { return bordered(x, low, high); }
  double low, high;
};

struct Hardsigmoid {
  explicit Hardsigmoid(const KernelContext &) {}
  template <class T> T operator()(T x) const { return bordered(x + 3.0, 0, 6) / 6.0; }
};

struct Hardswish {
  explicit Hardswish(const KernelContext &) {}
  template <class T> T operator()(T x) const { return x * bordered(x + 3.0, 0, 6) / 6.0; }
};

struct Hardshrink {
  explicit Hardshrink(const KernelContext &context) : lambda(context.number_attr("lambd", 0.5)) {}
  template <class T> T operator()(T x) const { return x >= -lambda && x <= lambda ? T(0.0) : x; }
  double lambda;
};

struct Softshrink {
  explicit Softshrink(const KernelContext &context) : lambda(context.number_attr("lambd", 0.5)) {}
  template <class T> T operator()(T x) const {
    return x > lambda ? x - lambda : x < -lambda ? x + lambda : T(0.0);
  }
  double lambda;
};

struct Logsigmoid {
  explicit Logsigmoid(const KernelContext &) {}
  template <class T> T operator()(T x) const { return -softplus(-x); }
};

struct Logit { // attribute `eps`: the operand is kept that far from 0 and 1
  explicit Logit(const KernelContext &context) : eps(context.number_attr("eps", -1)) {}
  template <class T> T operator()(T x) const {
    T z = eps < 0 ? x : bordered(x, eps, 1 - eps);
    return log(z / (1.0 - z));
  }
  double eps;
};

} // namespace spmd::runtime
