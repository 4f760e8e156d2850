// How a walk comes to know what the first pass found of a program without declarations.
#pragma once

#include "checker/walk/inference.h"

namespace spmd::checker {

// None unless the result of the walk has a first pass.
std::unique_ptr<Inference> second_pass(WalkState &state);

} // namespace spmd::checker
