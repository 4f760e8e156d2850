// What the operands of one op may be on one axis, by the factors of its row.
#pragma once

#include "rules/factors/factors.h"
#include "rules/redistribute/search/state.h"

namespace spmd::rules::redistribute {

// What one operand is on one axis.
struct OperandTarget {
  enum class Form : uint8_t { Stay, Shard, Same, Replicate, Partial };
  Form form = Form::Stay;
  uint8_t dim = 0;                           // Shard
  ir::Combiner combiner = ir::Combiner::Sum; // Partial
  friend bool operator==(const OperandTarget &, const OperandTarget &) = default;
};
// Of all operands.
using Strategy = llvm::SmallVector<OperandTarget, 4>;

// The strategies of one application, axis by axis: the axis cuts one factor, in every operand that
// has it; or none; or operands stay pending, where something is. `wholes`: the extents of all ranks
// together, none where they are not known.
class Candidates {
public:
  Candidates(const Application &app, llvm::ArrayRef<ir::Type> types,
             llvm::ArrayRef<ir::ShapeId> wholes);

  std::vector<Strategy> strategies(ir::AxisId axis) const;
  // The dimensions of an operand in factors; null if they cannot be determined.
  const TensorFactors *factors(size_t arg) const {
    return factors_[arg] ? &*factors_[arg] : nullptr;
  }
  // The dimension that a factor leads; none if the operand lacks it, kNoDim if it cannot be cut
  // there.
  std::optional<unsigned> dim_of(size_t arg, uint8_t factor) const;

private:
  void read_factors();
  bool read_factors(llvm::ArrayRef<TensorInfo> args);
  bool one_element(size_t arg, unsigned dim) const;
  template <class Same, class Add>
  void add_partial(ir::AxisId axis, const Same &same, const Add &add) const;

  const Application &app_;
  ir::Program &program_;
  llvm::ArrayRef<ir::Type> types_;
  llvm::ArrayRef<ir::ShapeId> wholes_;
  llvm::SmallVector<std::optional<TensorFactors>, 4> factors_; // per operand
  llvm::SmallVector<bool, 8> whole_factors_;                   // per factor: it must not be cut
};

} // namespace spmd::rules::redistribute
