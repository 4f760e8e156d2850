// Which ops move elements and make none.
#pragma once

namespace spmd::rules {

struct ResolvedOp;

// Whether every element of the result is one of an operand, or a 0, which no other operand changes.
bool moves_elements(const ResolvedOp &op);

} // namespace spmd::rules
