// Rows that belong to experts, one block after the other. How many each has is data: a product is
// made of all rows with the matrix of each expert, of which each row keeps its own.
#include "runtime/kernels/composed/composition.h"
#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/positions.h"

#include "rules/shapes/attrs.h"

namespace spmd::runtime {

namespace {

using Symbols = llvm::ArrayRef<TracedNumber>;

class Experts {
public:
  explicit Experts(Composition &of) : of_(of), o_(of.operand("o")) {}

  // Which expert each of the rows belongs to; behind the last block: to none.
  bool find(int64_t rows) {
    if (!o_ || of_.operand("s") || of_.operand("t"))
      return false;
    DeviceArray ends = *o_;
    if (of_.context.variant() == Variant::BlockSizes) {
      ends = of_.temporary({count()});
      const Strided expert{of_.positions(1, 0, 1), {1, 0}}, before{of_.positions(1, 0, 1), {0, 1}};
      if (!of_.make_along({count(), count()}, {ends, {1, 0}}, {{*o_, {0, 1}}, expert, before},
                          [](Symbols s) { return s[2] <= s[1] ? s[0] : TracedNumber(0.0); }))
        return false;
    }
    owner_ = of_.temporary({rows});
    const Strided row{of_.positions(1, 0, 1), {1, 0}};
    return of_.make_along({rows, count()}, {owner_, {1, 0}}, {{ends, {0, 1}}, row},
                          [](Symbols s) { return TracedNumber(s[0] <= s[1] ? 1.0 : 0.0); });
  }

  int64_t count() const { return o_->size(); }
  // Entry `expert` of a tensor whose first dimension they are.
  static DeviceArray entry(const DeviceArray &tensor, int64_t expert) {
    DeviceArray made = tensor;
    made.data = after(made.data, made.dtype, expert * (tensor.size() / (*tensor.dims)[0]));
    return made;
  }

  // a b for the rows of each expert, which has a b of its own; `by_column`: for the columns, an a
  // of its own.
  bool products(const Matrices &a, const Matrices &b, bool by_column, const DeviceArray &out) {
    const DeviceArray owner = owner_along(by_column), all = of_.temporary(*out.dims, out.dtype);
    if (!of_.fill(out, 0))
      return false;
    for (int64_t e = 0; e < count(); ++e) {
      const DeviceArray mine = entry(*(by_column ? a : b).at, e);
      Matrices left = a, right = b;
      (by_column ? left : right).at = &mine;
      if (!add_matrices(of_, 1, left, right, all, 1, false) ||
          !of_.make(out, *out.dims, {all, owner, out},
                    [&](Symbols s) { return s[1] == static_cast<double>(e) ? s[0] : s[2]; }))
        return false;
    }
    return true;
  }

  // a b for each expert, of its part of what is summed; to entries of `out`.
  bool sums(const Matrices &a, const Matrices &b, const DeviceArray &out) {
    const DeviceArray part_a = of_.temporary(*a.at->dims, a.at->dtype),
                      part_b = of_.temporary(*b.at->dims, b.at->dtype),
                      owner_a = owner_along(!a.turned), owner_b = owner_along(b.turned);
    auto keep = [&](const DeviceArray &from, const DeviceArray &owner, const DeviceArray &to,
                    int64_t expert) {
      return of_.make(to, *to.dims, {from, owner}, [&](Symbols s) {
        return s[1] == static_cast<double>(expert) ? s[0] : TracedNumber(0.0);
      });
    };
    Matrices left = a, right = b;
    left.at = &part_a, right.at = &part_b;
    for (int64_t e = 0; e < count(); ++e)
      if (!keep(*a.at, owner_a, part_a, e) || !keep(*b.at, owner_b, part_b, e) ||
          !add_matrices(of_, 1, left, right, entry(out, e), 1, false))
        return false;
    return true;
  }

private:
  DeviceArray owner_along(bool by_column) {
    const int64_t rows = owner_.size();
    return by_column ? of_.as(owner_, {1, rows}) : of_.as(owner_, {rows, 1});
  }

  Composition &of_;
  const DeviceArray *o_;
  DeviceArray owner_;
};

bool has_rank(const DeviceArray *tensor, size_t rank) {
  return tensor && tensor->dims->size() == rank;
}

} // namespace

bool composed_grouped(Composition &of) {
  const DeviceArray *x = of.operand("x"), *w = of.operand("w");
  if (!has_rank(x, 2) || !has_rank(w, 3) || rules::flag_attr(of.context.app, "transpose_rhs"))
    return false;
  const int64_t n = (*x->dims)[0], k = (*x->dims)[1], m = (*w->dims)[2];
  const DeviceArray *g = of.by ? of.only_gradient(0) : nullptr, &out = *of.result(0);
  Experts experts(of);
  if ((of.by && !g) || !experts.find(n))
    return false;
  if (!of.by)
    return experts.products({x, n, k}, {w, k, m}, false, out);
  if (of.is_by("x"))
    return experts.products({g, n, m}, {w, k, m, true}, false, out);
  return of.is_by("w") && experts.sums({x, n, k, true}, {g, n, m}, out);
}

bool composed_grouped_backward(Composition &of) {
  const DeviceArray *g = of.operand("g"), *w = of.operand("w"), *x = of.operand("x");
  Experts experts(of);
  if (of.by || !has_rank(g, 2) || !experts.find((*g->dims)[0]))
    return false;
  const int64_t n = (*g->dims)[0], m = (*g->dims)[1];
  for (unsigned i = 0; of.result(i); ++i) {
    const DeviceArray &out = *of.result(i);
    const bool of_rows = rules::row_result(of.context.app, i) == 0;
    if (of_rows ? !has_rank(w, 3) : !has_rank(x, 2))
      return false;
    const int64_t k = of_rows ? (*w->dims)[1] : (*x->dims)[1];
    if (of_rows ? !experts.products({g, n, m}, {w, k, m, true}, false, out)
                : !experts.sums({x, n, k, true}, {g, n, m}, out))
      return false;
  }
  return true;
}

bool composed_grouped_of_rows(Composition &of) {
  const DeviceArray *x = of.operand("x"), *w = of.operand("w");
  if (!has_rank(x, 2) || !has_rank(w, 2))
    return false;
  const int64_t m = (*x->dims)[0], n = (*x->dims)[1], k = (*w->dims)[1];
  const DeviceArray *g = of.by ? of.only_gradient(0) : nullptr, &out = *of.result(0);
  Experts experts(of);
  if ((of.by && !g) || !experts.find(n))
    return false;
  if (!of.by)
    return experts.sums({x, m, n}, {w, n, k}, out);
  if (of.is_by("x"))
    return experts.products({g, m, k}, {w, n, k, true}, true, out);
  return of.is_by("w") && experts.products({x, m, n, true}, {g, m, k}, false, out);
}

} // namespace spmd::runtime
