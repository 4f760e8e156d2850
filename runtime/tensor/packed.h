// Elements in their declared type, one after another: what goes between processes. Cells hold all
// types but the widest in more bytes.
#pragma once

#include "runtime/tensor/tensor.h"

#include "llvm/ADT/ArrayRef.h"

namespace spmd::runtime {

// Bytes of an element; 0: it travels as its cell, which takes no more bytes or, because the domain
// does not round, holds more than the declared type.
size_t packed_size(ir::DType dtype, Domain domain);

// `to`: as many bytes as the cells take when packed, of a type for which packed_size is not 0.
// False: a cell is no number of its type, and its bytes are worth nothing.
bool pack(const Tensor &tensor, char *to);
void unpack(const char *from, Tensor &tensor);
// The elements [first, first + n) of a tensor of doubles.
bool pack(const double *cells, ir::DType dtype, char *to, size_t n);
void unpack(const char *from, ir::DType dtype, double *cells, size_t n);

// to[i] = a[i] + b[i], rounded: the same bits as those of a sum in double that is then rounded,
// because a double has more than twice the digits of a float, and a float of a bf16. False: not
// for this type.
bool add_packed(ir::DType dtype, const char *a, const char *b, char *to, size_t n);

} // namespace spmd::runtime
