// Streams are threads with queues; what goes between ranks is a meeting under one lock.
#include "tests/device/fake.h"

#include "tests/device/carry_out.h"

#include <algorithm>
#include <array>
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
  std::vector<uint32_t> ranks;
};

// The ranks of a group at one of its collectives.
struct Meeting {
  std::map<uint32_t, SpmdCollective> guests; // by position
  uint32_t left = 0;
  bool ready = false;
  std::vector<std::vector<char>> results; // by position
};

} // namespace

namespace spmd::test {

struct FakeWorld::State {
  State(uint32_t ranks, std::optional<FakeFault> fault) : ranks(ranks), fault(fault) {}
  const uint32_t ranks;
  const std::optional<FakeFault> fault;
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> dead{false}; // a rank left without the others
  std::atomic<uint64_t> commands{0};
  std::vector<Group> groups; // by number; the first is all ranks
  // Splits and meetings by their number in the order of each rank.
  struct Split {
    std::map<uint32_t, std::pair<uint32_t, uint32_t>> asked; // colour and key, by rank
    std::map<uint32_t, uint32_t> groups;                     // by colour
    bool ready = false;
  };
  std::map<uint64_t, Split> splits;
  std::map<std::pair<uint32_t, uint64_t>, Meeting> meetings; // by group and number
  // What was sent and not taken yet, by group and the positions of sender and receiver.
  std::map<std::array<uint32_t, 3>, std::deque<std::vector<char>>> parcels;
};

} // namespace spmd::test

using spmd::test::FakeFault;
using spmd::test::FakeWorld;

struct SpmdDevice {
  SpmdHost host{};
  std::shared_ptr<FakeWorld::State> world;
  uint32_t rank = 0;
  Stream streams[kSpmdStreams];
  std::atomic<uint32_t> steps[kSpmdStreams] = {};
  std::atomic<bool> broken{false};
  uint64_t splits = 0;
  uint32_t collectives = 0;
  std::map<uint32_t, uint64_t> met; // collectives of each group so far
  std::map<SpmdAddress, void *> memory;
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
  if (!entered)
    return status_of(kSpmdRefused, "there is no device");
  auto *made = new SpmdDevice();
  made->host = *host;
  made->world = entered;
  made->rank = ranks->rank;
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
  std::lock_guard lock(device->world->mutex);
  if (device->world->groups.empty()) {
    Group all;
    for (uint32_t rank = 0; rank < device->world->ranks; ++rank)
      all.ranks.push_back(rank);
    device->world->groups.push_back(all);
  }
  return status_of(kSpmdFine);
}

SpmdStatus split(SpmdDevice *device, uint32_t colour, uint32_t key, uint32_t *group) {
  FakeWorld::State &world = *device->world;
  const uint64_t number = device->splits++;
  {
    std::lock_guard lock(world.mutex);
    FakeWorld::State::Split &made = world.splits[number];
    made.asked[device->rank] = {colour, key};
    if (made.asked.size() == world.ranks) {
      std::map<uint32_t, std::map<uint32_t, uint32_t>> members;
      for (const auto &[rank, asked] : made.asked)
        if (asked.first != kSpmdNoColour)
          members[asked.first][asked.second] = rank;
      for (const auto &[each, by_key] : members) {
        Group fresh;
        for (const auto &[at, rank] : by_key)
          fresh.ranks.push_back(rank);
        made.groups[each] = static_cast<uint32_t>(world.groups.size());
        world.groups.push_back(fresh);
      }
      made.ready = true;
    }
  }
  SpmdStatus status = wait_until(device, [&] {
    std::lock_guard lock(world.mutex);
    return world.splits[number].ready;
  });
  std::lock_guard lock(world.mutex);
  *group = colour == kSpmdNoColour ? kSpmdAllRanks : world.splits[number].groups[colour];
  return status;
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
  ++device->world->commands;
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

// --- what goes between ranks

std::vector<char> bytes_at(SpmdAddress data, uint64_t bytes) {
  const char *from = reinterpret_cast<const char *>(data);
  return {from, from + bytes};
}

// [first, first + count) of the operands, combined in the order of the ranks.
std::vector<char> reduced(const std::vector<SpmdCollective> &calls, uint64_t first,
                          uint64_t count) {
  const SpmdCollective &call = calls[0];
  const uint32_t bytes = device::bytes_of(call.element);
  std::vector<char> made(count * bytes);
  for (uint64_t i = 0; i < count; ++i) {
    double value = device::neutral(call.combiner);
    for (const SpmdCollective &each : calls)
      value = device::combined(
          call.combiner, value,
          device::load(each.operand, each.element, static_cast<int64_t>(first + i)));
    if (call.combiner == kSpmdAvg)
      value /= static_cast<double>(calls.size());
    device::store(reinterpret_cast<SpmdAddress>(made.data()), call.element, static_cast<int64_t>(i),
                  value);
  }
  return made;
}

// All are there: what each gets.
void hold(Meeting &meeting) {
  const size_t size = meeting.guests.size();
  meeting.results.resize(size);
  std::vector<SpmdCollective> calls;
  for (const auto &[position, call] : meeting.guests)
    calls.push_back(call);
  const SpmdCollective &call = calls[0];
  const uint64_t bytes = call.count * device::bytes_of(call.element);
  for (size_t i = 0; i < size; ++i) {
    std::vector<char> &result = meeting.results[i];
    switch (call.form) {
    case kSpmdAllReduce:
      result = reduced(calls, 0, call.count);
      break;
    case kSpmdReduceScatter:
      result = reduced(calls, i * call.count, call.count);
      break;
    case kSpmdAllGather:
      for (const SpmdCollective &each : calls) {
        std::vector<char> part = bytes_at(each.operand, bytes);
        result.insert(result.end(), part.begin(), part.end());
      }
      break;
    default:
      result = bytes_at(calls[call.root].operand, bytes);
    }
  }
}

// The own position in a group.
uint32_t position_in(const Group &group, uint32_t rank) {
  return static_cast<uint32_t>(std::find(group.ranks.begin(), group.ranks.end(), rank) -
                               group.ranks.begin());
}

void attend(SpmdDevice *device, uint64_t number, const SpmdCollective &call) {
  FakeWorld::State &world = *device->world;
  std::unique_lock lock(world.mutex);
  const size_t size = world.groups[call.group].ranks.size();
  const uint32_t position = position_in(world.groups[call.group], device->rank);
  const std::pair<uint32_t, uint64_t> at{call.group, number};
  Meeting &meeting = world.meetings[at];
  meeting.guests[position] = call;
  if (meeting.guests.size() == size) {
    hold(meeting);
    meeting.ready = true;
    world.changed.notify_all();
  }
  world.changed.wait(lock, [&] { return meeting.ready || world.dead; });
  if (!meeting.ready)
    return;
  std::memcpy(reinterpret_cast<void *>(call.result), meeting.results[position].data(),
              meeting.results[position].size());
  if (++meeting.left == size)
    world.meetings.erase(at);
}

// `task`: on the stream of wires, unless the device is to fail there.
SpmdStatus go_between(SpmdDevice *device, std::function<void()> task) {
  const std::optional<FakeFault> &fault = device->world->fault;
  const bool fails =
      fault && fault->rank == device->rank && fault->collective == device->collectives;
  ++device->collectives;
  ++device->world->commands;
  if (!fails) {
    device->streams[kSpmdWires].add(std::move(task));
    return status_of(kSpmdFine);
  }
  device->streams[kSpmdWires].add([device, form = fault->form, fault, task = std::move(task)] {
    FakeWorld::State &world = *device->world;
    switch (form) {
    case FakeFault::Form::Skipped:
      return;
    case FakeFault::Form::Broken:
      device->broken = true;
      return;
    case FakeFault::Form::Absent: {
      std::unique_lock lock(world.mutex);
      world.changed.wait(lock, [&] { return world.dead.load(); });
      return;
    }
    case FakeFault::Form::Slow:
      std::this_thread::sleep_for(std::chrono::milliseconds(fault->milliseconds));
      return task();
    }
  });
  return status_of(kSpmdFine);
}

SpmdStatus collective(SpmdDevice *device, const SpmdCollective *given) {
  const uint64_t number = device->met[given->group]++;
  return go_between(device, [device, number, call = *given] { attend(device, number, call); });
}

// What is sent is copied at once, so that ranks which send to each other do not wait for each other.
void trade(SpmdDevice *device, uint32_t group, const std::vector<SpmdTransfer> &sends,
           const std::vector<SpmdTransfer> &receives) {
  FakeWorld::State &world = *device->world;
  std::unique_lock lock(world.mutex);
  const uint32_t own = position_in(world.groups[group], device->rank);
  for (const SpmdTransfer &send : sends)
    world.parcels[{group, own, send.position}].push_back(bytes_at(send.data, send.bytes));
  world.changed.notify_all();
  for (const SpmdTransfer &receive : receives) {
    std::deque<std::vector<char>> &from = world.parcels[{group, receive.position, own}];
    world.changed.wait(lock, [&] { return !from.empty() || world.dead; });
    if (from.empty())
      return;
    if (from.front().size() != receive.bytes) {
      device->broken = true; // as a library may: it says nothing of why
      return;
    }
    std::memcpy(reinterpret_cast<void *>(receive.data), from.front().data(), receive.bytes);
    from.pop_front();
  }
}

SpmdStatus exchange(SpmdDevice *device, uint32_t group, const SpmdTransfer *sends,
                    uint32_t send_count, const SpmdTransfer *receives, uint32_t receive_count) {
  std::vector<SpmdTransfer> out(sends, sends + send_count), in(receives, receives + receive_count);
  return go_between(device, [device, group, out, in] { trade(device, group, out, in); });
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
    {
      std::lock_guard lock(device->world->mutex);
      device->world->dead = true;
    }
    device->world->changed.notify_all();
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

FakeWorld::FakeWorld(uint32_t ranks, std::optional<FakeFault> fault)
    : state_(std::make_shared<State>(ranks, fault)) {}
FakeWorld::~FakeWorld() = default;
void FakeWorld::enter() { entered = state_; }
uint64_t FakeWorld::commands() const { return state_->commands; }

const SpmdDevicePlugin &FakeWorld::plugin() {
  static const SpmdDevicePlugin table = {kSpmdDeviceAbi,
                                         sizeof(SpmdDevicePlugin),
                                         "fake",
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
                                         close_device};
  return table;
}

} // namespace spmd::test
