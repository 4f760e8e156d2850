// Normalisation of rows that lie in one piece, and its gradients.
#include "runtime/kernels/norms/norm_rows.h"

#include "runtime/loops/row_loops.h"
#include "runtime/tensor/scratch.h"
#include "runtime/tensor/wide_loops.h"

#include <cmath>

namespace spmd::runtime {

namespace {

SPMD_WIDE_LOOP void unit_row(const double *x, double mean, double rstd, double *__restrict to,
                             size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] = (x[i] - mean) * rstd;
}
// to += (flow - level - unit along) rstd + more
SPMD_WIDE_LOOP void add_flow(const double *flow, double level, const double *unit, double along,
                             double rstd, double more, double *__restrict to, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] += (flow[i] - level - unit[i] * along) * rstd + more;
}

struct Statistics {
  double mean = 0, rstd = 0;
  Statistics(double mean, double rstd) : mean(mean), rstd(rstd) {}
  Statistics(const NormRows &rows, const double *x) {
    auto n = static_cast<double>(rows.length);
    auto cells = static_cast<size_t>(rows.length);
    mean = rows.centred ? row_sum(x, cells) / n : 0;
    rstd = 1.0 / std::sqrt(row_squares(x, mean, cells) / n + rows.eps);
  }
};

} // namespace

void standardise_rows(const NormRows &rows, const NormOperands<double> &in,
                      const NormResults<double> &out) {
  auto n = static_cast<size_t>(rows.length);
  for (int64_t row = 0; row < rows.count; ++row) {
    const double *x = in.x.data + row * rows.length;
    Statistics of(rows, x);
    if (out.mean)
      out.mean[row] = of.mean;
    if (out.rstd)
      out.rstd[row] = of.rstd;
    if (!out.y)
      continue;
    double *y = out.y.data + row * rows.length;
    unit_row(x, of.mean, of.rstd, y, n);
    if (in.w)
      multiply_rows(y, in.w.data, y, n);
    if (in.b)
      add_row(in.b.data, y, n);
  }
}

void standardise_rows_gradient(const NormRows &rows, const NormOperands<double> &in,
                               View<const double> mean, View<const double> rstd,
                               const NormResults<const double> &g, const NormGradients<double> &d) {
  auto n = static_cast<size_t>(rows.length);
  auto width = static_cast<double>(n);
  Scratch<double> units, flows;
  units.cells.resize(n);
  double *unit = units.cells.data();
  flows.cells.assign(n, 0);
  for (int64_t row = 0; row < rows.count; ++row) {
    const double *x = in.x.data + row * rows.length,
                 *gradient = g.y ? g.y.data + row * rows.length : nullptr;
    Statistics of = rstd ? Statistics(mean ? mean[row] : 0, rstd[row]) : Statistics(rows, x);
    unit_row(x, of.mean, of.rstd, unit, n);
    if (gradient && d.w)
      add_products(gradient, unit, d.w.data, n);
    if (gradient && d.b)
      add_row(gradient, d.b.data, n);
    if (!d.x)
      continue;
    const double *flow = gradient ? gradient : flows.cells.data();
    if (gradient && in.w) {
      multiply_rows(gradient, in.w.data, flows.cells.data(), n);
      flow = flows.cells.data();
    }
    double level = rows.centred ? row_sum(flow, n) / width : 0;
    double along = row_dot(flow, unit, n) + (g.rstd ? g.rstd[row] * of.rstd : 0);
    double from_mean = g.mean ? g.mean[row] / width : 0;
    add_flow(flow, level, unit, along / width, of.rstd, from_mean, d.x.data + row * rows.length, n);
  }
}

} // namespace spmd::runtime
