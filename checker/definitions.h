// What makes a value, which tensors an instruction takes, and over which axes it runs.
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

// The elements of a dimension; none if it is not there, or no number.
std::optional<int64_t> extent_of(const ir::Program &program, ir::ShapeId shape, unsigned dim);
// How many dimensions there are; 0 if that is not known.
size_t rank_of(const ir::Program &program, ir::ShapeId shape);
// Whether there are known to be none.
bool is_number(const ir::Program &program, ir::ShapeId shape);

// True if the call runs over one of the axes, by name or by group.
bool runs_over(const ir::Program &program, ir::InstId inst, ir::AxisSet axes);

// The unstated sum over one of these axes that the results of an instruction run into by way of
// linear ops only: there they are addends, whatever they are called. None if there is none, or if
// the instruction multiplies its operands, so that none of them is an addend by itself.
ir::InstId sum_ahead(const ir::Program &program, ir::InstId inst, ir::AxisSet axes);

} // namespace spmd::checker
