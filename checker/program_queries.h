// Questions about one instruction, value or shape of a program that need no types.
#pragma once

#include "ir/program.h"

#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace spmd::checker {

// The instruction that makes a value; none if it is declared.
ir::InstId defining_inst(const ir::Program &program, ir::ValueId value);

// The value whose storage a value is, or is a view of.
ir::ValueId storage_of(const ir::Program &program, ir::ValueId value);

// The operands of an instruction as rules count them: tensors in order, lists flattened.
llvm::SmallVector<ir::ValueId, 4> tensors_of(const ir::Program &program, ir::InstId inst);

// The tensor that a value is made of; none if it is declared, or made of no tensor or of several.
ir::ValueId only_source(const ir::Program &program, ir::ValueId value);

// The elements of a dimension; none if it is not there, or no number.
std::optional<int64_t> extent_of(const ir::Program &program, ir::ShapeId shape, unsigned dim);
// How many dimensions the shape has; 0 if that is not known.
size_t dimension_count(const ir::Program &program, ir::ShapeId shape);
// True if the shape is known to have no dimensions.
bool is_scalar(const ir::Program &program, ir::ShapeId shape);

// True if the call runs over one of the axes, by name or by group.
bool runs_over(const ir::Program &program, ir::InstId inst, ir::AxisSet axes);

// The all_reduce or reduce_scatter over one of these axes that the results of the instruction reach
// through linear ops alone: what reaches it is an addend, whatever kind it was declared. None if
// there is no such collective, or if the instruction multiplies its operands, so that no operand
// alone is an addend.
ir::InstId reducing_collective_of(const ir::Program &program, ir::InstId inst, ir::AxisSet axes);

} // namespace spmd::checker
