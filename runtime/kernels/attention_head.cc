// Softmax of scores and its derivative, for one head.
#include "runtime/exponentials.h"
#include "runtime/kernels/attention.h"
#include "runtime/scratch.h"

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

// Of a row of scores: several at a time, so that it vectorises.
double largest(const double *row, int64_t n) {
  double most[4] = {kNever, kNever, kNever, kNever};
  int64_t j = 0;
  for (; j + 4 <= n; j += 4)
    for (int k = 0; k < 4; ++k)
      most[k] = std::max(most[k], row[j + k]);
  for (; j < n; ++j)
    most[0] = std::max(most[0], row[j]);
  return std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
}
double sum_of(const double *row, int64_t n) {
  double sums[4] = {0, 0, 0, 0};
  int64_t j = 0;
  for (; j + 4 <= n; j += 4)
    for (int k = 0; k < 4; ++k)
      sums[k] += row[j + k];
  for (; j < n; ++j)
    sums[0] += row[j];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

} // namespace

void attention_weights(const Head &head, std::vector<double> &weights, double *lse) {
  fill_scores(head, weights);
  for (int64_t i = 0; i < head.s; ++i) {
    double *row = weights.data() + i * head.t, most = largest(row, head.t);
    if (most == kNever)
      std::replace(row, row + head.t, kNever, 0.0);
    else
      exponentials(row, most, row, static_cast<size_t>(head.t));
    double sum = sum_of(row, head.t);
    for (int64_t j = 0; sum != 0 && j < head.t; ++j)
      row[j] /= sum;
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
                         const double *inner, const HeadGradients &to) {
  MatrixView<double> by_key{weights.data(), head.t, true};
  if (to.v)
    gemm<double>(head.t, head.e, head.s, 1, by_key, g, 1, to.v, to.v_stride);
  if (!to.q && !to.k)
    return;
  Scratch<double> room;
  std::vector<double> &scores = room.cells;
  scores.resize(weights.size());
  MatrixView<double> v = head.v;
  v.transposed = true;
  gemm<double>(head.s, head.t, head.e, 1, g, v, 0, scores.data(), head.t);
  for (int64_t i = 0; i < head.s; ++i)
    for (int64_t j = 0; j < head.t; ++j) {
      auto at = static_cast<size_t>(i * head.t + j);
      scores[at] = weights[at] * (scores[at] - inner[i]);
    }
  if (to.q)
    gemm<double>(head.s, head.d, head.t, head.scale, {scores.data(), head.t}, head.k, 1, to.q,
                 to.q_stride);
  if (to.k)
    gemm<double>(head.t, head.d, head.s, head.scale, {scores.data(), head.t, true}, head.q, 1, to.k,
                 to.k_stride);
}

} // namespace spmd::runtime
