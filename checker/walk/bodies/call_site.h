// An instruction that runs bodies, and what running them leaves. Internal to the checker.
#pragma once

#include "checker/walk/state.h"
#include "checker/walk/undecided/kind_variables.h"

namespace spmd::checker {

using KindRows = llvm::SmallVector<KindVariables::Row, 4>;

struct CallSite {
  ir::InstId id;
  const ir::Inst &inst;
  Args args;
  llvm::SmallVector<rules::TensorInfo, 2> results; // unknown until typed
  ir::AxisSet region;                // axes that are local inside, and were not outside
  KindRows arg_rows = {}, rows = {}; // of what is open; may be shorter
  // Axes on which results are what an opaque function says; may be shorter.
  llvm::SmallVector<ir::AxisSet, 2> believed = {};
};

// What running bodies leaves, and the bodies that were typed for it; none is of an opaque one.
struct Round {
  llvm::SmallVector<rules::TensorInfo, 2> results;
  llvm::SmallVector<uint32_t, 2> bodies = {};      // that of the results is the last one
  uint32_t body = BodyResult::kNone;               // that of the results
  llvm::SmallVector<ir::AxisSet, 2> believed = {}; // per result of an opaque one: what it claims
};

} // namespace spmd::checker
