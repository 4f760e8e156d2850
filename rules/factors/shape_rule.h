// Shapes from equations: the extents of factors unify over the operands, dimensions of results are
// read off. What is unknown stays unknown; the checker then takes the declared shape.
#pragma once

#include "rules/factors/factors.h"

namespace spmd::rules {

// The factors of one application, as far as its shapes can be read off them; none where numbers by
// position are attributes that are not known. What does not fit is added to `found`.
FactorMap shape_factors(const Application &app, const Equation &equation, const Binding &binding,
                        Outcome &found);
// Fills out.shapes (one per declared result, local extents, with dtype) and adds shape-mismatch
// violations: those of `found`, and where the declared shape of a result differs from what follows.
void apply_shapes(const Application &app, const Equation &equation, const Binding &binding,
                  const FactorMap &map, const Outcome &found, Outcome &out);
// Of a derived row: holds the gradients, as the declared results of the forward application,
// against what follows for these.
void judge_gradient_shapes(const Application &forward, const Equation &equation,
                           const Binding &binding, const FactorMap &map, Outcome &out);

// The dimensions of all tensors in factors, extents as far as the operands give them.
FactorMap map_factors(const Application &app, const Equation &equation, const Binding &binding,
                      Outcome &out);
// The result of the row that a declared result is: `output_mask` leaves some out.
unsigned row_result(const Application &app, unsigned declared);
// The element type of a declared result; Unknown if it does not follow.
ir::DType result_dtype(const Application &app, const OpDef *row, const Equation &equation,
                       const Binding &binding, unsigned declared);

} // namespace spmd::rules
