// A table whose rows are cut, as an embedding over a split vocabulary: each rank looks up what lies
// in its own rows and sets the rest to zero. What was looked up is then an addend of the whole.
#pragma once

#include "checker/gradual/blocks/offsets.h"

#include "rules/attributes/lookups.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

class Cuts;

class Lookups {
public:
  // `zero_blocks`: values that are made of zeros, and cut.
  Lookups(const Offsets &offsets, const llvm::DenseSet<uint32_t> &zero_blocks, const Cuts &cuts)
      : offsets_(offsets), zero_blocks_(zero_blocks), cuts_(cuts) {}

  // Axes on which the result is looked up in the rank's own rows alone, and those on which what
  // lies elsewhere is zero by now. `summed`: what lies elsewhere is not zero, and ranks add it up.
  struct Facts {
    ir::AxisSet looked_up, addends, summed;
    bool mask = false;   // the result is one of zeros and ones
    bool counts = false; // numbers counted up
    // Axes that cut rows of which each rank takes all that it has, in their order.
    ir::AxisSet own;
    std::optional<unsigned> own_dim; // of the result, that they cut
    // Axes on which the rank's own rows get what was zero for others, in dimension `dim`: the
    // backward of such a lookup.
    ir::AxisSet scattered;
    unsigned dim = 0;
    // Axes on which they also get what belongs to the rows of others, and the operand that has it.
    ir::AxisSet foreign;
    uint32_t source = 0;
    bool zeroed = false; // the result is zero where a mask says so
    // The mask of what is looked up, or kept; none: not known.
    std::optional<Offsets::Mask> rows;
    ir::ValueId table, index; // in what it is looked up, and by which numbers
    // Axes along which ranks have shared out by it what was equal on all: each keeps what belongs
    // to its rows.
    ir::AxisSet shared;
    // Axes on which the mask keeps more than the rank's own rows, and what it masks.
    ir::AxisSet beyond;
    uint32_t masked = 0;
    // Axes on which it is not known whether the index begins where the rank's rows do.
    ir::AxisSet unplaced;
    // It does not on this axis: where that comes from, and by how much it moves from rank to rank.
    struct Misplaced {
      ir::AxisId axis;
      ir::InstId by;
      int64_t step, rows;
    };
    std::optional<Misplaced> misplaced;
  };
  Facts infer(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands) const;
  // The operands that differ between ranks only as the instruction asks for: the index of a lookup
  // in their own rows, the mask by which something is set to zero.
  llvm::SmallVector<size_t, 2> offset_operands(const rules::Application &app,
                                               llvm::ArrayRef<ir::ValueId> operands) const;
  ir::AxisSet axes(ir::ValueId value) const {
    const auto at = looked_up_.find(value.index);
    return at == looked_up_.end() ? ir::AxisSet() : at->second.axes;
  }
  void learn(ir::ValueId value, const Facts &facts) {
    if (facts.looked_up)
      looked_up_[value.index] = {facts.looked_up, facts.rows, facts.table, facts.index};
    if (facts.mask)
      masks_.insert(value.index);
    if (facts.counts)
      counted_.insert(value.index);
    if (facts.zeroed)
      zeroed_[value.index] = {facts.shared, facts.rows, {}, {}};
  }

private:
  struct Rows { // `axes` of Facts::looked_up, or of Facts::shared
    ir::AxisSet axes;
    std::optional<Offsets::Mask> rows;
    ir::ValueId table, index;
  };
  struct Scatter;
  void look_up(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
               Facts &facts) const;
  void place(const rules::Application &app, const rules::Pick &pick, ir::ValueId index,
             ir::AxisSet axes, Facts &facts) const;
  bool write_back(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                  Facts &facts) const;
  void scatter(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
               Facts &facts) const;
  bool has_own_rows(ir::ValueId value, const Offsets::Mask &rows) const;
  bool counts_rows(const rules::Application &app, const rules::Pick &pick, ir::ValueId index) const;
  bool has_mask(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands) const;

  std::optional<Scatter> scatter_of(const rules::Application &app,
                                    llvm::ArrayRef<ir::ValueId> operands) const;

  const Offsets &offsets_;
  const llvm::DenseSet<uint32_t> &zero_blocks_;
  const Cuts &cuts_;
  llvm::DenseMap<uint32_t, Rows> looked_up_, zeroed_; // by value
  llvm::DenseSet<uint32_t> masks_, counted_;          // values
};

} // namespace spmd::checker
