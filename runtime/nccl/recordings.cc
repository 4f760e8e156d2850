// What is queued on both streams, recorded as a graph of CUDA and replayed. A capture begins on the
// compute stream; the other one is joined to it at once, and comes back to it at the end.
#include "runtime/nccl/device.h"
#include "runtime/nccl/kernels.h"

#include <utility>

namespace spmd::nccl {

// Where a replay is; part of what is recorded.
SpmdStatus Device::note_within(Stream &stream, uint32_t step) {
  stream.recorded = step;
  return checked(queue_mark(stream.within, step, stream.stream), "a mark");
}

// Libraries may load or allocate on threads of theirs while something is recorded, so the capture
// forbids nothing.
SpmdStatus Device::begin_record() {
  if (SpmdStatus status = enter(); status.code != kSpmdOk)
    return status;
  SpmdStatus status =
      checked(cudaStreamBeginCapture(streams_[kSpmdCompute].stream, cudaStreamCaptureModeRelaxed),
              "cudaStreamBeginCapture");
  if (status.code != kSpmdOk) {
    status.code = kSpmdRefused;
    return status;
  }
  recording_ = true;
  recording_step_ = step_;
  for (Stream &stream : streams_)
    stream.recorded = step_;
  return join(kSpmdCollectives, kSpmdCompute);
}

SpmdStatus Device::end_record(uint32_t &recording) {
  SpmdStatus joined = join(kSpmdCompute, kSpmdCollectives);
  recording_ = false;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  cudaError_t error = cudaStreamEndCapture(streams_[kSpmdCompute].stream, &graph);
  error = error ? error : cudaGraphInstantiateWithFlags(&made, graph, 0);
  if (graph)
    cudaGraphDestroy(graph);
  SpmdStatus status = checked(error, "cudaStreamEndCapture or cudaGraphInstantiate");
  if (status.code == kSpmdOk && joined.code != kSpmdOk) {
    cudaGraphExecDestroy(made);
    status = joined;
  }
  if (status.code != kSpmdOk) {
    status.code = kSpmdRefused;
    return status;
  }
  recording = static_cast<uint32_t>(recordings_.size());
  recordings_.push_back(made);
  return status;
}

SpmdStatus Device::replay(uint32_t recording) {
  if (recording >= recordings_.size() || !recordings_[recording])
    return status_of(kSpmdRefused, "there is no recording " + std::to_string(recording));
  for (uint32_t s = 0; s < kSpmdStreams; ++s) {
    if (SpmdStatus status = ready(s); status.code != kSpmdOk)
      return status;
    Stream &stream = streams_[s];
    SpmdStatus status = checked(queue_mark(stream.within, step_, stream.stream), "a mark");
    if (status.code == kSpmdOk)
      status = put_mark(stream, kReplays);
    if (status.code != kSpmdOk)
      return status;
    stream.busy = true;
  }
  SpmdStatus status = join(kSpmdCompute, kSpmdCollectives);
  if (status.code == kSpmdOk)
    status = checked(cudaGraphLaunch(recordings_[recording], streams_[kSpmdCompute].stream),
                     "cudaGraphLaunch");
  return status.code == kSpmdOk ? join(kSpmdCollectives, kSpmdCompute) : status;
}

// Nothing of it may be going on.
SpmdStatus Device::forget(uint32_t recording) {
  if (recording >= recordings_.size() || !recordings_[recording])
    return status_of(kSpmdOk);
  if (SpmdStatus status = wait(); status.code != kSpmdOk)
    return status;
  return checked(cudaGraphExecDestroy(std::exchange(recordings_[recording], nullptr)),
                 "cudaGraphExecDestroy");
}

// Waits for nothing: a graph that still goes on is destroyed when it is done.
void Device::drop_recordings() {
  if (std::exchange(recording_, false)) {
    join(kSpmdCompute, kSpmdCollectives);
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(streams_[kSpmdCompute].stream, &graph);
    if (graph)
      cudaGraphDestroy(graph);
  }
  for (cudaGraphExec_t &each : recordings_)
    if (cudaGraphExec_t graph = std::exchange(each, nullptr))
      cudaGraphExecDestroy(graph);
}

} // namespace spmd::nccl
