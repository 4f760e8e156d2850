// An input, read and checked as `spmdlint check` does it.
#pragma once

#include "checker/cli/input.h"

#include <memory>

namespace spmd::checker {

struct CheckedInput {
  Input input;
  CheckOptions options; // with the mode that the program is judged in
  CheckResult result;

  ir::Program &program() { return input.read.program; }
  Report report(const ReportOptions &wanted);
};
// Null if it cannot be read; what is wrong was said.
std::unique_ptr<CheckedInput> load_checked(const std::string &path, const Options &options);
// The same of one that was loaded; as it is where it cannot be checked.
std::unique_ptr<CheckedInput> check_loaded(Input input, const Options &options);
// Options of the check for a program: nobody declares what a script that was recorded as it is
// holds.
CheckOptions check_options_for(const ir::Program &program, const Options &options);

} // namespace spmd::checker
