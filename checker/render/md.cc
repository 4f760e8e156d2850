// Markdown for a comment on a pull request: counts, a table, each finding in full below it, folded.
// A comment holds 65 536 characters: what is beyond the limit is counted.
#include "checker/render/facts.h"

#include <fmt/format.h>

namespace spmd::checker {

std::string markdown_cell(llvm::StringRef text) {
  std::string out;
  bool code = false;
  for (char c : printable(text)) {
    code ^= c == '`';
    if (c == '|' || (!code && llvm::StringRef("\\*_[]<>~#&$").contains(c)))
      out += '\\';
    out += c;
  }
  return out + (code ? "`" : "");
}

namespace {

constexpr size_t kMost = 60'000;     // bytes, at least as many as characters
constexpr size_t kMostRows = 40'000; // up to the end of the table
constexpr size_t kMostRemarks = 10'000;
constexpr size_t kLastLines = 200; // that say what is left out

std::string row(const Report &report, const Diagnostic &diagnostic) {
  const Finding &finding = *diagnostic.first;
  size_t more = diagnostic.places.size() - 1;
  return fmt::format("| {} | `{}` | {} | {}{} |\n",
                     rules::kSeverityWords[static_cast<unsigned>(finding.severity())],
                     finding.info().name, markdown_cell(message_of(*report.program, finding)),
                     markdown_cell(print(locate(report, finding.place))),
                     more ? fmt::format(" and {} more", more) : "");
}

std::string details(const Report &report, const Diagnostic &diagnostic, SourceCache &sources) {
  std::string full;
  llvm::raw_string_ostream text(full);
  print_in_full(report, diagnostic, sources, {}, text);
  size_t run = 0, longest = 2; // the fence is longer than any run of backticks inside
  for (char c : text.str()) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  std::string fence(longest + 1, '`');
  return fmt::format("<details><summary><code>{}</code> at {}</summary>\n\n{}text\n{}{}\n\n"
                     "</details>\n\n",
                     diagnostic.first->info().name,
                     markdown_cell(print(locate(report, diagnostic.first->place))), fence,
                     text.str(), fence);
}

// What is no finding, but has to be known: inputs that were not read, or in which nothing was
// judged.
std::string remarks(llvm::ArrayRef<Report> reports) {
  std::string text;
  size_t more = 0;
  auto add = [&](std::string line) {
    bool fits = text.size() + line.size() <= kMostRemarks;
    more += !fits;
    text += fits ? line : "";
  };
  for (const Report &report : reports) {
    for (const ir::InputError &error : report.input_errors) {
      auto [line, col] = line_of(report, error);
      add(fmt::format("- {}:{}:{}: `{}`: {}\n", markdown_cell(report.input), line, col, error.name,
                      markdown_cell(error.message)));
    }
    if (std::string why = nothing_judged(report); !why.empty())
      add(fmt::format("- {}: {}\n", markdown_cell(report.input), markdown_cell(why)));
  }
  if (more)
    text += fmt::format("- {} more were not read or judged\n", more);
  return text.empty() ? "" : text + "\n";
}

std::string verdict(const Totals &totals) {
  if (totals.errors || totals.unread)
    return "❌";
  return totals.warnings || totals.unjudged ? "⚠" : "✅";
}

} // namespace

void render_md(llvm::ArrayRef<Report> reports, SourceCache &sources, const RenderOptions &,
               llvm::raw_ostream &out) {
  Totals totals = totals_of(reports);
  std::string text = fmt::format("### {} spmdlint: {}\n\n{}", verdict(totals),
                                 markdown_cell(counts_line(totals)), remarks(reports));
  std::string rows;
  size_t left_out = totals.cut, closed = 0;
  auto each = [&](auto take) {
    for (const Report &report : reports)
      for (const Diagnostic &diagnostic : report.diagnostics)
        if (!diagnostic.first->suppressed)
          take(report, diagnostic);
  };
  each([&](const Report &report, const Diagnostic &diagnostic) {
    std::string line = row(report, diagnostic);
    bool fits = text.size() + rows.size() + line.size() <= kMostRows;
    left_out += !fits;
    rows += fits ? line : "";
  });
  if (!rows.empty())
    text += "| | finding | what | where |\n| --- | --- | --- | --- |\n" + rows + "\n";
  each([&](const Report &report, const Diagnostic &diagnostic) {
    std::string block = details(report, diagnostic, sources);
    bool fits = text.size() + block.size() + kLastLines <= kMost;
    closed += !fits;
    text += fits ? block : "";
  });
  if (closed)
    text += fmt::format("{} of the findings are not shown in full.\n", closed);
  if (left_out)
    text += fmt::format("{} more are not in the table.\n", left_out);
  out << llvm::StringRef(text).rtrim('\n') << '\n';
}

} // namespace spmd::checker
