// What one rank holds of one tensor, row major. Element types are emulated: a real number of any
// dtype lies in a double and is rounded to its dtype after each op, so that one set of kernels
// serves all of them; integers are exact up to 2^53.
#pragma once

#include "runtime/tensor/residue.h"

#include "ir/shape.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <variant>
#include <vector>

namespace spmd::runtime {

using Dims = llvm::SmallVector<int64_t, 5>;
// Elements from one entry to the next, per dimension of an array or per variable of a loop; 0 where
// the array lacks it.
using Strides = llvm::SmallVector<int64_t, 5>;
using Complex = std::complex<double>;

// What elements are, in a whole run.
enum class Domain : uint8_t {
  Declared, // rounded to the declared dtype after each op
  F64,      // floats are not rounded; integers and Booleans as declared
  Field,    // modulo 2^61 - 1; every dtype
};

// What no array has; counts end here, so that sums of them and their bytes are numbers too.
inline constexpr int64_t kTooManyElements = int64_t(1) << 50;

inline int64_t count(llvm::ArrayRef<int64_t> dims) {
  int64_t product = 1;
  bool beyond = false;
  for (int64_t dim : dims)
    beyond |= __builtin_mul_overflow(product, dim, &product);
  if (beyond && llvm::is_contained(dims, 0))
    return 0;
  return beyond ? kTooManyElements : std::min(product, kTooManyElements);
}

// Elements in one of three forms; the dtype says which real or complex numbers they are.
using Cells = std::variant<std::vector<double>, std::vector<Complex>, std::vector<Residue>>;

struct Tensor {
  ir::DType dtype = ir::DType::Unknown;
  Dims dims;
  Cells cells;

  // Zeros.
  static Tensor make(ir::DType dtype, Dims dims, Domain domain);

  int64_t size() const { return count(dims); }
  template <class T> std::vector<T> &of() { return *std::get_if<std::vector<T>>(&cells); }
  template <class T> const std::vector<T> &of() const {
    return *std::get_if<std::vector<T>>(&cells);
  }
  bool is_complex() const { return std::holds_alternative<std::vector<Complex>>(cells); }
  bool is_modular() const { return std::holds_alternative<std::vector<Residue>>(cells); }
  // Calls `f` with the vector of elements, of whatever form.
  template <class F> decltype(auto) visit(F &&f) { return std::visit(f, cells); }
  template <class F> decltype(auto) visit(F &&f) const { return std::visit(f, cells); }
  friend bool operator==(const Tensor &, const Tensor &) = default;
};

// The nearest number that the dtype has: ties to even; overflow of a float gives infinity (F8E4M3,
// which has none, NaN), integers wrap, Booleans are 0 or 1.
double rounded(double value, ir::DType dtype);
// All elements, as the domain asks for.
void round_cells(Tensor &tensor, Domain domain);
// Unit roundoff of a float: 2^-53 for F64, 2^-24, 2^-11, 2^-8, 2^-4, 2^-3. 0 for what is no float.
double unit_roundoff(ir::DType dtype);

} // namespace spmd::runtime
