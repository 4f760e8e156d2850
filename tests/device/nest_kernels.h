// Kernels of loop nests as write_kernels writes them for a host, by the seed of the loop nest.
#pragma once

#include "tests/device/random_nests.h"

#include <vector>

namespace spmd::test {

inline constexpr int64_t kPartials = 1 << 14; // doubles for parts of results

inline RandomNest nest_of_seed(int seed) {
  NestDice dice(static_cast<uint64_t>(seed));
  constexpr uint32_t kIterations[] = {1, 500, 5000, 60000};
  return dice.draw(kIterations[dice.below(4)]);
}

struct NestKernel {
  void (*run)(const void *arguments);
  int64_t blocks, parts;
};
const std::vector<NestKernel> &nest_kernels();

} // namespace spmd::test
