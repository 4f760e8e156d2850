// Names that are other names but for a slip of the pen, and names that are near.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>

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

// The most similar name among `candidates`, or empty if none is near.
inline llvm::StringRef nearest_name(llvm::StringRef name,
                                    llvm::ArrayRef<llvm::StringRef> candidates) {
  llvm::StringRef best;
  // Further away than a third of the name is no misspelling of it.
  unsigned limit = static_cast<unsigned>(std::max<size_t>(1, name.size() / 3));
  for (llvm::StringRef candidate : candidates) {
    size_t longer = std::max(candidate.size(), name.size());
    if (longer - std::min(candidate.size(), name.size()) > limit)
      continue;
    unsigned distance = name.edit_distance(candidate, true, limit);
    if (distance > limit || (!best.empty() && distance == limit))
      continue;
    best = candidate;
    limit = distance;
  }
  return best;
}

} // namespace spmd::ir
