// Typing rules that a trace brings for ops that are not ours: an equation, or the op that behaves
// alike.
#pragma once

#include "rules/apply.h"

#include "ir/input.h"

namespace spmd::rules {

// Malformed equations, unknown models, and rules for ops of ours: input errors `trace-rule`.
std::vector<ir::InputError> verify_rules(const ir::Program &program);

// The op that a rule of the trace makes of a spelling. `row` receives the row of an equation and
// must outlive the result. None if the trace has no rule for it, or a malformed one.
std::optional<ResolvedOp> resolve_user_rule(const ir::Program &program, ir::OpNameId spelling,
                                            std::unique_ptr<OpDef> &row);

} // namespace spmd::rules
