// Sizes of axes as scales. Axes of several meshes over the same ranks are cut into the pieces that
// they have in common (dp = edp * ep), so that scales compare as expressions whichever mesh they
// were written on. A scale in these pieces is called canonical here. Source: rules/README.md,
// "Scale".
#pragma once

#include "ir/program.h"

namespace spmd::ir {

// The size of an axis; 1 of one rank alone, and of an axis that is local wherever the program is:
// nothing on one device stands for it.
ScaleId axis_scale(Program &program, MeshId mesh, AxisId axis);
// The product of the sizes.
ScaleId axes_scale(Program &program, MeshId mesh, AxisSet axes);
// A scale as written for a value on that mesh, in pieces.
ScaleId canonical_scale(Program &program, ScaleId written, MeshId mesh);
// The type as written, its scale in pieces.
Type canonical_scale(Program &program, Type written);

// None where one of the two is none (not known), or a number leaves its bounds.
ScaleId product(Program &program, ScaleId a, ScaleId b);
ScaleId quotient(Program &program, ScaleId a, ScaleId b);

// The axes of the mesh in whose size some base of the scale occurs.
AxisSet axes_in(Program &program, ScaleId canonical, MeshId mesh);
// How often the size of the axis occurs in it; negative where it divides.
int32_t exponent_of(const Program &program, ScaleId canonical, MeshId mesh, AxisId axis);
// Without what belongs to the sizes of these axes.
ScaleId without(Program &program, ScaleId canonical, MeshId mesh, AxisSet axes);
// In the names of the mesh's axes where they make it up; a scale as written prints as it stands.
Scale named_scale(const Program &program, ScaleId scale, MeshId mesh);
std::string print_scale(const Program &program, ScaleId scale, MeshId mesh);

} // namespace spmd::ir
