// Violations of collectives, convert and reinterpret (rules/README.md).
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct WrongSource {
  OperandIndex operand;
  ir::WrittenKind expected, found;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("expected", expected), visit("found", found),
        visit("axes", axes);
  }
  bool operator==(const WrongSource &) const = default;
  static const DiagnosticInfo info;
};

struct ReduceOfReplicated {
  OperandIndex operand;
  ir::Kind kind;
  RankCount factor; // of the axes
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("kind", kind), visit("factor", factor), visit("axes", axes);
  }
  bool operator==(const ReduceOfReplicated &) const = default;
  static const DiagnosticInfo info;
};

struct NoTransition {
  ir::WrittenKind src, dst;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("src", src), visit("dst", dst), visit("axes", axes); }
  bool operator==(const NoTransition &) const = default;
  static const DiagnosticInfo info;
};

// R taken as Reduced: no transition upstream sums its gradient.
struct ReducedWithoutOwner {
  OperandIndex operand;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const ReducedWithoutOwner &) const = default;
  static const DiagnosticInfo info;
};

struct ExpertTransition {
  ir::WrittenKind src, dst;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("src", src), visit("dst", dst), visit("axes", axes); }
  bool operator==(const ExpertTransition &) const = default;
  static const DiagnosticInfo info;
};

// Two pending combiners meet: the operand's and the call's.
struct ReductionMismatch {
  OperandIndex operand;
  ir::Combiner combiner, asked;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("combiner", combiner), visit("asked", asked),
        visit("axes", axes);
  }
  bool operator==(const ReductionMismatch &) const = default;
  static const DiagnosticInfo info;
};

// A reduction other than sum and avg while a gradient must pass.
struct NonSumGradient {
  OperandIndex operand;
  ir::Combiner combiner;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("combiner", combiner), visit("axes", axes);
  }
  bool operator==(const NonSumGradient &) const = default;
  static const DiagnosticInfo info;
};

struct Indivisible {
  int64_t dim;
  RankCount divisor;
  std::string extent;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("dim", dim), visit("extent", extent), visit("divisor", divisor), visit("axes", axes);
  }
  bool operator==(const Indivisible &) const = default;
  static const DiagnosticInfo info;
};

// A required word or attribute of a transition is absent or has another form than it needs.
struct AttributeMismatch {
  std::string attribute, expected;
  void fields(auto &&visit) const { visit("attribute", attribute), visit("expected", expected); }
  bool operator==(const AttributeMismatch &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
