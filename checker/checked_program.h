// A program that was checked without an error finding, suppressed ones included. Only
// `verify_types` makes one, so whatever takes a CheckedProgram runs verified programs only.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

class CheckedProgram {
public:
  const ir::Program &program() const { return program_; }
  // To intern into, and to resolve names: nothing that was checked may be changed.
  ir::Program &tables() { return program_; }
  ir::TypeId type(ir::ValueId value) const { return result_.types[value.index]; }
  ir::ShapeId shape(ir::ValueId value) const { return result_.shapes[value.index]; }
  ir::ShardSizesId sizes(ir::ValueId value) const { return result_.sizes[value.index]; }

  // A function is typed for each call: its values are known by the typing that the call has.
  static constexpr uint32_t kMain = 0;
  rules::Arg known(ir::ValueId value, uint32_t typing = kMain) const;
  // The typings of the bodies that an instruction runs: `body`; `then`, `else`; `cond`, `body`.
  // Empty if it runs none.
  llvm::ArrayRef<uint32_t> bodies(ir::InstId site, uint32_t typing = kMain) const;

private:
  friend std::optional<CheckedProgram> verify_types(ir::Program program,
                                                    const CheckOptions &options);
  CheckedProgram(ir::Program program, CheckResult result)
      : program_(std::move(program)), result_(std::move(result)) {}
  ir::Program program_;
  CheckResult result_;
};

// None if the program has error findings; `check` tells which. Redistributions to whole types are
// steps then.
std::optional<CheckedProgram> verify_types(ir::Program program, const CheckOptions &options = {});

} // namespace spmd::checker
