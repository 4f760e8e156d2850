// Programs that are run with the backward that is derived of them.
#pragma once

#include "runtime/judge/run/judged_run.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <string_view>

namespace spmd::runtime {

// A program with its backward, run in the field and judged; `spoil` changes the plan. Fails the
// test where there is no backward, or it cannot be run.
RunReport run_with_backward(std::string_view text,
                            llvm::function_ref<void(Plan &)> spoil = nullptr);

unsigned upheld_gradients(const RunReport &report);

} // namespace spmd::runtime
