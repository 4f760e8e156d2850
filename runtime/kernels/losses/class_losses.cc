// Losses by class: each sample has a weight q per class, and its loss is - sum of q times the
// log-probabilities. Cross-entropy makes these of scores by log_softmax; a target that is an index
// gives q at one class, label smoothing spreads a part of it.
#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/lines.h"
#include "runtime/kernels/losses/losses.h"
#include "runtime/kernels/norms/softmax.h"
#include "runtime/kernels/vjp.h"
#include "runtime/loops/blas.h"
#include "runtime/tensor/number.h"

namespace spmd::runtime {

namespace {

bool is_of_scores(const KernelContext &context) {
  return context.row.variant == Variant::FromLogits || context.row.variant == Variant::SoftTargets;
}

// What a row says of its samples. T: also of class weights and soft targets.
template <class T> class ClassLoss {
public:
  // `z`: scores or log-probabilities; classes along dimension 1, or 0 where there is no other.
  static llvm::Expected<ClassLoss> make(const Call<T> &call, View<const T> z) {
    llvm::Expected<LossReduction> reduction = read_reduction(call.context);
    if (!reduction)
      return reduction.takeError();
    ClassLoss made(call, z, *reduction);
    if (!made.soft_)
      for (int64_t n = 0; n < made.samples(); ++n)
        if (int64_t t = made.target(n); !made.ignored(n) && (t < 0 || t >= made.classes()))
          return cannot_run(call.context, "a target is class " + llvm::Twine(t) + " of " +
                                              llvm::Twine(made.classes()));
    return made;
  }

  LossReduction reduction() const { return reduction_; }
  const Lines &lines() const { return lines_; }
  int64_t samples() const { return lines_.count(); }
  int64_t classes() const { return lines_.length(); }
  bool ignored(int64_t sample) const { return !soft_ && target(sample) == ignore_; }

  // f(c, q) for each class that has a weight in a sample.
  template <class F> void each_weight(int64_t sample, F f) const {
    if (ignored(sample))
      return;
    if (!soft_ && smoothing_ == 0) {
      if (T q = weight(sample); !(q == T(0.0)))
        f(target(sample), q);
      return;
    }
    double spread = smoothing_ / static_cast<double>(classes());
    for (int64_t c = 0; c < classes(); ++c) {
      T share = soft_ ? (1 - smoothing_) * t_[lines_.position(sample, c)] + spread : T(spread);
      T q = w_ ? share * w_[c] : share;
      if (!soft_ && c == target(sample))
        q += (1 - smoothing_) * weight(sample);
      if (!(q == T(0.0)))
        f(c, q);
    }
  }
  // The weight of all targets that count.
  T total() const {
    if (soft_)
      return static_cast<double>(samples());
    T sum = 0.0;
    for (int64_t n = 0; n < samples(); ++n)
      if (!ignored(n))
        sum += weight(n);
    return sum;
  }
  T weight(int64_t sample) const { return w_ ? w_[target(sample)] : T(1.0); }
  int64_t target(int64_t sample) const { return static_cast<int64_t>(plain(t_[sample])); }

private:
  ClassLoss(const Call<T> &call, View<const T> z, LossReduction reduction)
      : lines_(*z.dims, {z.rank() > 1 ? 1u : 0u}), reduction_(reduction),
        soft_(call.context.row.variant == Variant::SoftTargets),
        ignore_(rules::number_attr(call.context.app, {"ignore_index"}).value_or(-100)),
        smoothing_(call.context.number_attr("label_smoothing", 0)), t_(call.operand("t")) {
    unsigned place = call.context.operand("w");
    // `w` of linear_cross_entropy makes the scores.
    if (place < call.context.row.equation.equation.operand_count &&
        call.context.row.variant != Variant::ComputesLogits)
      w_ = call.operand(place);
  }

  Lines lines_;
  LossReduction reduction_;
  bool soft_;
  int64_t ignore_;
  double smoothing_;
  View<const T> t_, w_;
};

// The scores of linear_cross_entropy.
std::vector<double> scores(View<const double> x, View<const double> w) {
  int64_t samples = x.size() / w.dim(1);
  std::vector<double> z(static_cast<size_t>(samples * w.dim(0)));
  gemm<double>(samples, w.dim(0), w.dim(1), 1, {x.data, w.dim(1)}, {w.data, w.dim(1), true}, 0,
               z.data(), w.dim(0));
  return z;
}

template <class T> llvm::Error sum_classes(const Call<T> &call, View<const T> z, bool of_scores) {
  auto loss = ClassLoss<T>::make(call, z);
  if (!loss)
    return loss.takeError();
  std::vector<T> losses, p;
  for (int64_t n = 0; n < loss->samples(); ++n) {
    Line<const T> scores(loss->lines(), n, z.data);
    T log = of_scores ? log_sum_exp(scores, scores.size(), p) : T(0.0), sum = 0.0;
    loss->each_weight(n, [&](int64_t c, T weight) { sum += weight * (log - scores[c]); });
    losses.push_back(sum);
  }
  T total = loss->total();
  reduce_losses(loss->reduction(), losses, total, call.results[0]);
  if (call.results.size() > 1 && call.results[1])
    call.results[1][0] = total;
  return llvm::Error::success();
}
template <class T> llvm::Error class_loss(const Call<T> &call) {
  return sum_classes(call, call.operand("z"), is_of_scores(call.context));
}

// The gradient of scores or log-probabilities z, where g is that of the loss.
template <class T>
llvm::Error add_score_gradient(const Call<T> &call, View<const T> z, View<const T> g,
                               bool of_scores, View<T> dz) {
  auto loss = ClassLoss<T>::make(call, z);
  if (!loss)
    return loss.takeError();
  bool mean =
      loss->reduction() == LossReduction::Mean || loss->reduction() == LossReduction::BatchMean;
  T share = mean ? 1.0 / loss->total() : T(1.0);
  std::vector<T> p;
  for (int64_t n = 0; n < loss->samples(); ++n) {
    if (loss->ignored(n))
      continue;
    Line<const T> scores(loss->lines(), n, z.data);
    Line<T> out(loss->lines(), n, dz.data);
    T flow = share * g[g.size() > 1 ? n : 0], all = 0.0;
    loss->each_weight(n, [&](int64_t c, T weight) {
      all += weight;
      out[c] -= flow * weight;
    });
    if (!of_scores)
      continue;
    softmax_of(scores, scores.size(), p);
    for (int64_t c = 0; c < loss->classes(); ++c)
      out[c] += flow * all * p[static_cast<size_t>(c)];
  }
  return llvm::Error::success();
}

llvm::Error vjp_class_loss(const VjpCall &vjp) {
  const KernelContext &context = vjp.call.context;
  if (vjp.operand != context.operand("z"))
    return run_taped_vjp(class_loss<Var>, vjp);
  View<const double> g = vjp.gradients[0];
  return g ? add_score_gradient(vjp.call, vjp.call.operand("z"), g, is_of_scores(context),
                                vjp.result)
           : llvm::Error::success();
}

Dims score_dims(View<const double> x, View<const double> w) {
  return {x.size() / w.dim(1), w.dim(0)};
}
llvm::Error linear_loss(const Call<double> &call) {
  View<const double> x = call.operand("x"), w = call.operand("w");
  std::vector<double> z = scores(x, w);
  Dims dims = score_dims(x, w);
  return sum_classes(call, View<const double>{&dims, z.data(), x.dtype}, true);
}
llvm::Error vjp_linear_loss(const VjpCall &vjp) {
  View<const double> x = vjp.call.operand("x"), w = vjp.call.operand("w"), g = vjp.gradients[0];
  if (!g)
    return llvm::Error::success();
  std::vector<double> z = scores(x, w), dz(z.size());
  Dims dims = score_dims(x, w);
  View<const double> made{&dims, z.data(), x.dtype};
  if (llvm::Error error =
          add_score_gradient(vjp.call, made, g, true, View<double>{&dims, dz.data(), x.dtype}))
    return error;
  int64_t samples = dims[0], classes = dims[1], width = w.dim(1);
  if (vjp.operand == vjp.call.context.operand("x"))
    multiply(samples, width, classes, dz.data(), w.data, vjp.result.data);
  else
    gemm<double>(classes, width, samples, 1, {dz.data(), classes, true}, {x.data, width}, 0,
                 vjp.result.data, width);
  return llvm::Error::success();
}

// - g w at the target. A mean is divided by the weight k of all targets.
template <class T> llvm::Error nll_loss_backward(const Call<T> &call) {
  const KernelContext &context = call.context;
  View<const T> g = call.operand("g"), z = call.operand("z"), k = call.operand("k");
  auto loss = ClassLoss<T>::make(call, z);
  if (!loss)
    return loss.takeError();
  bool mean = context.row.variant != Variant::OfSum;
  T total = !mean ? T(1.0) : k ? k[0] : loss->total();
  for (int64_t n = 0; n < loss->samples(); ++n)
    if (!loss->ignored(n))
      call.results[0][loss->lines().position(n, loss->target(n))] =
          -g[g.size() > 1 ? n : 0] * loss->weight(n) / total;
  return llvm::Error::success();
}
template <class T> llvm::Error cross_entropy_backward(const Call<T> &call) {
  return add_score_gradient(call, call.operand("z"), call.operand("g"), true, call.results[0]);
}

constexpr KernelDef by_class(std::string_view row) {
  return {.row = row,
          .real = class_loss<double>,
          .vjp = vjp_class_loss,
          .composed = composed_class_loss};
}

} // namespace

llvm::ArrayRef<KernelDef> class_loss_kernels() {
  static constexpr KernelDef kernels[] = {
      by_class("cross_entropy"),
      by_class("cross_entropy_soft"),
      by_class("cross_entropy_counted"),
      by_class("nll_loss"),
      by_class("nll_loss_counted"),
      {.row = "linear_cross_entropy", .real = linear_loss, .vjp = vjp_linear_loss},
      {.row = "nll_loss_backward",
       .real = nll_loss_backward<double>,
       .taped = nll_loss_backward<Var>,
       .composed = composed_class_loss_backward},
      {.row = "nll_loss_backward_mean",
       .real = nll_loss_backward<double>,
       .taped = nll_loss_backward<Var>,
       .composed = composed_class_loss_backward},
      {.row = "nll_loss_backward_summed",
       .real = nll_loss_backward<double>,
       .taped = nll_loss_backward<Var>,
       .composed = composed_class_loss_backward},
      {.row = "cross_entropy_backward",
       .real = cross_entropy_backward<double>,
       .taped = cross_entropy_backward<Var>,
       .composed = composed_class_loss_backward},
  };
  return kernels;
}

} // namespace spmd::runtime
