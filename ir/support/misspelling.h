// Names that are other names but for a slip of the pen.
#pragma once

#include "llvm/ADT/StringRef.h"

namespace spmd::ir {

// One letter too many, too few, other or swapped with its neighbour; two of these in long names.
inline bool is_misspelling(llvm::StringRef a, llvm::StringRef b) {
  size_t longer = std::max(a.size(), b.size()), shorter = std::min(a.size(), b.size());
  unsigned limit = shorter >= 7 ? 2 : 1;
  if (longer < 3 || longer - shorter > limit)
    return false;
  for (size_t i = 0; i + 1 < a.size() && a.size() == b.size(); ++i)
    if (a[i] == b[i + 1] && a[i + 1] == b[i] && a.take_front(i) == b.take_front(i) &&
        a.drop_front(i + 2) == b.drop_front(i + 2))
      return true;
  return a.edit_distance(b, true, limit) <= limit;
}

} // namespace spmd::ir
