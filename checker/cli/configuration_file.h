// The configuration file: `spmdlint.toml`, or `[tool.spmdlint]` of `pyproject.toml`. Its keys are
// the options of `check` without their dashes; besides them it teaches ops and accepts findings.
#pragma once

#include "checker/cli/options.h"

#include <string>
#include <vector>

namespace spmd::checker {

// Keys of a file: those of the option table, without dashes, and `rules`, `suppress`, `extend`.
std::vector<std::string> configuration_keys();
// Null if no option is configured by that key.
const OptionRow *configured_option(llvm::StringRef key);

// The nearest file above the working directory; empty if there is none.
std::string find_configuration();
// The nearest one above the first input, which is not used unless it is named: whoever made the
// input may have made it. Empty if there is none.
std::string configuration_above_input(const Options &options);
// Sets what the file says, except options that the command line names (`given`). Empty, or
// `FILE:LINE: what is wrong`.
std::string read_configuration(const std::string &path, const std::vector<std::string> &given,
                               Options &options);
// Fills `options` from the words after the command, on top of the configuration file, if the
// command has one. Empty, or what is wrong with the call.
std::string parse_call(llvm::ArrayRef<llvm::StringRef> words, const CommandRow &command,
                       Options &options);
// A file with every key, its meaning and its standard value, commented out.
std::string configuration_template();

} // namespace spmd::checker
