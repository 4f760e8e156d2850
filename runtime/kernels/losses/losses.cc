// Losses that are a function of each prediction and its target, summed or averaged.
#include "runtime/kernels/losses/losses.h"

#include "runtime/kernels/functions/pointwise.h"
#include "runtime/kernels/rows.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

llvm::Expected<LossReduction> read_reduction(const KernelContext &context) {
  const std::optional<LossReduction> found = rules::reduction_of(context.app);
  // A row that reduces whatever the attribute says is a mean, and keeps no loss per sample.
  const rules::Result &made = context.row.equation.equation.results[0];
  if (!context.row.reduces && !context.row.derivative_of && made.has_dims && made.dim_count == 0) {
    if (!rules::any_attr(context.app, {"reduction"}))
      return LossReduction::Mean;
    if (found == LossReduction::None)
      return cannot_run(context, "attribute `reduction` is `none`, but it is a mean");
  }
  if (found)
    return *found;
  return cannot_run(context, "attribute `reduction` is `" +
                                 rules::word_attr(context.app, {"reduction"}) + "`");
}

namespace {

// Functors of prediction a and target b; optional operands are passed as 0.

struct Mse {
  explicit Mse(const KernelContext &) {}
  template <class T> T operator()(T a, T b) const { return (a - b) * (a - b); }
};
struct L1 {
  explicit L1(const KernelContext &) {}
  template <class T> T operator()(T a, T b) const { return abs(a - b); }
};
struct SmoothL1 {
  explicit SmoothL1(const KernelContext &context) : beta(context.number_attr("beta", 1)) {}
  template <class T> T operator()(T a, T b) const {
    T size = abs(a - b);
    return size < beta ? 0.5 * size * size / beta : size - 0.5 * beta;
  }
  double beta;
};
struct Huber {
  explicit Huber(const KernelContext &context) : delta(context.number_attr("delta", 1)) {}
  template <class T> T operator()(T a, T b) const {
    T size = abs(a - b);
    return size < delta ? 0.5 * size * size : delta * (size - 0.5 * delta);
  }
  double delta;
};
struct SoftMargin {
  explicit SoftMargin(const KernelContext &) {}
  template <class T> T operator()(T a, T b) const { return softplus(-a * b); }
};
struct KlDiv {
  explicit KlDiv(const KernelContext &context)
      : log_target(rules::flag_attr(context.app, "log_target")) {}
  template <class T> T operator()(T a, T b) const {
    if (log_target)
      return exp(b) * (b - a);
    return plain(b) == 0 ? T(0.0) : b * (log(b) - a);
  }
  bool log_target;
};
struct PoissonNll {
  explicit PoissonNll(const KernelContext &context)
      : log_input(!rules::any_attr(context.app, {"log_input"}) ||
                  rules::flag_attr(context.app, "log_input")),
        full(rules::flag_attr(context.app, "full")), eps(context.number_attr("eps", 1e-8)) {}
  template <class T> T operator()(T a, T b) const {
    T loss = log_input ? exp(a) - b * a : a - b * log(a + eps);
    return full && plain(b) > 1 ? loss + b * log(b) - b + 0.5 * log(2 * kPi * b) : loss;
  }
  bool log_input, full;
  double eps;
};
struct Bce { // logarithms are cut off at -100, as torch does
  explicit Bce(const KernelContext &context)
      : weighted(!context.binding.missing(context.operand("w"))) {}
  template <class T> T operator()(T a, T b, T w) const {
    T loss = (b - 1.0) * larger(log1p(-a), T(-100.0)) - b * larger(log(a), T(-100.0));
    return weighted ? loss * w : loss;
  }
  bool weighted;
};
struct BceWithLogits { // w: weights; p: those of positive targets
  explicit BceWithLogits(const KernelContext &context)
      : weighted(!context.binding.missing(context.operand("w"))),
        positive(!context.binding.missing(context.operand("p"))) {}
  template <class T> T operator()(T a, T b, T w, T p) const {
    T log_weight = positive ? 1.0 + (p - 1.0) * b : T(1.0);
    T loss = (1.0 - b) * a + log_weight * softplus(-a);
    return weighted ? loss * w : loss;
  }
  bool weighted, positive;
};

// The number of elements that a mean divides by.
double divisor_of(LossReduction reduction, llvm::ArrayRef<int64_t> dims) {
  bool of_batch = reduction == LossReduction::BatchMean && !dims.empty();
  return static_cast<double>(of_batch ? dims[0] : count(dims));
}

template <class F, unsigned N> llvm::Error run_loss(const Call<double> &call) {
  llvm::Expected<LossReduction> reduction = read_reduction(call.context);
  if (!reduction)
    return reduction.takeError();
  F f(call.context);
  PointOperands<N, double> operands(call);
  Dims dims = broadcast_dims(operands.dims());
  std::vector<double> losses(static_cast<size_t>(count(dims)));
  each_point(operands, dims, {},
             [&](int64_t i, int64_t, auto... x) { losses[static_cast<size_t>(i)] = f(x...); });
  reduce_losses(*reduction, losses, divisor_of(*reduction, dims), call.results[0]);
  return llvm::Error::success();
}
template <class F, unsigned N> llvm::Error vjp_loss(const VjpCall &vjp) {
  llvm::Expected<LossReduction> reduction = read_reduction(vjp.call.context);
  if (!reduction)
    return reduction.takeError();
  View<const double> g = vjp.gradients[0];
  if (!g)
    return llvm::Error::success();
  Dims dims = broadcast_dims(PointOperands<N, double>(vjp.call).dims());
  double share = *reduction == LossReduction::None || *reduction == LossReduction::Sum
                     ? 1
                     : 1 / divisor_of(*reduction, dims);
  bool one = *reduction != LossReduction::None;
  add_slopes<F, N>(vjp, F(vjp.call.context), dims,
                   [&](int64_t i) { return share * g[one ? 0 : i]; });
  return llvm::Error::success();
}
template <class F, unsigned N> constexpr KernelDef loss(std::string_view row) {
  return {.row = row, .real = run_loss<F, N>, .vjp = vjp_loss<F, N>};
}

// The derivative by the prediction, times what flows into the loss (or into each of its elements).
template <class F> struct LossBackward {
  explicit LossBackward(const KernelContext &context) : f(context), share(share_of(context)) {}
  static llvm::Error check(const KernelContext &context) {
    return llvm::errorToBool(read_reduction(context).takeError())
               ? cannot_run(context, "attribute `reduction` is not known")
               : llvm::Error::success();
  }
  static double share_of(const KernelContext &context) {
    if (rules::reduction_of(context.app) != LossReduction::Mean)
      return 1;
    double size = 1;
    for (const ir::Extent &dim :
         context.app.shape(context.app.args[context.binding[1]->first])->dims)
      size *= static_cast<double>(dim.number());
    return 1 / size;
  }
  template <class T, class... Rest> T operator()(T g, T a, Rest... rest) const {
    return share * g * f(Dual<T>(a, T(1.0)), Dual<T>(rest, T(0.0))...).slope();
  }
  F f;
  double share;
};

} // namespace

llvm::ArrayRef<KernelDef> loss_kernels() {
  static const llvm::SmallVector<KernelDef, 0> kernels = [] {
    llvm::SmallVector<KernelDef, 0> all = {
        loss<Mse, 2>("mse_loss"),
        loss<L1, 2>("l1_loss"),
        loss<SmoothL1, 2>("smooth_l1_loss"),
        loss<Huber, 2>("huber_loss"),
        loss<SoftMargin, 2>("soft_margin_loss"),
        loss<KlDiv, 2>("kl_div"),
        loss<PoissonNll, 2>("poisson_nll_loss"),
        loss<Bce, 3>("binary_cross_entropy"),
        loss<BceWithLogits, 4>("binary_cross_entropy_with_logits"),
        pointwise<LossBackward<Mse>, 3>("mse_loss_backward"),
        pointwise<LossBackward<SmoothL1>, 3>("smooth_l1_loss_backward"),
        pointwise<LossBackward<Huber>, 3>("huber_loss_backward"),
        pointwise<LossBackward<SoftMargin>, 3>("soft_margin_loss_backward"),
        pointwise<LossBackward<Bce>, 4>("binary_cross_entropy_backward"),
    };
    llvm::append_range(all, class_loss_kernels());
    return all;
  }();
  return kernels;
}

} // namespace spmd::runtime
