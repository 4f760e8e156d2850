// One op of the table in a field, from its equation alone, forward and backward. What an equation
// leaves open is chosen once and for all by a hash: f(...) and its derivatives, the linear map
// along whole factors, the weight of a condition. What then holds, holds for no reason special to
// one op.
#pragma once

#include "tests/soundness/array.h"

#include "rules/apply.h"
#include "rules/factors/factors.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace spmd::soundness {

// An operand, and of what it is a block: null where it is the whole.
struct FieldArg {
  const Array *array = nullptr;
  const Dims *first = nullptr, *whole = nullptr;
};

class FieldOp {
public:
  // None, and why, for a row whose dimensions or operands this suite cannot follow.
  static std::optional<FieldOp> make(const rules::Application &app, std::string &why);

  // `result_dims`: as the program claims them; factors that no operand has are read off them. None,
  // and why, where extents do not fit: then the claim is wrong, or this op.
  std::optional<Arrays> run(llvm::ArrayRef<FieldArg> args, llvm::ArrayRef<Dims> result_dims,
                            std::string &why) const;
  // Adds to the gradients of the operands (null: not asked for), given those of the results (null:
  // zero).
  void pull(llvm::ArrayRef<FieldArg> args, llvm::ArrayRef<Dims> result_dims,
            llvm::ArrayRef<const Array *> gradients, llvm::MutableArrayRef<Array *> to) const;

  // Of several gradients some belong to results that nobody declared: what does not fit then is not
  // followed.
  bool may_not_fit() const { return forward_ && gradients_.size() > 1; }
  // A constant that is 1: where gradients start. Any other is of its name.
  void hold_ones() { ones_ = true; }
  // False for operands of which a result takes the extents at most.
  bool reads(size_t result, unsigned arg) const { return forward_ || reads_[result][arg]; }

private:
  // What stands in the place of an operand of the row: tensors of the application, or a number.
  struct Place {
    unsigned first = 0, count = 0;
    std::optional<Residue> number;
    bool missing() const { return !count && !number; }
  };
  using Extents = llvm::SmallVector<int64_t, 8>;
  struct Loop; // one term, laid out for the extents at hand
  class Layout;

  // Extents of results that are not known are null.
  std::optional<Extents> extents(llvm::ArrayRef<FieldArg> args,
                                 llvm::ArrayRef<const Dims *> result_dims, std::string &why) const;
  // A derived row is what its forward row gives back, not what its own equation says.
  static std::optional<FieldOp> make_derived(const rules::Application &app, const rules::OpDef &row,
                                             std::string &why);
  std::optional<Arrays> run_derived(llvm::ArrayRef<FieldArg> args, const Dims &result_dims,
                                    std::string &why) const;
  Dims dims_of(const rules::TensorFactors &factors, const Extents &extents) const;
  llvm::SmallVector<bool, 8> read_by(size_t result) const;
  const rules::Sum &sum_of(size_t result) const;
  // The terms that define a declared result.
  std::vector<Loop> loops(size_t result, llvm::ArrayRef<FieldArg> args,
                          const Extents &extents) const;

  const rules::OpDef *row_ = nullptr;
  llvm::SmallVector<Place, 12> places_;    // per operand of the row
  llvm::SmallVector<unsigned, 2> results_; // of the row, per declared one
  rules::FactorMap map_;
  llvm::SmallVector<llvm::SmallVector<bool, 8>, 2> reads_;  // per result and tensor
  std::unique_ptr<FieldOp> forward_;                        // of a derived row
  llvm::SmallVector<std::optional<unsigned>, 2> gradients_; // arguments, per result of that
  unsigned wanted_ = 0;                                     // the argument whose gradient it is
  bool ones_ = false;
  Dims flipped_;          // the backward of a loop runs over it in the other order: no unknown map
  bool in_order_ = false; // elements keep their order, only the extents change
};

} // namespace spmd::soundness
