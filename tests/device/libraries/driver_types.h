// What the plug-in for NVIDIA devices uses of CUDA's runtime, as far as the simulated one
// (../cuda.cc) has it: the names are CUDA's, so that runtime/backends/nccl*.cc compile against
// either.
#pragma once

using cudaStream_t = struct CUstream_st *;
using cudaEvent_t = struct CUevent_st *;
using cudaGraph_t = struct CUgraph_st *;
using cudaGraphExec_t = struct CUgraphExec_st *;

enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorInsufficientDriver,
  cudaErrorInvalidDeviceFunction,
  cudaErrorNoDevice,
  cudaErrorNoKernelImageForDevice,
  cudaErrorUnsupportedPtxVersion,
  cudaErrorNotReady,
  cudaErrorStreamCaptureUnsupported,
  cudaErrorStreamCaptureUnjoined,
};
