// What both readers ask of operands.
#pragma once

#include "ir/program.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::ir {

// True of a value, and of a list with one in it.
inline bool holds_value(const Program &program, Operand operand) {
  if (operand.form != Operand::Form::List)
    return operand.is_value();
  return llvm::any_of(program.operand_lists[operand.as_list()],
                      [&](Operand item) { return holds_value(program, item); });
}

// What holds no value, as an attribute.
inline AttrValue as_attr(Program &program, Operand operand) {
  if (operand.form == Operand::Form::Literal)
    return program.literals[operand.index];
  AttrList list;
  for (size_t i = 0; i < program.operand_lists[operand.as_list()].size(); ++i)
    list.items.push_back(as_attr(program, program.operand_lists[operand.as_list()][i]));
  return AttrValue::list(program.lists.add(std::move(list)));
}

inline constexpr std::string_view kNothingToWrite =
    "`mut` marks what holds no value: nothing of it can be written in place";

} // namespace spmd::ir
