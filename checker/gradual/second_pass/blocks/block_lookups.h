// Rows that ranks look up in blocks of a table by an index, and the masks that set the rest to
// zero.
#pragma once

#include "checker/gradual/blocks/lookups.h"
#include "checker/gradual/blocks/offsets.h"
#include "checker/gradual/second_pass/blocks/zero_blocks.h"

namespace spmd::checker {

class BlockLookups : public SecondPassPart {
public:
  BlockLookups(WalkState &state, CurrentInst &now, const ZeroBlocks &zeros)
      : SecondPassPart(state, now), lookups_(offsets_, zeros.values(), gradual_.cuts()) {}

  void begin();
  void take_offset_operands(const rules::Application &app);
  void judge(ir::InstId id, const rules::Application &app);
  // The dimensions that the rows are cut in.
  void cut_rows(ir::Type &type) const;
  void keep_addends(ir::ValueId value, ir::Type &type);
  void keep_offsets(ir::ValueId value, uint32_t index, ir::Type &type) const;

  const Offsets &offsets() const { return offsets_; }
  // What the instruction looks up.
  const Lookups::Facts &found() const { return found_; }
  ir::AxisSet axes(ir::ValueId value) const { return lookups_.axes(value); }

private:
  Offsets offsets_;
  Lookups lookups_;
  Lookups::Facts found_;
  ir::AxisSet offset_axes_; // along which such indices and masks are taken as equal
};

} // namespace spmd::checker
