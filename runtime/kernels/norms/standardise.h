// Normalisation with statistics of the data: layer, RMS, group, batch and instance normalisation
// are one computation over lanes, with a weight and a bias per lane or per element of a lane.
#pragma once

#include "runtime/kernels/functions/pointwise.h"
#include "runtime/kernels/lanes.h"

#include "llvm/ADT/STLExtras.h"

#include <optional>

namespace spmd::runtime {

// Which elements share statistics, and which weight belongs to an element.
struct NormSpace {
  Lanes lanes;
  std::vector<int64_t> lane_weight, element_weight; // the place is their sum
  bool centred;                                     // the mean is taken off
  double eps;

  int64_t weight(int64_t lane, int64_t i) const {
    return lane_weight[static_cast<size_t>(lane)] + element_weight[static_cast<size_t>(i)];
  }
  // By the trailing dimensions: as many as `normalized_shape` or the weight has.
  static NormSpace of_layers(const Site &site, llvm::ArrayRef<int64_t> dims, unsigned spans,
                             bool centred);
  // [samples, channels, ...]: per sample and group of channels, per channel, per both.
  static NormSpace of_groups(const Site &site, llvm::ArrayRef<int64_t> dims, int64_t groups);
  static NormSpace of_channels(const Site &site, llvm::ArrayRef<int64_t> dims);
  static NormSpace of_instances(const Site &site, llvm::ArrayRef<int64_t> dims);
};

template <class T> struct NormOperands {
  View<const T> x, w, b; // null: 1, 0
};
// Null: not asked for, or no gradient.
template <class T> struct NormResults { View<T> y, mean, rstd; };

template <class T> struct LaneStatistics {
  T mean = 0.0, rstd = 0.0;
  LaneStatistics() = default;
  LaneStatistics(const NormSpace &space, const Lane<const T> &x) {
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
  for (int64_t lane = 0; lane < space.lanes.count(); ++lane) {
    Lane<const T> x(space.lanes, lane, in.x.data);
    LaneStatistics<T> of(space, x);
    if (out.mean)
      out.mean[lane] = of.mean;
    if (out.rstd)
      out.rstd[lane] = of.rstd;
    for (int64_t i = 0; out.y && i < x.size(); ++i) {
      T value = (x[i] - of.mean) * of.rstd;
      if (in.w)
        value = value * in.w[space.weight(lane, i)];
      if (in.b)
        value = value + in.b[space.weight(lane, i)];
      out.y[space.lanes.place(lane, i)] = value;
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
  for (int64_t lane = 0; lane < space.lanes.count(); ++lane) {
    Lane<const T> x(space.lanes, lane, in.x.data);
    auto n = static_cast<double>(x.size());
    LaneStatistics<T> of;
    if (rstd) {
      of.mean = mean ? mean[lane] : T(0.0);
      of.rstd = rstd[lane];
    } else {
      of = LaneStatistics<T>(space, x);
    }
    auto unit = [&](int64_t i) { return (x[i] - of.mean) * of.rstd; };
    auto weighted = [&](int64_t i) {
      T gradient = g.y[space.lanes.place(lane, i)];
      return in.w ? gradient * in.w[space.weight(lane, i)] : gradient;
    };
    for (int64_t i = 0; g.y && (d.w || d.b) && i < x.size(); ++i) {
      T gradient = g.y[space.lanes.place(lane, i)];
      if (d.w)
        d.w[space.weight(lane, i)] += gradient * unit(i);
      if (d.b)
        d.b[space.weight(lane, i)] += gradient;
    }
    if (!d.x)
      continue;
    // Along the mean and along the deviations.
    T level = 0.0, along = 0.0;
    for (int64_t i = 0; g.y && i < x.size(); ++i) {
      level += weighted(i);
      along += weighted(i) * unit(i);
    }
    T from_rstd = g.rstd ? g.rstd[lane] * of.rstd : T(0.0);
    T from_mean = g.mean ? g.mean[lane] / n : T(0.0);
    for (int64_t i = 0; i < x.size(); ++i) {
      T flow = g.y ? weighted(i) : T(0.0);
      if (space.centred)
        flow = flow - level / n;
      flow = flow - unit(i) * ((along + from_rstd) / n);
      d.x[space.lanes.place(lane, i)] += flow * of.rstd + from_mean;
    }
  }
}

} // namespace spmd::runtime
