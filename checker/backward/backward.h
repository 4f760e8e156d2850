// The backward of a program, as instructions of the same program: derived rows around ordinary ops
// (rules/derivative.h), duals of transitions, sums where a value was used more than once. No tape:
// what is saved are values that live longer. Source: rules/README.md, "Gradients"; type-system
// property 2.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/ArrayRef.h"

#include <optional>
#include <string>

namespace spmd::checker {

// Why there is no backward: an instruction without a derivative, or a program that does not check.
struct NoBackward {
  ir::InstId inst; // none: of the program as a whole. Of the program as it was left
  std::string message;
};

// Replaces `backward %l` by the gradients of all that a gradient may be asked for, and `%g = grad
// %x` by that of %x; a program that has neither, but an output of role loss, gives the gradients of
// its parameters as outputs `grad.NAME`. The program must be clean; calls are inlined. What comes
// out is clean, or there is a reason why not.
// `wrt`: declared values; besides what the program asks for, their gradients are outputs, and those
// of no parameter that is not among them. Empty: as above.
std::optional<NoBackward> derive_backward(ir::Program &program, const CheckOptions &options = {},
                                          llvm::ArrayRef<ir::ValueId> wrt = {});

// True if the program asks for gradients, by a `backward` or an output of role loss, and has none
// yet: a recorded step has its backward in it.
bool has_loss(const ir::Program &program);

} // namespace spmd::checker
