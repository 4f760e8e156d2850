// Small arrays of residues, and the few ways in which transitions and blocks move their elements.
// Nothing here comes from the runtime but the field: this suite is a second opinion on it.
#pragma once

#include "runtime/tensor/residue.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <vector>

namespace spmd::soundness {

using runtime::Residue;
using Dims = llvm::SmallVector<int64_t, 4>;

int64_t count(llvm::ArrayRef<int64_t> dims);

struct Array {
  Dims dims;
  std::vector<Residue> data; // row major

  static Array zeros(Dims dims);
  friend bool operator==(const Array &, const Array &) = default;
};
using Arrays = std::vector<Array>;

// What does not fit together where a program that does not check is run all the same: noted, and
// zeros are gone on with. Null if all fitted since it was last asked for.
void note_misfit(const char *what);
const char *take_misfit();

uint64_t mix(uint64_t hash, uint64_t more);

// Arrays of equal extents.
void add_to(Array &sum, const Array &more);
Array times(Array array, Residue factor);
// The n-th power of a whole number, n of either sign.
Residue power(int64_t base, int64_t exponent);

// As the functions of the same names in numpy and torch.
Array concat(llvm::ArrayRef<Array> pieces, size_t dim);
Array stack(llvm::ArrayRef<Array> pieces, size_t dim);
Arrays split(const Array &whole, llvm::ArrayRef<int64_t> lengths, size_t dim);
Arrays unbind(const Array &whole, size_t dim);
// Dimensions counted from the end, too.
Array flip(const Array &whole, llvm::ArrayRef<int64_t> dims);

// Part of a whole: per dimension where it begins and how long it is.
struct Block {
  Dims first, dims;
};
Array take(const Array &whole, const Block &block);
// Puts (or adds) a block at its place.
void put(Array &whole, const Block &block, const Array &part, bool add);

} // namespace spmd::soundness
