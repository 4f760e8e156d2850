// Extents of results that the row of an op tells from the extents of its operands on one rank:
// where no type states them as numbers.
#pragma once

#include "runtime/tensor/tensor.h"

#include "rules/apply.h"

namespace spmd::runtime {

struct TensorForm {
  ir::DType dtype = ir::DType::Unknown;
  llvm::ArrayRef<int64_t> dims;
};

// `app`: of form Equation; what it says of types plays no part. `operands`: one for each of its
// tensors. An expression among its sizes that is the extent of an operand has the value that this
// has here. None: they do not follow from the operands alone, or do not fit.
std::optional<Dims> row_dims(ir::Program &program, const rules::Application &app,
                             llvm::ArrayRef<TensorForm> operands, unsigned result);

} // namespace spmd::runtime
