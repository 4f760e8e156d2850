// What goes between devices that are played is a meeting under one lock.
#include "tests/device/fake_device.h"

#include "runtime/device/scalar.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace spmd::test {
namespace {

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
uint32_t position_in(const FakeGroup &group, uint32_t rank) {
  return static_cast<uint32_t>(std::find(group.ranks.begin(), group.ranks.end(), rank) -
                               group.ranks.begin());
}

void attend(SpmdDevice *device, const FakeGroup &group, uint64_t number,
            const SpmdCollective &call) {
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

// On the stream of wires, or with the others of the batch that is open.
SpmdStatus launch(SpmdDevice *device, std::function<void()> task) {
  if (device->batch) {
    device->batch->push_back(std::move(task));
    return status_of(kSpmdFine);
  }
  ++device->world->counts.launches;
  device->streams[kSpmdWires].add(std::move(task));
  return status_of(kSpmdFine);
}

// `task`: on the stream of wires, unless the device is to fail there.
SpmdStatus go_between(SpmdDevice *device, std::function<void()> task) {
  const std::optional<FakeFault> &fault = device->world->options.fault;
  const bool fails =
      fault && fault->rank == device->rank && fault->collective == device->collectives;
  ++device->collectives;
  if (!fails)
    return launch(device, std::move(task));
  return launch(device, [device, fault, task = std::move(task)] {
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
}

// What is sent is kept by the place, so that ranks which send to each other do not wait for each other.
void trade(SpmdDevice *device, const FakeGroup &group, const std::vector<SpmdTransfer> &sends,
           const std::vector<SpmdTransfer> &receives) {
  Place &place = *device->world->place;
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

} // namespace

SpmdStatus collective(SpmdDevice *device, const SpmdCollective *given) {
  if (device->keeps([device, call = *given] { return collective(device, &call); }))
    return status_of(kSpmdFine);
  const uint64_t number = device->met[given->group]++;
  return go_between(device, [device, group = device->groups[given->group], number, call = *given] {
    attend(device, group, number, call);
  });
}

SpmdStatus exchange(SpmdDevice *device, uint32_t group, const SpmdTransfer *sends,
                    uint32_t send_count, const SpmdTransfer *receives, uint32_t receive_count) {
  std::vector<SpmdTransfer> out(sends, sends + send_count), in(receives, receives + receive_count);
  if (device->keeps([=] {
        return exchange(device, group, out.data(), send_count, in.data(), receive_count);
      }))
    return status_of(kSpmdFine);
  return go_between(
      device, [device, among = device->groups[group], out, in] { trade(device, among, out, in); });
}

SpmdStatus begin_batch(SpmdDevice *device) {
  if (device->keeps([device] { return begin_batch(device); }))
    return status_of(kSpmdFine);
  if (device->batch)
    return status_of(kSpmdFailed, "a batch in a batch");
  device->batch.emplace();
  return status_of(kSpmdFine);
}

// The last one first, on all ranks: who counts on an order is found out.
SpmdStatus end_batch(SpmdDevice *device) {
  if (device->keeps([device] { return end_batch(device); }))
    return status_of(kSpmdFine);
  std::vector<std::function<void()>> tasks = std::move(*device->batch);
  device->batch.reset();
  return launch(device, [tasks = std::move(tasks)] {
    for (size_t i = tasks.size(); i-- > 0;)
      tasks[i]();
  });
}

} // namespace spmd::test
