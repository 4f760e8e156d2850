// What goes between simulated devices is a meeting under one lock.
#include "tests/device/fake_device.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace spmd::test {
namespace {

// The own position in a group.
uint32_t position_in(const FakeGroup &group, uint32_t rank) {
  return static_cast<uint32_t>(std::find(group.ranks.begin(), group.ranks.end(), rank) -
                               group.ranks.begin());
}

Seat seat_in(const FakeGroup &group, uint32_t rank) {
  return {group.name, position_in(group, rank), static_cast<uint32_t>(group.ranks.size())};
}

// On the stream of collectives, or with the others of the batch that is open.
SpmdStatus launch(SpmdDevice *device, std::function<void()> task) {
  if (device->batch) {
    device->batch->push_back(std::move(task));
    return status_of(kSpmdOk);
  }
  ++device->world->counts.launches;
  device->streams[kSpmdCollectives].add(std::move(task));
  return status_of(kSpmdOk);
}

// `task`: on the stream of collectives, unless the device is to fail there.
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

} // namespace

SpmdStatus collective(SpmdDevice *device, const SpmdCollective *given) {
  if (device->keeps([device, call = *given] { return collective(device, &call); }))
    return status_of(kSpmdOk);
  const Seat seat = seat_in(device->groups[given->group], device->rank);
  if (const std::string why = misplaced(*given, seat.position, seat.size); !why.empty())
    return status_of(kSpmdFailed, why);
  const uint64_t number = device->met[given->group]++;
  return go_between(device, [device, seat, number, call = *given] {
    attend(*device->world->place, seat, number, call, [device] { return device->gives_up(); });
  });
}

SpmdStatus exchange(SpmdDevice *device, uint32_t group, const SpmdTransfer *sends,
                    uint32_t send_count, const SpmdTransfer *receives, uint32_t receive_count) {
  std::vector<SpmdTransfer> out(sends, sends + send_count), in(receives, receives + receive_count);
  if (device->keeps([=] {
        return exchange(device, group, out.data(), send_count, in.data(), receive_count);
      }))
    return status_of(kSpmdOk);
  return go_between(device, [device, seat = seat_in(device->groups[group], device->rank), out, in] {
    const Trade end =
        trade(*device->world->place, seat, out, in, [device] { return device->gives_up(); });
    device->broken =
        device->broken || end == Trade::OtherLength; // as a library may: it says nothing of why
  });
}

SpmdStatus begin_batch(SpmdDevice *device) {
  if (device->keeps([device] { return begin_batch(device); }))
    return status_of(kSpmdOk);
  if (device->batch)
    return status_of(kSpmdFailed, "a batch in a batch");
  device->batch.emplace();
  return status_of(kSpmdOk);
}

// The last one first, on all ranks: who counts on an order is found out.
SpmdStatus end_batch(SpmdDevice *device) {
  if (device->keeps([device] { return end_batch(device); }))
    return status_of(kSpmdOk);
  std::vector<std::function<void()>> tasks = std::move(*device->batch);
  device->batch.reset();
  return launch(device, [tasks = std::move(tasks)] {
    for (size_t i = tasks.size(); i-- > 0;)
      tasks[i]();
  });
}

} // namespace spmd::test
