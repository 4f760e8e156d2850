// What a program would send, if each sequence of transitions of one tensor were the cheapest one
// between the same types.
#pragma once

#include "checker/report/communication.h"

#include "rules/redistribute/request.h"

namespace spmd::checker {

// Bytes per call if each chain of transitions of one tensor were replaced by its cheapest plan. The
// bytes of a plan are charged to the first calls of its chain, so later ones may have 0. Unchanged:
// chains for which no plan sends less, chains with a step that changes what the tensor means or
// with an end of unknown type, and those in bodies of functions.
std::vector<std::optional<int64_t>> cheapest_bytes(ir::Program &program, const CheckResult &result,
                                                   llvm::ArrayRef<CommCall> messages,
                                                   const rules::redistribute::Topology &topology);

} // namespace spmd::checker
