// How a device is found and made ready, and how it is left. What is missing is named with the next
// step: most of it is put right by who runs the tool.
#include "runtime/nccl/device.h"
#include "runtime/nccl/kernels.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace spmd::nccl {
namespace {

// 13000 is "13.0".
std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}
// 22809 is "2.28.9".
std::string nccl_version(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

void copy_text(char *to, size_t bytes, const std::string &text) {
  std::snprintf(to, bytes, "%s", text.c_str());
}

SpmdStatus refused(const std::string &text) { return status_of(kSpmdRefused, text); }

SpmdStatus count_devices(int &count) {
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0)
    return status_of(kSpmdOk);
  int driver = 0;
  const std::string needed = cuda_version(CUDART_VERSION);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return refused(
        "there is no NVIDIA driver here (libcuda.so.1). Next: run on a machine with an NVIDIA "
        "device and a driver for CUDA " +
        needed + " or newer, or without --backend=nccl");
  if (error == cudaErrorInsufficientDriver)
    return refused("the NVIDIA driver is made for CUDA " + cuda_version(driver) +
                   ". Next: install one for "
                   "CUDA " +
                   needed + " or newer, or build spmd_nccl.so with the toolkit of CUDA " +
                   cuda_version(driver) + " (-Dgpu_root)");
  if (error == cudaErrorNoDevice || error == cudaSuccess) {
    const char *visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return refused(
        visible ? "CUDA_VISIBLE_DEVICES=\"" + std::string(visible) +
                      "\" leaves no NVIDIA device. "
                      "Next: name one that `nvidia-smi -L` lists, or unset it"
                : "the NVIDIA driver sees no device. Next: see `nvidia-smi -L`; in a container, "
                  "start it with the devices (--gpus=all)");
  }
  return refused(std::string("cudaGetDeviceCount: ") + cudaGetErrorString(error) +
                 ". Next: see what `nvidia-smi` says");
}

SpmdStatus check_nccl(int &version) {
  if (SpmdStatus status = checked(ncclGetVersion(&version), "ncclGetVersion", nullptr);
      status.code != kSpmdOk)
    return status;
  if (version / 100 < NCCL_VERSION_CODE / 100) // patches change nothing that is called
    return refused("spmd_nccl.so was built with NCCL " + nccl_version(NCCL_VERSION_CODE) +
                   ", and NCCL " + nccl_version(version) +
                   " is what is loaded. Next: put the newer libnccl.so.2 first on "
                   "LD_LIBRARY_PATH");
  return status_of(kSpmdOk);
}

} // namespace

SpmdStatus status_of(int32_t code, const std::string &text) {
  SpmdStatus status{code, {}};
  copy_text(status.text, sizeof status.text, text);
  return status;
}

SpmdStatus checked(cudaError_t error, const char *call) {
  if (error == cudaSuccess)
    return status_of(kSpmdOk);
  cudaGetLastError(); // one that does not stay is not to be met again by a later call
  return status_of(kSpmdFailed, std::string(call) + ": " + cudaGetErrorString(error));
}
SpmdStatus checked(cublasStatus_t error, const char *call) {
  if (error == CUBLAS_STATUS_SUCCESS)
    return status_of(kSpmdOk);
  return status_of(kSpmdFailed, std::string(call) + ": " + cublasLtGetStatusString(error));
}
SpmdStatus checked(ncclResult_t error, const char *call, ncclComm_t communicator) {
  if (error == ncclSuccess)
    return status_of(kSpmdOk);
  std::string text = std::string(call) + ": " + ncclGetErrorString(error);
  if (const char *more = ncclGetLastError(communicator); more && *more)
    text += std::string(": ") + more;
  return status_of(kSpmdFailed, text);
}

SpmdStatus Device::choose(SpmdDeviceFacts &facts) {
  int count = 0, version = 0;
  if (SpmdStatus status = count_devices(count); status.code != kSpmdOk)
    return status;
  if (SpmdStatus status = check_nccl(version); status.code != kSpmdOk)
    return status;
  device_ = static_cast<int>(ranks_.local_rank) % count;
  if (SpmdStatus status = checked(cudaSetDevice(device_), "cudaSetDevice"); status.code != kSpmdOk)
    return status;
  cudaDeviceProp facts_of_device{};
  if (SpmdStatus status =
          checked(cudaGetDeviceProperties(&facts_of_device, device_), "cudaGetDeviceProperties");
      status.code != kSpmdOk)
    return status;
  copy_text(facts.name, sizeof facts.name, facts_of_device.name);
  copy_text(facts.library, sizeof facts.library,
            "NCCL " + nccl_version(version) + ", CUDA " + cuda_version(CUDART_VERSION) +
                ", cuBLASLt " + std::to_string(cublasLtGetVersion()));
  const cudaError_t fits = find_kernels();
  if (fits == cudaErrorNoKernelImageForDevice || fits == cudaErrorUnsupportedPtxVersion ||
      fits == cudaErrorInvalidDeviceFunction)
    return refused(std::string(facts_of_device.name) + " is of compute capability " +
                   std::to_string(facts_of_device.major) + "." +
                   std::to_string(facts_of_device.minor) +
                   ", which spmd_nccl.so was not built for. Next: build it with -Dgpu_arch=" +
                   std::to_string(facts_of_device.major) + std::to_string(facts_of_device.minor));
  return checked(fits, "cudaFuncGetAttributes");
}

SpmdStatus Device::make_streams() {
  constexpr size_t kLine = 64; // of the host's memory: a mark each
  if (SpmdStatus status = checked(cudaHostAlloc(&marks_memory_, kLine * kSpmdStreams,
                                                cudaHostAllocMapped | cudaHostAllocPortable),
                                  "cudaHostAlloc");
      status.code != kSpmdOk)
    return status;
  std::memset(marks_memory_, 0, kLine * kSpmdStreams);
  for (uint32_t s = 0; s < kSpmdStreams; ++s) {
    Stream &stream = streams_[s];
    stream.seen = reinterpret_cast<uint64_t *>(static_cast<char *>(marks_memory_) + s * kLine);
    stream.within = stream.seen + 1;
    cudaError_t error = cudaStreamCreateWithFlags(&stream.stream, cudaStreamNonBlocking);
    for (cudaEvent_t *event : {&stream.passed, &stream.gates[0], &stream.gates[1]})
      error = error ? error : cudaEventCreateWithFlags(event, cudaEventDisableTiming);
    if (error != cudaSuccess)
      return checked(error, "cudaStreamCreateWithFlags or cudaEventCreateWithFlags");
  }
  return status_of(kSpmdOk);
}

SpmdStatus Device::make_memory() {
  for (Part &part : parts_) {
    void *data = nullptr;
    cudaError_t error = cudaHostAlloc(&data, kPartBytes, cudaHostAllocPortable);
    error = error ? error : cudaEventCreateWithFlags(&part.done, cudaEventDisableTiming);
    if (error != cudaSuccess)
      return checked(error, "cudaHostAlloc or cudaEventCreateWithFlags");
    part.data = static_cast<char *>(data);
  }
  void *scratch = nullptr;
  SpmdStatus status = checked(cudaMalloc(&scratch, kScratchNumbers * sizeof(double)), "cudaMalloc");
  scratch_ = static_cast<double *>(scratch);
  return status.code == kSpmdOk ? matrices_.open() : status;
}

// The first loop nest makes the driver reserve what threads keep of their own (some hundred MiB on
// large devices): before free memory is counted, and never beside a kernel that waits for another
// rank.
SpmdStatus Device::warm_up() {
  SpmdLoopNest nest{};
  nest.out = {reinterpret_cast<SpmdAddress>(scratch_), kSpmdF64, ~0u, 0, 0, 0, {}};
  nest.factor = nest.divisor = 1;
  nest.steps = nest.constants = 1;
  nest.program[0] = {kSpmdConstant, 0, 0, 0};
  if (SpmdStatus status = this->nest(nest); status.code != kSpmdOk)
    return status;
  return drain();
}

SpmdStatus Device::open(SpmdDeviceFacts &facts) {
  // Kernels are loaded when they are first needed: all of cuBLASLt and NCCL at once take two
  // seconds of a process. Loading may wait until the device is idle, so for collectives of earlier
  // steps. No rank waits for another one's later step in them, since all ranks queue their steps in
  // the order of the plan: nobody waits for ever.
  //
  // Communicators take their memory when they are made, and not with the first collective, when the
  // plan has all the rest.
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  SpmdStatus status = choose(facts);
  status = status.code == kSpmdOk ? make_streams() : status;
  status = status.code == kSpmdOk ? make_memory() : status;
  status = status.code == kSpmdOk ? warm_up() : status;
  if (status.code != kSpmdOk) {
    if (status.code == kSpmdFailed)
      status.code = kSpmdRefused;
    return status;
  }
  size_t free_bytes = 0, total_bytes = 0;
  status = checked(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  facts.free_bytes = free_bytes;
  facts.total_bytes = total_bytes;
  return status;
}

SpmdStatus Device::allocate(uint64_t bytes, SpmdAddress &address) {
  constexpr uint64_t kAligned = 512;
  if (SpmdStatus status = enter(); status.code != kSpmdOk)
    return status;
  void *data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes + kAligned); // it promises 256 alone
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return refused(std::to_string(bytes) + " bytes of device memory are not to be had");
  }
  if (error != cudaSuccess)
    return checked(error, "cudaMalloc");
  address = (reinterpret_cast<uint64_t>(data) + kAligned - 1) / kAligned * kAligned;
  allocated_[address] = data;
  return status_of(kSpmdOk);
}

SpmdStatus Device::free_bytes(uint64_t &bytes) const {
  if (SpmdStatus status = enter(); status.code != kSpmdOk)
    return status;
  size_t free = 0, total = 0;
  const cudaError_t error = cudaMemGetInfo(&free, &total);
  bytes = free;
  return checked(error, "cudaMemGetInfo");
}

// Freeing waits inside of the library: nothing may be going on any more.
SpmdStatus Device::release(SpmdAddress address) {
  auto at = allocated_.find(address);
  if (at == allocated_.end())
    return status_of(kSpmdRefused, "no memory was allocated at the address that is released");
  if (SpmdStatus status = wait(); status.code != kSpmdOk)
    return status;
  void *data = at->second;
  allocated_.erase(at);
  return checked(cudaFree(data), "cudaFree");
}

SpmdStatus Device::leave() {
  SpmdStatus status = matrices_.close();
  cudaError_t error = cudaFree(scratch_);
  for (auto [address, data] : allocated_)
    error = error ? error : cudaFree(data);
  for (Part &part : parts_) {
    error = error ? error : cudaFreeHost(part.data);
    error = error ? error : cudaEventDestroy(part.done);
  }
  for (Stream &stream : streams_) {
    for (cudaEvent_t event : {stream.passed, stream.gates[0], stream.gates[1]})
      error = error ? error : cudaEventDestroy(event);
    error = error ? error : cudaStreamDestroy(stream.stream);
  }
  error = error ? error : cudaFreeHost(marks_memory_);
  return status.code == kSpmdOk ? checked(error, "cudaFree or cudaStreamDestroy") : status;
}

// Memory is not freed where something may still be going on: freeing waits for it.
SpmdStatus Device::close(bool finish) {
  SpmdStatus status = enter();
  if (finish && status.code == kSpmdOk)
    status = drain();
  // Before the communicators that they are of.
  for (uint32_t r = 0; finish && status.code == kSpmdOk && r < recordings_.size(); ++r)
    status = forget(r);
  if (finish && status.code == kSpmdOk)
    status = finish_groups();
  if (finish && status.code == kSpmdOk)
    return leave();
  abort_groups();
  return status;
}

} // namespace spmd::nccl
