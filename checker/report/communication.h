// What a program communicates as it stands: which collectives, over which axes, how many bytes one
// rank sends.
#pragma once

#include "checker/check.h"

#include "rules/transitions/transition.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spmd::checker {

struct CommCall {
  ir::InstId inst;
  rules::Collective collective = rules::Collective::None; // None: a `send`
  ir::MeshId mesh;
  ir::AxisSet axes; // empty: it could not be determined
  int64_t ranks = 1;
  std::optional<int64_t> bytes;              // none: extents are not known, or are symbols
  std::optional<ir::Combiner> combiner = {}; // that the call states
};
// In program order. Instructions of a body count once, however often it runs.
std::vector<CommCall> comm_calls(ir::Program &program, const CheckResult &result);

// The part of the model that an instruction belongs to; empty if none is stated.
std::string scope_of(const ir::Program &program, ir::InstId inst);
// `layers.12.mlp.act` as `layers.*.mlp.act`: the same part of any layer; the first parts of a name.
std::string without_numbers(llvm::StringRef name, size_t parts = ~size_t(0));

// Messages added up.
struct Traffic {
  uint64_t calls = 0, unknown = 0; // unknown: of these the bytes are not known
  int64_t bytes = 0;
};
enum class TrafficBy : uint8_t { Axis, Scope, Op, Phase };
using TrafficKey = std::array<std::string, 3>;
// What the parts of a key are: `collective`, `axis`, `phase`.
std::array<std::string_view, 3> traffic_columns(TrafficBy by);
TrafficKey traffic_key(const ir::Program &program, const CommCall &message, TrafficBy by);
using TrafficRows = std::vector<std::pair<TrafficKey, Traffic>>;
// The most bytes first.
TrafficRows add_up(const ir::Program &program, llvm::ArrayRef<CommCall> messages, TrafficBy by);

} // namespace spmd::checker
