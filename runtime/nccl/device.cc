// What is queued on the streams of a device, and how the end of it is waited for.
#include "runtime/nccl/device.h"

#include "runtime/nccl/kernels.h"

#include <algorithm>
#include <cstring>

namespace spmd::nccl {

SpmdStatus Device::enter() const {
  thread_local int current = -1;
  if (current == device_)
    return status_of(kSpmdOk);
  SpmdStatus status = checked(cudaSetDevice(device_), "cudaSetDevice");
  if (status.code == kSpmdOk)
    current = device_;
  return status;
}

// --- what waits
// -------------------------------------------------------------------------------------

SpmdStatus Device::reaches(cudaEvent_t event) {
  return poll([event](SpmdStatus &status) {
    const cudaError_t error = cudaEventQuery(event);
    if (error != cudaErrorNotReady)
      status = checked(error, "cudaEventQuery");
    return error != cudaErrorNotReady;
  });
}

SpmdStatus Device::drain() {
  return poll([this](SpmdStatus &status) {
    for (Stream &stream : streams_) {
      const cudaError_t error = cudaStreamQuery(stream.stream);
      if (error == cudaErrorNotReady)
        return false;
      status = checked(error, "cudaStreamQuery");
      if (status.code != kSpmdOk)
        return true;
    }
    for (Stream &stream : streams_)
      stream.busy = false;
    return true;
  });
}

SpmdStatus Device::wait() {
  if (SpmdStatus status = enter(); status.code != kSpmdOk)
    return status;
  if (SpmdStatus status = drain(); status.code != kSpmdOk)
    return status;
  return communicators_live(); // an error may come after the last event
}

// --- how far the streams are
// ------------------------------------------------------------------------

bool Device::is_idle(const Stream &stream) {
  return !stream.busy && __atomic_load_n(stream.seen, __ATOMIC_ACQUIRE) == stream.mark;
}

// Nothing is on the stream that could write another one.
void Device::set_mark(Stream &stream) {
  stream.mark = ++marks_ << 32 | step_.load();
  __atomic_store_n(stream.seen, stream.mark.load(), __ATOMIC_RELEASE);
}

SpmdStatus Device::put_mark(Stream &stream, uint64_t flag) {
  const uint64_t mark = flag | ++marks_ << 32 | step_.load();
  stream.mark = mark;
  return checked(queue_mark(stream.seen, mark, stream.stream), "a mark");
}

// A stream on which something was queued is marked at its end; one on which nothing was is done
// with what was before, and is marked when it is given something again. A mark takes as long as a
// small step: steps that compute wait for nobody, and share one.
SpmdStatus Device::begin(uint32_t step) {
  if (SpmdStatus status = enter(); status.code != kSpmdOk)
    return status;
  if (recording_) {
    recording_step_ = step;
    return status_of(kSpmdOk);
  }
  step_ = step;
  for (Stream &stream : streams_) {
    if (!stream.busy ||
        (&stream == &streams_[kSpmdCompute] && step - static_cast<uint32_t>(stream.mark) < kMarked))
      continue;
    if (SpmdStatus status = put_mark(stream); status.code != kSpmdOk)
      return status;
    stream.busy = false;
  }
  return status_of(kSpmdOk);
}

uint32_t Device::step_of(const Stream &stream) {
  const uint64_t seen = __atomic_load_n(stream.seen, __ATOMIC_ACQUIRE);
  return static_cast<uint32_t>(seen & kReplays ? __atomic_load_n(stream.within, __ATOMIC_ACQUIRE)
                                               : seen);
}

uint32_t Device::reached() const {
  uint32_t least = kNothing;
  for (const Stream &stream : streams_)
    if (!is_idle(stream))
      least = std::min(least, step_of(stream));
  return least == kNothing ? step_.load() : least;
}

SpmdStatus Device::watch(bool on) {
  SpmdStatus status = wait();
  watches_ = on;
  return status;
}

SpmdStatus Device::ready(uint32_t which) {
  if (SpmdStatus status = enter(); status.code != kSpmdOk || !watches_)
    return status;
  Stream &stream = streams_[which];
  if (recording_) {
    const bool says = which == kSpmdCollectives || recording_step_ >= stream.recorded + kMarked;
    return says && stream.recorded != recording_step_ ? note_within(stream, recording_step_)
                                                      : status_of(kSpmdOk);
  }
  if (!stream.busy && static_cast<uint32_t>(stream.mark) != step_) {
    if (is_idle(stream))
      set_mark(stream);
    else if (SpmdStatus status = put_mark(stream); status.code != kSpmdOk)
      return status;
  }
  stream.busy = true;
  if (++stream.commands % kGate)
    return status_of(kSpmdOk);
  cudaEvent_t gate = stream.gates[stream.commands / kGate % 2];
  // Its last turn, if there was one.
  if (SpmdStatus status = reaches(gate); status.code != kSpmdOk)
    return status;
  return checked(cudaEventRecord(gate, stream.stream), "cudaEventRecord");
}

// --- what is queued
// ---------------------------------------------------------------------------------

SpmdStatus Device::move(const SpmdMove &move) {
  if (SpmdStatus status = ready(kSpmdCompute); status.code != kSpmdOk)
    return status;
  return checked(queue_move(move, streams_[kSpmdCompute].stream), "a move");
}

SpmdStatus Device::nest(const SpmdLoopNest &nest) {
  if (SpmdStatus status = ready(kSpmdCompute); status.code != kSpmdOk)
    return status;
  return checked(queue_nest(nest, scratch_, streams_[kSpmdCompute].stream), "a loop nest");
}

SpmdStatus Device::matrices(const SpmdMatrices &matrices) {
  if (SpmdStatus status = ready(kSpmdCompute); status.code != kSpmdOk)
    return status;
  bool taken = false;
  cudaStream_t stream = streams_[kSpmdCompute].stream;
  if (SpmdStatus status = matrices_.queue(matrices, stream, taken); taken || status.code != kSpmdOk)
    return status;
  return checked(queue_matrices(matrices, stream), "a product of matrices");
}

// A radix sort is some thirty launches: they count as so many commands, lest the queue be full.
SpmdStatus Device::sort(const SpmdSort &sort) {
  constexpr int kCommands = 16;
  for (int i = 0; i < kCommands; ++i)
    if (SpmdStatus status = ready(kSpmdCompute); status.code != kSpmdOk)
      return status;
  return checked(queue_sort(sort, streams_[kSpmdCompute].stream), "a sort");
}

SpmdStatus Device::scatter(const SpmdScatter &scatter) {
  for (int i = 0; i < 2; ++i) // up to three launches
    if (SpmdStatus status = ready(kSpmdCompute); status.code != kSpmdOk)
      return status;
  return checked(queue_scatter(scatter, streams_[kSpmdCompute].stream), "a scatter");
}

// An event may be recorded anew as soon as a stream was told to wait for it.
SpmdStatus Device::follow(uint32_t which, uint32_t other) {
  if (SpmdStatus status = ready(which); status.code != kSpmdOk)
    return status;
  // A stream that waits for the other one says so in its own step.
  if (recording_ && streams_[kSpmdCompute].recorded != recording_step_)
    if (SpmdStatus status = note_within(streams_[kSpmdCompute], recording_step_);
        status.code != kSpmdOk)
      return status;
  // That the other one is done is known before this one may wait for other ranks.
  if (Stream &before = streams_[other]; !recording_ && watches_ && before.busy) {
    if (SpmdStatus status = put_mark(before); status.code != kSpmdOk)
      return status;
    before.busy = false;
  }
  return join(which, other);
}

SpmdStatus Device::join(uint32_t which, uint32_t other) {
  Stream &before = streams_[other];
  const cudaError_t error = cudaEventRecord(before.passed, before.stream);
  if (error != cudaSuccess)
    return checked(error, "cudaEventRecord");
  return checked(cudaStreamWaitEvent(streams_[which].stream, before.passed, 0),
                 "cudaStreamWaitEvent");
}

// --- between host and device
// ------------------------------------------------------------------------

SpmdStatus Device::put(SpmdAddress to, const char *data, uint64_t bytes) {
  if (SpmdStatus status = wait(); status.code != kSpmdOk)
    return status;
  cudaStream_t stream = streams_[kSpmdCompute].stream;
  for (uint64_t at = 0; at < bytes; at += kPartBytes) {
    Part &part = parts_[at / kPartBytes % parts_.size()];
    if (SpmdStatus status = reaches(part.done); status.code != kSpmdOk)
      return status;
    const uint64_t size = std::min(kPartBytes, bytes - at);
    std::memcpy(part.data, data + at, size);
    cudaError_t error = cudaMemcpyAsync(reinterpret_cast<void *>(to + at), part.data, size,
                                        cudaMemcpyHostToDevice, stream);
    error = error ? error : cudaEventRecord(part.done, stream);
    if (error != cudaSuccess)
      return checked(error, "cudaMemcpyAsync");
  }
  return drain();
}

SpmdStatus Device::get(char *data, SpmdAddress from, uint64_t bytes) {
  if (SpmdStatus status = wait(); status.code != kSpmdOk)
    return status;
  cudaStream_t stream = streams_[kSpmdCompute].stream;
  const uint64_t count = (bytes + kPartBytes - 1) / kPartBytes;
  auto size_of = [&](uint64_t i) { return std::min(kPartBytes, bytes - i * kPartBytes); };
  // One part is copied out while the next one comes.
  for (uint64_t i = 0; i <= count; ++i) {
    if (i < count) {
      Part &part = parts_[i % parts_.size()];
      cudaError_t error =
          cudaMemcpyAsync(part.data, reinterpret_cast<const void *>(from + i * kPartBytes),
                          size_of(i), cudaMemcpyDeviceToHost, stream);
      error = error ? error : cudaEventRecord(part.done, stream);
      if (error != cudaSuccess)
        return checked(error, "cudaMemcpyAsync");
    }
    if (i == 0)
      continue;
    Part &part = parts_[(i - 1) % parts_.size()];
    if (SpmdStatus status = reaches(part.done); status.code != kSpmdOk)
      return status;
    std::memcpy(data + (i - 1) * kPartBytes, part.data, size_of(i - 1));
  }
  return status_of(kSpmdOk);
}

} // namespace spmd::nccl
