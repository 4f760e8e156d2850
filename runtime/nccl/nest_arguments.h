// What the kernel of a loop nest is given when it is launched. Read by the host and, as text, by
// the compiler of kernels.
#pragma once

#include "runtime/device/interface.h"

namespace spmd::nccl {

struct NestArguments {
  SpmdAddress out, in[kSpmdArrays];
  double numbers[kSpmdConstants];
  float narrow_numbers[kSpmdConstants]; // the same, for kernels that compute in float
  double factor, divisor;
  double *partial; // outer x parts, where results have several parts
};

} // namespace spmd::nccl
