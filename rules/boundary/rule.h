// What rules of boundary ops share: operands as they are seen at the op, and results.
#pragma once

#include "rules/application.h"

namespace spmd::rules {

// The type of an operand: specs of axes that are local here are no matter, and where gradients are
// off none flows.
ir::Type seen_operand(const Application &app, unsigned i);
// The first result, if there is one.
void give_result(const Application &app, Outcome &out, const ir::Type &type, ir::ShapeId shape,
                 ir::ShardSizesId sizes = {});
// A result of the shape and the blocks of the first operand.
void give_like_first(const Application &app, Outcome &out, const ir::Type &type);
void pass_first(const Application &app, Outcome &out);

// Rules of the gradient boundary (gradients.cc). `grad` takes the loss root behind its operand,
// `step` a value of the type that the optimizer needs: the checker knows them.
void apply_backward(const Application &app, Outcome &out);
void apply_grad(const Application &app, Outcome &out);
void apply_step(const Application &app, Outcome &out);
void apply_to_local(const Application &app, Outcome &out);

} // namespace spmd::rules
