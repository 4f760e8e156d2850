// What is wrong with an application whatever the unknown types of its operands are.
#pragma once

#include "rules/application.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::rules {

using Judge = llvm::function_ref<void(const Application &, Outcome &)>;

// Adds to `out`, which `judge` made of the application, what `judge` finds on an axis whatever is
// put in the place of the operands that are unknown there. Their results stay unknown. Silent where
// several operands are unknown in more combinations than are tried, or where the dimensions that
// one may be cut along are not known.
void add_violations_for_all_types(const Application &app, Judge judge, Outcome &out);

} // namespace spmd::rules
