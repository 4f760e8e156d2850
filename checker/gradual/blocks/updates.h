// What a step makes of a value: whether a parameter takes it on, and whether a rank that hands out
// its own is one of several that do so.
#pragma once

#include "rules/apply.h"

#include "ir/program.h"

#include "llvm/ADT/BitVector.h"

namespace spmd::checker {

class Updates {
public:
  explicit Updates(ir::Program &program);

  // Whether a gradient or a new value of a parameter is made of a result of the instruction. What
  // only decides something, as a flag that an overflow has set does, is no part of it.
  bool feeds_parameter(ir::InstId id) const;
  // Whether the program makes any of a parameter.
  bool has_any() const { return made_of_.any(); }
  // Whether the forward reads a value for what becomes of parameters. What is read to be moved on,
  // as the statistics of a batch norm, is not.
  bool reads_for_update(ir::ValueId value) const { return read_.test(value.index); }
  // Whether the instruction adds to something that the program keeps from step to step, and that is
  // no parameter, no state of an optimizer, and nothing that the next step would train by.
  bool is_tally(ir::InstId id) const;
  // Whether other ranks hand out what they have of the operand of a broadcast, too.
  bool is_broadcast_by_each_owner(ir::InstId broadcast) const;

private:
  bool adds_to_kept(const ir::Inst &inst, const rules::ResolvedOp &op) const;
  bool is_asked(rules::Rules &rules) const;
  void find_read(rules::Rules &rules);
  void find_in_turn(rules::Rules &rules);

  const ir::Program &program_;
  llvm::BitVector kept_, made_of_, read_, in_turn_; // by value
};

} // namespace spmd::checker
