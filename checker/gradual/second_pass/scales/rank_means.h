// Means that ranks take by counts of their own, and what is added to them.
#pragma once

#include "checker/gradual/second_pass/part.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

class RankMeans : public SecondPassPart {
public:
  using SecondPassPart::SecondPassPart;

  void begin();
  void take_counts(const ir::Inst &inst, const rules::ResolvedOp &op);
  void add_to_means(const rules::ResolvedOp &op);
  void follow(ir::InstId id, ir::ValueId value, uint32_t index);

  // What the instruction does to scales by such counts.
  ir::ScaleId count_scale() const { return count_scale_; }

private:
  struct Mean { // what ranks divided by their own counts, and where these differ
    ir::InstId by;
    ir::AxisSet axes, uneven;
  };

  ir::ValueId count_of(ir::ValueId value) const;
  void judge_counts(ir::InstId id, ir::ValueId value);
  void report(ir::InstId by, ir::ValueId loss, ir::AxisSet axes);

  llvm::DenseMap<uint32_t, Mean> means_;               // by value
  llvm::DenseMap<uint32_t, Mean> by_count_;            // the first division by it
  llvm::DenseMap<uint32_t, ir::ValueId> counts_;       // by value: that from which it was moved
  llvm::DenseSet<uint32_t> reported_;                  // such divisions
  llvm::DenseMap<uint32_t, ir::AxisSet> equal_counts_; // by value: axes along which ranks have it
  ir::AxisSet divided_, uneven_; // on which it divides by own counts, and on which these differ
  ir::ScaleId count_scale_;
};

} // namespace spmd::checker
