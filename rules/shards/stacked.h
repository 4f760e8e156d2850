// Values along a new dimension 0, and one of them: what a scan stacks and takes apart.
#pragma once

#include "rules/application.h"

namespace spmd::rules {

// One entry of dimension 0. Its shape is none where that of the whole is not known, or has no
// dimensions. What axes cut of dimension 0 is forgotten: they are V.
TensorInfo entry_of(ir::Program &program, TensorInfo whole);
// As many as `length` of them, one behind the other: nothing cuts dimension 0. None of the shape is
// known where the length is not; axes are V where the dimension that they would cut has no number.
TensorInfo stack_of(ir::Program &program, TensorInfo each, std::optional<ir::Extent> length);

} // namespace spmd::rules
