// Compares kinds as an assertion writes them with kinds as the checker prints them.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <map>
#include <string>

namespace spmd::tests {

// `S(0)@dp P@tp scale dp`. In an assertion `R@(dp,tp)` stands for both axes and a kind without axes
// for all others; of S(i) the first axis is the outermost. `erased`: S(i) and V are one, and scales
// are not compared. Scales are compared as expressions.
struct KindsRead {
  bool erased = false;
  // As in comments that cannot say more: `R|I` upholds R and I, and shards that are listed axis by
  // axis have no order.
  bool loose = false;
  // The names that may stand in a scale, `fs` or `dense.dp`, in common pieces: `dp*cp`.
  std::map<std::string, std::string> sizes = {};
};
bool equal_kinds(llvm::StringRef asserted, llvm::StringRef found, const KindsRead &how);

// `tp, dp` as `dp, tp`: axes by name, however they are separated.
std::string sorted_axes(llvm::StringRef axes);

} // namespace spmd::tests
