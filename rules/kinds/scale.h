// Scales of equations: "the data denote `scale` times what is meant". A product multiplies them,
// the terms of a sum must have equal ones, f(...) takes none but 1, a mean of the parts of a
// sharded dimension is an average for each rank. Source: rules/README.md, "Scale".
#pragma once

#include "rules/kinds/local.h"

#include "ir/mesh/axis_scale.h"

namespace spmd::rules {

struct ScaleInput {
  const Application &app;
  const LocalInput &kinds;
  ir::AxisSet divided; // axes that cut a dimension by whose extent a mean divides
};

struct SumScale {
  ir::ScaleId scale;                       // of the result; none: not known
  llvm::SmallVector<ir::AxisSet, 4> reads; // per term: R read as one addend for each rank; or empty
  llvm::SmallVector<Violation, 0> violations;
};

// One sum of the row. Factors of axes on which an operand is unknown are left out of comparisons.
SumScale judge_scale(const ScaleInput &input, const OpDef &row, const Sum &sum);

// What is wrong where a value needs a scale and has another one; factors of axes on which its type
// is unknown are left out. `other`: `1 is needed`. Both scales are canonical.
std::optional<Violation> scale_differs(ir::Program &program, const ir::Type &type,
                                       ir::ScaleId needed, std::string other, OperandIndex operand,
                                       ir::ValueId value = {});

} // namespace spmd::rules
