// Rows that ranks sort and send to each other, and the experts that they are sent to.
#pragma once

#include "checker/gradual/blocks/routed_rows.h"
#include "checker/gradual/second_pass/blocks/zero_blocks.h"

namespace spmd::checker {

class ExpertRows : public SecondPassPart {
public:
  ExpertRows(WalkState &state, CurrentInst &now, const ZeroBlocks &zeros)
      : SecondPassPart(state, now), routes_(program_, gradual_.cuts(), zeros.values()) {}

  void declare(ir::ValueId value, ir::AxisSet own) { routes_.own(value, own); }
  void begin() { routed_ = {}; }
  void take_rows(const ir::Inst &inst, const rules::Application &app);
  void keep(ir::InstId id, ir::ValueId value, uint32_t index, ir::Type &type);
  // Integers that a rank makes of how many rows it has for each expert are of its own rows.
  // `proved`: the axes along which more is known of the value. Returns all such axes of it.
  ir::AxisSet keep_counts(ir::ValueId value, const ir::Type &type, ir::AxisSet proved);

  // What the instruction makes of such rows.
  const RoutedRows::Facts &facts() const { return routed_; }
  // Axes along which a value is a rank's own, as the weights of its experts are.
  ir::AxisSet owned(ir::ValueId value) const { return routes_.owned(value); }
  // Along which an operand counts rows that the instruction makes.
  ir::AxisSet counted(ir::ValueId operand) const { return routed_.rows & routes_.counts(operand); }

private:
  ir::AxisSet own_counts_made(ir::ValueId value, const ir::Type &type) const;

  RoutedRows routes_;
  RoutedRows::Facts routed_;
};

} // namespace spmd::checker
