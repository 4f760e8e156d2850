// Bytes out of the tool: files replaced as a whole, words about the run.
#pragma once

#include "checker/cli/exit_code.h"

#include "ir/input/read_file.h"

#include "llvm/ADT/StringRef.h"

#include <chrono>
#include <string>

namespace spmd::checker {

inline constexpr const char *kStdinName = "<stdin>";

using ir::describe_system_error;
bool is_folder(const std::string &path);

// A reader that went away is no error. Otherwise empty, or what went wrong.
std::string write_stdout(llvm::StringRef bytes);
// To stdout. ExitCode::Call, with a sentence on stderr, where it cannot be written.
ExitCode print_text(llvm::StringRef text);
// ExitCode::Call, with this sentence on stderr.
ExitCode wrong_call(llvm::StringRef problem);
// Through a file beside it that takes its place, so that nobody sees half of it. Empty, or what
// went wrong.
std::string write_file(const std::string &path, llvm::StringRef bytes);
// The same of a file that no other process of the run writes, diverted or not.
std::string write_own_file(const std::string &path, llvm::StringRef bytes);
// As it stands, to stderr.
void print_stderr(llvm::StringRef text);
// Tells on a terminal, once a second, how far long work is; the line goes away with the object.
class Progress {
public:
  Progress(std::string what, bool quiet);
  ~Progress();
  void show(uint64_t done, uint64_t all);

private:
  std::string what_;
  bool on_ = false, shown_ = false;
  std::chrono::steady_clock::time_point next_;
};
// The name that lines about a run begin with; `spmdlint` unless set. To be set before anything is
// said.
void set_tool_name(std::string_view name);
std::string_view tool();
// From now on what goes to stdout and stderr is kept there, and files are not written: of a process
// that works beside the one that speaks. Null: as before.
void capture_output(std::string *into);
bool stdout_is_terminal();
// It is none, although it looks like one: mpirun gives such to each process.
void assume_no_terminal();
// One line on stderr, with the name of the tool.
void say(llvm::StringRef text);
// The same of several lines: line feeds stay.
void say_lines(llvm::StringRef text);

} // namespace spmd::checker
