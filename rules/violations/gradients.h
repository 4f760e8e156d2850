// Violations at the boundary that gradients cross: optimizer, contracts, calls without a
// derivative; and of scales, which the gradients carry there (rules/README.md).
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct UnreducedGradient {
  ir::ValueId value;     // the parameter
  OperandIndex gradient; // if an instruction takes it
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("value", value), visit("gradient", gradient), visit("axes", axes);
  }
  bool operator==(const UnreducedGradient &) const = default;
  static const DiagnosticInfo info;
};

struct OverreducedGradient {
  ir::ValueId value;    // the parameter
  ir::WrittenKind kind; // of its gradient before the reduction
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("value", value), visit("kind", kind), visit("axes", axes);
  }
  bool operator==(const OverreducedGradient &) const = default;
  static const DiagnosticInfo info;
};

struct GradientTypeMismatch {
  ir::ValueId value;        // whose gradient it is
  ir::TypeId found, needed; // on the axes alone
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("value", value), visit("found", found), visit("needed", needed), visit("axes", axes);
  }
  bool operator==(const GradientTypeMismatch &) const = default;
  static const DiagnosticInfo info;
};

struct MissingVjp {
  OperandIndex operand;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const MissingVjp &) const = default;
  static const DiagnosticInfo info;
};

struct ScaleMismatch {
  OperandIndex operand;
  ir::ValueId value;        // none: that operand
  std::string what;         // `the gradient of `, or nothing
  std::string found, other; // the scale of the value; what is needed, or what another operand has
  std::string left;         // the quotient of the two
  ir::AxisSet axes;         // whose sizes are left over
  ir::AxisSet below;        // those by whose sizes the value is too small
  void fields(auto &&visit) const {
    visit("what", what), visit("value", value), visit("operand", operand), visit("found", found),
        visit("other", other), visit("left", left), visit("axes", axes);
  }
  bool operator==(const ScaleMismatch &) const = default;
  static const DiagnosticInfo info;
};

struct SameBatch {
  ir::ValueId value; // an input
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("value", value), visit("axes", axes); }
  bool operator==(const SameBatch &) const = default;
  static const DiagnosticInfo info;
};

struct CopiesDiffer {
  ir::ValueId value; // a parameter
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("value", value), visit("axes", axes); }
  bool operator==(const CopiesDiffer &) const = default;
  static const DiagnosticInfo info;
};

struct BuffersDiffer {
  ir::ValueId value; // a buffer
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("value", value), visit("axes", axes); }
  bool operator==(const BuffersDiffer &) const = default;
  static const DiagnosticInfo info;
};

struct UnequalCounts {
  ir::ValueId value; // the loss that comes of it
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("value", value), visit("axes", axes); }
  bool operator==(const UnequalCounts &) const = default;
  static const DiagnosticInfo info;
};

// In an optimizer.
struct UnlikeSteps {
  OperandIndex operand; // a number
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const UnlikeSteps &) const = default;
  static const DiagnosticInfo info;
};

struct AccumulatedMeans {
  ir::ValueId value;  // the loss of the first pass
  int64_t passes = 0; // at one line
  void fields(auto &&visit) const { visit("value", value), visit("passes", passes); }
  bool operator==(const AccumulatedMeans &) const = default;
  static const DiagnosticInfo info;
};

struct DroppedGradients {
  ir::ValueId value; // the loss of the first pass
  int64_t dropped = 0, passes = 0;
  void fields(auto &&visit) const {
    visit("value", value), visit("dropped", dropped), visit("passes", passes);
  }
  bool operator==(const DroppedGradients &) const = default;
  static const DiagnosticInfo info;
};

struct UnseenCollective {
  OperandIndex operand;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const UnseenCollective &) const = default;
  static const DiagnosticInfo info;
};

struct CopiesDrift {
  ir::ValueId value; // a parameter
  ir::AxisSet axes;
  std::string before; // the step that made them differ, as words: "the first step"
  void fields(auto &&visit) const {
    visit("value", value), visit("axes", axes), visit("before", before);
  }
  bool operator==(const CopiesDrift &) const = default;
  static const DiagnosticInfo info;
};

// What stands before "the slope of the loss" in a sentence about a gradient that was measured to be
// so many times it: `4 times`, `1/4 of`, `not`; empty where it is right, within what is measured.
// Likewise for what one device computes.
std::string describe_gradient_ratio(double ratio);

// Seen when a function ran on all devices of its mesh, and on one.
struct UnlikeOneDevice {
  std::string value;  // "change of params['w']"
  std::string factor; // of `describe_gradient_ratio`
  void fields(auto &&visit) const { visit("value", value), visit("factor", factor); }
  bool operator==(const UnlikeOneDevice &) const = default;
  static const DiagnosticInfo info;
};

struct WrongGradient {
  ir::ValueId value;  // a parameter
  std::string factor; // of `describe_gradient_ratio`
  void fields(auto &&visit) const { visit("value", value), visit("factor", factor); }
  bool operator==(const WrongGradient &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
