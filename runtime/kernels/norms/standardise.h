// Normalisation with statistics of the data: layer, RMS, group, batch and instance normalisation
// are one computation over lines, with a weight and a bias per line or per element of a line.
#pragma once

#include "runtime/kernels/functions/pointwise.h"
#include "runtime/kernels/lines.h"

#include "llvm/ADT/STLExtras.h"

#include <optional>

namespace spmd::runtime {

// Which elements share statistics, and which weight belongs to an element.
struct NormSpace {
  Lines lines;
  std::vector<int64_t> line_weight, element_weight; // the place is their sum
  bool centred;                                     // the mean is taken off
  double eps;

  int64_t weight(int64_t line, int64_t i) const {
    return line_weight[static_cast<size_t>(line)] + element_weight[static_cast<size_t>(i)];
  }
  // By the trailing dimensions: as many as `normalized_shape` or the weight has.
  static NormSpace of_layers(const KernelContext &context, llvm::ArrayRef<int64_t> dims,
                             unsigned spans, bool centred);
  // [samples, channels, ...]: per sample and group of channels, per channel, per both.
  static NormSpace of_groups(const KernelContext &context, llvm::ArrayRef<int64_t> dims,
                             int64_t groups);
  static NormSpace of_channels(const KernelContext &context, llvm::ArrayRef<int64_t> dims);
  static NormSpace of_instances(const KernelContext &context, llvm::ArrayRef<int64_t> dims);
};

template <class T> struct NormOperands {
  View<const T> x, w, b; // null: 1, 0
};
// Null: not asked for, or no gradient.
template <class T> struct NormResults { View<T> y, mean, rstd; };

template <class T> struct LineStatistics {
  T mean = 0.0, rstd = 0.0;
  LineStatistics() = default;
  LineStatistics(const NormSpace &space, const Line<const T> &x) {
    auto n = static_cast<double>(x.size());
    for (int64_t i = 0; space.centred && i < x.size(); ++i)
      mean += x[i];
    mean = mean / n;
    T squares = 0.0;
    for (int64_t i = 0; i < x.size(); ++i)
      squares += (x[i] - mean) * (x[i] - mean);
    rstd = 1.0 / sqrt(squares / n + space.eps);
  }
};

template <class T>
void standardise(const NormSpace &space, const NormOperands<T> &in, const NormResults<T> &out) {
  for (int64_t line = 0; line < space.lines.count(); ++line) {
    Line<const T> x(space.lines, line, in.x.data);
    LineStatistics<T> of(space, x);
    if (out.mean)
      out.mean[line] = of.mean;
    if (out.rstd)
      out.rstd[line] = of.rstd;
    for (int64_t i = 0; out.y && i < x.size(); ++i) {
      T value = (x[i] - of.mean) * of.rstd;
      if (in.w)
        value = value * in.w[space.weight(line, i)];
      if (in.b)
        value = value + in.b[space.weight(line, i)];
      out.y[space.lines.position(line, i)] = value;
    }
  }
}

// Gradients of the operands; null: not asked for.
template <class T> struct NormGradients { View<T> x, w, b; };

// Adds the gradients of the operands that follow from those of the results (null: none flows).
// Statistics are given, or made anew where there are none.
template <class T>
void standardise_gradient(const NormSpace &space, const NormOperands<T> &in, View<const T> mean,
                          View<const T> rstd, const NormResults<const T> &g,
                          const NormGradients<T> &d) {
  for (int64_t line = 0; line < space.lines.count(); ++line) {
    Line<const T> x(space.lines, line, in.x.data);
    auto n = static_cast<double>(x.size());
    LineStatistics<T> of;
    if (rstd) {
      of.mean = mean ? mean[line] : T(0.0);
      of.rstd = rstd[line];
    } else {
      of = LineStatistics<T>(space, x);
    }
    auto unit = [&](int64_t i) { return (x[i] - of.mean) * of.rstd; };
    auto weighted = [&](int64_t i) {
      T gradient = g.y[space.lines.position(line, i)];
      return in.w ? gradient * in.w[space.weight(line, i)] : gradient;
    };
    for (int64_t i = 0; g.y && (d.w || d.b) && i < x.size(); ++i) {
      T gradient = g.y[space.lines.position(line, i)];
      if (d.w)
        d.w[space.weight(line, i)] += gradient * unit(i);
      if (d.b)
        d.b[space.weight(line, i)] += gradient;
    }
    if (!d.x)
      continue;
    // Along the mean and along the deviations.
    T level = 0.0, along = 0.0;
    for (int64_t i = 0; g.y && i < x.size(); ++i) {
      level += weighted(i);
      along += weighted(i) * unit(i);
    }
    T from_rstd = g.rstd ? g.rstd[line] * of.rstd : T(0.0);
    T from_mean = g.mean ? g.mean[line] / n : T(0.0);
    for (int64_t i = 0; i < x.size(); ++i) {
      T flow = g.y ? weighted(i) : T(0.0);
      if (space.centred)
        flow = flow - level / n;
      flow = flow - unit(i) * ((along + from_rstd) / n);
      d.x[space.lines.position(line, i)] += flow * of.rstd + from_mean;
    }
  }
}

} // namespace spmd::runtime
