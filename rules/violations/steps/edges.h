// Violations of edges of blocks that neighbours send each other, as a stencil needs them.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct MisplacedEdge {
  OperandIndex operand; // what a neighbour has sent
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const MisplacedEdge &) const = default;
  static const DiagnosticInfo info;
};

struct HalfOpenRing {
  OperandIndex operand; // what nobody sends to the rank at one end
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const HalfOpenRing &) const = default;
  static const DiagnosticInfo info;
};

struct EdgeOfOtherAxis {
  OperandIndex operand;
  ir::AxisSet axes; // along which it was sent
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const EdgeOfOtherAxis &) const = default;
  static const DiagnosticInfo info;
};

struct MissingEdge {
  OperandIndex operand; // the block, or what is left of it
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const MissingEdge &) const = default;
  static const DiagnosticInfo info;
};

struct ShiftedBlock {
  OperandIndex operand; // the block
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const ShiftedBlock &) const = default;
  static const DiagnosticInfo info;
};

struct EdgeGradientKept {
  ir::ValueId value; // whose edges were sent
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("value", value), visit("axes", axes); }
  bool operator==(const EdgeGradientKept &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
