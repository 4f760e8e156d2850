// Large loop nests, each by a kernel of its own that is compiled when it is first asked for
// (nest_source.h).
#pragma once

#include "runtime/commands/command.h"

#include <driver_types.h>

#include <cstdint>

namespace spmd::nccl {

// `taken` is false, and nothing is queued, where nest.cu is to carry the loop nest out: it is
// small, or of elements that have no source, or there is no compiler here. With several parts of a
// result, what each part makes is in `partial` (outer x parts) and still to be combined. Nests are
// the same as long as their extents are, so one is carried out by the same kernel each time.
struct CompiledNest {
  bool taken = false;
  int64_t parts = 1;
};
cudaError_t queue_compiled(const SpmdLoopNest &joined, double *partial, int64_t partial_numbers,
                           cudaStream_t stream, CompiledNest &made);

} // namespace spmd::nccl
