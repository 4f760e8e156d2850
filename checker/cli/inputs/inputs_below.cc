// Walks a folder once, whatever its links lead to. Relies on device and inode to tell folders
// apart.
#include "checker/cli/inputs/inputs_below.h"

#include "checker/cli/output.h"

#include "ir/input/input.h"
#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace spmd::checker {
namespace {

namespace fs = llvm::sys::fs;

bool is_program(llvm::StringRef path) {
  path.consume_back(".gz") || path.consume_back(".zst");
  return llvm::any_of(ir::formats(), [&](const ir::Format &format) {
    return ir::ends_with(path, llvm::StringRef(format.extension.data(), format.extension.size()));
  });
}

class FolderWalk {
public:
  explicit FolderWalk(InputsBelow &found) : found_(found) {}

  void folder(const std::string &path) {
    fs::file_status status;
    std::error_code error = fs::status(path, status);
    if (error)
      return problem(path, describe_system_error(error));
    const fs::UniqueID id = status.getUniqueID();
    const auto *above = llvm::find_if(open_, [&](const auto &each) { return each.first == id; });
    if (above != open_.end()) {
      found_.notes.push_back(
          fmt::format("{}: leads back to {}, not followed", path, above->second));
      return;
    }
    if (!seen_.insert(id).second)
      return; // its programs are among those found, by the other name
    open_.push_back({id, path});
    for (const std::string &each : entries(path))
      entry(each);
    open_.pop_back();
  }

private:
  void problem(const std::string &path, const std::string &why) {
    found_.problems.push_back(fmt::format("{}: {}", path, why));
  }

  std::vector<std::string> entries(const std::string &path) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator at(path, error), end; at != end && !error; at.increment(error))
      if (!ir::starts_with(llvm::sys::path::filename(at->path()), "."))
        names.push_back(at->path());
    if (error)
      problem(path, describe_system_error(error));
    std::sort(names.begin(), names.end());
    return names;
  }

  void entry(const std::string &path) {
    fs::file_status status;
    if (std::error_code error = fs::status(path, status)) {
      // A link to nothing matters where a program is meant.
      if (is_program(path) || error != std::errc::no_such_file_or_directory)
        problem(path, describe_system_error(error));
      return;
    }
    if (fs::is_directory(status))
      folder(path);
    else if (is_program(path) && fs::is_regular_file(status))
      found_.files.push_back(path);
    else if (is_program(path))
      problem(path, "neither a file nor a folder");
  }

  InputsBelow &found_;
  llvm::SmallVector<std::pair<fs::UniqueID, std::string>, 8>
      open_; // the folders around the present one
  std::set<fs::UniqueID> seen_;
};

} // namespace

InputsBelow inputs_below(const std::string &folder) {
  InputsBelow found;
  FolderWalk(found).folder(folder);
  std::sort(found.files.begin(), found.files.end());
  if (found.files.empty() && found.problems.empty())
    found.problems.push_back(fmt::format("{}: no program is in this folder", folder));
  return found;
}

} // namespace spmd::checker
