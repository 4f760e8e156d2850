// Streams are threads with queues; what goes between ranks is a meeting under one lock.
#include "tests/device/fake_device.h"

#include "tests/device/carry_out.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

using namespace spmd;
using namespace spmd::test;

namespace {

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
  return status_of(device->broken ? kSpmdFailed : kSpmdOk,
                   device->broken ? "the device failed" : "");
}

SpmdStatus open_device(const SpmdHost *host, const SpmdRanks *ranks, SpmdDevice **device,
                       SpmdDeviceFacts *facts) {
  std::shared_ptr<FakeWorld::State> world = world_of_thread();
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
  if (const std::optional<FakeMemory> &memory = world->options.memory;
      memory && memory->rank == made->rank) {
    made->all_bytes = memory->bytes;
    made->reported_bytes = memory->tells ? memory->bytes : made->reported_bytes;
  }
  facts->free_bytes = facts->total_bytes = made->reported_bytes;
  return status_of(kSpmdOk);
}

SpmdStatus make_id(SpmdDevice *, SpmdId *id) {
  *id = {};
  return status_of(kSpmdOk);
}

SpmdStatus connect(SpmdDevice *device, const SpmdId *) {
  FakeGroup all{"all", {}};
  for (uint32_t rank = 0; rank < device->size; ++rank)
    all.ranks.push_back(rank);
  device->groups.push_back(all);
  device->met.push_back(0);
  return status_of(kSpmdOk);
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
    return status_of(kSpmdOk);
  *group = static_cast<uint32_t>(device->groups.size());
  FakeGroup made{std::to_string(number) + "-" + std::to_string(colour), {}};
  for (const auto &[at, rank] : members)
    made.ranks.push_back(rank);
  device->groups.push_back(made);
  device->met.push_back(0);
  return status_of(kSpmdOk);
}

SpmdStatus allocate(SpmdDevice *device, uint64_t bytes, SpmdAddress *address) {
  if (device->recording)
    return status_of(kSpmdFailed, "memory is asked for in the midst of what is recorded");
  void *memory = device->taken + bytes > device->all_bytes
                     ? nullptr
                     : std::aligned_alloc(512, (bytes + 511) / 512 * 512 + 512);
  if (!memory)
    return status_of(kSpmdRefused, "the device has not so much memory");
  std::memset(memory, 0x7f, bytes); // what nothing was written to is no number
  *address = reinterpret_cast<SpmdAddress>(memory);
  device->memory[*address] = {memory, bytes};
  device->taken += bytes;
  return status_of(kSpmdOk);
}

SpmdStatus free_bytes(SpmdDevice *device, uint64_t *bytes) {
  *bytes = device->reported_bytes - device->taken;
  return status_of(kSpmdOk);
}

SpmdStatus wait(SpmdDevice *device) {
  if (device->recording || device->batch)
    return status_of(kSpmdFailed, "a wait in the midst of what is recorded or a batch");
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
  if (status.code != kSpmdOk)
    return status;
  const auto [memory, bytes] = device->memory[address];
  std::free(memory);
  device->taken -= bytes;
  device->memory.erase(address);
  return status;
}

SpmdStatus compute(SpmdDevice *device, std::function<void()> task) {
  if (device->keeps([device, task] { return compute(device, task); }))
    return status_of(kSpmdOk);
  device->streams[kSpmdCompute].add(std::move(task));
  return status_of(kSpmdOk);
}

SpmdStatus move(SpmdDevice *device, const SpmdMove *given) {
  return compute(device, [each = *given] { carry_out(each); });
}
SpmdStatus nest(SpmdDevice *device, const SpmdLoopNest *given) {
  return compute(device, [each = *given] { carry_out(each); });
}
SpmdStatus matrices(SpmdDevice *device, const SpmdMatrices *given) {
  return compute(device, [each = *given] { carry_out(each); });
}
SpmdStatus sort(SpmdDevice *device, const SpmdSort *given) {
  return compute(device, [each = *given] { carry_out(each); });
}
SpmdStatus scatter(SpmdDevice *device, const SpmdScatter *given) {
  return compute(device, [each = *given] { carry_out(each); });
}

SpmdStatus follow(SpmdDevice *device, uint32_t stream, uint32_t other) {
  if (device->keeps([=] { return follow(device, stream, other); }))
    return status_of(kSpmdOk);
  Stream *awaited = &device->streams[other];
  device->streams[stream].add([awaited, count = awaited->given()] { awaited->wait_for(count); });
  return status_of(kSpmdOk);
}

SpmdStatus begin(SpmdDevice *device, uint32_t step) {
  if (device->keeps([=] { return begin(device, step); }))
    return status_of(kSpmdOk);
  for (uint32_t s = 0; s < kSpmdStreams; ++s)
    device->streams[s].add([at = &device->steps[s], step] { at->store(step); });
  return status_of(kSpmdOk);
}

SpmdStatus put(SpmdDevice *device, SpmdAddress to, const void *data, uint64_t bytes) {
  SpmdStatus status = wait(device);
  if (status.code == kSpmdOk && bytes)
    std::memcpy(reinterpret_cast<void *>(to), data, bytes);
  return status;
}

SpmdStatus get(SpmdDevice *device, void *data, SpmdAddress from, uint64_t bytes) {
  SpmdStatus status = wait(device);
  if (status.code == kSpmdOk && bytes)
    std::memcpy(data, reinterpret_cast<const void *>(from), bytes);
  return status;
}

// --- recordings

SpmdStatus begin_record(SpmdDevice *device) {
  if (!device->world->options.records)
    return status_of(kSpmdRefused, "these devices record nothing");
  device->recording.emplace();
  return status_of(kSpmdOk);
}

SpmdStatus end_record(SpmdDevice *device, uint32_t *recording) {
  *recording = static_cast<uint32_t>(device->recordings.size());
  device->recordings.push_back(std::move(*device->recording));
  device->recording.reset();
  return status_of(kSpmdOk);
}

// Both streams meet before it and behind it.
SpmdStatus replay(SpmdDevice *device, uint32_t recording) {
  ++device->world->counts.replays;
  for (int turn = 0; turn < 2; ++turn) {
    follow(device, kSpmdCompute, kSpmdCollectives);
    follow(device, kSpmdCollectives, kSpmdCompute);
    for (const auto &call : turn == 0 ? device->recordings[recording] : FakeCalls())
      if (SpmdStatus status = call(); status.code != kSpmdOk)
        return status;
  }
  return status_of(kSpmdOk);
}

SpmdStatus forget(SpmdDevice *device, uint32_t recording) {
  SpmdStatus status = wait(device);
  device->recordings[recording].clear();
  return status;
}

SpmdStatus fix_order(SpmdDevice *) { return status_of(kSpmdOk); }       // it is that of the ranks
SpmdStatus watch(SpmdDevice *device, uint32_t) { return wait(device); } // steps are told anyway

uint32_t reached(SpmdDevice *device) {
  return std::min(device->steps[0].load(), device->steps[1].load());
}

SpmdStatus close_device(SpmdDevice *device, int32_t finish) {
  SpmdStatus status = finish ? wait(device) : status_of(kSpmdOk);
  if (!finish) {
    // All before any: a stream that is let go must not go on with what the other one still works
    // at.
    for (Stream &stream : device->streams)
      stream.halt();
    device->over = true;
    device->world->dead = true;
    for (Stream &stream : device->streams)
      stream.drop();
  }
  for (Stream &stream : device->streams)
    stream.join(); // one may still be about to hear of the other's end
  const auto memory = device->memory;
  delete device;
  for (const auto &[address, each] : memory)
    std::free(each.first);
  return status;
}

} // namespace

namespace spmd::test {

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
                                         close_device,
                                         sort,
                                         scatter,
                                         free_bytes,
                                         begin_batch,
                                         end_batch,
                                         begin_record,
                                         end_record,
                                         replay,
                                         forget,
                                         fix_order,
                                         watch};
  return table;
}

} // namespace spmd::test
