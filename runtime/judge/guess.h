// Which mistake gives the data that were found: a fixed list, tried in order.
#pragma once

#include "runtime/judge/conformance.h"

namespace spmd::runtime {

struct Guess {
  std::string text; // empty: none of them
  ir::AxisSet axes; // along which it was made
};

// `got`: what the ranks mean, divided by the scale; it differs from what is wanted.
Guess guess_mistake(const ir::Program &program, const Distribution &dist, const Observed &observed,
                    const Wanted &wanted, const Meaning &got);

} // namespace spmd::runtime
