// One NVIDIA device of the plug-in `spmd_nccl`: its streams, its memory, and the communicators it
// is in. Nothing here waits inside of a library: streams and communicators are asked, and
// SpmdHost::stopped with them.
#pragma once

#include "runtime/device/interface.h"
#include "runtime/nccl/matrices.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace spmd::nccl {

SpmdStatus status_of(int32_t code, const std::string &text = "");
// What a library answered, with the name of the call: kSpmdOk or kSpmdFailed.
SpmdStatus checked(cudaError_t error, const char *call);
SpmdStatus checked(cublasStatus_t error, const char *call);
SpmdStatus checked(ncclResult_t error, const char *call, ncclComm_t communicator);

class Device {
public:
  Device(const SpmdHost &host, const SpmdRanks &ranks) : host_(host), ranks_(ranks) {}

  // Before anything else: the device and what is needed on it, in open.cc. Refuses with the next
  // step.
  SpmdStatus open(SpmdDeviceFacts &facts);
  SpmdStatus allocate(uint64_t bytes, SpmdAddress &address);
  SpmdStatus release(SpmdAddress address);
  SpmdStatus free_bytes(uint64_t &bytes) const;
  SpmdStatus close(bool finish);

  SpmdStatus move(const SpmdMove &move);
  SpmdStatus nest(const SpmdLoopNest &nest);
  SpmdStatus matrices(const SpmdMatrices &matrices);
  SpmdStatus sort(const SpmdSort &sort);
  SpmdStatus scatter(const SpmdScatter &scatter);
  SpmdStatus follow(uint32_t stream, uint32_t other);
  SpmdStatus begin(uint32_t step);
  SpmdStatus put(SpmdAddress to, const char *data, uint64_t bytes);
  SpmdStatus get(char *data, SpmdAddress from, uint64_t bytes);
  SpmdStatus wait();
  uint32_t reached() const; // of any thread
  SpmdStatus watch(bool on);

  // In collectives.cc.
  SpmdStatus connect(const SpmdId &id);
  SpmdStatus split(uint32_t colour, uint32_t key, uint32_t &group);
  SpmdStatus collective(const SpmdCollective &collective);
  SpmdStatus exchange(uint32_t group, const SpmdTransfer *sends, uint32_t send_count,
                      const SpmdTransfer *receives, uint32_t receive_count);
  SpmdStatus begin_batch();
  SpmdStatus end_batch();
  static SpmdStatus fix_order();

  // In recordings.cc.
  SpmdStatus begin_record();
  SpmdStatus end_record(uint32_t &recording);
  SpmdStatus replay(uint32_t recording);
  SpmdStatus forget(uint32_t recording);

private:
  using Clock = std::chrono::steady_clock;

  // A stream, and how far it is. Marks are numbered: the low half of one is the step that it
  // begins. One with the highest bit begins a replay, in which `within` says the step.
  struct Stream {
    cudaStream_t stream = nullptr;
    cudaEvent_t passed = nullptr;       // of the last `follow`
    std::array<cudaEvent_t, 2> gates{}; // after every kGate commands, in turn
    uint64_t commands = 0;
    uint64_t *seen = nullptr;       // the last mark that was reached; written by the device
    std::atomic<uint64_t> mark = 0; // the last one queued
    std::atomic<bool> busy = false; // something was queued after it
    uint64_t *within = nullptr;     // the step of what is replayed; written by the device
    uint32_t recorded = 0;          // the last one written there by what is being recorded
  };
  struct Part { // of what goes between host and device
    char *data = nullptr;
    cudaEvent_t done = nullptr;
  };

  static constexpr uint64_t kReplays = uint64_t(1) << 63; // of a mark
  static constexpr uint32_t kNothing = ~0u; // of Stream::within: done with what it had
  static constexpr uint32_t kMarked = 32;   // steps that compute, between two marks
  static constexpr uint64_t kPartBytes = uint64_t(4) << 20;
  // A queue that is full makes the library wait, where nobody could end it. It holds some thousand
  // launches: fewer than three gates of commands, of up to two launches and two marks each.
  static constexpr uint64_t kGate = 64;

  // The device is the one of the calling thread.
  SpmdStatus enter() const;
  SpmdStatus choose(SpmdDeviceFacts &facts);
  SpmdStatus make_streams();
  SpmdStatus make_memory();
  SpmdStatus warm_up();
  SpmdStatus leave();
  // To be called before something is queued on a stream.
  SpmdStatus ready(uint32_t stream);
  static bool is_idle(const Stream &stream); // as far as marks tell
  static uint32_t step_of(const Stream &stream);
  SpmdStatus note_within(Stream &stream, uint32_t step);
  SpmdStatus join(uint32_t stream, uint32_t other);
  void set_mark(Stream &stream);
  SpmdStatus put_mark(Stream &stream, uint64_t flag = 0);
  SpmdStatus reaches(cudaEvent_t event);
  SpmdStatus drain();

  // nullptr: of another colour, or there is no such group.
  ncclComm_t communicator(uint32_t group) const {
    return group < groups_.size() ? groups_[group] : nullptr;
  }
  SpmdStatus communicators_live() const;
  // Until the library has finished the call, to which it answered `result`.
  SpmdStatus wait_until_done(ncclResult_t result, const char *call, ncclComm_t communicator);
  // Of a collective; in a batch nothing is taken up before its end.
  SpmdStatus given(ncclResult_t result, const char *call, ncclComm_t communicator);
  SpmdStatus finish_groups();
  void abort_groups();
  void drop_recordings();

  // Asks `done` (bool(SpmdStatus &)) until it says so or sets a status that is not fine. What else
  // can end the wait is asked every ten microseconds.
  template <class Done> SpmdStatus poll(Done done) {
    using namespace std::chrono_literals;
    SpmdStatus status = status_of(kSpmdOk);
    if (done(status))
      return status;
    const Clock::time_point begin = Clock::now();
    for (Clock::time_point asked = begin; !done(status) && status.code == kSpmdOk;) {
      const Clock::time_point now = Clock::now();
      if (now - asked < 10us)
        continue;
      asked = now;
      if (host_.stopped(host_.self))
        return status_of(kSpmdStopped);
      status = communicators_live();
      if (status.code != kSpmdOk)
        return status;
      if (now - begin > 1ms) // others may need the core
        sched_yield();
    }
    return status;
  }

  SpmdHost host_;
  SpmdRanks ranks_;
  int device_ = 0;
  std::array<Stream, kSpmdStreams> streams_;
  std::array<Part, 2> parts_;
  std::atomic<uint32_t> step_ = 0;
  bool watches_ = true; // marks are put
  uint64_t marks_ = 0;
  void *marks_memory_ = nullptr;
  double *scratch_ = nullptr;
  std::map<SpmdAddress, void *> allocated_; // what the library gave, by the address handed out
  Matrices matrices_;
  std::vector<ncclComm_t> groups_;
  bool batch_ = false;               // one is open
  std::vector<ncclComm_t> in_batch_; // what it has something of, in order
  bool recording_ = false;
  uint32_t recording_step_ = 0;
  std::vector<cudaGraphExec_t> recordings_; // nullptr: forgotten
  ncclComm_t making_ = nullptr;             // of a split, which the library writes when it is done
};

} // namespace spmd::nccl
