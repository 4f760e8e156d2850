// Of cuBLASLt, what runtime/nccl/matrices.h and runtime/nccl/open.cc name. Simulated devices
// multiply no matrices by it: all products go to the plug-in's own kernel.
#pragma once

#include <driver_types.h>

#include <cstddef>

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS };
using cublasLtHandle_t = struct cublasLtContext *;
using cublasLtMatmulDesc_t = struct cublasLtMatmulDescOpaque *;
using cublasLtMatrixLayout_t = struct cublasLtMatrixLayoutOpaque *;
struct cublasLtMatmulAlgo_t {};

extern "C" {
const char *cublasLtGetStatusString(cublasStatus_t status);
size_t cublasLtGetVersion();
}
