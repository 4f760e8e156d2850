// The way out of the body of a function: from its parameter to what a caller passes, and from the
// result of a call to what the body returns.
#pragma once

#include "ir/program.h"

#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace spmd::checker {

// The function that declares the value as its parameter; none if no function does.
std::optional<ir::FunctionId> function_of_param(const ir::Program &program, ir::ValueId value);

// What callers pass for the parameter of a function, in program order. Only of instructions that
// pass their operands by position.
llvm::SmallVector<ir::ValueId, 2> arguments_for_param(const ir::Program &program,
                                                      ir::FunctionId function, ir::ValueId param);

// The value in the body that becomes this result of a call; none if there is no body, or several.
ir::ValueId returned_as(const ir::Program &program, ir::InstId call, uint32_t result);

} // namespace spmd::checker
