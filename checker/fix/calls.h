// How a script says what a fix puts into its recording.
#pragma once

#include "checker/fix/fix.h"

#include <optional>
#include <string>
#include <string_view>

namespace spmd::checker {

struct ScriptCall {
  // Expression: in the place of the tensor. Statement: below the line that makes it. Described: the
  // framework has no call for it, the text says in words what to write. AfterBackward: about the
  // gradient of the tensors, which are parameters. OfCall: about the call that the finding is of.
  enum class Form : uint8_t { Expression, Statement, Described, AfterBackward, OfCall };
  Form form;
  std::string text; // `dist.all_reduce(p.grad, group=tp_group)`
  // What the text is about; the same is done to each of them. None where it is about calls alone.
  llvm::SmallVector<ir::ValueId, 1> tensors = {};
};

// What a script calls a tensor, and the gradient of a parameter; where it says so. All empty where
// the program was recorded from no framework that has words here.
struct ScriptWords {
  std::string_view where, tensor, gradient; // `in PyTorch`, `x`, `p.grad`
};
ScriptWords script_words(const ir::Program &program);

// For a tensor that the script calls `tensor`. None where the program was not recorded from PyTorch
// or JAX, or where nothing does just what the fix does, forward and, where a gradient flows,
// backward.
std::optional<ScriptCall> script_call(const ir::Program &program, const Finding &finding,
                                      const Fix &fix, std::string_view tensor);

// What a script may lack where ranks hold different copies of a parameter or a buffer; no change of
// the recording says it, so it was not checked. Empty of other findings.
std::string script_hint(const ir::Program &program, const Finding &finding);

} // namespace spmd::checker
