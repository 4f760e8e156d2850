// What the checker could not know, or was asked to overlook.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct UnknownOp {
  std::string nearest; // empty if none is near
  std::string behind = {}; // how many ops have unknown results since then; empty: not counted
  void fields(auto &&visit) const { visit("nearest", nearest), visit("behind", behind); }
  bool operator==(const UnknownOp &) const = default;
  static const DiagnosticInfo info;
};

// In programs of LTensor alone, where whoever mixes sets does not say so.
struct ImplicitCast {
  OperandIndex operand;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const ImplicitCast &) const = default;
  static const DiagnosticInfo info;
};

struct AssumedRule {
  std::string equation;
  void fields(auto &&visit) const { visit("equation", equation); }
  bool operator==(const AssumedRule &) const = default;
  static const DiagnosticInfo info;
};

struct UnusedSuppression {
  std::string finding;
  void fields(auto &&visit) const { visit("finding", finding); }
  bool operator==(const UnusedSuppression &) const = default;
  static const DiagnosticInfo info;
};

struct ExpiredSuppression {
  std::string finding, date;
  void fields(auto &&visit) const { visit("finding", finding), visit("date", date); }
  bool operator==(const ExpiredSuppression &) const = default;
  static const DiagnosticInfo info;
};

struct MalformedSuppression {
  std::string problem;
  void fields(auto &&visit) const { visit("problem", problem); }
  bool operator==(const MalformedSuppression &) const = default;
  static const DiagnosticInfo info;
};

struct SourceChanged {
  std::string path;
  void fields(auto &&visit) const { visit("path", path); }
  bool operator==(const SourceChanged &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
