// What a rank has picked, counted or ordered among its own elements, and extremes of them.
#pragma once

#include "checker/gradual/blocks/extremes.h"
#include "checker/gradual/blocks/local_log_sum_exp.h"
#include "checker/gradual/blocks/mask_selected_rows.h"
#include "checker/gradual/second_pass/blocks/block_lookups.h"
#include "checker/gradual/second_pass/ranks/data_origins.h"

namespace spmd::checker {

class OwnCounts : public SecondPassPart {
public:
  OwnCounts(WalkState &state, CurrentInst &now, const DataOrigins &origins,
            const BlockLookups &lookups)
      : SecondPassPart(state, now), origins_(origins), lookups_(lookups) {}

  void begin();
  void take_own_numbers(const rules::Application &app);
  void judge_extremes(const rules::Application &app);
  void judge_selected(const rules::Application &app);
  void judge_logs(ir::InstId id, const rules::Application &app);
  void keep_own(ir::ValueId value, ir::Type &type);
  void learn(ir::ValueId value, ir::AxisSet pending);
  void keep_picked(ir::ValueId value, ir::Type &type);

  // Axes along which the instruction knows how many elements the rank has.
  ir::AxisSet counts() const { return counts_; }
  // Axes on which its first result is an extreme of the rank's own block.
  ir::AxisSet extremes() const { return extreme_.own; }
  ir::AxisSet logs(ir::ValueId value) const { return own_logs_.axes(value); }

private:
  const DataOrigins &origins_;
  const BlockLookups &lookups_;
  MaskSelectedRows selected_;
  Extremes extremes_;
  LocalLogSumExp own_logs_;
  ir::AxisSet picked_, counts_; // see MaskSelectedRows
  Extremes::Facts extreme_;     // of the first result, as what follows
  LocalLogSumExp::Facts own_log_;
};

} // namespace spmd::checker
