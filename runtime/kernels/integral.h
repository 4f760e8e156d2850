// Functions of whole numbers and of bits. Whole numbers lie in doubles, exact up to 2^53.
#pragma once

#include "ir/shape.h"

#include <cstdint>

namespace spmd::runtime {

// Of an integer or Boolean type; 64 where it is not known.
unsigned bits_of(ir::DType dtype);
bool is_integral(ir::DType dtype); // integers, not Booleans
// The unsigned number that has the bits of x in two's complement.
uint64_t bit_pattern(double x, unsigned bits);

// Bits of a number of any type of at most 32 bits, and of f64; and the number that has them.
uint64_t encode(double x, ir::DType dtype);
double decode(uint64_t pattern, ir::DType dtype);

// The quotient of a and b rounded down, and what remains: it has the sign of b.
double floored_remainder(double a, double b);

} // namespace spmd::runtime
