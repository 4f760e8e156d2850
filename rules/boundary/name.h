// Which boundary op an instruction is, however it is spelled.
#pragma once

#include "rules/ops/registry.h"

namespace spmd::rules {

// `alias`, `backward`, ...; empty: it is none. Looked up anew each time: where many instructions are asked,
// Rules remembers.
inline std::string_view boundary_of(const ir::Program &program, ir::OpNameId op) {
  llvm::StringRef dialect = program.dialect.valid() ? program.strings[program.dialect] : "spmd";
  return resolve_spelling(program.op_name(op), dialect).boundary;
}

} // namespace spmd::rules
