// The format for people: message, place, source line, operand types, notes, priced fixes, counts.
#include "checker/render/facts.h"
#include "checker/render/source/source_edit.h"

#include <fmt/format.h>

#include <set>

namespace spmd::checker {
namespace {

constexpr size_t kGutter = 2; // digits of a line number that need no wider margin

struct Printer {
  const RenderOptions &options;
  llvm::raw_ostream &out;
  size_t gutter = kGutter;

  void margin(std::string_view number, std::string_view text) {
    std::string line = painted(options, Style::Gutter, fmt::format("{:>{}} |", number, gutter));
    out << line << (text.empty() ? "" : " ") << text << '\n';
  }
  void fact(std::string_view text) {
    out << painted(options, Style::Gutter, fmt::format("{:>{}} =", "", gutter)) << ' ' << text
        << '\n';
  }
};

void print_quote(Printer &printer, const Quote &quote) {
  unsigned width = printer.options.width;
  unsigned margin = static_cast<unsigned>(printer.gutter) + 3;
  Excerpt shown =
      excerpt(quote.line, quote.col, quote.end_col, width > margin ? width - margin : width);
  printer.margin("", "");
  printer.margin(quote.number ? std::to_string(quote.number) : "", shown.line);
  if (!shown.marks.empty())
    printer.margin("", painted(printer.options, Style::Error, shown.marks));
}

// Prices of fixes stand in a column of their own.
void print_facts(Printer &printer, const std::vector<Fact> &facts) {
  size_t text_width = 0, price_width = 0;
  for (const Fact &fact : facts)
    if (fact.fix) {
      text_width = std::max(text_width, fact.text.size());
      price_width = std::max(price_width, fact.price.size());
    }
  for (const Fact &fact : facts) {
    if (!fact.fix) {
      printer.fact(fact.line());
      continue;
    }
    std::string line = fmt::format("{:<{}}  {:>{}}{}", fact.text, text_width, fact.price,
                                   price_width, fact.backward);
    line = llvm::StringRef(line).rtrim().str();
    if (fact.fix->changes_value)
      line += " (changes the value)";
    printer.fact(painted(printer.options, Style::Good, "fix:") + " " + line);
  }
}

void print_last_lines(llvm::ArrayRef<Report> reports, llvm::raw_ostream &out) {
  Totals totals = totals_of(reports);
  if (totals.cut)
    out << fmt::format("{} more not shown (--max-findings)\n", totals.cut);
  out << counts_line(totals) << '\n';
}

// Where there is more to read about what was shown.
void print_manual(const std::set<std::string_view> &names, llvm::raw_ostream &out) {
  if (!names.empty())
    out << fmt::format("what it means and how to repair it: `spmdlint explain {}`\n",
                       names.size() == 1 ? *names.begin() : "NAME");
}

// What the first fix that a script can say makes of a line of it.
void print_edit(Printer &printer, const SourceEdit &edit) {
  llvm::SmallVector<llvm::StringRef, 2> after;
  llvm::StringRef(edit.after).split(after, '\n');
  const bool kept = after.front() == edit.before;
  auto line = [&](uint32_t number, char sign, Style style, llvm::StringRef text) {
    printer.out << painted(printer.options, Style::Gutter,
                           fmt::format("{:>{}} {}", number, printer.gutter, sign))
                << ' ' << painted(printer.options, style, printable(text.str())) << '\n';
  };
  if (!kept)
    line(edit.line, '-', Style::Error, edit.before);
  for (llvm::StringRef text : llvm::drop_begin(after, kept ? 1 : 0))
    line(edit.line + kept, '+', Style::Good, text);
}

} // namespace

void print_in_full(const Report &report, const Diagnostic &diagnostic, SourceCache &sources,
                   const RenderOptions &options, llvm::raw_ostream &out) {
  const Finding &finding = *diagnostic.first;
  std::string message = ": " + printable(message_of(*report.program, finding));
  out << painted(options, style_of(finding.severity()), heading_of(finding))
      << painted(options, Style::Bold, message) << '\n';
  SourcePlace place = locate(report, finding.place);
  Printer printer{.options = options, .out = out};
  printer.gutter = std::max(kGutter, place.line ? std::to_string(place.line).size() : 0);
  std::string where = printable(print(place));
  if (!place.scope.empty())
    where += " in " + printable(place.scope);
  out << painted(options, Style::Gutter, fmt::format("{:>{}}-->", "", printer.gutter)) << ' '
      << where << '\n';
  if (std::optional<Quote> quote = quote_of(report, diagnostic, sources))
    print_quote(printer, *quote);
  print_facts(printer, facts_of(report, diagnostic));
  if (std::optional<SourceEdit> edit = source_edit(report, diagnostic, sources))
    print_edit(printer, *edit);
}

void render_full(llvm::ArrayRef<Report> reports, SourceCache &sources, const RenderOptions &options,
                 llvm::raw_ostream &out) {
  bool first = true;
  std::set<std::string_view> names;
  for (const Report &report : reports)
    for (const Diagnostic &diagnostic : report.diagnostics) {
      if (diagnostic.first->suppressed)
        continue;
      if (!std::exchange(first, false))
        out << '\n';
      print_in_full(report, diagnostic, sources, options, out);
      names.insert(diagnostic.first->info().name);
    }
  if (options.quiet)
    return;
  print_last_lines(reports, out);
  print_manual(names, out);
}

} // namespace spmd::checker
