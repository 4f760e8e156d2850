// The violations between stages of a pipeline, and of gradients that the step before has left.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct CrossedGradient {
  ir::ValueId value; // whose gradient it is taken for
  ir::ValueId other; // whose it is
  void fields(auto &&visit) const { visit("value", value), visit("other", other); }
  bool operator==(const CrossedGradient &) const = default;
  static const DiagnosticInfo info;
};

struct UnusedGradient {
  ir::ValueId value; // whose gradient comes back
  void fields(auto &&visit) const { visit("value", value); }
  bool operator==(const UnusedGradient &) const = default;
  static const DiagnosticInfo info;
};

struct UnreturnedGradient {
  ir::ValueId value; // what was sent, and was made of parameters
  void fields(auto &&visit) const { visit("value", value); }
  bool operator==(const UnreturnedGradient &) const = default;
  static const DiagnosticInfo info;
};

struct OverwrittenMessage {
  ir::ValueId value; // what was received first
  ir::ValueId other; // what is in its place
  void fields(auto &&visit) const { visit("value", value), visit("other", other); }
  bool operator==(const OverwrittenMessage &) const = default;
  static const DiagnosticInfo info;
};

struct TiedCopiesDrift {
  ir::ValueId value; // a parameter
  void fields(auto &&visit) const { visit("value", value); }
  bool operator==(const TiedCopiesDrift &) const = default;
  static const DiagnosticInfo info;
};

struct UnclearedGradient {
  ir::ValueId value; // a parameter
  void fields(auto &&visit) const { visit("value", value); }
  bool operator==(const UnclearedGradient &) const = default;
  static const DiagnosticInfo info;
};

struct RepeatedGradient {
  ir::ValueId value; // a parameter
  int64_t times = 1; // that one backward counts for each time that another does
  void fields(auto &&visit) const { visit("value", value), visit("times", times); }
  bool operator==(const RepeatedGradient &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
