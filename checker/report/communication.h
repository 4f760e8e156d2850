// What a program communicates as it stands: which collectives, over which axes, how many bytes one
// rank sends.
#pragma once

#include "checker/check.h"

#include "rules/transitions/transition.h"

#include <optional>
#include <string_view>
#include <vector>

namespace spmd::checker {

// Bytes that one rank sends around a ring of that many ranks, for `bytes` of the larger side.
int64_t ring_bytes(rules::Collective collective, int64_t bytes, int64_t ranks);

struct Message {
  ir::InstId inst;
  std::string_view collective; // `all_reduce`; `send`
  ir::MeshId mesh;
  ir::AxisSet axes; // empty: it could not be told
  int64_t ranks = 1;
  std::optional<int64_t> bytes; // none: extents are not known, or are symbols
};
// In program order. Instructions of a body count once, however often it runs.
std::vector<Message> communication_of(ir::Program &program, const CheckResult &result);

} // namespace spmd::checker
