// Streams are threads with queues; what goes between ranks is a meeting under one lock.
#include "tests/device/fake.h"

#include "tests/device/carry_out.h"
#include "tests/device/place.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

// Who opens a module asks for a name.
#ifndef SPMD_FAKE_NAME
#define SPMD_FAKE_NAME "fake"
#endif

using namespace spmd;

namespace {

SpmdStatus status_of(int32_t code, const std::string &text = "") {
  SpmdStatus status{code, {}};
  std::snprintf(status.text, sizeof status.text, "%s", text.c_str());
  return status;
}

// Tasks in order, on a thread of their own.
class Stream {
public:
  Stream() : thread_([this] { serve(); }) {}
  ~Stream() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void add(std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
      ++given_;
    }
    changed_.notify_all();
  }
  uint64_t given() {
    std::lock_guard lock(mutex_);
    return given_;
  }
  bool has_done(uint64_t count) {
    std::lock_guard lock(mutex_);
    return done_ >= count || dropped_;
  }
  // What waits is given up, and so is all that comes.
  void drop() {
    {
      std::lock_guard lock(mutex_);
      tasks_.clear();
      dropped_ = true;
    }
    changed_.notify_all();
  }
  void wait_for(uint64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= count || dropped_; });
  }

private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return over_ || !tasks_.empty(); });
      if (tasks_.empty())
        return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  uint64_t given_ = 0, done_ = 0;
  bool over_ = false, dropped_ = false;
  std::thread thread_;
};

// Ranks of one colour, by position.
struct Group {
  std::string name; // the same on all its ranks
  std::vector<uint32_t> ranks;
};

} // namespace

namespace spmd::test {

struct FakeWorld::State {
  std::unique_ptr<Place> place;
  std::optional<FakeFault> fault;
  std::atomic<bool> dead{false}; // a rank left without the others
};

} // namespace spmd::test

using spmd::test::Bytes;
using spmd::test::FakeFault;
using spmd::test::FakeWorld;

struct SpmdDevice {
  SpmdHost host{};
  std::shared_ptr<FakeWorld::State> world;
  uint32_t rank = 0, size = 1;
  Stream streams[kSpmdStreams];
  std::atomic<uint32_t> steps[kSpmdStreams] = {};
  std::atomic<bool> broken{false}, over{false};
  uint64_t splits = 0;
  uint32_t collectives = 0;
  std::vector<Group> groups;
  std::vector<uint64_t> met; // collectives of each group so far
  std::map<SpmdAddress, void *> memory;

  bool gives_up() const { return over || world->dead; }
};

namespace {

thread_local std::shared_ptr<FakeWorld::State> entered;

bool stopped(SpmdDevice *device) {
  return device->world->dead || device->host.stopped(device->host.self);
}

// Until it holds: as the real one, with questions to the host in between.
SpmdStatus wait_until(SpmdDevice *device, const std::function<bool()> &holds) {
  while (!holds()) {
    if (device->broken)
      return status_of(kSpmdFailed, "the device failed");
    if (stopped(device))
      return status_of(kSpmdStopped);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return status_of(device->broken ? kSpmdFailed : kSpmdFine,
                   device->broken ? "the device failed" : "");
}

SpmdStatus open_device(const SpmdHost *host, const SpmdRanks *ranks, SpmdDevice **device,
                       SpmdDeviceFacts *facts) {
  std::shared_ptr<FakeWorld::State> world = entered;
  if (const char *folder = std::getenv("SPMD_FAKE_DEVICES"); folder && !world) {
    world = std::make_shared<FakeWorld::State>();
    world->place = std::make_unique<test::FolderPlace>(folder);
  }
  if (!world)
    return status_of(kSpmdRefused, "there is no device");
  auto *made = new SpmdDevice();
  made->host = *host;
  made->world = world;
  made->rank = ranks->rank;
  made->size = ranks->size;
  *device = made;
  std::snprintf(facts->name, sizeof facts->name, "threads");
  std::snprintf(facts->library, sizeof facts->library, "meetings of threads");
  facts->free_bytes = facts->total_bytes = uint64_t(1) << 30;
  return status_of(kSpmdFine);
}

SpmdStatus make_id(SpmdDevice *, SpmdId *id) {
  *id = {};
  return status_of(kSpmdFine);
}

SpmdStatus connect(SpmdDevice *device, const SpmdId *) {
  Group all{"all", {}};
  for (uint32_t rank = 0; rank < device->size; ++rank)
    all.ranks.push_back(rank);
  device->groups.push_back(all);
  device->met.push_back(0);
  return status_of(kSpmdFine);
}

// All tell their colours and keys.
SpmdStatus split(SpmdDevice *device, uint32_t colour, uint32_t key, uint32_t *group) {
  const uint64_t number = device->splits++;
  const uint32_t own[2] = {colour, key};
  std::vector<Bytes> all;
  const char *bytes = reinterpret_cast<const char *>(own);
  if (!device->world->place->meet("split", number, device->rank, device->size,
                                  Bytes(bytes, bytes + sizeof own), all,
                                  [&] { return stopped(device); }))
    return status_of(kSpmdStopped);
  std::map<uint32_t, uint32_t> members; // by key
  for (uint32_t rank = 0; rank < all.size(); ++rank) {
    uint32_t asked[2];
    std::memcpy(asked, all[rank].data(), sizeof asked);
    if (asked[0] == colour)
      members[asked[1]] = rank;
  }
  *group = kSpmdAllRanks;
  if (colour == kSpmdNoColour)
    return status_of(kSpmdFine);
  *group = static_cast<uint32_t>(device->groups.size());
  Group made{std::to_string(number) + "-" + std::to_string(colour), {}};
  for (const auto &[at, rank] : members)
    made.ranks.push_back(rank);
  device->groups.push_back(made);
  device->met.push_back(0);
  return status_of(kSpmdFine);
}

SpmdStatus allocate(SpmdDevice *device, uint64_t bytes, SpmdAddress *address) {
  void *memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512 + 512);
  if (!memory)
    return status_of(kSpmdRefused, "the device has not so much memory");
  std::memset(memory, 0x7f, bytes); // what nothing was written to is no number
  *address = reinterpret_cast<SpmdAddress>(memory);
  device->memory[*address] = memory;
  return status_of(kSpmdFine);
}

SpmdStatus wait(SpmdDevice *device) {
  uint64_t given[kSpmdStreams];
  for (uint32_t s = 0; s < kSpmdStreams; ++s)
    given[s] = device->streams[s].given();
  return wait_until(device, [&] {
    return device->streams[0].has_done(given[0]) && device->streams[1].has_done(given[1]);
  });
}

SpmdStatus release(SpmdDevice *device, SpmdAddress address) {
  // Streams that were given up still end the task at hand.
  SpmdStatus status = wait(device);
  if (status.code == kSpmdFine)
    std::free(device->memory[address]), device->memory.erase(address);
  return status;
}

SpmdStatus compute(SpmdDevice *device, std::function<void()> task) {
  device->streams[kSpmdCompute].add(std::move(task));
  return status_of(kSpmdFine);
}

SpmdStatus move(SpmdDevice *device, const SpmdMove *given) {
  return compute(device, [each = *given] { test::carry_out(each); });
}
SpmdStatus nest(SpmdDevice *device, const SpmdNest *given) {
  return compute(device, [each = *given] { test::carry_out(each); });
}
SpmdStatus matrices(SpmdDevice *device, const SpmdMatrices *given) {
  return compute(device, [each = *given] { test::carry_out(each); });
}
SpmdStatus sort(SpmdDevice *device, const SpmdSort *given) {
  return compute(device, [each = *given] { test::carry_out(each); });
}
SpmdStatus scatter(SpmdDevice *device, const SpmdScatter *given) {
  return compute(device, [each = *given] { test::carry_out(each); });
}

// --- what goes between ranks

Bytes bytes_at(SpmdAddress data, uint64_t bytes) {
  const char *from = reinterpret_cast<const char *>(data);
  return {from, from + bytes};
}
SpmdAddress address_of(const Bytes &bytes) { return reinterpret_cast<SpmdAddress>(bytes.data()); }

// [first, first + count) of what all brought, combined in the order of the ranks.
void reduce(const SpmdCollective &call, const std::vector<Bytes> &all, uint64_t first) {
  for (uint64_t i = 0; i < call.count; ++i) {
    double value = device::neutral(call.combiner);
    for (const Bytes &each : all)
      value = device::combined(
          call.combiner, value,
          device::load(address_of(each), call.element, static_cast<int64_t>(first + i)));
    if (call.combiner == kSpmdAvg)
      value /= static_cast<double>(all.size());
    device::store(call.result, call.element, static_cast<int64_t>(i), value);
  }
}

// The own position in a group.
uint32_t position_in(const Group &group, uint32_t rank) {
  return static_cast<uint32_t>(std::find(group.ranks.begin(), group.ranks.end(), rank) -
                               group.ranks.begin());
}

void attend(SpmdDevice *device, const Group &group, uint64_t number, const SpmdCollective &call) {
  const auto size = static_cast<uint32_t>(group.ranks.size());
  const uint32_t position = position_in(group, device->rank);
  const uint64_t bytes = call.count * device::bytes_of(call.element);
  const uint64_t brought = bytes * (call.form == kSpmdReduceScatter ? size : 1);
  const bool brings = call.form != kSpmdBroadcast || position == call.root;
  std::vector<Bytes> all;
  if (!device->world->place->meet(group.name, number, position, size,
                                  brings ? bytes_at(call.operand, brought) : Bytes(), all,
                                  [device] { return device->gives_up(); }))
    return;
  char *to = reinterpret_cast<char *>(call.result);
  switch (call.form) {
  case kSpmdAllReduce:
    return reduce(call, all, 0);
  case kSpmdReduceScatter:
    return reduce(call, all, position * call.count);
  case kSpmdAllGather:
    for (const Bytes &each : all)
      std::memcpy(to, each.data(), bytes), to += bytes;
    return;
  default:
    std::memcpy(to, all[call.root].data(), bytes);
  }
}

// `task`: on the stream of wires, unless the device is to fail there.
SpmdStatus go_between(SpmdDevice *device, std::function<void()> task) {
  const std::optional<FakeFault> &fault = device->world->fault;
  const bool fails =
      fault && fault->rank == device->rank && fault->collective == device->collectives;
  ++device->collectives;
  if (!fails) {
    device->streams[kSpmdWires].add(std::move(task));
    return status_of(kSpmdFine);
  }
  device->streams[kSpmdWires].add([device, fault, task = std::move(task)] {
    switch (fault->form) {
    case FakeFault::Form::Skipped:
      return;
    case FakeFault::Form::Broken:
      device->broken = true;
      return;
    case FakeFault::Form::Absent:
      while (!device->gives_up())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    case FakeFault::Form::Slow:
      std::this_thread::sleep_for(std::chrono::milliseconds(fault->milliseconds));
      return task();
    }
  });
  return status_of(kSpmdFine);
}

SpmdStatus collective(SpmdDevice *device, const SpmdCollective *given) {
  const uint64_t number = device->met[given->group]++;
  return go_between(device, [device, group = device->groups[given->group], number, call = *given] {
    attend(device, group, number, call);
  });
}

// What is sent is kept by the place, so that ranks which send to each other do not wait for each other.
void trade(SpmdDevice *device, const Group &group, const std::vector<SpmdTransfer> &sends,
           const std::vector<SpmdTransfer> &receives) {
  test::Place &place = *device->world->place;
  const uint32_t own = position_in(group, device->rank);
  for (const SpmdTransfer &send : sends)
    place.send(group.name, own, send.position, bytes_at(send.data, send.bytes));
  for (const SpmdTransfer &receive : receives) {
    Bytes bytes;
    if (!place.receive(group.name, receive.position, own, bytes,
                       [device] { return device->gives_up(); }))
      return;
    if (bytes.size() != receive.bytes) {
      device->broken = true; // as a library may: it says nothing of why
      return;
    }
    std::memcpy(reinterpret_cast<void *>(receive.data), bytes.data(), bytes.size());
  }
}

SpmdStatus exchange(SpmdDevice *device, uint32_t group, const SpmdTransfer *sends,
                    uint32_t send_count, const SpmdTransfer *receives, uint32_t receive_count) {
  std::vector<SpmdTransfer> out(sends, sends + send_count), in(receives, receives + receive_count);
  return go_between(
      device, [device, among = device->groups[group], out, in] { trade(device, among, out, in); });
}

SpmdStatus follow(SpmdDevice *device, uint32_t stream, uint32_t other) {
  Stream *awaited = &device->streams[other];
  device->streams[stream].add([awaited, count = awaited->given()] { awaited->wait_for(count); });
  return status_of(kSpmdFine);
}

SpmdStatus begin(SpmdDevice *device, uint32_t step) {
  for (uint32_t s = 0; s < kSpmdStreams; ++s)
    device->streams[s].add([at = &device->steps[s], step] { at->store(step); });
  return status_of(kSpmdFine);
}

SpmdStatus put(SpmdDevice *device, SpmdAddress to, const void *data, uint64_t bytes) {
  SpmdStatus status = wait(device);
  if (status.code == kSpmdFine && bytes)
    std::memcpy(reinterpret_cast<void *>(to), data, bytes);
  return status;
}

SpmdStatus get(SpmdDevice *device, void *data, SpmdAddress from, uint64_t bytes) {
  SpmdStatus status = wait(device);
  if (status.code == kSpmdFine && bytes)
    std::memcpy(data, reinterpret_cast<const void *>(from), bytes);
  return status;
}

uint32_t reached(SpmdDevice *device) {
  return std::min(device->steps[0].load(), device->steps[1].load());
}

SpmdStatus close_device(SpmdDevice *device, int32_t finish) {
  SpmdStatus status = finish ? wait(device) : status_of(kSpmdFine);
  if (!finish) {
    device->over = true;
    device->world->dead = true;
    for (Stream &stream : device->streams)
      stream.drop();
  }
  std::map<SpmdAddress, void *> memory = device->memory;
  delete device; // joins its threads
  for (const auto &[address, each] : memory)
    std::free(each);
  return status;
}

} // namespace

namespace spmd::test {

FakeWorld::FakeWorld(std::optional<FakeFault> fault) : state_(std::make_shared<State>()) {
  state_->place = std::make_unique<MemoryPlace>();
  state_->fault = fault;
}
FakeWorld::~FakeWorld() = default;
void FakeWorld::enter() { entered = state_; }

const SpmdDevicePlugin &FakeWorld::plugin() {
  static constexpr const char *kName = SPMD_FAKE_NAME;
  static const SpmdDevicePlugin table = {kSpmdDeviceAbi,
                                         sizeof(SpmdDevicePlugin),
                                         kName,
                                         open_device,
                                         make_id,
                                         connect,
                                         split,
                                         allocate,
                                         release,
                                         move,
                                         nest,
                                         matrices,
                                         collective,
                                         exchange,
                                         follow,
                                         begin,
                                         put,
                                         get,
                                         wait,
                                         reached,
                                         close_device,
                                         sort,
                                         scatter};
  return table;
}

} // namespace spmd::test

// As a module, for ranks that are processes and meet in the folder SPMD_FAKE_DEVICES.
extern "C" __attribute__((visibility("default"))) const SpmdDevicePlugin *spmd_device_plugin(void) {
  return &FakeWorld::plugin();
}
