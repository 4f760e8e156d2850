// A program that was checked without an error finding, suppressed ones included. Only
// `verify_types` makes one, so whatever takes a CheckedProgram runs verified programs only.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

class CheckedProgram {
public:
  const ir::Program &program() const { return program_; }
  ir::TypeId type(ir::ValueId value) const { return result_.types[value.index]; }
  ir::ShapeId shape(ir::ValueId value) const { return result_.shapes[value.index]; }

private:
  friend std::optional<CheckedProgram> verify_types(ir::Program program,
                                                    const CheckOptions &options);
  CheckedProgram(ir::Program program, CheckResult result)
      : program_(std::move(program)), result_(std::move(result)) {}
  ir::Program program_;
  CheckResult result_;
};

// None if the program has error findings; `check` tells which.
std::optional<CheckedProgram> verify_types(ir::Program program, const CheckOptions &options = {});

} // namespace spmd::checker
