// Folds the equal layers of a program into functions, for people: a module called 126 times becomes
// one function and 126 calls.
#pragma once

#include "ir/program.h"

namespace spmd::ir {

// Runs of operations of one layer (`layers.7` of the scope `layers.7.mlp`) that do the same as
// those of another layer, locations and layer numbers apart, become calls of one function. A run
// stays as it is where a function could not say the same: writes into outer storage, ties between
// forward and backward, and accepted findings. Returns the number of calls. The program is to be
// printed: values of folded layers stay in its table without a definition.
size_t outline(Program &program);

} // namespace spmd::ir
