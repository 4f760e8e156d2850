// Whether a program computes sums of products alone, so that whole numbers stay whole.
#pragma once

#include "ir/program.h"

#include <optional>

namespace spmd::runtime {

// The first instruction that does something else: a function, a quotient, a fraction as an operand,
// an average over ranks whose number is no power of two. The program is only interned into.
std::optional<ir::InstId> first_not_whole(ir::Program &program);

} // namespace spmd::runtime
