// How a script says what a fix puts into its recording.
#pragma once

#include "checker/fix/fix.h"

#include <optional>
#include <string>
#include <string_view>

namespace spmd::checker {

struct TorchCall {
  // Described: PyTorch has no call for it, the text says in words what to write. AfterBackward: a
  // statement about the gradient `p.grad` of the tensor, which is a parameter `p`.
  enum class Form : uint8_t { Expression, Statement, Described, AfterBackward };
  Form form;
  std::string text; // `dist.all_reduce(p.grad, group=tp_group)`
};
// For a tensor that the script calls `tensor`. None where the program was not recorded from
// PyTorch, or where nothing does just what the fix does, forward and, where a gradient flows,
// backward.
std::optional<TorchCall> torch_call(const ir::Program &program, const Fix &fix,
                                    std::string_view tensor);

// What a script recorded from PyTorch may lack where ranks hold different copies of a parameter or
// a buffer; no change of the recording says it, so it was not checked. Empty of other findings.
std::string torch_hint(const ir::Program &program, const Finding &finding);

} // namespace spmd::checker
