// A program without redistributions to whole types: the transitions of their plans stand where they
// were.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

// The program must be checked and clean. Functions in which there is one are inlined with all
// others. What cannot be planned, since extents are not known, stays as it is. True if there was
// any. Steps have their own backward: one that a redistribute states (`grad`) is lost unless
// `keep_stated`.
bool expand_redistributes(ir::Program &program, const CheckOptions &options = {},
                          bool keep_stated = false);

} // namespace spmd::checker
