// How a script says what a fix puts into its recording.
#pragma once

#include "checker/fix/fix.h"

#include <string>
#include <string_view>

namespace spmd::checker {

// `dist.all_reduce(p.grad, group=tp_group)`, for a tensor that the script calls `tensor`. Empty
// where the program was not recorded from PyTorch, or where PyTorch has no call that does just
// that, forward and, where a gradient flows, backward.
std::string torch_call(const ir::Program &program, const Fix &fix, std::string_view tensor);

} // namespace spmd::checker
