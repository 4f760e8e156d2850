// Violations of the global judgment: where shards lie, how they are ordered, cut and joined.
// Source: rules/README.md, "Shards"; DESIGN.md of spmd_types, "Shard propagation".
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

// A sum over a sharded dimension that the program does not state.
struct UnstatedPartial {
  OperandIndex operand;
  int64_t dim;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("dim", dim), visit("axes", axes);
  }
  bool operator==(const UnstatedPartial &) const = default;
  static const DiagnosticInfo info;
};

// Operands that share a dimension disagree on whether the axis shards it.
struct SpecMismatch {
  OperandIndex operand;
  int64_t dim;
  OperandIndex other;
  int64_t other_dim;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("dim", dim), visit("other", other),
        visit("other_dim", other_dim), visit("axes", axes);
  }
  bool operator==(const SpecMismatch &) const = default;
  static const DiagnosticInfo info;
};

// A dimension that an op needs in one piece.
struct UnwholeDimension {
  OperandIndex operand;
  int64_t dim;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("dim", dim), visit("axes", axes);
  }
  bool operator==(const UnwholeDimension &) const = default;
  static const DiagnosticInfo info;
};

// Two operands bring the axis to two dimensions of the result.
struct AxisUsedTwice {
  OperandIndex operand;
  int64_t dim;
  OperandIndex other;
  int64_t other_dim;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("dim", dim), visit("other", other),
        visit("other_dim", other_dim), visit("axes", axes);
  }
  bool operator==(const AxisUsedTwice &) const = default;
  static const DiagnosticInfo info;
};

// Two axes shard one dimension in different orders, or in an order that nothing states.
struct ShardOrderUnknown {
  OperandIndex operand;
  int64_t dim;
  std::string order; // `dp, tp`, outermost first
  OperandIndex other;
  std::string other_order;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("dim", dim), visit("order", order), visit("other", other),
        visit("other_order", other_order), visit("axes", axes);
  }
  bool operator==(const ShardOrderUnknown &) const = default;
  static const DiagnosticInfo info;
};

// A list of values, one per rank, where the program is global on the axis.
struct NoSpec {
  OperandIndex operand;
  ir::ValueId value; // none: that of the operand
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("value", value), visit("axes", axes);
  }
  bool operator==(const NoSpec &) const = default;
  static const DiagnosticInfo info;
};

// A view that would make the blocks of a shard non-contiguous.
struct StridedShard {
  OperandIndex operand;
  int64_t dim;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("dim", dim), visit("axes", axes);
  }
  bool operator==(const StridedShard &) const = default;
  static const DiagnosticInfo info;
};

// A view that would cut through the blocks of an uneven shard.
struct StridedUneven {
  OperandIndex operand;
  int64_t dim;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("dim", dim), visit("axes", axes);
  }
  bool operator==(const StridedUneven &) const = default;
  static const DiagnosticInfo info;
};

// An average that gives every shard the same weight.
struct UnevenShard {
  OperandIndex operand;
  int64_t dim;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("dim", dim), visit("axes", axes);
  }
  bool operator==(const UnevenShard &) const = default;
  static const DiagnosticInfo info;
};

// A list has one shape; blocks of different size become one of which it does not speak.
struct UnevenList {
  OperandIndex operand;
  int64_t dim;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("dim", dim), visit("axes", axes);
  }
  bool operator==(const UnevenList &) const = default;
  static const DiagnosticInfo info;
};

// The op has a meaning per rank, none for the whole tensor.
struct NoShardRule {
  OperandIndex operand;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const NoShardRule &) const = default;
  static const DiagnosticInfo info;
};

// Only the innermost axis of a dimension can be gathered or exchanged.
struct NotInnermost {
  OperandIndex operand;
  int64_t dim;
  std::string order; // of all axes on the dimension, outermost first
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("dim", dim), visit("order", order), visit("axes", axes);
  }
  bool operator==(const NotInnermost &) const = default;
  static const DiagnosticInfo info;
};

// S(i) is stated, and the operand is sharded on another dimension.
struct WrongDimension {
  OperandIndex operand;
  int64_t stated, found;
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("stated", stated), visit("found", found), visit("axes", axes);
  }
  bool operator==(const WrongDimension &) const = default;
  static const DiagnosticInfo info;
};

// One call over axes that are judged in different ways.
struct MixedPolicy {
  ir::AxisSet local, axes; // axes: the global ones
  void fields(auto &&visit) const { visit("local", local), visit("axes", axes); }
  bool operator==(const MixedPolicy &) const = default;
  static const DiagnosticInfo info;
};

// The other mesh has no axes whose blocks are these.
struct SpecNotRemappable {
  OperandIndex operand;
  std::string spec, mesh; // spec: axes of one dimension, outermost first
  int64_t dim;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("dim", dim), visit("spec", spec), visit("mesh", mesh);
  }
  bool operator==(const SpecNotRemappable &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
