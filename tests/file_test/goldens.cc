// Rendered output, held in files beside the case: X.full.txt, X.concise.txt, X.json.txt.
#include "tests/file_test/run_case.h"

#include "checker/render/render.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <fmt/format.h>

namespace spmd::tests {
namespace {

std::string golden_path(const TestCase &test, std::string_view format) {
  llvm::StringRef stem = test.path;
  for (llvm::StringRef extension : {".jsonl", ".json", ".spmd"})
    stem.consume_back(extension);
  return fmt::format("{}.{}.txt", stem.str(), format);
}

// As the tool prints it when it is called in the folder of the case.
std::string render(const checker::Renderer &renderer, const TestCase &test, ir::Program &program,
                   const checker::CheckResult &result, const checker::CheckOptions &options) {
  llvm::StringRef folder = llvm::sys::path::parent_path(test.path);
  checker::SourceCache sources({.root = folder.empty() ? "." : folder.str()});
  std::string name = llvm::sys::path::filename(test.path).str(), text;
  std::vector<checker::Report> reports;
  reports.push_back(make_report(name, test.text, program, result, options, {}));
  add_changed_sources(reports.front(), sources);
  llvm::raw_string_ostream out(text);
  renderer.fn(reports, sources, {}, out);
  return text;
}

void compare(const std::string &path, const std::string &text, Session &session,
             Problems &problems) {
  std::string error, golden = read_file(path, error);
  if (golden == text && error.empty())
    return;
  std::vector<llvm::StringRef> wanted = lines_of(golden), have = lines_of(text);
  for (size_t i = 0; i < std::max(wanted.size(), have.size()); ++i) {
    llvm::StringRef left = i < wanted.size() ? wanted[i] : "",
                    right = i < have.size() ? have[i] : "";
    if (left == right)
      continue;
    problems.push_back(fmt::format("{}:{}: - {}", path, i + 1, left.str()));
    problems.push_back(fmt::format("{}:{}: + {}", path, i + 1, right.str()));
    break;
  }
  if (problems.empty())
    problems.push_back(fmt::format("{}: differs in line feeds, or is not there", path));
  if (session.update)
    session.edits.write(path, text);
}

} // namespace

std::vector<std::string> goldens_beside(const TestCase &test) {
  std::vector<std::string> formats;
  for (const checker::Renderer &renderer : checker::renderers())
    if (llvm::sys::fs::exists(golden_path(test, renderer.name)))
      formats.emplace_back(renderer.name);
  return formats;
}

void compare_goldens(const TestCase &test, const std::vector<std::string> &formats,
                     ir::Program &program, const checker::CheckResult &result,
                     const checker::CheckOptions &options, Session &session, Problems &problems) {
  for (const std::string &format : formats) {
    if (const checker::Renderer *renderer = checker::find_renderer(format))
      compare(golden_path(test, format), render(*renderer, test, program, result, options), session,
              problems);
    else
      problems.push_back(fmt::format("{}: no output format `{}`", test.name(), format));
  }
}

} // namespace spmd::tests
