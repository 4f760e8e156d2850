// Commands that a GitHub workflow turns into annotations, the most severe first, since it shows ten
// of each kind. The table of the job is another format: --format=md:"$GITHUB_STEP_SUMMARY".
#include "checker/render/facts.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

// As the commands quote it; properties end at colons and commas.
std::string quoted(llvm::StringRef text, bool property) {
  std::string out;
  for (char c : text)
    if (c == '%' || c == '\n' || c == '\r' || (property && (c == ':' || c == ',')))
      out += fmt::format("%{:02X}", static_cast<unsigned>(c));
    else
      out += c;
  return out;
}

void annotate_line(llvm::raw_ostream &out, std::string_view command, const SourcePlace &place,
                   std::string_view title, std::string_view message) {
  std::string properties = "file=" + quoted(printable(place.path), true);
  auto add = [&](std::string_view key, uint32_t number) {
    if (number)
      properties += fmt::format(",{}={}", key, number);
  };
  add("line", place.line), add("endLine", place.end_line);
  if (place.end_line <= place.line) // columns are for what stands on one line
    add("col", place.col), add("endColumn", place.end_col);
  out << fmt::format("::{} {},title={}::{}\n", command, properties,
                     quoted({title.data(), title.size()}, true),
                     quoted({message.data(), message.size()}, false));
}

struct Annotated {
  const Report *report;
  const Diagnostic *diagnostic;
};

void annotate_finding(llvm::raw_ostream &out, const Annotated &each) {
  constexpr std::string_view kCommands[] = {"error", "warning", "notice"}; // by severity
  const Finding &finding = *each.diagnostic->first;
  std::string text = printable(message_of(*each.report->program, finding));
  for (const Fact &fact : facts_of(*each.report, *each.diagnostic))
    text += "\n" + fact.line();
  annotate_line(out, kCommands[static_cast<unsigned>(finding.severity())],
                locate(*each.report, finding.place), finding.info().name, text);
}

} // namespace

void render_github(llvm::ArrayRef<Report> reports, SourceCache &, const RenderOptions &options,
                   llvm::raw_ostream &out) {
  std::vector<Annotated> shown;
  for (const Report &report : reports) {
    for (const ir::InputError &error : report.input_errors) {
      auto [line, col] = line_of(report, error);
      annotate_line(out, "error", {.path = report.input, .line = line, .col = col, .scope = {}},
                    error.name, printable(error.message));
    }
    if (std::string why = nothing_judged(report); !why.empty())
      annotate_line(out, "error", {.path = report.input, .scope = {}}, "nothing judged", why);
    for (const Diagnostic &diagnostic : report.diagnostics)
      if (!diagnostic.first->suppressed)
        shown.push_back({&report, &diagnostic});
  }
  llvm::stable_sort(shown, [](const Annotated &a, const Annotated &b) {
    return a.diagnostic->first->severity() < b.diagnostic->first->severity();
  });
  for (const Annotated &each : shown)
    annotate_finding(out, each);
  if (!options.quiet)
    out << "::notice title=spmdlint::" << quoted(counts_line(totals_of(reports)), false) << '\n';
}

} // namespace spmd::checker
