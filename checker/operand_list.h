// The operands of an instruction as rules take them.
#pragma once

#include "rules/apply.h"

namespace spmd::checker {

// Slots and args of one instruction. Reused from instruction to instruction.
struct OperandList {
  llvm::SmallVector<rules::Slot, 8> slots;
  llvm::SmallVector<ir::ValueId, 8> values; // per arg
  llvm::SmallVector<bool, 8> written;       // per arg: in place
  enum class Writes : uint8_t { None, First, Others };
  Writes writes = Writes::None; // First: the first one alone

  void read(const ir::Program &program, ir::BlockId block);

private:
  void note_write(bool mut) { // of the operand that comes next
    if (mut)
      writes = writes == Writes::None && values.empty() ? Writes::First : Writes::Others;
  }
  void add(const ir::Program &program, const ir::Operand &operand, ir::StringId name);
};

} // namespace spmd::checker
