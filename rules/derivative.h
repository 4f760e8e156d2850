// Rows that follow from rows: the gradient of one operand. Outside f by the product rule, around f
// linear in the gradient of the result; dimensions are those of the forward application, read the
// other way. Nothing is listed: a row of the op table has its backward by being there.
//
//   vjp.matmul.a   dr[... m n] * b[... k n], #a[... m k] -> [... m k]
//
// Operands: the gradients of the results (`dr`; of several results `dr0`, `dr1`, ..., those that
// are given), of a list whose members are multiplied those before and after the one that is meant,
// then all operands of the row. An instruction `vjp.OP.OPERAND` takes the gradients as its
// first operand, a list if OP has several results, and then the operands of OP as OP has them;
// `member` counts the members of a list operand. Attributes are those of OP.
#pragma once

#include "rules/application.h"

#include <optional>
#include <string>

namespace spmd::rules {

// By the results whose gradients are given, a bit per result of the row. Null if there is no
// gradient: the row has none, these results do not depend on the operand, or it is a position or a
// condition.
const OpDef *derivative(const OpDef &row, unsigned operand, uint32_t results = ~0u);

struct DerivativeName {
  llvm::StringRef op, operand;
};
// None if the spelling is of another form.
std::optional<DerivativeName> read_derivative_name(llvm::StringRef spelling);
std::string derivative_name(llvm::StringRef op, llvm::StringRef operand);

// Results of the row that have gradients of their own: `r*` counts as one.
unsigned gradient_count(const OpDef &row);

// Whether a derived row takes, of a list whose members are multiplied, those before and after the
// one that is meant.
bool takes_rest(const OpDef &derived);

// The forward application that one of a derived row belongs to, and its operands in the row's
// order.
struct ForwardCall {
  ResolvedOp op;
  llvm::SmallVector<Slot, 8> slots; // per operand of the row
  llvm::SmallVector<ResultClaim, 2> results;
};
ForwardCall forward_call(const Application &app, const OpDef &derived);

} // namespace spmd::rules
