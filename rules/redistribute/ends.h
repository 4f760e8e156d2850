// What the two ends of a request say of one axis.
#pragma once

#include "ir/program.h"

#include <optional>

namespace spmd::rules::redistribute {

inline bool is_replicated(ir::Kind kind) {
  return kind == ir::Kind::Replicate || kind == ir::Kind::Reduced || kind == ir::Kind::Invariant;
}
// What the value is on an axis at one end. Where several kinds would do it is what the other end
// asks for, if that is among them.
std::optional<ir::Kind> kind_at(const ir::Type &type, const ir::Type &other, ir::AxisId axis);
// The same as the word of a call: `S(0)`, `P(max)`.
ir::WrittenKind word_at(const ir::Type &type, const ir::Type &other, ir::AxisId axis);
// The axes on which two types of one mesh differ, the order of the axes of a dimension included.
ir::AxisSet changed_axes(const ir::Program &program, const ir::Type &from, const ir::Type &to);

} // namespace spmd::rules::redistribute
