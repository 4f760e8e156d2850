// Violations of axes, groups and changes of mesh (rules/README.md).
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

// `axes` are those of the call; `actual` the axes on which the operand is what the call expects.
struct WrongAxis {
  OperandIndex operand;
  ir::WrittenKind kind;
  ir::AxisSet axes, actual;
  std::string layout, actual_layout; // `4:1 = ranks 0 1 2 3`
  void fields(auto &&visit) const {
    visit("operand", operand), visit("kind", kind), visit("axes", axes), visit("actual", actual);
    visit("layout", layout), visit("actual_layout", actual_layout);
  }
  bool operator==(const WrongAxis &) const = default;
  static const DiagnosticInfo info;
};

struct UnknownGroup {
  std::string group, ranks;
  void fields(auto &&visit) const { visit("group", group), visit("ranks", ranks); }
  bool operator==(const UnknownGroup &) const = default;
  static const DiagnosticInfo info;
};

struct UnknownAxis {
  std::string axis, mesh, nearest; // nearest: empty if none is near
  void fields(auto &&visit) const {
    visit("axis", axis), visit("mesh", mesh), visit("nearest", nearest);
  }
  bool operator==(const UnknownAxis &) const = default;
  static const DiagnosticInfo info;
};

// An operand lives on a mesh over the same ranks whose axes do not regroup into those of the
// current mesh.
struct MeshChange {
  OperandIndex operand;
  std::string from, to;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("from", from), visit("to", to);
  }
  bool operator==(const MeshChange &) const = default;
  static const DiagnosticInfo info;
};

struct MeshGroupMixed {
  OperandIndex operand;
  std::string axes, axis; // of the operand's mesh; of the current one
  void fields(auto &&visit) const {
    visit("operand", operand), visit("axes", axes), visit("axis", axis);
  }
  bool operator==(const MeshGroupMixed &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
