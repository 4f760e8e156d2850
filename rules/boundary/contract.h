// The gradient contract of a parameter: the gradient as backward leaves it, what is reduced outside
// of the program, and what the optimizer needs. Source: rules/README.md, "Gradients".
#pragma once

#include "rules/application.h"

namespace spmd::rules {

// One reduction outside of the program, just before the step.
struct SyncedAxes {
  ir::AxisSet axes;
  bool average = false;
};

// Types are those of the parameter's mesh, specs of axes that are local everywhere forgotten.
struct Contract {
  ir::ValueId param;
  ir::Type gradient;  // the dual; its scale: of the parameter, inverted
  ir::ScaleId stated; // of the gradient; none if no other than 1 is stated
  ir::Type needed;
  llvm::SmallVector<SyncedAxes, 1> sync;
};

// `type`: of the parameter. Statements that contradict it go to `out`, and are not taken.
Contract contract_of(ir::Program &program, const ir::GradContract &stated, ir::ValueId param,
                     const ir::Type &type, llvm::SmallVectorImpl<Violation> &out);

// The declared type of a gradient against the dual of its value: it must speak of every axis.
void check_declared_gradient(ir::Program &program, ir::ValueId value, const ir::Type &type,
                             ir::Type declared, llvm::SmallVectorImpl<Violation> &out);

// The gradient after the reductions of the contract; what they reduce in vain goes to `out`.
ir::Type after_sync(ir::Program &program, const Contract &contract, ir::Type gradient,
                    llvm::SmallVectorImpl<Violation> &out);

// What keeps the optimizer from using the gradient. `operand`: which one of the instruction it is.
void check_step(ir::Program &program, const Contract &contract, const ir::Type &gradient,
                OperandIndex operand, llvm::SmallVectorImpl<Violation> &out);

// In local judgment a gradient that differs between ranks, where its dual is partial, is an addend
// that nobody has called so yet.
ir::Type as_addends(const ir::Program &program, ir::Type gradient, const ir::Type &dual);

} // namespace spmd::rules
