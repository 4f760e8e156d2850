// Which operand of an instruction stands for which operand of a row.
#pragma once

#include "rules/application.h"

#include <array>
#include <optional>

namespace spmd::rules {

struct OperandMismatch;

// Per operand of the equation: the slot of the application, or null if it is missing.
struct Binding {
  std::array<const Slot *, 12> slots{};
  const Slot *generator = nullptr;            // a random state given as an operand
  llvm::SmallVector<const Slot *, 2> ignored; // that the spelling has and the row does without

  const Slot *operator[](unsigned operand) const { return slots[operand]; }
  // Neither a tensor nor a list nor a number stands there.
  bool missing(unsigned operand) const {
    return !slots[operand] || slots[operand]->form == Slot::Form::Missing;
  }
  // A plain number (or another literal) stands there.
  bool is_number(unsigned operand) const {
    return slots[operand] && slots[operand]->form == Slot::Form::Literal;
  }
};

// The operands of a row that `Alias::order` names, per position.
llvm::SmallVector<uint8_t, 6> read_order(std::string_view order, const Equation &equation);
// The row that an equation stands in; null for an equation of the trace.
const OpDef *row_of(const Application &app, const Equation &equation);

// Positional operands in the order of the spelling, then named ones by the row's names (or the
// framework's `input`, `other`, `weight`, ... where the alias table says so). None if the operands
// do not fit the row; then `problem` says how.
std::optional<Binding> bind_operands(const Application &app, const Equation &equation,
                                     OperandMismatch &problem);

// True if the slot holds the number 0.
bool is_zero(const Slot &slot);
bool is_zero(const ir::AttrValue &value);
// True if it holds a plain number that is not finite.
bool is_infinite(const Slot &slot);

} // namespace spmd::rules
