// CUDA's runtime, and the kernels of the plug-in over it: a stream is a thread, memory is that of
// the host. What is left behind by a device that is given up lives until the process ends, as it
// does with the real one.
#include "tests/device/simulated_cuda.h"

#include "runtime/nccl/kernels.h"
#include "runtime/nccl/matrices.h"
#include "tests/device/carry_out.h"
#include "tests/device/fake_device.h"

#include <cublasLt.h>

#include <cstdlib>
#include <cstring>
#include <map>

using namespace spmd::test;

namespace {

constexpr int kDevices = 64;

// Of the calling thread.
struct Memory {
  uint64_t all = uint64_t(1) << 30, reported = all, taken = 0;
  bool is_open = false; // what was taken before is not counted
};
thread_local Memory memory;

// By address; of all threads. Reached from here as long as the process lives.
struct Allocations {
  std::mutex mutex;
  std::map<void *, size_t> bytes;
};
Allocations &allocations() {
  static auto *all = new Allocations();
  return *all;
}
std::set<cudaStream_t> &streams() {
  static auto *all = new std::set<cudaStream_t>();
  return *all;
}

cudaError_t take(void **made, size_t bytes) {
  *made = std::aligned_alloc(512, (bytes + 511) / 512 * 512 + 512);
  if (!*made)
    return cudaErrorMemoryAllocation;
  std::memset(*made, 0x7f, bytes); // what nothing was written to is no number
  std::lock_guard lock(allocations().mutex);
  allocations().bytes[*made] = bytes;
  return cudaSuccess;
}

size_t give_back(void *data) {
  std::lock_guard lock(allocations().mutex);
  const auto at = allocations().bytes.find(data);
  if (at == allocations().bytes.end())
    return 0;
  const size_t bytes = at->second;
  allocations().bytes.erase(at);
  std::free(data);
  return bytes;
}

} // namespace

extern "C" {

const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error of the simulated runtime";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int *count) {
  *count = world_of_thread() ? kDevices : 0;
  return *count ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  memory = {};
  const std::optional<FakeMemory> &said = world_of_thread()->options.memory;
  if (said && said->rank == static_cast<uint32_t>(device)) {
    memory.all = said->bytes;
    memory.reported = said->tells ? memory.all : memory.reported;
  }
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
  *properties = {"simulated", 9, 0};
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  memory.is_open = true;
  *total = memory.reported;
  *free = memory.reported - std::min(memory.taken, memory.reported);
  return cudaSuccess;
}
cudaError_t cudaMalloc(void **made, size_t bytes) {
  if (memory.is_open && memory.taken + bytes > memory.all)
    return cudaErrorMemoryAllocation;
  memory.taken += memory.is_open ? bytes : 0;
  return take(made, bytes);
}
cudaError_t cudaFree(void *data) {
  memory.taken -= std::min<uint64_t>(memory.taken, give_back(data));
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **made, size_t bytes, unsigned) { return take(made, bytes); }
cudaError_t cudaFreeHost(void *data) {
  give_back(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  stream->add([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

// --- streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *made, unsigned) {
  *made = new CUstream_st();
  std::lock_guard lock(allocations().mutex);
  streams().insert(*made);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    std::lock_guard lock(allocations().mutex);
    streams().erase(stream);
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream->capture)
    return cudaErrorStreamCaptureUnsupported;
  return stream->queue.has_done(stream->queue.given()) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *made, unsigned) {
  *made = new CUevent_st();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  *event = {stream->capture ? nullptr : std::make_shared<Flag>(), stream->capture, stream};
  if (event->last)
    stream->queue.add([flag = event->last] { flag->set(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->within)
    return cudaErrorStreamCaptureUnsupported;
  return !event->last || event->last->is_up() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->within) {
    if (stream->capture && stream->capture != event->within)
      return cudaErrorStreamCaptureUnsupported;
    if (!stream->capture) {
      stream->capture = event->within;
      stream->capture->streams.insert(stream);
      stream->capture->apart.insert(stream);
    }
    if (stream->begins)
      stream->capture->apart.erase(event->recorded);
    return cudaSuccess;
  }
  if (stream->capture)
    return cudaErrorStreamCaptureUnsupported;
  if (event->last)
    stream->queue.add([flag = event->last] { flag->wait(); });
  return cudaSuccess;
}

// --- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (!world_of_thread()->options.records)
    return cudaErrorStreamCaptureUnsupported;
  stream->capture = std::make_shared<Captured>();
  stream->capture->streams.insert(stream);
  stream->begins = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *made) {
  *made = nullptr;
  if (!stream->capture || !stream->begins)
    return cudaErrorInvalidValue;
  const std::shared_ptr<Captured> captured = stream->capture;
  for (cudaStream_t each : captured->streams)
    each->capture.reset(), each->begins = false;
  if (!captured->apart.empty())
    return cudaErrorStreamCaptureUnjoined;
  *made = new CUgraph_st{captured};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph,
                                          unsigned long long) {
  *made = new CUgraphExec_st{graph->captured};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  if (stream->capture)
    return cudaErrorStreamCaptureUnsupported;
  ++world_of_thread()->counts.replays;
  stream->queue.add([captured = graph->captured] {
    for (const auto &task : captured->tasks)
      task();
  });
  return cudaSuccess;
}
// Does not wait: what still goes on keeps what it needs.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}

const char *cublasLtGetStatusString(cublasStatus_t) { return "no error"; }
size_t cublasLtGetVersion() { return 0; }

} // extern "C"

namespace spmd::nccl {

cudaError_t find_kernels() { return cudaSuccess; }

template <class Command> static cudaError_t queue(const Command &command, cudaStream_t stream) {
  stream->add([command] { test::carry_out(command); });
  return cudaSuccess;
}
cudaError_t queue_move(const SpmdMove &move, cudaStream_t stream) { return queue(move, stream); }
cudaError_t queue_nest(const SpmdLoopNest &nest, double *, cudaStream_t stream) {
  return queue(nest, stream);
}
cudaError_t queue_matrices(const SpmdMatrices &matrices, cudaStream_t stream) {
  return queue(matrices, stream);
}
cudaError_t queue_sort(const SpmdSort &sort, cudaStream_t stream) { return queue(sort, stream); }
cudaError_t queue_scatter(const SpmdScatter &scatter, cudaStream_t stream) {
  return queue(scatter, stream);
}
cudaError_t queue_mark(uint64_t *where, uint64_t value, cudaStream_t stream) {
  stream->add([=] { __atomic_store_n(where, value, __ATOMIC_RELEASE); });
  return cudaSuccess;
}

SpmdStatus Matrices::open() { return test::status_of(kSpmdOk); }
SpmdStatus Matrices::close() { return test::status_of(kSpmdOk); }
SpmdStatus Matrices::queue(const SpmdMatrices &, cudaStream_t, bool &taken) {
  taken = false;
  return test::status_of(kSpmdOk);
}

} // namespace spmd::nccl
