// Violations of blocks that go round the ranks of an axis, as the keys and values of ring attention
// do.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct MixedBlocks {
  OperandIndex operand; // of the block of the rank so many before
  int64_t found, other; // and what it meets
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("found", found), visit("other", other), visit("axes", axes);
  }
  bool operator==(const MixedBlocks &) const = default;
  static const DiagnosticInfo info;
};

struct MissingBlock {
  OperandIndex operand; // a sum over the blocks of all ranks but one, so many before
  int64_t missing;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("missing", missing), visit("axes", axes);
  }
  bool operator==(const MissingBlock &) const = default;
  static const DiagnosticInfo info;
};

struct RepeatedBlock {
  OperandIndex operand; // a sum over blocks with one that is in the other addend, too
  int64_t twice;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("twice", twice), visit("axes", axes);
  }
  bool operator==(const RepeatedBlock &) const = default;
  static const DiagnosticInfo info;
};

struct UnlikeScales {
  OperandIndex operand; // that is not divided by what the other addend is divided by
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const UnlikeScales &) const = default;
  static const DiagnosticInfo info;
};

struct OwnMaximum {
  OperandIndex operand; // a rank's sum of exponentials
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const OwnMaximum &) const = default;
  static const DiagnosticInfo info;
};

struct GradientOfOtherBlock {
  ir::ValueId value;     // whose gradient it is
  int64_t found, wanted; // the ranks whose blocks these are
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("value", value), visit("found", found), visit("wanted", wanted), visit("axes", axes);
  }
  bool operator==(const GradientOfOtherBlock &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
