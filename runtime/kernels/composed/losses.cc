// Losses whose targets are classes: a class that a sample means is found by its place along the
// scores.
#include "runtime/kernels/losses/losses.h"
#include "runtime/kernels/composed/composition.h"
#include "runtime/kernels/composed/compositions.h"

namespace spmd::runtime {

namespace {

using Symbols = llvm::ArrayRef<TracedNumber>;

class ClassFormulas {
public:
  explicit ClassFormulas(Composition &of) : of_(of), variant_(of.context.row.variant) {}

  bool loss();
  // `total`: the weight of all targets, which divides a mean; null: of these here.
  bool gradient(const DeviceArray *g, const DeviceArray *total);

private:
  bool read();
  bool make_weights();
  bool make_logs();
  // The part of a sample's weight that a class has, of target and place.
  TracedNumber share(TracedNumber target, TracedNumber place) const {
    const double spread = smoothing_ / classes_;
    return target == place ? TracedNumber(1 - smoothing_ + spread) : TracedNumber(spread);
  }

  Composition &of_;
  Variant variant_;
  DeviceArray z_, target_, class_numbers_; // along classes: 0, 1, 2, ...
  std::optional<DeviceArray> w_;
  Dims samples_, one_; // the extents of z, classes 1; all 1
  double ignored_ = -100, smoothing_ = 0, classes_ = 1;
  bool of_scores_ = false;
  LossReduction reduction_ = LossReduction::Mean;
  DeviceArray weights_, total_, logs_; // of samples: weight, and log of the sum of exp(score)
};

bool ClassFormulas::read() {
  const DeviceArray *z = of_.operand("z"), *t = of_.operand("t"), *w = of_.operand("w");
  llvm::Expected<LossReduction> reduction = read_reduction(of_.context);
  if (!reduction) {
    llvm::consumeError(reduction.takeError());
    return false;
  }
  smoothing_ = of_.context.number_attr("label_smoothing", 0);
  if (!z || !t || z->dims->empty() || (w && smoothing_ != 0))
    return false;
  reduction_ = *reduction;
  const size_t rank = z->dims->size();
  const unsigned d = rank > 1;
  samples_ = Composition::without(*z->dims, d);
  one_.assign(rank, 1);
  if (t->size() != count(samples_))
    return false;
  z_ = *z, target_ = of_.as(*t, samples_);
  class_numbers_ = of_.positions(rank, d, (*z->dims)[d]);
  if (w) {
    Dims dims = one_;
    dims[d] = (*z->dims)[d];
    if (w->size() != dims[d])
      return false;
    w_ = of_.as(*w, dims);
  }
  classes_ = static_cast<double>((*z->dims)[d]);
  ignored_ =
      static_cast<double>(rules::number_attr(of_.context.app, {"ignore_index"}).value_or(-100));
  of_scores_ = variant_ == Variant::FromLogits || variant_ == Variant::SoftTargets;
  return true;
}

bool ClassFormulas::make_weights() {
  weights_ = of_.temporary(samples_), total_ = of_.temporary(one_);
  auto same = [](Symbols s) { return s[0]; };
  const bool made =
      w_ ? of_.make(weights_, *z_.dims, {target_, class_numbers_, *w_},
                    [&](Symbols s) {
                      return s[0] == ignored_ || s[0] != s[1] ? TracedNumber(0.0) : s[2];
                    })
         : of_.make(weights_, samples_, target_, [&](Symbols s) {
             return s[0] == ignored_ ? TracedNumber(0.0) : TracedNumber(1.0);
           });
  return made && of_.make(total_, samples_, weights_, same);
}

bool ClassFormulas::make_logs() {
  RowExponentials row;
  logs_ = of_.temporary(samples_);
  return row.make(of_, z_, samples_, 1) &&
         of_.make(logs_, samples_, {row.most, row.sum}, [](Symbols s) { return s[0] + log(s[1]); });
}

bool ClassFormulas::loss() {
  if (!read() || !make_weights() || (of_scores_ && !make_logs()))
    return false;
  const DeviceArray losses = of_.temporary(samples_);
  llvm::SmallVector<DeviceArray, 5> inputs = {z_, weights_, target_, class_numbers_};
  if (of_scores_)
    inputs.push_back(logs_);
  if (!of_.make(losses, *z_.dims, inputs, [&](Symbols s) {
        const TracedNumber q = share(s[2], s[3]);
        if (s[1] == 0.0 || q == 0.0)
          return TracedNumber(0.0);
        return s[1] * q * (of_scores_ ? s[4] - s[0] : -s[0]);
      }))
    return false;
  const DeviceArray &to = *of_.result(0);
  auto same = [](Symbols s) { return s[0]; };
  if (const DeviceArray *total = of_.result(1);
      total && !of_.make(of_.as(*total, one_), one_, total_, same))
    return false;
  if (reduction_ == LossReduction::None)
    return to.size() == losses.size() && of_.make(of_.as(to, samples_), samples_, losses, same);
  if (to.size() != 1)
    return false;
  const DeviceArray sum = of_.temporary(one_);
  const bool mean = reduction_ != LossReduction::Sum;
  return of_.make(sum, samples_, losses, same) &&
         of_.make(of_.as(to, one_), one_, {sum, total_},
                  [&](Symbols s) { return mean ? s[0] / s[1] : s[0]; });
}

bool ClassFormulas::gradient(const DeviceArray *g, const DeviceArray *total) {
  if (!g || !read() || !make_weights() || (of_scores_ && !make_logs()))
    return false;
  const bool mean = variant_ == Variant::OfMean ||
                    (variant_ != Variant::OfSum &&
                     (reduction_ == LossReduction::Mean || reduction_ == LossReduction::BatchMean));
  const DeviceArray &to = *of_.result(0);
  if ((g->size() != 1 && g->size() != count(samples_)) || to.size() != z_.size())
    return false;
  // What flows to each sample.
  const DeviceArray flow = of_.temporary(samples_);
  if (!of_.make(flow, samples_,
                {of_.as(*g, g->size() == 1 ? one_ : samples_), weights_,
                 total ? of_.as(*total, one_) : total_},
                [&](Symbols s) { return mean ? s[0] * s[1] / s[2] : s[0] * s[1]; }))
    return false;
  llvm::SmallVector<DeviceArray, 5> inputs = {z_, flow, target_, class_numbers_};
  if (of_scores_)
    inputs.push_back(logs_);
  return of_.make(of_.as(to, *z_.dims), *z_.dims, inputs, [&](Symbols s) {
    const TracedNumber q = share(s[2], s[3]);
    if (s[1] == 0.0)
      return TracedNumber(0.0);
    return s[1] * (of_scores_ ? exp(s[0] - s[4]) - q : -q);
  });
}

} // namespace

bool composed_class_loss(Composition &of) {
  if (of.context.row.variant == Variant::SoftTargets || (of.by && !of.is_by("z")))
    return false;
  ClassFormulas formulas(of);
  return of.by ? formulas.gradient(of.only_gradient(0), nullptr) : formulas.loss();
}

bool composed_class_loss_backward(Composition &of) {
  return !of.by && ClassFormulas(of).gradient(of.operand("g"), of.operand("k"));
}

} // namespace spmd::runtime
