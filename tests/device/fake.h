// Devices that are threads of one process: a plug-in as runtime/device/interface.h has it, for
// tests of what stands above it. A stream is a thread with a queue, collectives are meetings of
// threads, sums are in the order of the ranks. It can be told to fail.
#pragma once

#include "runtime/device/interface.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace spmd::test {

struct FakeFault {
  enum class Form : uint8_t {
    Absent,  // never comes to the collective, and says nothing
    Broken,  // the device says that it failed
    Slow,    // comes after `milliseconds`
    Skipped, // goes on as if there was no collective
  } form = Form::Absent;
  uint32_t rank = 0, collective = 0; // the how manieth of the rank
  uint32_t milliseconds = 0;
};

// What one rank's device has. `tells` is false: it gives less than it says that it has.
struct FakeMemory {
  uint32_t rank = 0;
  uint64_t bytes = 0;
  bool tells = true;
};

struct FakeOptions {
  std::optional<FakeFault> fault;
  std::optional<FakeMemory> memory;
  bool records = true; // else it refuses to
};

// Of all ranks together: what was given to the stream of collectives, a batch counted once;
// recordings replayed; calls of simulated libraries that would never have come back.
struct FakeCounts {
  uint32_t launches = 0, replays = 0, hangs = 0;
};

// The devices of one run. Threads that open the plug-in are given one of the world that they
// entered.
class FakeWorld {
public:
  explicit FakeWorld(const FakeOptions &options = {});
  ~FakeWorld(); // all devices are closed by then
  FakeWorld(const FakeWorld &) = delete;

  // Of the calling thread.
  void enter();
  static const SpmdDevicePlugin &plugin();
  FakeCounts counts() const;

  struct State;

private:
  std::shared_ptr<State> state_;
};

} // namespace spmd::test
