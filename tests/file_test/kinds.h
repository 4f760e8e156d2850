// Compares kinds as an assertion writes them with kinds as the checker prints them.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <string>

namespace spmd::tests {

// `S(0)@dp P@tp scale dp`. In an assertion `R@(dp,tp)` stands for both axes and a kind without axes
// for all others; of S(i) the first axis is the outermost. `erased`: S(i) and V are one, and scales
// are not compared.
bool equal_kinds(llvm::StringRef asserted, llvm::StringRef found, bool erased);

// `tp, dp` as `dp, tp`: axes by name, however they are separated.
std::string sorted_axes(llvm::StringRef axes);

} // namespace spmd::tests
