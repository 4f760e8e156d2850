// Losses: what they share.
#pragma once

#include "ir/support/check.h"
#include "runtime/kernels/kernel.h"

namespace spmd::runtime {

using rules::LossReduction;
// By attribute `reduction`.
llvm::Expected<LossReduction> read_reduction(const KernelContext &context);

llvm::ArrayRef<KernelDef> class_loss_kernels(); // targets are classes

// Puts the losses of samples where the reduction wants them. `divisor`: of a mean.
template <class T>
void reduce_losses(LossReduction reduction, const std::vector<T> &losses, T divisor, View<T> out) {
  if (!out)
    return;
  if (reduction == LossReduction::None) {
    SPMD_CHECK(out.size() == static_cast<int64_t>(losses.size()), "a loss per sample is kept");
    for (size_t i = 0; i < losses.size(); ++i)
      out[static_cast<int64_t>(i)] = losses[i];
    return;
  }
  T sum = T(0.0);
  for (const T &loss : losses)
    sum += loss;
  out[0] = reduction == LossReduction::Sum ? sum : sum / divisor;
}

} // namespace spmd::runtime
