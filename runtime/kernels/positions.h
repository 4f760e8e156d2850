// Positions in row-major arrays: strides, walks over all positions of a shape, numbers that are
// positions.
#pragma once

#include "runtime/kernels/kernel.h"
#include "runtime/tensor/number.h"

namespace spmd::runtime {

// Of a row-major array.
inline Strides strides_of(llvm::ArrayRef<int64_t> dims) {
  Strides strides(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i--; step *= dims[i])
    strides[i] = step;
  return strides;
}

// Those of `dims` seen from `over`: aligned from the right, 0 where a dimension is missing or has
// one element only.
inline Strides strides_over(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> over) {
  Strides own = strides_of(dims), strides(over.size(), 0);
  for (size_t back = 1; back <= std::min(dims.size(), over.size()); ++back)
    if (dims[dims.size() - back] != 1)
      strides[over.size() - back] = own[dims.size() - back];
  return strides;
}

// Visits all positions of a shape in row-major order and keeps, for each of some tensors, the
// offset of what they have there.
class Walk {
public:
  explicit Walk(llvm::ArrayRef<int64_t> dims, std::initializer_list<Strides> tensors = {})
      : dims_(dims.begin(), dims.end()), index_(dims.size(), 0),
        strides_(tensors.begin(), tensors.end()), offsets_(tensors.size(), 0), left_(count(dims)) {}

  explicit operator bool() const { return left_ > 0; }
  int64_t offset(unsigned tensor = 0) const { return offsets_[tensor]; }
  int64_t index(unsigned dim) const { return index_[dim]; }
  llvm::ArrayRef<int64_t> index() const { return index_; }
  void operator++() {
    --left_;
    for (size_t d = dims_.size(); d--;) {
      bool wraps = ++index_[d] == dims_[d];
      for (size_t t = 0; t < strides_.size(); ++t)
        offsets_[t] += wraps ? strides_[t][d] * (1 - dims_[d]) : strides_[t][d];
      if (!wraps)
        return;
      index_[d] = 0;
    }
  }

private:
  Dims dims_, index_;
  llvm::SmallVector<Strides, 3> strides_;
  llvm::SmallVector<int64_t, 3> offsets_;
  int64_t left_;
};

// A shape cut at one dimension: element (o, x, i) lies at (o * extent + x) * inner + i.
struct DimSplit {
  int64_t outer = 1, extent = 1, inner = 1;

  DimSplit(llvm::ArrayRef<int64_t> dims, unsigned dim) {
    for (unsigned i = 0; i < dims.size(); ++i)
      (i < dim ? outer : i == dim ? extent : inner) *= dims[i];
  }
  int64_t at(int64_t o, int64_t x, int64_t i) const { return (o * extent + x) * inner + i; }
};

// The number that a residue stands for, where it steers: an index, a count.
inline double plain(Residue number) { return static_cast<double>(number.number()); }

// The whole number that stands for a position among `extent`; negative ones count from the end.
// None: there is no such position. Of residues every number is some position, since what made it
// may be a function that we know nothing of.
template <class T> std::optional<int64_t> position(const T &number, int64_t extent) {
  double at = plain(number);
  if (!(std::abs(at) <= 0x1p53))
    return std::nullopt;
  auto place = static_cast<int64_t>(at);
  place += place < 0 ? extent : 0;
  return place >= 0 && place < extent ? std::optional(place) : std::nullopt;
}
inline std::optional<int64_t> position(Residue number, int64_t extent) {
  if (extent <= 0)
    return std::nullopt;
  int64_t place = number.number() % extent;
  return place < 0 ? place + extent : place;
}

// The place of a tensor in its list, which may have gaps.
unsigned list_position(const rules::Slot &slot, unsigned member);

// A number by the first of the names that is an attribute, else in a position among all operands.
std::optional<double> argument(const KernelContext &context,
                               std::initializer_list<llvm::StringRef> names, unsigned position);

llvm::Error wrong_number(const KernelContext &context, int64_t found, int64_t expected);
llvm::Error no_position(const KernelContext &context, double index, int64_t extent);

} // namespace spmd::runtime
