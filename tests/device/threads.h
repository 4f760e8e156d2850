// Programs on fake devices, a thread for each rank.
#pragma once

#include "runtime/device/backend.h"
#include "tests/device/fake.h"
#include "tests/unit/run_program.h"

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace spmd::test {

struct RankRun {
  std::string problem; // why it did not come to its end; empty if it did
  std::vector<runtime::Tensor> outputs;
  uint32_t device_steps = 0;
  std::map<std::string, uint32_t> host_ops;
  size_t recordings = 0;
  std::string no_record; // why nothing is recorded
  // What the device is given for all of the program, step by step and fused: commands, and bytes
  // that they move.
  size_t commands[2] = {};
  uint64_t bytes[2] = {};
  uint32_t reached = 0; // the step that the device had come to when it was last asked
};

struct ThreadsOptions {
  uint64_t seed = 0;
  FakeOptions devices;
  const SpmdDevicePlugin *plugin = &FakeWorld::plugin();
  bool batches = true, records = false; // as of DeviceOptions
  bool stepwise = false;        // a run for each step, so that none becomes one with another
  unsigned runs = 1;            // with seeds from `seed` on; outputs are those of the last one
  FakeCounts *counts = nullptr; // to be added to
  // After which a rank that waits gives up, and all with it.
  std::chrono::milliseconds patience{20'000};
};

// By rank. The program is one that can be planned.
std::vector<RankRun> run_on_threads(const std::string &text, uint32_t ranks,
                                    const ThreadsOptions &options = {});

// What programs came to.
struct Totals {
  size_t programs = 0, host_steps = 0, device_steps = 0;
  std::map<std::string, size_t> host_ops;
  size_t commands[2] = {};
  uint64_t bytes[2] = {};
};
std::string text_of(const std::string &path);
// Runs the program on the cpu backend and on devices, at once and, if asked to, step by step.
// Empty, or how outputs differ: from the cpu backend's by more than rounding does to sums of a few
// dozen products, step by step by a bit. Left out, and not counted: what the cpu backend does not
// run, and more than 8 ranks.
// `options`: of the devices, such as another plug-in.
std::string difference(const std::string &text, Totals &totals, bool stepwise = true,
                       const ThreadsOptions &options = {});

} // namespace spmd::test
