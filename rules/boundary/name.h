// Which boundary op an instruction of a program is.
#pragma once

#include "rules/ops/registry.h"

namespace spmd::rules {

// Looked up anew each time: where many instructions are asked, Rules remembers.
inline Boundary boundary_of(const ir::Program &program, ir::OpNameId op) {
  llvm::StringRef dialect = program.dialect.valid() ? program.strings[program.dialect] : "spmd";
  return resolve_spelling(program.op_name(op), dialect).boundary;
}

} // namespace spmd::rules
