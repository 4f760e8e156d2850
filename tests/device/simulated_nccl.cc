// NCCL, as 2.28.9 answers to communicators that do not block. Calls come back at once and are taken
// up later: only who asks for the state until it is no longer in progress may go on. What it leaves
// undefined is an error here.
#include "tests/device/simulated_cuda.h"

#include "runtime/commands/scalar.h"
#include "tests/device/fake_device.h"

#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

using namespace spmd;
using namespace spmd::test;

namespace {

using std::chrono::milliseconds;
constexpr int kPolls = 2;               // that find a call in progress
constexpr milliseconds kMakingTakes{2}; // a communicator, after all have come
constexpr milliseconds kForever{3000};  // a wait that is counted as one without end

thread_local std::string last_error;

} // namespace

// Kernels of it that wait to be launched, run, or are part of a graph.
struct ncclComm {
  std::shared_ptr<FakeWorld::State> world;
  uint32_t rank = 0; // among all
  Seat seat;
  std::vector<uint32_t> ranks; // by position
  std::atomic<ncclResult_t> state{ncclSuccess};
  std::atomic<bool> aborted{false};
  bool finalized = false;
  std::atomic<uint64_t> met{0};
  std::shared_ptr<int> work = std::make_shared<int>(0); // as many owners more as there are kernels
  uint64_t splits = 0;
  std::thread making; // of this one, or of one that is split off
  std::vector<std::function<void()>> taken_up_later;
  int polls = 0;

  bool is_idle() const { return work.use_count() == 1; }
};

namespace {

struct Group {
  int depth = 0;
  std::vector<ncclComm_t> communicators; // with kernels to launch, in order
  std::map<ncclComm_t, std::vector<std::function<void()>>> launches;
  std::vector<ncclComm_t> aborted;
};
thread_local Group group;
thread_local uint32_t collectives = 0; // of this device, for faults

ncclResult_t failed(ncclResult_t result, const std::string &why) {
  last_error = why;
  return result;
}

// As ncclCommEnsureReady.
ncclResult_t ready(ncclComm_t communicator) {
  if (!communicator)
    return failed(ncclInvalidArgument, "there is no communicator");
  if (communicator->state == ncclInProgress || !communicator->taken_up_later.empty())
    return failed(ncclInvalidArgument,
                  "a communicator is used before the previous operation returned ncclSuccess");
  return communicator->state;
}

void take_up(ncclComm_t communicator) {
  for (const auto &launch : communicator->taken_up_later)
    launch();
  communicator->taken_up_later.clear();
}

// Of a thread: others come in their own time.
void make(ncclComm_t communicator, const std::function<bool(const Place::Over &)> &meets) {
  communicator->state = ncclInProgress;
  communicator->making = std::thread([communicator, meets] {
    const bool met = meets([communicator] { return communicator->aborted.load(); });
    communicator->state = met ? ncclSuccess : ncclInternalError;
  });
}

// On the stream, once it is taken up; with what is to go wrong there.
ncclResult_t launch(ncclComm_t communicator, cudaStream_t stream, std::function<void()> kernel) {
  if (const ncclResult_t result = ready(communicator); result != ncclSuccess)
    return result;
  const std::optional<FakeFault> &fault = communicator->world->options.fault;
  if (fault && fault->rank == communicator->rank && fault->collective == collectives)
    kernel = [communicator, fault, kernel] {
      switch (fault->form) {
      case FakeFault::Form::Skipped:
        return;
      case FakeFault::Form::Broken:
        communicator->state = ncclRemoteError;
        return;
      case FakeFault::Form::Absent:
        while (!communicator->aborted)
          std::this_thread::sleep_for(milliseconds(1));
        return;
      case FakeFault::Form::Slow:
        std::this_thread::sleep_for(milliseconds(fault->milliseconds));
        return kernel();
      }
    };
  ++collectives;
  auto queue = [communicator, stream, kernel] {
    ++communicator->world->counts.launches;
    stream->add([work = communicator->work, kernel] { kernel(); });
  };
  if (group.depth > 0) {
    std::vector<std::function<void()>> &launches = group.launches[communicator];
    if (launches.empty())
      group.communicators.push_back(communicator);
    launches.push_back(queue);
    return ncclSuccess;
  }
  communicator->taken_up_later.push_back(queue);
  communicator->polls = 0;
  return ncclInProgress;
}

// True: all kernels are done and no graph has any. Never so where one waits behind what nobody
// ends.
bool drains(ncclComm_t communicator) {
  const auto begin = std::chrono::steady_clock::now();
  while (!communicator->is_idle()) {
    if (std::chrono::steady_clock::now() - begin > kForever) {
      ++communicator->world->counts.hangs;
      return false;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

void begin_abort(ncclComm_t communicator) {
  communicator->aborted = true;
  communicator->taken_up_later.clear();
  if (communicator->making.joinable())
    communicator->making.join();
}

ncclResult_t end_abort(ncclComm_t communicator) {
  if (!drains(communicator)) // the real call does not come back
    return ncclInternalError;
  delete communicator;
  return ncclSuccess;
}

uint32_t element_of(ncclDataType_t type) {
  constexpr uint32_t kElements[] = {kSpmdI8,  kSpmdU8,  kSpmdI32, kSpmdU32, kSpmdI64,
                                    kSpmdU64, kSpmdF16, kSpmdF32, kSpmdF64, kSpmdBF16};
  return kElements[type];
}
uint32_t combiner_of(ncclRedOp_t operation) {
  constexpr uint32_t kCombiners[] = {kSpmdSum, kSpmdProd, kSpmdMax, kSpmdMin, kSpmdAvg};
  return kCombiners[operation];
}

ncclResult_t collective(const SpmdCollective &call, ncclComm_t communicator, cudaStream_t stream) {
  if (const ncclResult_t result = ready(communicator); result != ncclSuccess)
    return result;
  const Seat &seat = communicator->seat;
  if (const std::string why = misplaced(call, seat.position, seat.size); !why.empty())
    return failed(ncclInvalidUsage, why);
  return launch(communicator, stream, [communicator, call] {
    attend(*communicator->world->place, communicator->seat, communicator->met++, call,
           [communicator] { return communicator->aborted.load(); });
  });
}

SpmdCollective call_of(uint32_t form, const void *operand, void *result, size_t count,
                       ncclDataType_t type, ncclRedOp_t operation = ncclSum, int root = 0) {
  return {form,
          0,
          combiner_of(operation),
          static_cast<uint32_t>(root),
          element_of(type),
          reinterpret_cast<SpmdAddress>(operand),
          reinterpret_cast<SpmdAddress>(result),
          count};
}

ncclResult_t transfer(bool sends, const void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  const SpmdTransfer each{static_cast<uint32_t>(peer), reinterpret_cast<SpmdAddress>(data),
                          count * device::bytes_of(element_of(type))};
  return launch(communicator, stream, [communicator, sends, each] {
    const std::vector<SpmdTransfer> one{each}, none;
    const Trade end =
        trade(*communicator->world->place, communicator->seat, sends ? one : none,
              sends ? none : one, [communicator] { return communicator->aborted.load(); });
    if (end == Trade::OtherLength)
      communicator->state = ncclRemoteError;
  });
}

// What a rank brings to a split, and what comes of it for this one; null: of no colour.
struct Split {
  ncclComm_t parent;
  int colour, key;
  uint64_t number;

  ncclComm_t made_of(const std::vector<Bytes> &all) const {
    if (colour == NCCL_SPLIT_NOCOLOR)
      return nullptr;
    std::map<std::pair<int, uint32_t>, uint32_t> members; // by key, then position in the parent
    for (uint32_t i = 0; i < all.size(); ++i) {
      int asked[2];
      std::memcpy(asked, all[i].data(), sizeof asked);
      if (asked[0] == colour)
        members[{asked[1], i}] = parent->ranks[i];
    }
    auto *made = new ncclComm();
    made->world = parent->world;
    made->rank = parent->rank;
    made->seat = {parent->seat.group + "." + std::to_string(number) + "-" + std::to_string(colour),
                  0, static_cast<uint32_t>(members.size())};
    for (const auto &[at, rank] : members) {
      if (rank == parent->rank)
        made->seat.position = static_cast<uint32_t>(made->ranks.size());
      made->ranks.push_back(rank);
    }
    return made;
  }
};

} // namespace

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  *id = {};
  return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t) { return "an error of the simulated library"; }
const char *ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int size, ncclUniqueId, int rank,
                                    ncclConfig_t *config) {
  if (config->blocking != 0)
    return failed(ncclInvalidUsage, "a communicator that blocks cannot be given up");
  auto *all = new ncclComm();
  all->world = world_of_thread();
  all->rank = static_cast<uint32_t>(rank);
  all->seat = {"all", all->rank, static_cast<uint32_t>(size)};
  for (int i = 0; i < size; ++i)
    all->ranks.push_back(static_cast<uint32_t>(i));
  *made = all;
  collectives = 0;
  make(all, [all](const Place::Over &over) {
    std::vector<Bytes> there;
    return all->world->place->meet("init", 0, all->seat.position, all->seat.size, {}, there, over);
  });
  return ncclInProgress;
}

// The answer is that all is well, whatever is still to come; `made` is written when all ranks were
// there.
ncclResult_t ncclCommSplit(ncclComm_t parent, int colour, int key, ncclComm_t *made,
                           ncclConfig_t *) {
  if (const ncclResult_t result = ready(parent); result != ncclSuccess)
    return result;
  for (int i = 0; i < 100 && !parent->is_idle(); ++i) // the last task may not be taken down yet
    std::this_thread::sleep_for(milliseconds(1));
  if (!parent->is_idle())
    return failed(ncclInvalidUsage, "a communicator is split while it has something to do");
  if (parent->making.joinable())
    parent->making.join();
  *made = nullptr;
  const Split split{parent, colour, key, parent->splits++};
  make(parent, [split, made](const Place::Over &over) {
    const int own[2] = {split.colour, split.key};
    const char *bytes = reinterpret_cast<const char *>(own);
    std::vector<Bytes> all;
    const ncclComm_t parent = split.parent;
    if (!parent->world->place->meet(parent->seat.group + ".split", split.number,
                                    parent->seat.position, parent->seat.size,
                                    Bytes(bytes, bytes + sizeof own), all, over))
      return false;
    std::this_thread::sleep_for(kMakingTakes);
    __atomic_store_n(made, split.made_of(all), __ATOMIC_RELEASE);
    return true;
  });
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *state) {
  *state = communicator->state;
  if (*state != ncclSuccess)
    return ncclSuccess;
  const bool finalizes = communicator->finalized && !communicator->is_idle();
  if (communicator->taken_up_later.empty() && !finalizes)
    return ncclSuccess;
  if (finalizes || ++communicator->polls <= kPolls)
    *state = ncclInProgress;
  else
    take_up(communicator);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  if (const ncclResult_t result = ready(communicator); result != ncclSuccess)
    return result;
  communicator->finalized = true;
  return ncclInProgress;
}

// These two wait, whatever the communicator was made with.
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  if (communicator->making.joinable())
    communicator->making.join();
  return end_abort(communicator);
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  begin_abort(communicator);
  if (group.depth == 0)
    return end_abort(communicator);
  group.aborted.push_back(communicator);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0)
    return failed(ncclInvalidUsage, "a group ends that did not begin");
  if (--group.depth > 0)
    return ncclSuccess;
  const Group ended = std::move(group);
  group = {};
  ncclResult_t result = ncclSuccess;
  for (ncclComm_t communicator : ended.communicators) {
    communicator->taken_up_later = ended.launches.at(communicator);
    communicator->polls = 0;
    result = ncclInProgress;
  }
  for (ncclComm_t communicator : ended.aborted)
    if (end_abort(communicator) != ncclSuccess)
      result = ncclInternalError;
  return result;
}

ncclResult_t ncclAllReduce(const void *operand, void *result, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  return collective(call_of(kSpmdAllReduce, operand, result, count, type, operation), communicator,
                    stream);
}
ncclResult_t ncclAllGather(const void *operand, void *result, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return collective(call_of(kSpmdAllGather, operand, result, count, type), communicator, stream);
}
ncclResult_t ncclReduceScatter(const void *operand, void *result, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator,
                               cudaStream_t stream) {
  return collective(call_of(kSpmdReduceScatter, operand, result, count, type, operation),
                    communicator, stream);
}
ncclResult_t ncclBroadcast(const void *operand, void *result, size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream) {
  return collective(call_of(kSpmdBroadcast, operand, result, count, type, ncclSum, root),
                    communicator, stream);
}
ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return transfer(true, data, count, type, peer, communicator, stream);
}
ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return transfer(false, data, count, type, peer, communicator, stream);
}

} // extern "C"
