// In which order sums over ranks are added up: a backend promises it, bounds of rounding need it.
#pragma once

#include <cstdint>

namespace spmd::runtime {

enum class SumOrder : uint8_t {
  Ranks, // in the order of the ranks, each sum rounded
  Any,
};

} // namespace spmd::runtime
