// Normalisation over the last dimensions: what has its own statistics is a row in one piece, and
// weights are by element of a row.
#pragma once

#include "runtime/kernels/norms/standardise.h"

namespace spmd::runtime {

struct NormRows {
  int64_t count = 0, length = 0;
  bool centred = false; // the mean is taken off
  double eps = 0;
};

// The same as standardise() and standardise_gradient(), up to the order of sums.
void standardise_rows(const NormRows &rows, const NormOperands<double> &in,
                      const NormResults<double> &out);
void standardise_rows_gradient(const NormRows &rows, const NormOperands<double> &in,
                               View<const double> mean, View<const double> rstd,
                               const NormResults<const double> &g, const NormGradients<double> &d);

} // namespace spmd::runtime
