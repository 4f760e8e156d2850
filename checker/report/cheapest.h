// What a program would send, if each sequence of transitions of one tensor were the cheapest one
// between the same types.
#pragma once

#include "checker/report/communication.h"

#include "rules/redistribute/request.h"

namespace spmd::checker {

// Per message the bytes that are left of it: those of the plan go to the first messages of a
// sequence. As they are where a plan sends no less, where a step changes what the tensor means or
// an end of it is not known, and in bodies of functions.
std::vector<std::optional<int64_t>> cheapest_bytes(ir::Program &program, const CheckResult &result,
                                                   llvm::ArrayRef<Message> messages,
                                                   const rules::redistribute::Topology &topology);

} // namespace spmd::checker
