// What the kernel of a loop nest is given when it is launched. Read by the host and, as text, by
// the compiler of kernels.
#pragma once

#include "runtime/commands/command.h"

namespace spmd::nccl {

struct NestArguments {
  SpmdAddress out, in[kSpmdArrays];
  double numbers[kSpmdConstants];
  float narrow_numbers[kSpmdConstants]; // the same, for kernels that compute in float
  double factor, divisor;
  double *partial; // outer x parts, where results have several parts
};

inline NestArguments arguments_of(const SpmdLoopNest &nest, double *partial) {
  NestArguments arguments{};
  arguments.out = nest.out.data;
  for (uint32_t i = 0; i < nest.arrays; ++i)
    arguments.in[i] = nest.in[i].data;
  for (uint32_t i = 0; i < nest.constants; ++i) {
    arguments.numbers[i] = nest.numbers[i];
    arguments.narrow_numbers[i] = static_cast<float>(nest.numbers[i]);
  }
  arguments.factor = nest.factor;
  arguments.divisor = nest.divisor;
  arguments.partial = partial;
  return arguments;
}

} // namespace spmd::nccl
