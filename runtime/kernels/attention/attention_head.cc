// Softmax of scores and its derivative, for one head.
#include "runtime/kernels/attention/attention.h"
#include "runtime/loops/exponentials.h"
#include "runtime/loops/row_loops.h"
#include "runtime/tensor/scratch.h"
#include "runtime/tensor/wide_loops.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace spmd::runtime {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

void fill_scores(const Head &head, std::vector<double> &scores) {
  scores.resize(static_cast<size_t>(head.s * head.t));
  MatrixView<double> k = head.k;
  k.transposed = true;
  gemm<double>(head.s, head.t, head.d, head.scale, head.q, k, 0, scores.data(), head.t);
  for (size_t i = 0; i < head.bias.size(); ++i)
    scores[i] = head.bias[i] == kNever ? kNever : scores[i] + head.bias[i];
}

// The gradient of scores from that of weights: weight times what is more than the mean.
SPMD_WIDE_LOOP void score_gradients(const double *weights, double mean, double *scores, size_t n) {
  for (size_t j = 0; j < n; ++j)
    scores[j] = weights[j] * (scores[j] - mean);
}

} // namespace

void attention_weights(const Head &head, std::vector<double> &weights, double *lse) {
  fill_scores(head, weights);
  auto t = static_cast<size_t>(head.t);
  for (int64_t i = 0; i < head.s; ++i) {
    double *row = weights.data() + i * head.t, most = row_largest(row, t);
    if (most == kNever)
      std::replace(row, row + head.t, kNever, 0.0);
    else
      exponentials(row, most, row, t);
    double sum = row_sum(row, t);
    if (sum != 0)
      scale_row(row, 1 / sum, row, t);
    if (lse)
      lse[i] = most == kNever ? kNever : most + std::log(sum);
  }
}

void attention_weights_of(const Head &head, const double *lse, std::vector<double> &weights) {
  fill_scores(head, weights);
  for (int64_t i = 0; i < head.s; ++i) {
    double *row = weights.data() + i * head.t;
    if (std::isfinite(lse[i]))
      exponentials(row, lse[i], row, static_cast<size_t>(head.t));
    else
      for (int64_t j = 0; j < head.t; ++j)
        row[j] = row[j] == kNever ? 0 : std::exp(row[j] - lse[i]);
  }
}

void attention_gradients(const Head &head, const std::vector<double> &weights, MatrixView<double> g,
                         const double *inner, const double *less, const HeadGradients &to) {
  MatrixView<double> by_key{weights.data(), head.t, true};
  if (to.v)
    gemm<double>(head.t, head.e, head.s, 1, by_key, g, 1, to.v, to.v_stride);
  if (!to.q && !to.k && !to.bias)
    return;
  Scratch<double> room;
  std::vector<double> &scores = room.cells;
  scores.resize(weights.size());
  MatrixView<double> v = head.v;
  v.transposed = true;
  gemm<double>(head.s, head.t, head.e, 1, g, v, 0, scores.data(), head.t);
  auto t = static_cast<size_t>(head.t);
  for (int64_t i = 0; i < head.s; ++i) {
    const double *weight = weights.data() + i * head.t;
    double *row = scores.data() + i * head.t;
    double mean = inner ? inner[i] : row_dot(weight, row, t);
    score_gradients(weight, less ? mean - less[i] : mean, row, t);
  }
  if (to.q)
    gemm<double>(head.s, head.d, head.t, head.scale, {scores.data(), head.t}, head.k, 1, to.q,
                 to.q_stride);
  if (to.k)
    gemm<double>(head.t, head.d, head.s, head.scale, {scores.data(), head.t, true}, head.q, 1, to.k,
                 to.k_stride);
  if (to.bias)
    to.bias->assign(scores.begin(), scores.end());
}

} // namespace spmd::runtime
