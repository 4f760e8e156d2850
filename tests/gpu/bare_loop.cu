// What a device does in a bare loop: launches, copies, sums, bf16 products, all_reduce of one rank.
// `spmdrun --profile` is held against these numbers. It also prints what ncclCommSplit answers when
// the communicator does not block.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr size_t kBytes = size_t(256) << 20;
constexpr size_t kWorkspace = size_t(32) << 20;
constexpr double kMicroseconds = 1e3; // per millisecond

template <typename Code> void check(Code code, const char *what) {
  if (int(code) == 0)
    return;
  std::printf("%s: error %d\n", what, int(code));
  std::exit(1);
}
#define CHECK(call) check(call, #call)

// A communicator that does not block answers this until the call is through.
void wait(ncclComm_t communicator) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress)
    CHECK(ncclCommGetAsyncError(communicator, &state));
  check(state, "NCCL, asynchronously");
}
void nccl(ncclResult_t answer, ncclComm_t communicator) {
  if (answer == ncclInProgress)
    return wait(communicator);
  check(answer, "NCCL");
}

__global__ void nothing() {}
__global__ void add(const float4 *a, const float4 *b, float4 *sum, size_t count) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step) {
    const float4 x = a[i], y = b[i];
    sum[i] = {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
  }
}

struct Bench {
  cudaStream_t stream;
  char *a, *b, *result;

  Bench() {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (char **place : {&a, &b, &result}) {
      CHECK(cudaMalloc(place, kBytes));
      CHECK(cudaMemset(*place, 0, kBytes));
    }
    CHECK(cudaDeviceSynchronize());
  }

  // Microseconds of one call: the least of seven rounds of `count` calls.
  template <typename Call> double time(int count, Call call) {
    cudaEvent_t first, last;
    CHECK(cudaEventCreate(&first));
    CHECK(cudaEventCreate(&last));
    double least = 1e30;
    for (int round = 0; round < 7; ++round) {
      CHECK(cudaEventRecord(first, stream));
      for (int i = 0; i < count; ++i)
        call();
      CHECK(cudaEventRecord(last, stream));
      CHECK(cudaEventSynchronize(last));
      float milliseconds = 0;
      CHECK(cudaEventElapsedTime(&milliseconds, first, last));
      least = std::min(least, milliseconds * kMicroseconds / count);
    }
    CHECK(cudaEventDestroy(first));
    CHECK(cudaEventDestroy(last));
    return least;
  }
};

void kernels(Bench &bench) {
  std::printf("empty kernel: %.2f us\n",
              bench.time(1000, [&] { nothing<<<1, 1, 0, bench.stream>>>(); }));
  double us = bench.time(20, [&] {
    CHECK(cudaMemcpyAsync(bench.result, bench.a, kBytes, cudaMemcpyDeviceToDevice, bench.stream));
  });
  std::printf("copy of 256 MiB: %.1f us, %.0f GB/s read and written\n", us, 2e-3 * kBytes / us);
  us = bench.time(20, [&] {
    add<<<4096, 256, 0, bench.stream>>>(
        reinterpret_cast<float4 *>(bench.a), reinterpret_cast<float4 *>(bench.b),
        reinterpret_cast<float4 *>(bench.result), kBytes / sizeof(float4));
  });
  std::printf("sum of two times 256 MiB: %.1f us, %.0f GB/s\n", us, 3e-3 * kBytes / us);
}

// `sums`: in which ways an algorithm may add up parts of a sum.
void product(Bench &bench, cublasLtHandle_t library, void *workspace, int extent, uint32_t sums) {
  cublasLtMatmulDesc_t form;
  cublasLtMatrixLayout_t layout;
  cublasLtMatmulPreference_t limits;
  CHECK(cublasLtMatmulDescCreate(&form, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  CHECK(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, extent, extent, extent));
  CHECK(cublasLtMatmulPreferenceCreate(&limits));
  CHECK(cublasLtMatmulPreferenceSetAttribute(limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspace, sizeof kWorkspace));
  CHECK(cublasLtMatmulPreferenceSetAttribute(limits, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &sums, sizeof sums));
  cublasLtMatmulHeuristicResult_t chosen;
  int found = 0;
  CHECK(cublasLtMatmulAlgoGetHeuristic(library, form, layout, layout, layout, layout, limits, 1,
                                       &chosen, &found));
  if (found == 0) {
    std::printf("bf16 product of %d^3: cuBLASLt has no algorithm\n", extent);
    return;
  }
  const float one = 1, zero = 0;
  const double us = bench.time(50, [&] {
    CHECK(cublasLtMatmul(library, form, &one, bench.a, layout, bench.b, layout, &zero, bench.result,
                         layout, bench.result, layout, &chosen.algo, workspace, kWorkspace,
                         bench.stream));
  });
  std::printf("bf16 product of %d^3%s: %.1f us, %.0f TFLOP/s\n", extent,
              sums == CUBLASLT_REDUCTION_SCHEME_MASK ? "" : ", no sums in place", us,
              2e-6 * extent * double(extent) * extent / us);
  CHECK(cublasLtMatmulPreferenceDestroy(limits));
  CHECK(cublasLtMatrixLayoutDestroy(layout));
  CHECK(cublasLtMatmulDescDestroy(form));
}

void products(Bench &bench) {
  cublasLtHandle_t library;
  void *workspace;
  CHECK(cublasLtCreate(&library));
  CHECK(cudaMalloc(&workspace, kWorkspace));
  for (int extent : {256, 1024, 4096, 8192})
    for (uint32_t sums : {CUBLASLT_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE})
      product(bench, library, workspace, extent, sums);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaFree(workspace));
  CHECK(cublasLtDestroy(library));
}

void collectives(Bench &bench, bool blocking) {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  ncclConfig_t options = NCCL_CONFIG_INITIALIZER;
  options.blocking = blocking;
  ncclComm_t all = nullptr;
  const ncclResult_t opened = ncclCommInitRankConfig(&all, 1, id, 0, &options);
  nccl(opened, all);
  for (size_t bytes : {size_t(4) << 10, size_t(1) << 20, size_t(64) << 20}) {
    const double us = bench.time(200, [&] {
      nccl(ncclAllReduce(bench.a, bench.result, bytes / sizeof(float), ncclFloat, ncclSum, all,
                         bench.stream),
           all);
    });
    std::printf("all_reduce of one rank, %zu bytes, blocking=%d: %.2f us\n", bytes, blocking, us);
  }
  ncclComm_t part = nullptr;
  const ncclResult_t answer = ncclCommSplit(all, 0, 0, &part, nullptr);
  const bool at_once = part != nullptr;
  // It may answer that all is well and write `part` later: until then the parent is in progress.
  nccl(answer == ncclSuccess ? ncclInProgress : answer, all);
  std::printf("ncclCommSplit, blocking=%d: answers %d; new communicator at once: %d, later: %d\n",
              blocking, int(answer), at_once, part != nullptr);
  nccl(ncclInProgress, part);
}

} // namespace

int main() {
  Bench bench;
  kernels(bench);
  products(bench);
  for (bool blocking : {true, false})
    collectives(bench, blocking);
  CHECK(cudaDeviceSynchronize());
}
