// Transitions on what values mean: what a collective, a convert or a reinterpret makes of whole
// tensors and of lists of them, as the words of the call specify it; nothing of how ranks bring it
// about.
#pragma once

#include "runtime/plan/tensor_sizes.h"
#include "runtime/reference/meaning.h"

#include "rules/transitions/call.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::runtime {

// One operand of a call of a transition, and the result that it becomes.
struct MovedValue {
  const rules::Application &app;
  const rules::TransitionCall &call;
  uint32_t operand; // into Application::args
  const Distribution &from, &to;
  // The lengths that a tensor operand of this name says to the rank at these coordinates; none:
  // there is no such operand.
  llvm::function_ref<llvm::Expected<TensorSizes::Lengths>(llvm::StringRef key,
                                                          const Grid::Coordinates &at)>
      stated_lengths;
};

// Without the factor below. An error: lengths that do not fit, a root or a permutation that is not
// stated in numbers.
llvm::Expected<Meaning> moved(const MovedValue &value, const Meaning &meaning);
// By what the call multiplies what is meant: 1 but for a list that is averaged, and along axes that
// have no counterpart on one device, whose sizes no scale can carry.
Rational factor_of(const MovedValue &value);

// The transpose of a map that moves and adds up elements: what each element of a result with these
// gradients is worth to each element of the operand, of which `like` has the extents.
Meaning transposed(llvm::function_ref<llvm::Expected<Meaning>(const Meaning &)> map,
                   const Meaning &like, const Meaning &gradient);

} // namespace spmd::runtime
