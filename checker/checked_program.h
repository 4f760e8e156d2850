// A program that was checked without an error finding, suppressed ones included. Only
// `check_and_lower` makes one, so whatever takes a CheckedProgram runs verified programs only.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

class CheckedProgram {
public:
  const ir::Program &program() const { return program_; }
  // The same program, to intern into and to look up names: ops, values and types that were checked
  // must not be changed.
  ir::Program &mutable_program() { return program_; }
  ir::TypeId type(ir::ValueId value) const { return result_.types[value.index]; }
  ir::ShapeId shape(ir::ValueId value) const { return result_.shapes[value.index]; }
  ir::ShardSizesId sizes(ir::ValueId value) const { return result_.sizes[value.index]; }

  // The values of a function have one type per instance of its body; kMain is the main body.
  static constexpr uint32_t kMain = 0;
  rules::TensorInfo known(ir::ValueId value, uint32_t instance = kMain) const;
  // The instances of the bodies that an instruction runs: `body`; `then`, `else`; `cond`, `body`.
  // Empty if it runs none.
  llvm::ArrayRef<uint32_t> bodies(ir::InstId site, uint32_t instance = kMain) const;

private:
  friend std::optional<CheckedProgram> check_and_lower(ir::Program program,
                                                       const CheckOptions &options);
  CheckedProgram(ir::Program program, CheckResult result)
      : program_(std::move(program)), result_(std::move(result)) {}
  ir::Program program_;
  CheckResult result_;
};

// Checks the program and lowers it for execution: implicit casts become instructions
// (rewrite/casts.h), and redistributions to whole types the transitions of their plans. None if
// there is a finding of severity error; check() tells which.
std::optional<CheckedProgram> check_and_lower(ir::Program program,
                                              const CheckOptions &options = {});

} // namespace spmd::checker
