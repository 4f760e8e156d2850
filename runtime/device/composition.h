// A kernel as a few formulas over whole tensors, each of which a device does in one nest of loops: what a row
// comes to there whose function is not of one element alone.
#pragma once

#include "runtime/device/commands.h"
#include "runtime/kernels/kernel.h"

#include <deque>

namespace spmd::runtime {

// Memory for what is made on the way; asked for anew for each step.
struct StepScratch {
  SpmdAddress data = 0;
  uint64_t bytes = 0; // that the steps so far need at most
};

class Composition {
public:
  // `gradients`: of a derivative, per result of the row; null where none flows. `by`: the operand that is
  // derived by, whose gradient is result 0.
  Composition(const Site &site, llvm::ArrayRef<Placed> args, llvm::ArrayRef<Placed> results,
              llvm::ArrayRef<const Placed *> gradients, std::optional<unsigned> by,
              StepScratch &scratch, std::vector<Command> &commands)
      : site(site), by(by), args_(args), results_(results), gradients_(gradients),
        scratch_(scratch), commands_(commands) {}

  const Site &site;
  const std::optional<unsigned> by; // none: the row itself

  // Null if no tensor stands there.
  const Placed *operand(std::string_view name) const;
  bool is_by(std::string_view name) const;
  const Placed *result(size_t place) const {
    return place < results_.size() ? &results_[place] : nullptr;
  }
  // The one gradient that flows, which is that of result `place`; null if it is not.
  const Placed *only_gradient(size_t place) const;
  // Doubles.
  Placed temporary(llvm::ArrayRef<int64_t> dims);
  // The same elements with other extents, of which there are as many.
  Placed as(const Placed &tensor, llvm::ArrayRef<int64_t> dims);
  // Extents of which those named are 1.
  static Dims without(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<unsigned> along);

  // The formula is of the elements of `inputs` that meet at each place of extents `over`; all tensors are
  // stretched to these from the right. What `out` lacks of them is combined, then divided. False: a device
  // cannot do it.
  using Formula = llvm::function_ref<Symbol(llvm::ArrayRef<Symbol>)>;
  bool make(const Placed &out, llvm::ArrayRef<int64_t> over, llvm::ArrayRef<Placed> inputs,
            Formula formula, SpmdCombiner combiner = kSpmdSum, double divisor = 1);

private:
  llvm::ArrayRef<Placed> args_, results_;
  llvm::ArrayRef<const Placed *> gradients_;
  StepScratch &scratch_;
  std::vector<Command> &commands_;
  uint64_t used_ = 0;
  std::deque<Dims> dims_;
};

// The program over all places of `over`: input k of it is inputs[k]. As with Composition::make.
bool add_stretched(const ScalarProgram &program, llvm::ArrayRef<int64_t> over,
                   llvm::ArrayRef<Placed> inputs, const Placed &out, SpmdCombiner combiner,
                   double divisor, std::vector<Command> &commands);

} // namespace spmd::runtime
