// Reads and writes whole files. Relies on rename() being atomic within one folder.
#include "checker/cli/output.h"

#include "ir/input/input.h"
#include "ir/input/read_file.h"
#include "ir/support/escape.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace spmd::checker {
namespace {

std::string_view tool_name = "spmdlint";
std::string *diverted = nullptr;
bool terminal_denied = false;

namespace fs = llvm::sys::fs;

std::error_code write_all(int file, llvm::StringRef bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return {errno, std::generic_category()};
    bytes = bytes.drop_front(static_cast<size_t>(written));
  }
  return {};
}

// Devices and pipes cannot be replaced.
std::string write_through(llvm::StringRef path, llvm::StringRef bytes) {
  int file = -1;
  std::error_code error = fs::openFileForWrite(path, file, fs::CD_OpenExisting);
  if (!error) {
    error = write_all(file, bytes);
    ::close(file);
  }
  return error ? describe_system_error(error) : "";
}

// A new file in the same folder, whose name is nobody's; -1, with the reason in errno, if there can
// be none.
int create_beside(llvm::StringRef path, llvm::SmallVectorImpl<char> &name) {
  for (unsigned attempt = 0;; ++attempt) {
    name.clear();
    llvm::sys::path::append(name, llvm::sys::path::parent_path(path),
                            fmt::format(".{}-{}-{}.part", tool_name, ::getpid(), attempt));
    name.push_back('\0');
    int file = ::open(name.data(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int error = errno;
    name.pop_back();
    errno = error;
    if (file >= 0 || (error != EEXIST && error != EINTR))
      return file;
  }
}

std::string replace_file(llvm::StringRef path, llvm::StringRef bytes, fs::perms permissions) {
  llvm::SmallString<256> beside;
  int file = create_beside(path, beside);
  if (file < 0)
    return describe_system_error({errno, std::generic_category()});
  std::error_code error = write_all(file, bytes);
  if (!error && permissions != fs::perms_not_known)
    error = fs::setPermissions(file, permissions);
  if (::close(file) != 0 && !error)
    error = {errno, std::generic_category()};
  if (!error)
    error = fs::rename(beside, path);
  if (error)
    fs::remove(beside);
  return error ? describe_system_error(error) : "";
}

} // namespace

bool is_folder(const std::string &path) { return fs::is_directory(path); }

bool stdout_is_terminal() { return !terminal_denied && ::isatty(STDOUT_FILENO); }
void assume_no_terminal() { terminal_denied = true; }

void capture_output(std::string *into) { diverted = into; }

std::string write_stdout(llvm::StringRef bytes) {
  if (diverted)
    return diverted->append(bytes.data(), bytes.size()), "";
  std::error_code error = write_all(STDOUT_FILENO, bytes);
  if (!error || error == std::errc::broken_pipe)
    return "";
  return "stdout: " + describe_system_error(error);
}

ExitCode wrong_call(llvm::StringRef problem) {
  say(problem);
  return ExitCode::Call;
}

ExitCode print_text(llvm::StringRef text) {
  std::string problem = write_stdout(text);
  return problem.empty() ? ExitCode::Clean : wrong_call(problem);
}

std::string write_file(const std::string &path, llvm::StringRef bytes) {
  return diverted ? "" : write_own_file(path, bytes);
}

std::string write_own_file(const std::string &path, llvm::StringRef bytes) {
  fs::file_status status;
  llvm::SmallString<256> real(path);
  fs::perms permissions = fs::perms_not_known;
  if (!fs::status(path, status)) {
    if (fs::is_directory(status))
      return fmt::format("{}: is a directory", path);
    // A link keeps its place: what it leads to is replaced.
    if (std::error_code error = fs::real_path(path, real))
      return fmt::format("{}: {}", path, describe_system_error(error));
    permissions = status.permissions();
  }
  bool special = fs::exists(status) && !fs::is_regular_file(status);
  std::string problem =
      special ? write_through(path, bytes) : replace_file(real, bytes, permissions);
  return problem.empty() ? "" : fmt::format("{}: {}", path, problem);
}

void print_stderr(llvm::StringRef text) {
  if (diverted) {
    diverted->append(text.data(), text.size());
    return;
  }
  // There is nobody left to tell if stderr is gone.
  (void)write_all(STDERR_FILENO, text);
}

Progress::Progress(std::string what, bool quiet)
    : what_(std::move(what)), on_(!quiet && !diverted && ::isatty(STDERR_FILENO)),
      next_(std::chrono::steady_clock::now() + std::chrono::seconds(1)) {}

Progress::~Progress() {
  if (shown_)
    print_stderr("\r\x1B[K");
}

void Progress::show(uint64_t done, uint64_t all) {
  auto now = std::chrono::steady_clock::now();
  if (!on_ || now < next_ || all == 0)
    return;
  next_ = now + std::chrono::seconds(1);
  shown_ = true;
  print_stderr(fmt::format("\r\x1B[K{}: {} %", what_, done * 100 / all));
}

void set_tool_name(std::string_view name) { tool_name = name; }
std::string_view tool() { return tool_name; }

void say(llvm::StringRef text) {
  print_stderr(fmt::format("{}: {}\n", tool_name, ir::printable(text)));
}
void say_lines(llvm::StringRef text) {
  print_stderr(fmt::format("{}: {}\n", tool_name, ir::printable_lines(text)));
}

} // namespace spmd::checker
