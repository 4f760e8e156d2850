// Which boundary op an instruction of a program is.
#pragma once

#include "rules/ops/registry.h"

namespace spmd::rules {

inline Boundary boundary_of(const ir::Program &program, ir::OpNameId op) {
  return resolve_op(program, op).boundary;
}

} // namespace spmd::rules
