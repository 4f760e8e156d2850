// Where reports go, and which of the findings count.
#include "checker/cli/report_output.h"

#include "checker/cli/output.h"

#include "ir/mesh/symbols.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <map>
#include <sys/ioctl.h>
#include <unistd.h>

namespace spmd::checker {
namespace {

bool use_colour(When when) {
  if (when != When::Auto)
    return when == When::Always;
  const char *forced = std::getenv("FORCE_COLOR"), *refused = std::getenv("NO_COLOR"),
             *term = std::getenv("TERM");
  if (refused && *refused)
    return false;
  if (forced && *forced)
    return llvm::StringRef(forced) != "0";
  return stdout_is_terminal() && !(term && llvm::StringRef(term) == "dumb");
}

unsigned terminal_width() {
  winsize size{};
  bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : RenderOptions{}.width;
}

} // namespace

static bool is_device(const std::string &path) {
  llvm::sys::fs::file_status status;
  return !llvm::sys::fs::status(path, status) && !llvm::sys::fs::is_regular_file(status);
}

// The file behind a path, links followed as far as it is there.
static std::string same_file(const std::string &path) {
  llvm::SmallString<256> real;
  if (!llvm::sys::fs::real_path(path, real))
    return real.str().str();
  real = path;
  llvm::SmallString<256> folder;
  llvm::StringRef parent = llvm::sys::path::parent_path(path);
  if (!llvm::sys::fs::real_path(parent.empty() ? "." : parent, folder)) {
    llvm::sys::path::append(folder, llvm::sys::path::filename(path));
    return folder.str().str();
  }
  return real.str().str();
}

std::string formats_problem(const Options &options) {
  std::map<std::string, std::string> taken; // a file, and what goes there
  for (const std::string &argument : options.arguments)
    if (argument != "-")
      taken[same_file(argument)] = "an input";
  if (!options.baseline.empty())
    taken[same_file(options.baseline)] = "the baseline";
  for (const FormatRequest &request : options.formats) {
    auto [at, fresh] = taken.try_emplace(request.file.empty() ? "" : same_file(request.file),
                                         fmt::format("`--format={}`", request.name));
    if (!fresh && request.file.empty())
      return fmt::format("{} and `--format={}` both go to stdout: name a file for one of them, "
                         "`--format={}:FILE`",
                         at->second, request.name, request.name);
    // Devices take what comes, one after another.
    if (!fresh && !is_device(request.file))
      return fmt::format("`--format={}:{}`: the file is that of {}", request.name, request.file,
                         at->second);
  }
  return "";
}

bool render(const Options &options, llvm::ArrayRef<Report> reports, SourceCache &sources) {
  bool written = true;
  std::vector<FormatRequest> formats = options.formats;
  if (formats.empty())
    formats.push_back({stdout_is_terminal() ? "full" : "concise", ""});
  for (const FormatRequest &request : formats) {
    bool to_stdout = request.file.empty();
    RenderOptions render_options{
        .colour = to_stdout && use_colour(options.colour),
        .width = options.width.value_or(to_stdout ? terminal_width() : RenderOptions{}.width),
        .quiet = options.quiet,
        .fail_on = options.fail_on,
        .expect = options.expect};
    std::string bytes;
    llvm::raw_string_ostream out(bytes);
    find_renderer(request.name)->fn(reports, sources, render_options, out);
    std::string problem = to_stdout ? write_stdout(out.str()) : write_file(request.file, out.str());
    if (problem.empty())
      continue;
    written = false;
    say(problem);
  }
  return written;
}

bool fails(const Report &report, rules::Severity lowest) {
  return report.errors > 0 || (lowest >= rules::Severity::Warning && report.warnings > 0) ||
         (lowest >= rules::Severity::Info && report.infos > 0);
}

bool prints_counts(const Options &options) {
  if (options.formats.empty())
    return stdout_is_terminal();
  for (const FormatRequest &request : options.formats)
    if (request.file.empty() && find_renderer(request.name)->counts)
      return true;
  return false;
}

std::string date_of_today() {
  std::time_t now = std::time(nullptr);
  std::tm day{};
  ::gmtime_r(&now, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

ReportOptions report_options(const Options &options) {
  ReportOptions report = options.report;
  report.dialect = options.dialect;
  if (!options.extend_select.empty() && report.select.empty())
    report.select.push_back("default");
  report.select.insert(report.select.end(), options.extend_select.begin(),
                       options.extend_select.end());
  return report;
}

std::string selection_problem(const ReportOptions &options) {
  using rules::ReportedBy;
  for (const rules::DiagnosticInfo *row : rules::all_violations())
    if ((row->drawn_by == ReportedBy::Check || row->drawn_by == ReportedBy::Report) &&
        selected(options, *row))
      return "";
  return "no finding of a check is left to report: see `--select` and `--ignore`, on the command "
         "line and in the configuration";
}

void note_assumed_sizes(const ir::Program &program, const Options &options) {
  if (!program.symbol_primes.empty() && !options.quiet)
    say(fmt::format("note: plans and prices are those of {}", ir::print_assumed(program)));
}

} // namespace spmd::checker
