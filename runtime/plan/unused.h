// Instructions whose results are all that they do, and that have none: a number taken to the host.
#pragma once

#include "ir/program.h"
#include "rules/ops/registry.h"

namespace spmd::runtime {

// True if nothing can tell whether the instruction ran.
bool is_unused(const ir::Inst &inst, const rules::ResolvedOp &op);

} // namespace spmd::runtime
