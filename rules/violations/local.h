// Violations of the local judgment: the sum and product tables, and random numbers that meet data
// (rules/README.md).
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct PartialIntoNonlinear {
  OperandIndex operand;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const PartialIntoNonlinear &) const = default;
  static const DiagnosticInfo info;
};

struct PartialTimesPartial {
  OperandIndex operand, other;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("other", other), visit("axes", axes);
  }
  bool operator==(const PartialTimesPartial &) const = default;
  static const DiagnosticInfo info;
};

// `addend` is the replicate operand, or a number; `operand` the partial one.
struct PartialPlusReplicate {
  Addend addend;
  OperandIndex operand;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("addend", addend), visit("operand", operand), visit("axes", axes);
  }
  bool operator==(const PartialPlusReplicate &) const = default;
  static const DiagnosticInfo info;
};

struct PartialWithVarying {
  OperandIndex operand, other;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("other", other), visit("axes", axes);
  }
  bool operator==(const PartialWithVarying &) const = default;
  static const DiagnosticInfo info;
};

struct InvariantMixed {
  OperandIndex operand, other;
  ir::Kind kind; // of `other`
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("other", other), visit("kind", kind), visit("axes", axes);
  }
  bool operator==(const InvariantMixed &) const = default;
  static const DiagnosticInfo info;
};

// A pending maximum and the like reached an op that is no reduction.
struct PartialCombiner {
  OperandIndex operand;
  ir::Combiner combiner;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("combiner", combiner), visit("axes", axes);
  }
  bool operator==(const PartialCombiner &) const = default;
  static const DiagnosticInfo info;
};

struct NeedlessPartial {
  ir::Kind kind; // of the result without the statement
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("kind", kind), visit("axes", axes); }
  bool operator==(const NeedlessPartial &) const = default;
  static const DiagnosticInfo info;
};

struct RandomDiverges {
  OperandIndex operand;
  ir::Kind kind;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("kind", kind), visit("axes", axes);
  }
  bool operator==(const RandomDiverges &) const = default;
  static const DiagnosticInfo info;
};

struct ShardedRandomRepeats {
  OperandIndex operand;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const ShardedRandomRepeats &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
