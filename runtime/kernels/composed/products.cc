// Products of matrices with a tensor beside them, and complex numbers as pairs of real ones.
#include "runtime/kernels/composed/composition.h"
#include "runtime/kernels/composed/compositions.h"

namespace spmd::runtime {

using Symbols = llvm::ArrayRef<TracedNumber>;

bool add_matrices(Composition &of, int64_t batch, const Matrices &a, const Matrices &b,
                  const DeviceArray &out, double factor, bool adds) {
  auto multiplies = [](ir::DType dtype) {
    return dtype == ir::DType::F64 || dtype == ir::DType::F32 || dtype == ir::DType::BF16 ||
           dtype == ir::DType::F16;
  };
  if (!multiplies(a.at->dtype) || b.at->dtype != a.at->dtype ||
      (out.dtype != a.at->dtype && out.dtype != ir::DType::F32))
    return false;
  SpmdMatrices made{};
  made.element = element_of(a.at->dtype), made.out_element = element_of(out.dtype);
  made.adds = adds;
  made.batch = batch;
  made.rows = a.turned ? a.columns : a.rows, made.inner = a.turned ? a.rows : a.columns;
  made.columns = b.turned ? b.rows : b.columns;
  made.a = a.at->data, made.b = b.at->data, made.out = out.data;
  made.a_row = a.turned ? 1 : a.columns, made.a_inner = a.turned ? a.columns : 1;
  made.b_inner = b.turned ? 1 : b.columns, made.b_column = b.turned ? b.columns : 1;
  made.out_row = made.columns, made.out_column = 1;
  made.a_batch = a.rows * a.columns, made.b_batch = b.rows * b.columns;
  made.out_batch = made.rows * made.columns;
  made.factor = factor;
  if (batch * made.rows * made.columns == 0)
    return true;
  if (made.inner == 0)
    return adds || of.fill(out, 0);
  of.add(made);
  return true;
}

bool composed_added_product(Composition &of) {
  const rules::Equation &equation = of.context.row.equation.equation;
  const bool batched = equation.find_operand("d") < equation.operand_count;
  const DeviceArray *c = of.operand("c"), *a = of.operand("a"),
                    *b = of.operand(batched ? "d" : "b");
  if (!a || !b || !c || a->dims->size() != (batched ? 3u : 2u))
    return false;
  const double alpha = of.context.number_attr("alpha", 1), beta = of.context.number_attr("beta", 1);
  const int64_t batch = batched ? (*a->dims)[0] : 1, m = (*a->dims)[batched], k = a->dims->back(),
                n = b->dims->back();
  const DeviceArray &out = *of.result(0);
  if (!of.by) {
    // With beta = 0 even what is not finite plays no part.
    const bool adds = beta != 0;
    // Of 16 bits, the sum alone is rounded; a library may round the product as well.
    if (adds && ir::info(out.dtype).bytes < 4) {
      const DeviceArray product = of.temporary(*out.dims, ir::DType::F32);
      return add_matrices(of, batch, {a, m, k}, {b, k, n}, product, alpha, false) &&
             of.make(out, *out.dims, {product, *c}, [&](Symbols s) { return s[0] + beta * s[1]; });
    }
    return (!adds || of.make(out, *out.dims, *c, [&](Symbols s) { return beta * s[0]; })) &&
           add_matrices(of, batch, {a, m, k}, {b, k, n}, out, alpha, adds);
  }
  const DeviceArray *g = of.only_gradient(0);
  if (!g)
    return false;
  if (of.is_by("c"))
    return of.make(of.as(out,
                         [&] {
                           Dims dims(g->dims->size() - out.dims->size(), 1);
                           dims.append(out.dims->begin(), out.dims->end());
                           return dims;
                         }()),
                   *g->dims, *g, [&](Symbols s) { return beta * s[0]; });
  if (of.is_by("a"))
    return add_matrices(of, batch, {g, m, n}, {b, k, n, true}, out, alpha, false);
  return add_matrices(of, batch, {a, m, k, true}, {g, m, n}, out, alpha, false);
}

// As many bits, or a part of them.
bool composed_view_as_real(Composition &of) {
  const DeviceArray *a = of.operand("a");
  if (of.by || !a)
    return false;
  const DeviceArray from = a->is_complex() ? of.pairs(*a) : *a,
                    to = of.result(0)->is_complex() ? of.pairs(*of.result(0)) : *of.result(0);
  return from.dtype == to.dtype && from.size() == to.size() &&
         of.copy({to.size()}, {from, {1}}, {to, {1}});
}

bool composed_sum_of_parts(Composition &of) {
  const DeviceArray *a = of.operand("a"), *b = of.operand("b"), *to = of.result(0);
  if (of.by || !a || !b || !a->is_complex() || !b->is_complex() || !to->is_complex())
    return false;
  const double alpha = of.context.number_attr("alpha", 1),
               sign = of.context.row.computes == rules::Computes::Sub ? -1 : 1;
  const DeviceArray out = of.pairs(*to);
  return of.make(out, *out.dims, {of.pairs(*a), of.pairs(*b)},
                 [&](Symbols s) { return s[0] + sign * alpha * s[1]; });
}

bool composed_conj(Composition &of) {
  const DeviceArray *a = of.operand("a"), *to = of.result(0);
  if (of.by || !a || a->dtype != to->dtype || a->size() != to->size())
    return false;
  if (!a->is_complex())
    return of.copy({to->size()}, {*a, {1}}, {*to, {1}});
  const DeviceArray from = of.pairs(*a), out = of.pairs(*to);
  const Dims over = {a->size(), 2};
  const Strided part{of.positions(1, 0, 2), {0, 1}};
  return of.make_along(over, {out, {2, 1}}, {{from, {2, 1}}, part},
                       [](Symbols s) { return s[1] == 0.0 ? s[0] : -s[0]; });
}

} // namespace spmd::runtime
