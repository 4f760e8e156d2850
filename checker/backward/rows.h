// The backward of ordinary ops: a derived row for each operand (rules/derivative.h).
#pragma once

#include "checker/backward/builder.h"

namespace spmd::checker {

class RowBackward : BackwardBuilder {
public:
  explicit RowBackward(BackwardState &state) : BackwardBuilder(state) {}

  bool through_op(const Inst &inst, const rules::ResolvedOp &op, llvm::ArrayRef<ValueId> results,
                  Gradients &gradients);

private:
  bool through_row(const Inst &inst, const rules::Application &app, const rules::RowUse &use,
                   unsigned at, llvm::ArrayRef<ValueId> values, llvm::ArrayRef<ValueId> results,
                   Gradients &gradients);
  bool through_operand(const Inst &inst, const rules::OpDef &row, std::string_view operand,
                       std::optional<int64_t> member, llvm::ArrayRef<ValueId> results,
                       ValueId value, Gradients &gradients);
  std::optional<Operand> gradient_operand(const Inst &inst, const rules::OpDef &row,
                                          llvm::ArrayRef<ValueId> results);
  ValueId derived(const Inst &inst, std::string_view operand, std::optional<int64_t> member,
                  Operand gradients, ValueId of);
};

} // namespace spmd::checker
