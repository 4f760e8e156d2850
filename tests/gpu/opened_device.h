// A plug-in for devices and the device that it opens, as the tests of its commands use them: what
// is queued is carried out by scalar.h as well, on the host, and the two are compared.
#pragma once

#include "runtime/commands/scalar.h"
#include "runtime/device/interface.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace spmd::gpu_test {

// Elements in memory of the device, and as the host has them.
struct Elements {
  uint32_t element = kSpmdF32;
  int64_t count = 0;
  std::vector<char> host; // with some bytes before and behind that nobody may write
  SpmdAddress device = 0, device_begin = 0;

  static constexpr uint64_t kMargin = 512;
  SpmdAddress on_host() { return reinterpret_cast<SpmdAddress>(host.data() + kMargin); }
  double at(int64_t place) { return device::load(on_host(), element, place); }
  void set(int64_t place, double value) { device::store(on_host(), element, place, value); }
  uint64_t bytes() const { return static_cast<uint64_t>(count) * device::bytes_of(element); }
};

// The program of a loop nest.
inline void set_steps(SpmdLoopNest &nest, const std::vector<SpmdScalarStep> &steps) {
  nest.steps = static_cast<uint32_t>(steps.size());
  std::copy(steps.begin(), steps.end(), nest.program);
}

class OpenedDevice {
public:
  // An empty text: opened. Else why not; `refused` tells whether there is no device.
  std::string open(const char *module, bool &refused);
  const SpmdDevicePlugin &calls() const { return *plugin_; }
  SpmdDevice *device() const { return device_; }
  const SpmdDeviceFacts &facts() const { return facts_; }
  void close(); // waits for what was queued
  // What SpmdHost::stopped answers.
  void stop(bool stopped) { stopped_ = stopped; }

  // The status has to be fine; else the case that runs fails with its text.
  void expect_fine(const SpmdStatus &status, const char *call);
  void expect(bool holds, const std::string &text);

  // Memory is used anew by each case: what a case made is gone when the next one begins.
  Elements elements(uint32_t element, int64_t count);
  void put(Elements &elements); // with its margins
  // What the device has differs from what the host has: the first place, in words, or nothing.
  std::string difference(Elements &elements, double tolerance = 0);

  // Runs a case and counts it, if its name has the word `only`. The group of all ranks is made in
  // any case.
  void run(const std::string &name, const std::function<void()> &test);
  int passed = 0, failed = 0;
  std::string only;
  std::mt19937_64 random;

private:
  const SpmdDevicePlugin *plugin_ = nullptr;
  SpmdDevice *device_ = nullptr;
  SpmdDeviceFacts facts_{};
  bool stopped_ = false;
  std::string failure_;
  SpmdAddress memory_ = 0;
  uint64_t memory_bytes_ = 0, used_ = 0;
};

void test_moves(OpenedDevice &);
void test_nests(OpenedDevice &);
void test_matrices(OpenedDevice &);
void test_sorts(OpenedDevice &);
void test_collectives(OpenedDevice &);
void test_waits(OpenedDevice &);
void measure_speed(OpenedDevice &);
// Last, one of them: the device is closed, and what was opened is gone.
void test_finish(OpenedDevice &);
void test_stop(OpenedDevice &);

} // namespace spmd::gpu_test
