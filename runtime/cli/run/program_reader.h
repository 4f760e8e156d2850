// The program of a call: read, checked, with the extents that the command line asks for, and with
// its backward.
#pragma once

#include "runtime/cli/run/reporter.h"

#include "checker/checked_program.h"

namespace spmd::runtime {

class ProgramReader {
public:
  ProgramReader(const RunOptions &options, ReadProgram &read, Reporter &reporter);

  // None: it is not to be run, which was said.
  std::optional<checker::CheckedProgram> load();
  // Its backward was derived here.
  bool has_derived_backward() const { return derived_; }

private:
  bool read();
  bool check();
  bool resize();
  bool derive_backward();

  ir::Program &program() { return read_.input.read.program; }

  const RunOptions &options_;
  ReadProgram &read_;
  Reporter &reporter_;
  bool derived_ = false;
};

} // namespace spmd::runtime
