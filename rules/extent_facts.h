// What is known of extents: whether two are equal, by what is declared of their symbols, and what stands
// where a program leaves dimensions open.
#pragma once

#include "ir/program.h"

namespace spmd::rules {

enum class Equality : uint8_t { Equal, Different, Undecided };

// Equal for all values of the symbols, for none, or neither is known. A symbol counts from its `min`
// (default 0) to its `max` (none), in steps of `multiple_of`.
Equality compare(const ir::Program &program, ir::Extent a, ir::Extent b);

// What the program states of a shape, or what is known where it states nothing, or no dimensions
// (`f32[...]`).
ir::ShapeId stated_shape(const ir::Program &program, ir::ShapeId stated, ir::ShapeId known);

} // namespace spmd::rules
