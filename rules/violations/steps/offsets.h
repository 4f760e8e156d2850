// The violation of an index that does not begin where a rank's block of a table does.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct BlockOffset {
  int64_t rows, found; // of a block; by which the index moves from rank to rank
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("rows", rows), visit("found", found), visit("axes", axes);
  }
  bool operator==(const BlockOffset &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
