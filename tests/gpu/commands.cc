// Tests of a plug-in for devices, on a device: every form of command, held against the same command
// on the host. `spmd_gpu_commands MODULE [WORD]`: those with the word in their name, and
// `stop` by itself; with --speed, how fast some are; with --load, only that the module loads and
// either opens a device or says what is missing. Exit code 77: there is no device.
#include "tests/gpu/opened_device.h"

#include <cstdio>
#include <cstring>

namespace {

constexpr int kSkipped = 77;

// What is refused names a next step.
int load_only(const char *module) {
  spmd::gpu_test::OpenedDevice device;
  bool refused = false;
  const std::string why = device.open(module, refused);
  if (why.empty()) {
    std::printf("opened %s (%s)\n", device.facts().name, device.facts().library);
    return device.calls().close(device.device(), 1).code;
  }
  std::printf("%s%s\n", refused ? "refused: " : "", why.c_str());
  return !refused || why.find("Next: ") == std::string::npos;
}

} // namespace

int main(int argc, char **argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc == 2 && std::strcmp(argv[1], "--not-built") == 0) {
    std::printf("skipped: the plug-in was built without nvcc, cuBLASLt or NCCL (meson says which "
                "is missing)\n");
    return kSkipped;
  }
  if (argc == 3 && std::strcmp(argv[1], "--load") == 0)
    return load_only(argv[2]);
  if (argc != 2 && argc != 3) {
    std::printf("usage: %s [--load | --speed] MODULE, or %s MODULE [WORD]\n", argv[0], argv[0]);
    return 2;
  }
  using namespace spmd::gpu_test;
  const bool measures = argc == 3 && std::strcmp(argv[1], "--speed") == 0;
  OpenedDevice device;
  device.only = argc == 3 && !measures ? argv[2] : "";
  bool refused = false;
  if (const std::string why = device.open(argv[measures ? 2 : 1], refused); !why.empty()) {
    std::printf("%s: %s\n", refused ? "no NVIDIA device" : "FAILED", why.c_str());
    return refused ? kSkipped : 1;
  }
  std::printf("%s, %s, %.1f of %.1f GB free\n", device.facts().name, device.facts().library,
              static_cast<double>(device.facts().free_bytes) / 1e9,
              static_cast<double>(device.facts().total_bytes) / 1e9);
  if (measures) {
    measure_speed(device);
    return device.failed > 0;
  }
  test_moves(device);
  test_nests(device);
  test_matrices(device);
  test_sorts(device);
  test_collectives(device);
  test_waits(device);
  // A device is left in one of two ways, once per process.
  if (device.only == "stop")
    test_stop(device);
  else
    test_finish(device);
  std::printf("%d passed, %d failed\n", device.passed, device.failed);
  return device.failed > 0;
}
