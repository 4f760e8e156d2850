// Products with numbers beside them, products of parts of tensors, distances.
#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/positions.h"
#include "runtime/kernels/rows.h"
#include "runtime/kernels/vjp.h"
#include "runtime/loops/blas.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

namespace {

using llvm::Error;
using Real = View<const double>;

// beta c + alpha a b, for one matrix or one per batch entry; `summed`: the entries are summed.
struct Product {
  std::string_view right = "b";
  int64_t batch = 1, m = 1, n = 1, k = 1;
  bool summed = false;
};
template <class T> Product product_of(const Call<T> &call) {
  const rules::Equation &equation = call.context.row.equation.equation;
  View<const T> a = call.operand("a");
  const bool batched = a.rank() == 3;
  Product p;
  p.right = batched ? "d" : "b";
  View<const T> b = call.operand(p.right);
  p.summed = batched && equation.results[0].dim_count == 2;
  p.batch = batched ? a.dim(0) : 1;
  p.m = a.dim(batched);
  if (a.rank() > 1)
    p.k = a.dims->back();
  if (b.rank() > 1 || a.rank() == 1)
    p.n = b.dims->back();
  return p;
}
double factor(const KernelContext &context, llvm::StringRef name) {
  return context.number_attr(name, 1);
}

template <class T> Error add_product(const Call<T> &call) {
  Product p = product_of(call);
  View<const T> c = call.operand("c"), a = call.operand("a"), b = call.operand(p.right);
  View<T> to = call.results[0];
  double alpha = factor(call.context, "alpha"), beta = factor(call.context, "beta");
  int64_t at = 0;
  // With beta = 0 even what is not finite plays no part.
  for (Walk walk(*to.dims, {strides_over(*c.dims, *to.dims)}); beta != 0 && walk; ++walk)
    to[at++] = T(beta) * c[walk.offset()];
  for (int64_t i = 0; i < p.batch; ++i)
    gemm<T>(p.m, p.n, p.k, T(alpha), {a.data + i * p.m * p.k, p.k}, {b.data + i * p.k * p.n, p.n},
            T(1), to.data + (p.summed ? 0 : i * p.m * p.n), p.n);
  return Error::success();
}

Error add_product_vjp(const VjpCall &vjp) {
  const Call<double> &call = vjp.call;
  Product p = product_of(call);
  Real a = call.operand("a"), b = call.operand(p.right), g = vjp.gradients[0];
  std::string_view name = call.context.row.equation.equation.operands[vjp.operand].name;
  double alpha = factor(call.context, "alpha"), beta = factor(call.context, "beta");
  if (name == "c") {
    int64_t at = 0;
    for (Walk walk(*g.dims, {strides_over(*vjp.result.dims, *g.dims)}); walk; ++walk)
      vjp.result[walk.offset()] += beta * g[at++];
    return Error::success();
  }
  for (int64_t i = 0; i < p.batch; ++i) {
    MatrixView<double> of{g.data + (p.summed ? 0 : i * p.m * p.n), p.n};
    if (name == "a")
      gemm<double>(p.m, p.k, p.n, alpha, of, {b.data + i * p.k * p.n, p.n, true}, 0,
                   vjp.result.data + i * p.m * p.k, p.k);
    else
      gemm<double>(p.k, p.n, p.m, alpha, {a.data + i * p.m * p.k, p.k, true}, of, 0,
                   vjp.result.data + i * p.k * p.n, p.n);
  }
  return Error::success();
}

// The batch entries of the last two dimensions of tensors, broadcast against each other.
template <class F> void each_matrix(const Dims &to, const Dims &a, const Dims &b, const F &f) {
  auto lead = [](const Dims &dims) { return Dims(dims.begin(), dims.end() - 2); };
  auto size = [](const Dims &dims) { return dims[dims.size() - 1] * dims[dims.size() - 2]; };
  Dims over = lead(to);
  int64_t at = 0;
  for (Walk walk(over, {strides_over(lead(a), over), strides_over(lead(b), over)}); walk; ++walk)
    f(at++ * size(to), walk.offset(0) * size(a), walk.offset(1) * size(b));
}

template <class T> Error scaled_matmul(const Call<T> &call) {
  View<const T> a = call.operand("a"), b = call.operand("b"), s = call.operand("s"),
                t = call.operand("t"), r = call.operand("r"), c = call.operand("c");
  View<T> to = call.results[0];
  int64_t m = a.dim(a.rank() - 2), k = a.dims->back(), n = b.dims->back();
  each_matrix(*to.dims, *a.dims, *b.dims, [&](int64_t to_at, int64_t a_at, int64_t b_at) {
    multiply<T>(m, n, k, a.data + a_at, b.data + b_at, to.data + to_at);
  });
  Dims one;
  auto strides = [&](View<const T> scale) {
    return strides_over(scale ? *scale.dims : one, *to.dims);
  };
  int64_t at = 0;
  for (Walk walk(*to.dims, {strides(s), strides(t), strides(c)}); walk; ++walk, ++at) {
    T value = to[at];
    if (s)
      value = value * s[walk.offset(0)];
    if (t)
      value = value * t[walk.offset(1)];
    if (c)
      value = value + c[walk.offset(2)];
    to[at] = r ? value * r[0] : value;
  }
  return Error::success();
}

template <class T> Error symmetric_product(const Call<T> &call) {
  View<const T> a = call.operand("a"), c = call.operand("c");
  View<T> to = call.results[0];
  int64_t m = a.dim(a.rank() - 2), k = a.dims->back();
  T alpha = T(factor(call.context, "alpha")), beta = T(factor(call.context, "beta"));
  each_matrix(*to.dims, *a.dims, *c.dims, [&](int64_t to_at, int64_t a_at, int64_t c_at) {
    std::copy_n(c.data + c_at, m * m, to.data + to_at);
    gemm<T>(m, m, k, alpha, {a.data + a_at, k}, {a.data + a_at, k, true}, beta, to.data + to_at, m);
  });
  return Error::success();
}

template <class T> Error kron(const Call<T> &call) {
  View<const T> a = call.operand("a"), b = call.operand("b");
  View<T> to = call.results[0];
  unsigned rank = to.rank();
  auto padded = [&](const Dims &dims) {
    Dims out(rank - dims.size(), 1);
    out.append(dims.begin(), dims.end());
    return out;
  };
  Dims left = padded(*a.dims), right = padded(*b.dims);
  Strides left_steps = strides_of(left), right_steps = strides_of(right);
  int64_t at = 0;
  for (Walk walk(*to.dims); walk; ++walk) {
    int64_t i = 0, j = 0;
    for (unsigned d = 0; d < rank; ++d) {
      i += walk.index(d) / right[d] * left_steps[d];
      j += walk.index(d) % right[d] * right_steps[d];
    }
    to[at++] = a[i] * b[j];
  }
  return Error::success();
}

template <class T> Error cross(const Call<T> &call) {
  View<const T> a = call.operand("a"), b = call.operand("b");
  View<T> to = call.results[0];
  auto dims = call.context.dims(to.rank());
  if (dims.empty() || to.dim(dims[0]) != 3)
    return cannot_run(call.context, "its vectors do not have three elements");
  unsigned d = dims[0];
  Strides a_steps = strides_over(*a.dims, *to.dims), b_steps = strides_over(*b.dims, *to.dims);
  int64_t at = 0;
  for (Walk walk(*to.dims, {a_steps, b_steps}); walk; ++walk) {
    int64_t here = walk.index(d), x = (here + 1) % 3, y = (here + 2) % 3;
    auto element = [&](View<const T> of, unsigned tensor, const Strides &steps, int64_t place) {
      return of[walk.offset(tensor) + (place - here) * steps[d]];
    };
    to[at++] = element(a, 0, a_steps, x) * element(b, 1, b_steps, y) -
               element(a, 0, a_steps, y) * element(b, 1, b_steps, x);
  }
  return Error::success();
}

// Products of complex vectors take the conjugate of the first (`dot` does not, `vdot` does).
Error vecdot(const Call<Complex> &call) {
  View<const Complex> a = call.operand("a"), b = call.operand("b");
  View<Complex> to = call.results[0];
  bool conjugates = call.context.variant() != Variant::Bilinear;
  const Dims &over = a.rank() >= b.rank() ? *a.dims : *b.dims;
  auto dims = call.context.dims(static_cast<unsigned>(over.size()));
  unsigned d = dims.empty() ? 0 : dims[0];
  Dims all = over;
  for (size_t back = 1; back <= std::min(a.dims->size(), b.dims->size()); ++back)
    all[all.size() - back] = std::max((*a.dims)[a.rank() - back], (*b.dims)[b.rank() - back]);
  Dims kept = all;
  kept[d] = 1;
  for (Walk walk(all,
                 {strides_over(*a.dims, all), strides_over(*b.dims, all), strides_over(kept, all)});
       walk; ++walk) {
    Complex left = a[walk.offset(0)];
    to[walk.offset(2)] += (conjugates ? std::conj(left) : left) * b[walk.offset(1)];
  }
  return Error::success();
}

// Rows of a matrix that belong to experts, one block of rows after the other.
template <class T>
llvm::Expected<std::vector<int64_t>> block_ends(const Call<T> &call, int64_t rows) {
  View<const T> o = call.operand("o");
  bool sizes = call.context.variant() == Variant::BlockSizes; // torch: their ends
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (int64_t e = 0; e < o.size(); ++e) {
    auto number = static_cast<int64_t>(plain(o[e]));
    int64_t next = sizes ? end + number : number;
    if (next < end || next > rows)
      return cannot_run(call.context, "its blocks of rows are not in order");
    ends.push_back(end = next);
  }
  return ends;
}

enum class Part : uint8_t { Rows, RowsBack, Outer };
// For each block [first, end) of the rows of x: Rows, to[rows, m] = x[rows, k] w[e, k, m];
// RowsBack, to[rows, k] = x[rows, m] w[e, k, m]^T; Outer, to[e, k, m] = x[rows, k]^T w[rows, m].
void by_blocks(Part part, llvm::ArrayRef<int64_t> ends, int64_t k, int64_t m, const double *x,
               const double *w, double *to) {
  int64_t first = 0;
  for (size_t e = 0; e < ends.size(); first = ends[e++]) {
    int64_t rows = ends[e] - first, at = static_cast<int64_t>(e) * k * m;
    switch (part) {
    case Part::Rows:
      gemm<double>(rows, m, k, 1, {x + first * k, k}, {w + at, m}, 0, to + first * m, m);
      break;
    case Part::RowsBack:
      gemm<double>(rows, k, m, 1, {x + first * m, m}, {w + at, m, true}, 0, to + first * k, k);
      break;
    case Part::Outer:
      gemm<double>(k, m, rows, 1, {x + first * k, k, true}, {w + first * m, m}, 0, to + at, m);
      break;
    }
  }
}

Error grouped_mm(const Call<double> &call) {
  Real x = call.operand("x"), w = call.operand("w"), s = call.operand("s"), t = call.operand("t");
  View<double> to = call.results[0];
  if (x.rank() != 2 || w.rank() != 3 || rules::flag_attr(call.context.app, "transpose_rhs"))
    return cannot_run(call.context, "its operands are not rows and one matrix for each expert");
  llvm::Expected<std::vector<int64_t>> ends = block_ends(call, x.dim(0));
  if (!ends)
    return ends.takeError();
  int64_t k = x.dim(1), m = w.dim(2), first = 0;
  by_blocks(Part::Rows, *ends, k, m, x.data, w.data, to.data);
  for (size_t e = 0; (s || t) && e < ends->size(); first = (*ends)[e++])
    for (int64_t at = first * m; at < (*ends)[e] * m; ++at) {
      double row = !s ? 1 : s.size() == 1 ? s[0] : s[at / m];
      double column = !t ? 1 : t.size() == 1 ? t[0] : t[static_cast<int64_t>(e) * m + at % m];
      to[at] *= row * column;
    }
  return Error::success();
}

Error grouped_mm_vjp(const VjpCall &vjp) {
  const Call<double> &call = vjp.call;
  Real x = call.operand("x"), w = call.operand("w"), g = vjp.gradients[0];
  if (call.operand("s") || call.operand("t"))
    return cannot_run(call.context, "the derivative of scaled operands is not known");
  llvm::Expected<std::vector<int64_t>> ends = block_ends(call, x.dim(0));
  if (!ends)
    return ends.takeError();
  bool of_rows = call.context.row.equation.equation.operands[vjp.operand].name == "x";
  by_blocks(of_rows ? Part::RowsBack : Part::Outer, *ends, x.dim(1), w.dim(2),
            of_rows ? g.data : x.data, of_rows ? w.data : g.data, vjp.result.data);
  return Error::success();
}

Error grouped_mm_backward(const Call<double> &call) {
  Real g = call.operand("g"), w = call.operand("w"), x = call.operand("x");
  llvm::Expected<std::vector<int64_t>> ends = block_ends(call, g.dim(0));
  if (!ends)
    return ends.takeError();
  int64_t m = g.dim(1), k = w ? w.dim(1) : x.dim(1);
  if (call.results[0])
    by_blocks(Part::RowsBack, *ends, k, m, g.data, w.data, call.results[0].data);
  if (call.results.size() > 1 && call.results[1])
    by_blocks(Part::Outer, *ends, k, m, x.data, g.data, call.results[1].data);
  return Error::success();
}

// x[m, n] w[n, k] for the rows n of each expert: [e, m, k]; and by g: [m, n], [n, k].
Error grouped_mm_of_rows(const Call<double> &call) {
  Real x = call.operand("x"), w = call.operand("w"), s = call.operand("s"), t = call.operand("t");
  if (s || t)
    return cannot_run(call.context, "scales of two matrices are not known");
  llvm::Expected<std::vector<int64_t>> ends = block_ends(call, w.dim(0));
  if (!ends)
    return ends.takeError();
  int64_t m = x.dim(0), n = x.dim(1), k = w.dim(1), first = 0;
  for (size_t e = 0; e < ends->size(); first = (*ends)[e++])
    gemm<double>(m, k, (*ends)[e] - first, 1, {x.data + first, n}, {w.data + first * k, k}, 0,
                 call.results[0].data + static_cast<int64_t>(e) * m * k, k);
  return Error::success();
}

Error grouped_mm_of_rows_vjp(const VjpCall &vjp) {
  const Call<double> &call = vjp.call;
  Real x = call.operand("x"), w = call.operand("w"), g = vjp.gradients[0];
  llvm::Expected<std::vector<int64_t>> ends = block_ends(call, w.dim(0));
  if (!ends)
    return ends.takeError();
  bool left = call.context.row.equation.equation.operands[vjp.operand].name == "x";
  int64_t m = x.dim(0), n = x.dim(1), k = w.dim(1), first = 0;
  for (size_t e = 0; e < ends->size(); first = (*ends)[e++]) {
    int64_t rows = (*ends)[e] - first;
    const double *of = g.data + static_cast<int64_t>(e) * m * k;
    if (left)
      gemm<double>(m, rows, k, 1, {of, k}, {w.data + first * k, k, true}, 0,
                   vjp.result.data + first, n);
    else
      gemm<double>(rows, k, m, 1, {x.data + first, n, true}, {of, k}, 0,
                   vjp.result.data + first * k, k);
  }
  return Error::success();
}

// Distances. Equal points have distance 0 and gradient 0.

template <class T, class F> T distance(int64_t width, double p, const F &difference) {
  T sum(0);
  for (int64_t i = 0; i < width; ++i) {
    T size = abs(T(difference(i)));
    if (std::isinf(p))
      sum = larger(sum, size);
    else if (plain(size) != 0)
      sum = sum + (p == 0 ? T(1) : p == 1 ? size : p == 2 ? size * size : pow(size, T(p)));
  }
  if (plain(sum) == 0 || p == 0 || p == 1 || std::isinf(p))
    return sum;
  return p == 2 ? sqrt(sum) : pow(sum, T(1 / p));
}

template <class T> Error cdist(const Call<T> &call) {
  View<const T> a = call.operand("a"), b = call.operand("b");
  View<T> to = call.results[0];
  double p = argument(call.context, {"p"}, 2).value_or(2);
  int64_t m = a.dim(a.rank() - 2), n = b.dim(b.rank() - 2), k = a.dims->back();
  each_matrix(*to.dims, *a.dims, *b.dims, [&](int64_t to_at, int64_t a_at, int64_t b_at) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        to[to_at + i * n + j] =
            distance<T>(k, p, [&](int64_t x) { return a[a_at + i * k + x] - b[b_at + j * k + x]; });
  });
  return Error::success();
}

Error cdist_backward(const Call<double> &call) {
  View<const double> g = call.operand("g");
  return run_taped_vjp(cdist<Var>, {call, g, call.context.operand("a"), 0, call.results[0]});
}

template <class T> Error dist(const Call<T> &call) {
  View<const T> a = call.operand("a"), b = call.operand("b");
  if (*a.dims != *b.dims)
    return cannot_run(call.context, "its operands have other extents");
  double p = argument(call.context, {"p"}, 2).value_or(2);
  call.results[0][0] = distance<T>(a.size(), p, [&](int64_t i) { return a[i] - b[i]; });
  return Error::success();
}

template <class T> Error pairwise_distance(const Call<T> &call) {
  View<const T> a = call.operand("a"), b = call.operand("b");
  double p = call.context.number_attr("p", 2), eps = call.context.number_attr("eps", 1e-6);
  int64_t k = a.dims->back();
  Dims over = a.rank() >= b.rank() ? *a.dims : *b.dims;
  for (size_t back = 1; back <= std::min(a.dims->size(), b.dims->size()); ++back)
    over[over.size() - back] = std::max((*a.dims)[a.rank() - back], (*b.dims)[b.rank() - back]);
  Strides left = strides_over(*a.dims, over), right = strides_over(*b.dims, over);
  over.back() = 1;
  int64_t at = 0;
  for (Walk walk(over, {left, right}); walk; ++walk)
    call.results[0][at++] = distance<T>(k, p, [&](int64_t x) {
      return a[walk.offset(0) + x * left.back()] - b[walk.offset(1) + x * right.back()] + T(eps);
    });
  return Error::success();
}

constexpr KernelDef added(std::string_view row, decltype(KernelDef::composed) composed = nullptr) {
  return {.row = row,
          .real = add_product<double>,
          .complex = add_product<Complex>,
          .vjp = add_product_vjp,
          .composed = composed,
          .sums_products = true,
          .factors = {"alpha", "beta"}};
}

constexpr KernelDef kContraction[] = {
    added("addmm", composed_added_product),
    added("addmv"),
    added("addr"),
    added("baddbmm", composed_added_product),
    added("addbmm"),
    {.row = "scaled_matmul", .real = scaled_matmul<double>, .taped = scaled_matmul<Var>},
    {.row = "symmetric_product",
     .real = symmetric_product<double>,
     .taped = symmetric_product<Var>},
    {.row = "kron",
     .real = kron<double>,
     .complex = kron<Complex>,
     .modular = kron<Residue>,
     .taped = kron<Var>},
    {.row = "cross",
     .real = cross<double>,
     .complex = cross<Complex>,
     .modular = cross<Residue>,
     .taped = cross<Var>},
    {.row = "vecdot", .complex = vecdot},
    {.row = "dot", .complex = vecdot},
    {.row = "grouped_mm",
     .real = grouped_mm,
     .vjp = grouped_mm_vjp,
     .composed = composed_grouped,
     .sums_products = true},
    {.row = "grouped_mm_of_rows",
     .real = grouped_mm_of_rows,
     .vjp = grouped_mm_of_rows_vjp,
     .composed = composed_grouped_of_rows,
     .sums_products = true},
    {.row = "grouped_mm_backward",
     .real = grouped_mm_backward,
     .composed = composed_grouped_backward,
     .sums_products = true},
    {.row = "cdist", .real = cdist<double>, .taped = cdist<Var>},
    {.row = "cdist_backward", .real = cdist_backward},
    {.row = "dist", .real = dist<double>, .taped = dist<Var>},
    {.row = "pairwise_distance",
     .real = pairwise_distance<double>,
     .taped = pairwise_distance<Var>},
};

} // namespace

llvm::ArrayRef<KernelDef> contraction_kernels() { return kContraction; }

} // namespace spmd::runtime
