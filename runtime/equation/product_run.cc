// Loop nests, and the steps of a product one after the other.
#include "runtime/equation/product.h"
#include "runtime/loops/dot.h"
#include "runtime/tensor/scratch.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

namespace {

// The product of the inputs at the k-th place of the innermost loop.
template <class T> T product_at(llvm::ArrayRef<const T *> at, const int64_t *strides, int64_t k) {
  T product = at[0][k * strides[0]];
  for (size_t i = 1; i < at.size(); ++i)
    product = product * at[i][k * strides[i]];
  return product;
}

template <class T> T sum_run(llvm::ArrayRef<const T *> at, const int64_t *strides, int64_t n) {
  T sums[4] = {T(0), T(0), T(0), T(0)};
  int64_t k = 0;
  if (at.size() == 1 && strides[0] == 1) {
    const T *a = at[0];
    for (; k + 4 <= n; k += 4)
      for (int j = 0; j < 4; ++j)
        sums[j] += a[k + j];
  } else if (at.size() == 2 && strides[0] == 1 && strides[1] == 1) {
    return dot(at[0], at[1], n);
  }
  for (; k < n; ++k)
    sums[0] += product_at(at, strides, k);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// `put(cell, value)` adds or assigns. The common strides have loops of their own, which vectorise.
template <class T, class Put>
void map_run(llvm::ArrayRef<const T *> at, const int64_t *strides, int64_t n, T scale, T *out,
             Put put) {
  const int64_t step = strides[at.size()];
  if (at.size() == 1 && step == 1 && strides[0] == 1) {
    const T *a = at[0];
    for (int64_t k = 0; k < n; ++k)
      put(out[k], scale * a[k]);
    return;
  }
  if (at.size() == 2 && step == 1 && strides[0] == 1 && strides[1] <= 1) {
    const T *a = at[0], *b = at[1];
    if (strides[1] == 1)
      for (int64_t k = 0; k < n; ++k)
        put(out[k], scale * (a[k] * b[k]));
    else
      for (int64_t k = 0; k < n; ++k)
        put(out[k], scale * (a[k] * *b));
    return;
  }
  for (int64_t k = 0; k < n; ++k)
    put(out[k * step], at.empty() ? scale : scale * product_at(at, strides, k));
}

} // namespace

template <class T>
void Product::run_nest(const Nest &nest, llvm::ArrayRef<const T *> inputs, T scale, T *output,
                       bool assign) {
  const Loop &inner = nest.back();
  const int64_t *strides = inner.strides.data();
  llvm::SmallVector<const T *, 4> at(inputs.begin(), inputs.end());
  Strides place(nest.size() - 1, 0);
  while (true) {
    if (strides[at.size()] == 0 && inner.extent > 1) {
      T sum = at.empty() ? T(inner.extent) : sum_run<T>(at, strides, inner.extent);
      *output += scale * sum;
    } else if (assign) {
      map_run<T>(at, strides, inner.extent, scale, output, [](T &cell, T value) { cell = value; });
    } else {
      map_run<T>(at, strides, inner.extent, scale, output, [](T &cell, T value) { cell += value; });
    }
    size_t l = nest.size() - 1;
    for (; l-- > 0;) {
      const Loop &loop = nest[l];
      bool more = ++place[l] < loop.extent;
      int64_t steps = more ? 1 : 1 - loop.extent;
      for (size_t i = 0; i < at.size(); ++i)
        at[i] += steps * loop.strides[i];
      output += steps * loop.strides.back();
      if (more)
        break;
      place[l] = 0;
    }
    if (l == size_t(-1))
      return;
  }
}

template <class T>
bool Product::run(llvm::ArrayRef<const T *> inputs, T scale, T *output, bool fresh, bool single,
                  llvm::ArrayRef<F32Source> kept) const {
  if (empty_)
    return false;
  bool floats = false;
  std::vector<Scratch<T>> made(steps_.size() > 1 ? steps_.size() : 0);
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Step &step = steps_[s];
    bool last = step.size == 0;
    llvm::SmallVector<const T *, 4> at;
    llvm::SmallVector<F32Source, 4> at_kept;
    for (int id : step.inputs) {
      auto input = static_cast<size_t>(id);
      at.push_back(id >= 0 ? inputs[input] : made[static_cast<size_t>(~id)].cells.data());
      at_kept.push_back(id >= 0 && !kept.empty() ? kept[input] : F32Source());
    }
    if (!last)
      made[s].cells.assign(static_cast<size_t>(step.size), T(0));
    T *to = last ? output : made[s].cells.data();
    T factor = last ? scale : T(1);
    if (step.multiplies) {
      floats = run_matrices<T>(step.matrices, at, factor, to, fresh || !last, single, at_kept);
      continue;
    }
    bool sums = llvm::any_of(
        step.nest, [](const Loop &loop) { return loop.strides.back() == 0 && loop.extent > 1; });
    run_nest<T>(step.nest, at, factor, to, (fresh || !last) && !sums);
    floats = false;
  }
  return floats;
}

template bool Product::run(llvm::ArrayRef<const double *>, double, double *, bool, bool,
                           llvm::ArrayRef<F32Source>) const;
template bool Product::run(llvm::ArrayRef<const Complex *>, Complex, Complex *, bool, bool,
                           llvm::ArrayRef<F32Source>) const;
template bool Product::run(llvm::ArrayRef<const Residue *>, Residue, Residue *, bool, bool,
                           llvm::ArrayRef<F32Source>) const;

} // namespace spmd::runtime
