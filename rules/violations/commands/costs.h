// Communication that could be spared: what is computed is right. Each says how many bytes a rank
// would not send, as far as sizes are known. They are reported where they are asked for.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct CancellingPair {
  std::string first;
  ir::AxisSet axes;
  std::string bytes; // empty: not known
  void fields(auto &&visit) const {
    visit("first", first), visit("axes", axes), visit("bytes", bytes);
  }
  bool operator==(const CancellingPair &) const = default;
  static const DiagnosticInfo info;
};

struct RepeatedCollective {
  ir::ValueId value;
  ir::AxisSet axes;
  std::string bytes;
  void fields(auto &&visit) const {
    visit("value", value), visit("axes", axes), visit("bytes", bytes);
  }
  bool operator==(const RepeatedCollective &) const = default;
  static const DiagnosticInfo info;
};

struct ReduceThenSlice {
  std::string first;
  ir::AxisSet axes;
  std::string bytes;
  void fields(auto &&visit) const {
    visit("first", first), visit("axes", axes), visit("bytes", bytes);
  }
  bool operator==(const ReduceThenSlice &) const = default;
  static const DiagnosticInfo info;
};

struct GatherThenSlice {
  std::string first;
  ir::AxisSet axes;
  std::string bytes;
  void fields(auto &&visit) const {
    visit("first", first), visit("axes", axes), visit("bytes", bytes);
  }
  bool operator==(const GatherThenSlice &) const = default;
  static const DiagnosticInfo info;
};

struct FusableCollectives {
  std::string first;
  ir::AxisSet others, axes; // of the first, of this one
  std::string bytes;
  void fields(auto &&visit) const {
    visit("first", first), visit("others", others), visit("axes", axes), visit("bytes", bytes);
  }
  bool operator==(const FusableCollectives &) const = default;
  static const DiagnosticInfo info;
};

struct Overlappable {
  ir::ValueId value;
  ir::AxisSet axes;
  int64_t count; // of products that it need not wait for
  std::string bytes;
  void fields(auto &&visit) const {
    visit("value", value), visit("axes", axes), visit("count", count), visit("bytes", bytes);
  }
  bool operator==(const Overlappable &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
