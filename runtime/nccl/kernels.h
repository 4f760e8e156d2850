// Kernels of the plug-in `spmd_nccl`, each queued on a stream and none waited for. These alone are
// compiled by nvcc; the rest of the plug-in is plain C++ on top of the libraries.
#pragma once

#include "runtime/commands/command.h"

#include <driver_types.h>

namespace spmd::nccl {

// Doubles that `queue_nest` may use between its kernels.
inline constexpr int64_t kScratchNumbers = 1 << 20;

// Whether the kernels were compiled for the current device.
cudaError_t find_kernels();

// Nothing that is read is written by the same move.
cudaError_t queue_move(const SpmdMove &move, cudaStream_t stream);
// Combined in an order that depends on the extents alone. `scratch`: kScratchNumbers doubles of the
// device.
cudaError_t queue_nest(const SpmdLoopNest &nest, double *scratch, cudaStream_t stream);
// Any elements and strides; sums in double.
cudaError_t queue_matrices(const SpmdMatrices &matrices, cudaStream_t stream);
// The memory that it works with is the command's.
cudaError_t queue_sort(const SpmdSort &sort, cudaStream_t stream);
cudaError_t queue_scatter(const SpmdScatter &scatter, cudaStream_t stream);
// Writes `value` where the host can see it, once all that came before on the stream is done.
cudaError_t queue_mark(uint64_t *where, uint64_t value, cudaStream_t stream);

} // namespace spmd::nccl
