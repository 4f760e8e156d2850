// A simulated device: what the two parts of the fake plug-in share.
#pragma once

#include "tests/device/fake.h"
#include "tests/device/fake_stream.h"
#include "tests/device/meetings.h"
#include "tests/device/place.h"

#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace spmd::test {

// What was asked of a device, to be asked again.
using FakeCalls = std::vector<std::function<SpmdStatus()>>;

struct FakeWorld::State {
  std::unique_ptr<Place> place;
  FakeOptions options;
  std::atomic<bool> dead{false}; // a rank left without the others
  struct {
    std::atomic<uint32_t> launches = 0, replays = 0, hangs = 0;
  } counts;
};

// Of the calling thread; null: it has entered none.
std::shared_ptr<FakeWorld::State> world_of_thread();

// Ranks of one colour, by position.
struct FakeGroup {
  std::string name; // the same on all its ranks
  std::vector<uint32_t> ranks;
};

inline SpmdStatus status_of(int32_t code, const std::string &text = "") {
  SpmdStatus status{code, {}};
  std::snprintf(status.text, sizeof status.text, "%s", text.c_str());
  return status;
}

// In fake_collectives.cc.
SpmdStatus collective(SpmdDevice *device, const SpmdCollective *given);
SpmdStatus exchange(SpmdDevice *device, uint32_t group, const SpmdTransfer *sends,
                    uint32_t send_count, const SpmdTransfer *receives, uint32_t receive_count);
SpmdStatus begin_batch(SpmdDevice *device);
SpmdStatus end_batch(SpmdDevice *device);

} // namespace spmd::test

struct SpmdDevice {
  SpmdHost host{};
  std::shared_ptr<spmd::test::FakeWorld::State> world;
  uint32_t rank = 0, size = 1;
  spmd::test::Stream streams[kSpmdStreams];
  std::atomic<uint32_t> steps[kSpmdStreams] = {};
  std::atomic<bool> broken{false}, over{false};
  uint64_t splits = 0;
  uint32_t collectives = 0;
  std::vector<spmd::test::FakeGroup> groups;
  std::vector<uint64_t> met;                                 // collectives of each group so far
  std::map<SpmdAddress, std::pair<void *, uint64_t>> memory; // with its bytes
  uint64_t all_bytes = uint64_t(1) << 30, reported_bytes = all_bytes, taken = 0;
  std::optional<std::vector<std::function<void()>>> batch; // what is in the one that is open
  std::optional<spmd::test::FakeCalls> recording;          // the one that goes on
  std::vector<spmd::test::FakeCalls> recordings;

  bool gives_up() const { return over || world->dead; }
  // While something is recorded: the call is part of it, and not to be carried out.
  bool keeps(std::function<SpmdStatus()> call) {
    if (recording)
      recording->push_back(std::move(call));
    return recording.has_value();
  }
};
