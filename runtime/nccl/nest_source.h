// Source of a kernel that carries out one loop nest, for the compiler that CUDA brings (NVRTC).
// Extents, strides and the scalar program are constants of it, so that loads are as wide as memory
// allows and indices cost little. scalar.h is compiled into it, so numbers are those of nest.cu to
// the bit, but where `computes_in_float` holds.
#pragma once

#include "runtime/commands/command.h"
#include "runtime/nccl/nest_arguments.h"

#include <string>

namespace spmd::nccl {

struct NestSource {
  std::string text; // a kernel named `nest` with one parameter, NestArguments
  int64_t blocks;   // of kNestThreads threads each
  int64_t parts;    // of each result; more than one: they are to be combined from `partial`
};
inline constexpr unsigned kNestThreads = 256;

// Of a loop nest whose loops are joined (nest.cu), with one place at least. Addresses decide by
// their alignment alone, which changes how elements are loaded and nothing else.
// `scratch`: doubles that `partial` has.
NestSource nest_source(const SpmdLoopNest &nest, int64_t scratch);

// What decides its text: equal keys, equal sources.
std::string nest_key(const SpmdLoopNest &nest);

// Whether it computes in float: it makes numbers of 16 bits and less from such of 32 and less,
// combines none, and has no step that jumps where a number is a little larger. An error of float is
// then far below what rounding the result does (runtime/judge/bounds.h).
bool computes_in_float(const SpmdLoopNest &nest);

// Whether there is a source for it: elements of eight bits with an exponent and complex ones have
// none.
bool has_nest_source(const SpmdLoopNest &nest);

} // namespace spmd::nccl
