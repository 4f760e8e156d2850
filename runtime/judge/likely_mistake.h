// Which mistake gives the data that were found: a fixed list, tried in order.
#pragma once

#include "runtime/judge/conformance.h"

namespace spmd::runtime {

struct LikelyMistake {
  std::string text; // empty: none of them
  ir::AxisSet axes; // along which it was made
};

// `got`: what the ranks mean, divided by the scale; it differs from what is wanted.
LikelyMistake likely_mistake(const ir::Program &program, const Distribution &dist,
                             const Observed &observed, const ReferenceValue &wanted,
                             const Meaning &got);

} // namespace spmd::runtime
