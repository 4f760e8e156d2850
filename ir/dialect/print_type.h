// Types and shapes in our own words, for sentences and listings.
#pragma once

#include "ir/program.h"

#include <string>

namespace spmd::ir {

// `S(0)@dp P@tp scale dp`: every typed axis of the mesh in mesh order, equal kinds not merged, S(i)
// for shards; `?` for unknown, nothing for an axis without a claim. Empty for a mesh without typed
// axes.
std::string print_kinds(const Program &program, const Type &type);
// `f32[8@dp, 16] P@tp`: dtype and local extents with shards as suffixes, then the remaining kinds.
std::string print_type(const Program &program, const Type &type, ShapeId shape,
                       ShapeId global_shape = {});
// `f32[8, 16]`
std::string print_shape(const Program &program, ShapeId shape);
// `tp`, `dp, tp`: names in mesh order.
std::string print_axes(const Program &program, MeshId mesh, AxisSet axes);

} // namespace spmd::ir
