// In which order sums over ranks are added up: what a backend promises, and bounds of rounding need.
#pragma once

#include <cstdint>

namespace spmd::runtime {

enum class SumOrder : uint8_t {
  Ranks, // in the order of the ranks, each sum rounded
  Any,
};

} // namespace spmd::runtime
