// Copies of a parameter that are to be equal on all ranks, as what wraps the model keeps them, and
// are not: the ranks that ran up to the step had other values.
#pragma once

#include "checker/gradual/cuts.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

class Copies {
public:
  // The program declares them as they are to be until `restore`, and the rest is judged as if they
  // were.
  explicit Copies(ir::Program &program);
  void restore(ir::Program &program, CheckResult &result) const;

  // `checked`: the program, judged by kinds. Finds what differs, is no block of anything, and is
  // updated with what is equal on all ranks.
  void find_updated_equally(const ir::Program &program, const CheckResult &checked,
                            const Cuts &cuts);

  ir::AxisSet differing(ir::ValueId param) const { return differing_.lookup(param.index); }
  llvm::ArrayRef<Finding> findings() const { return findings_; }

private:
  void differ(const ir::Program &program, ir::ValueId param, ir::AxisSet axes, ir::InstId at);
  void find_averages(const ir::Program &program, const CheckResult &checked, const Cuts &cuts);
  void find_constants(const ir::Program &program, const CheckResult &checked, const Cuts &cuts);

  llvm::DenseMap<uint32_t, ir::AxisSet> differing_; // by value
  std::vector<Finding> findings_;
  std::vector<std::pair<ir::ValueId, ir::TypeId>> declared_; // as the program states it
  std::vector<std::pair<uint32_t, ir::TypeId>> left_;        // likewise, of outputs
};

} // namespace spmd::checker
