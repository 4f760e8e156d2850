// A row that gives the gradient of an operand of another row, where that one has a kernel: the
// kernel's own derivative, or, of residues that it only moves, the way back.
#pragma once

#include "runtime/kernels/kernel.h"

namespace spmd::runtime {

// The forward application of a derived row. Made in place: it points into itself.
class ForwardRow {
public:
  ForwardRow() = default;
  ForwardRow(const ForwardRow &) = delete;
  ForwardRow &operator=(const ForwardRow &) = delete;

  // `app`: of the derived row. An error: operands that the forward row does not take.
  llvm::Error bind(const rules::Application &app, const rules::OpDef &derived);

  const KernelDef *kernel() const { return kernel_; } // null if the equation is the value
  // Its kernel moves residues and makes none.
  bool moves() const { return kernel_ && kernel_->moves && kernel_->modular; }
  // Its results may hold anything before.
  bool assigns() const { return kernel_->vjp ? kernel_->vjp_assigns : kernel_->moves; }
  // Tensors that its kernel needs.
  void find_reads(llvm::MutableArrayRef<bool> reads) const;
  // The gradient of another operand of the same call may be made with it.
  bool goes_with(const ForwardRow &other) const {
    return kernel_ && kernel_->together && row_ == other.row_ && operand_ != other.operand_;
  }
  // The row itself: where it stands, the operand that is derived by, and the arguments of the
  // derived row that are gradients of its results.
  KernelContext context(const KernelContext &derived) const {
    return {*app_, *row_, binding_, map_, derived.domain, derived.seed, derived.op, derived.stream};
  }
  unsigned operand() const { return operand_; }
  unsigned member() const { return member_; }
  llvm::ArrayRef<std::optional<uint32_t>> gradient_args() const { return gradient_args_; }
  // Calls of the derived row. `more`: rows that go with it, of which the results follow the first
  // one.
  llvm::Error run_vjp(const Call<double> &call, llvm::ArrayRef<const ForwardRow *> more = {}) const;
  llvm::Error run_back(const Call<Residue> &call) const;

private:
  // The gradients of the results of the row; null where none flows.
  template <class T> llvm::SmallVector<View<const T>, 2> gradients(const Call<T> &call) const;
  void blank_values(llvm::SmallVectorImpl<View<const Residue>> &args,
                    std::vector<Residue> &zeros) const;

  const rules::OpDef *row_ = nullptr;
  const KernelDef *kernel_ = nullptr;
  rules::ResolvedOp op_;
  llvm::SmallVector<rules::Slot, 8> slots_;
  llvm::SmallVector<rules::ResultClaim, 2> results_;
  std::optional<rules::Application> app_;
  rules::Binding binding_;
  rules::FactorMap map_;
  llvm::SmallVector<std::optional<uint32_t>, 2> gradient_args_; // per result
  unsigned operand_ = 0, member_ = 0;
};

} // namespace spmd::runtime
