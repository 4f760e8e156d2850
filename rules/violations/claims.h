// Violations of stated claims, boundaries, state and aliases.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct ClaimMismatch {
  ir::ValueId value;
  ir::TypeId found, claimed; // on the axes alone
  ir::AxisSet axes;
  std::string found_shape = {}, claimed_shape = {}; // where they differ
  void fields(auto &&visit) const {
    visit("value", value), visit("found", found), visit("claimed", claimed), visit("axes", axes);
    visit("found_shape", found_shape), visit("claimed_shape", claimed_shape);
  }
  bool operator==(const ClaimMismatch &) const = default;
  static const DiagnosticInfo info;
};

struct BoundaryMismatch {
  OperandIndex operand;
  std::string function;
  ir::TypeId found, claimed;
  ir::AxisSet axes;
  std::string found_shape = {}, claimed_shape = {}; // where they differ
  void fields(auto &&visit) const {
    visit("operand", operand), visit("function", function), visit("found", found),
        visit("claimed", claimed), visit("axes", axes);
    visit("found_shape", found_shape), visit("claimed_shape", claimed_shape);
  }
  bool operator==(const BoundaryMismatch &) const = default;
  static const DiagnosticInfo info;
};

struct BoundaryShape {
  std::string function, what; // `parameters`, `results`
  int64_t declared, found;
  void fields(auto &&visit) const {
    visit("function", function), visit("what", what), visit("declared", declared),
        visit("found", found);
  }
  bool operator==(const BoundaryShape &) const = default;
  static const DiagnosticInfo info;
};

// A loss root must be invariant or partial: otherwise each gradient is counted once per rank, or
// there is no one loss.
struct LossKind {
  ir::ValueId value;
  ir::WrittenKind kind;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("value", value), visit("kind", kind), visit("axes", axes);
  }
  bool operator==(const LossKind &) const = default;
  static const DiagnosticInfo info;
};

struct MutationChangesType {
  OperandIndex operand;
  ir::TypeId before, after;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("before", before), visit("after", after), visit("axes", axes);
  }
  bool operator==(const MutationChangesType &) const = default;
  static const DiagnosticInfo info;
};

struct PartialState {
  ir::ValueId value; // the parameter, buffer or state
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("value", value), visit("axes", axes); }
  bool operator==(const PartialState &) const = default;
  static const DiagnosticInfo info;
};

struct StaleAlias {
  OperandIndex operand;
  std::string writer; // the spelling of the op that wrote the storage, and where
  void fields(auto &&visit) const { visit("operand", operand), visit("writer", writer); }
  bool operator==(const StaleAlias &) const = default;
  static const DiagnosticInfo info;
};

struct UncheckedClaim {
  ir::ValueId value;
  ir::TypeId claimed;
  void fields(auto &&visit) const { visit("value", value), visit("claimed", claimed); }
  bool operator==(const UncheckedClaim &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
