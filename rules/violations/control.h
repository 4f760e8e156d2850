// Violations of bodies that run under a condition or more than once (rules/README.md).
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct CollectiveUnderVaryingControl {
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("axes", axes); }
  bool operator==(const CollectiveUnderVaryingControl &) const = default;
  static const DiagnosticInfo info;
};

// A result of `cond` has one type in `then` and another in `else`; the types on `axes` alone.
struct BranchMismatch {
  ResultIndex result;
  ir::TypeId found, other;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("result", result), visit("found", found), visit("other", other), visit("axes", axes);
  }
  bool operator==(const BranchMismatch &) const = default;
  static const DiagnosticInfo info;
};

// A loop leaves a carry with another type than it enters with; the types on `axes` alone.
struct CarryMismatch {
  OperandIndex operand;
  int64_t carry;
  ir::TypeId enters, leaves;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("carry", carry), visit("enters", enters),
        visit("leaves", leaves), visit("axes", axes);
  }
  bool operator==(const CarryMismatch &) const = default;
  static const DiagnosticInfo info;
};

// A result that a condition selects per rank cannot be invariant or partial there.
struct VaryingChoice {
  ResultIndex result;
  ir::Kind kind;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("result", result), visit("kind", kind), visit("axes", axes);
  }
  bool operator==(const VaryingChoice &) const = default;
  static const DiagnosticInfo info;
};

// The condition of a loop is computed by a body, so no operand of the loop can be named.
struct PartialCondition {
  ir::ValueId value;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("value", value), visit("axes", axes); }
  bool operator==(const PartialCondition &) const = default;
  static const DiagnosticInfo info;
};

// Seen when all ranks ran: the collective of one group that some ranks run where others run another
// one.
struct RanksDiverge {
  std::string call, ranks;     // "`all_reduce(f32[4], sum)`", "rank 1"
  std::string instead, others; // what others run there and where, and who they are
  std::string stack, other_stack;
  static void each(auto &self, auto &&visit) {
    visit("call", self.call), visit("ranks", self.ranks), visit("instead", self.instead),
        visit("others", self.others), visit("stack", self.stack),
        visit("other_stack", self.other_stack);
  }
  void fields(auto &&visit) const { each(*this, visit); }
  void fill(auto &&visit) { each(*this, visit); }
  bool operator==(const RanksDiverge &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
