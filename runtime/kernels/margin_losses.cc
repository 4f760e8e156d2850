// Losses that compare with a margin, and that of alignments (ctc): one row, told apart by how the
// program spells it. Operands: a, then b, y and w in the framework's order.
#include "runtime/kernels/lanes.h"
#include "runtime/kernels/losses.h"
#include "runtime/kernels/pointwise.h"

namespace spmd::runtime {

namespace {

template <class T> using Losses = llvm::Expected<std::vector<T>>;

template <class T> T hinge(T x) { return plain(x) > 0 ? x : T(0.0); }

// The losses of samples, before a reduction.
template <class T> struct Margin {
  const Call<T> &call;
  View<const T> a, b, y, w;
  double margin(double absent) const { return call.site.number_attr("margin", absent); }

  // The p-norm of the difference of two rows of `width` numbers, as torch has it.
  T distance(const T *x, const T *z, int64_t width) const {
    double p = call.site.number_attr("p", 2), eps = call.site.number_attr("eps", 1e-6);
    T sum = 0.0;
    for (int64_t i = 0; i < width; ++i)
      sum += pow(abs(x[i] - z[i] + eps), T(p));
    return pow(sum, T(1 / p));
  }

  Losses<T> triplet() const {
    int64_t width = a.dim(a.rank() - 1);
    std::vector<T> losses;
    for (int64_t at = 0; at < a.size(); at += width) {
      T near = distance(a.data + at, b.data + at, width);
      T far = distance(a.data + at, y.data + at, width);
      if (rules::flag_attr(call.site.app, "swap"))
        far = smaller(far, distance(b.data + at, y.data + at, width));
      losses.push_back(hinge(margin(1) + near - far));
    }
    return losses;
  }

  Losses<T> cosine_embedding() const {
    constexpr double kEps = 1e-12;
    int64_t width = a.dim(a.rank() - 1), samples = a.size() / width;
    std::vector<T> losses;
    for (int64_t n = 0; n < samples; ++n) {
      T dot = 0.0, first = kEps, second = kEps;
      for (int64_t i = n * width; i < (n + 1) * width; ++i) {
        dot += a[i] * b[i];
        first += a[i] * a[i];
        second += b[i] * b[i];
      }
      T cosine = dot / sqrt(first * second);
      bool alike = plain(y[y.size() > 1 ? n : 0]) > 0;
      losses.push_back(alike ? 1.0 - cosine : hinge(cosine - margin(0)));
    }
    return losses;
  }

  // Of each element and its target, 1 or -1.
  template <unsigned N, class F> Losses<T> each(F f) const {
    PointOperands<N, T> operands(call);
    Dims dims = broadcast_dims(operands.dims());
    std::vector<T> losses(static_cast<size_t>(count(dims)));
    each_point(operands, dims, {},
               [&](int64_t i, int64_t, auto... x) { losses[static_cast<size_t>(i)] = f(x...); });
    return losses;
  }
  Losses<T> ranking() const {
    double width = margin(0);
    return each<3>([&](T x, T z, T target) { return hinge(width - target * (x - z)); });
  }
  Losses<T> hinge_embedding() const {
    double width = margin(1);
    return each<2>([&](T x, T target) {
      return plain(target) > 0 ? x : plain(target) < 0 ? hinge(width - x) : hinge(width - x) + x;
    });
  }

  // b: classes; y: their weights.
  Losses<T> multi_margin() const {
    double p = call.site.number_attr("p", 1);
    int64_t classes = a.dim(a.rank() - 1);
    std::vector<T> losses;
    for (int64_t n = 0; n < a.size() / classes; ++n) {
      const T *x = a.data + n * classes;
      auto target = static_cast<int64_t>(plain(b[n]));
      if (target < 0 || target >= classes)
        return cannot_run(call.site, "a target is no class");
      T sum = 0.0;
      for (int64_t c = 0; c < classes; ++c)
        if (T over = hinge(margin(1) - x[target] + x[c]); c != target && plain(over) > 0)
          sum += p == 1 ? over : pow(over, T(p));
      sum = sum / static_cast<double>(classes);
      losses.push_back(y ? sum * y[target] : sum);
    }
    return losses;
  }
};

// The probability of all alignments of a target with a sequence of log-probabilities: a sum over
// paths through the target with a blank before, between and behind its labels.
template <class T> class Alignment {
public:
  Alignment(View<const T> log, int64_t sample, int64_t steps, std::vector<int64_t> labels)
      : log_(log), sample_(sample), steps_(steps), labels_(std::move(labels)) {}

  T loss() const {
    size_t size = labels_.size();
    std::vector<T> at(size, T(-kInfinity));
    for (int64_t t = 0; t < steps_; ++t) {
      std::vector<T> next(size, T(-kInfinity));
      for (size_t s = 0; s < size; ++s) {
        T sum = t > 0 ? at[s] : s < 2 ? T(0.0) : T(-kInfinity);
        if (t > 0 && s > 0)
          sum = joined(sum, at[s - 1]);
        if (t > 0 && s > 1 && labels_[s] != labels_[s - 2] && s % 2 == 1)
          sum = joined(sum, at[s - 2]);
        if (plain(sum) != -kInfinity)
          next[s] = sum + log_[(t * log_.dim(1) + sample_) * log_.dim(2) + labels_[s]];
      }
      at = std::move(next);
    }
    return -(size > 1 ? joined(at[size - 1], at[size - 2]) : at[0]);
  }

private:
  static T joined(T a, T b) {
    if (plain(a) == -kInfinity || plain(b) == -kInfinity)
      return plain(a) == -kInfinity ? b : a;
    T most = larger(a, b), least = plain(a) < plain(b) ? a : b;
    return most + log1p(exp(least - most));
  }
  View<const T> log_; // [steps, samples, classes]
  int64_t sample_, steps_;
  std::vector<int64_t> labels_; // with blanks
};

// Lengths of sequences or targets: a tensor, or an attribute.
template <class T>
std::vector<int64_t> lengths(const Call<T> &call, View<const T> given, llvm::StringRef name) {
  std::vector<int64_t> found;
  for (int64_t i = 0; given && i < given.size(); ++i)
    found.push_back(static_cast<int64_t>(plain(given[i])));
  if (!given)
    if (std::optional<rules::Numbers> stated = rules::numbers_attr(call.site.app, {name}))
      found.assign(stated->begin(), stated->end());
  return found;
}

template <class T> llvm::Error ctc(const Call<T> &call, const Margin<T> &in) {
  llvm::Expected<LossReduction> reduction = read_reduction(call.site);
  if (!reduction)
    return reduction.takeError();
  if (in.a.rank() != 3)
    return cannot_run(call.site, "its log-probabilities are of steps, samples and classes");
  std::vector<int64_t> steps = lengths(call, in.y, "input_lengths"),
                       sizes = lengths(call, in.w, "target_lengths");
  auto samples = static_cast<size_t>(in.a.dim(1));
  if (steps.size() != samples || sizes.size() != samples)
    return cannot_run(call.site, "lengths of sequences or targets are not known");
  int64_t blank = rules::number_attr(call.site.app, {"blank"}).value_or(0), first = 0;
  bool zero_infinity = rules::flag_attr(call.site.app, "zero_infinity");
  std::vector<T> losses;
  for (size_t n = 0; n < samples; ++n) {
    std::vector<int64_t> labels = {blank};
    int64_t from = in.b.rank() == 2 ? static_cast<int64_t>(n) * in.b.dim(1) : first;
    for (int64_t i = 0; i < sizes[n]; ++i) {
      labels.push_back(static_cast<int64_t>(plain(in.b[from + i])));
      labels.push_back(blank);
    }
    first += sizes[n];
    T loss = Alignment<T>(in.a, static_cast<int64_t>(n), steps[n], std::move(labels)).loss();
    if (zero_infinity && std::isinf(plain(loss)))
      loss = 0.0;
    double size = static_cast<double>(std::max<int64_t>(1, sizes[n]));
    losses.push_back(*reduction == LossReduction::Mean ? loss / size : loss);
  }
  reduce_losses(*reduction, losses, T(static_cast<double>(samples)), call.results[0]);
  return llvm::Error::success();
}

template <class T> llvm::Error margin_loss(const Call<T> &call) {
  Margin<T> in{call, call.operand("a"), call.operand("b"), call.operand("y"), call.operand("w")};
  llvm::StringRef name(call.site.spelling().data(), call.site.spelling().size());
  if (name == "ctc_loss")
    return ctc(call, in);
  llvm::Expected<LossReduction> reduction = read_reduction(call.site);
  if (!reduction)
    return reduction.takeError();
  Losses<T> losses = name == "triplet_margin_loss"     ? in.triplet()
                     : name == "cosine_embedding_loss" ? in.cosine_embedding()
                     : name == "margin_ranking_loss"   ? in.ranking()
                     : name == "hinge_embedding_loss"  ? in.hinge_embedding()
                     : name == "multi_margin_loss"
                         ? in.multi_margin()
                         : Losses<T>(cannot_run(call.site, "which of these losses is not said"));
  if (!losses)
    return losses.takeError();
  reduce_losses(*reduction, *losses, T(static_cast<double>(losses->size())), call.results[0]);
  return llvm::Error::success();
}

} // namespace

llvm::ArrayRef<KernelDef> margin_loss_kernels() {
  static constexpr KernelDef kernels[] = {
      {.row = "margin_losses", .real = margin_loss<double>, .taped = margin_loss<Var>},
  };
  return kernels;
}

} // namespace spmd::runtime
