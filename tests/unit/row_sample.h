// A row of the op table as a statement: operands of the dimensions that its equation writes.
#pragma once

#include "rules/ops/op.h"
#include "tests/unit/run_statement.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::test {

// `%a, %b, ...` with numbers from `first`.
std::string value_names(size_t count, const char *prefix, size_t first = 0);

struct RowSample {
  // `extent`: per factor of the equation; `...` is one dimension, of factor kRestFactor.
  RowSample(const rules::OpDef &row, llvm::function_ref<int64_t(unsigned)> extent);

  std::string text() const; // of the statement

  const rules::OpDef *row;
  std::string inputs, operands;     // and attributes
  std::vector<unsigned> operand_of; // per input
  std::vector<Dims> results;
  // False where attributes or spellings say more than the equation.
  bool usable = true;
};

// The gradient of operand `operand` (by its name) of `op`, to be run on the gradients of the
// results and the operands. `rest`: operands and attributes of the forward statement, whose inputs
// are `inputs`.
Statement gradient_statement(const Statement &forward, const std::string &inputs,
                             const std::string &op, const std::string &operand,
                             const std::string &rest, size_t input);

// The sum of the products of all elements.
runtime::Residue dot(const Tensor &a, const Tensor &b);
// <A x, y> = <x, A* y>, where x is input `input`: exactly, on random data.
void check_adjoint(Statement &forward, Statement &backward, size_t input, std::mt19937 &random,
                   int64_t below);

} // namespace spmd::test
