// The operands of an instruction as rules take them.
#pragma once

#include "rules/apply.h"

namespace spmd::checker {

// Which tensors of an instruction are written in place.
enum class Writes : uint8_t { None, First, Others }; // First: the first one alone
// With one tensor more.
inline Writes with_tensor(Writes before, bool first, bool written) {
  if (!written)
    return before;
  return before == Writes::None && first ? Writes::First : Writes::Others;
}

// How an operand that is no tensor stands in a slot.
inline rules::Slot::Form form_of(const ir::AttrValue &literal) {
  return literal.form == ir::AttrForm::Null ? rules::Slot::Form::Missing
                                            : rules::Slot::Form::Literal;
}

// Slots and args of one instruction. Reused from instruction to instruction.
struct OperandList {
  llvm::SmallVector<rules::Slot, 8> slots;
  llvm::SmallVector<ir::ValueId, 8> values; // per arg
  llvm::SmallVector<bool, 8> written;       // per arg: in place
  Writes writes = Writes::None;

  void read(const ir::Program &program, ir::OperandsId block);
  // The operands that make one of several results: all of them, but of a list with as many members
  // as there are results only the member at the same position.
  void operands_of_result(uint32_t result, uint32_t results,
                          llvm::SmallVectorImpl<ir::ValueId> &found) const;

  // By what is known of the values.
  llvm::SmallVector<rules::TensorInfo, 6> args(llvm::ArrayRef<ir::TypeId> types,
                                               llvm::ArrayRef<ir::ShapeId> shapes) const {
    llvm::SmallVector<rules::TensorInfo, 6> found;
    for (ir::ValueId value : values)
      found.push_back({types[value.index], shapes[value.index], {}});
    return found;
  }

private:
  void note_write(bool mut) { // of the operand that comes next
    writes = with_tensor(writes, values.empty(), mut);
  }
  void add(const ir::Program &program, const ir::Operand &operand, ir::StringId name);
};

} // namespace spmd::checker
