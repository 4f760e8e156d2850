// What symbols leave open. Every application may have such questions, so this header is read by
// all.
#pragma once

#include "rules/violations/diagnostic_info.h"

#include "ir/shape.h"

#include <string>

namespace spmd::rules {

// Nothing that is declared of symbols says whether two extents are equal.
struct UndecidedExtents {
  std::string what; // as in ShapeMismatch
  std::string left, right;
  ir::Extent a, b; // the same
  void fields(auto &&visit) const {
    visit("what", what), visit("left", left), visit("right", right);
  }
  bool operator==(const UndecidedExtents &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
