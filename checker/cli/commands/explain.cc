// `spmdlint explain`: the page of whatever has that name. Findings carry their manual in their
// struct; where frameworks differ stands in checker/differences.cc.
#include "checker/cli/commands/manual.h"
#include "checker/cli/options.h"
#include "checker/cli/output.h"
#include "checker/cli/report_output.h"

#include "checker/report/differences.h"
#include "checker/report/report.h"

#include "ir/input/input.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

// Lines of a text, without blank ones at its ends, each indented.
std::string indented(std::string_view text) {
  llvm::SmallVector<llvm::StringRef, 16> lines;
  llvm::StringRef(text.data(), text.size()).trim("\n").split(lines, '\n');
  std::string out;
  for (llvm::StringRef line : lines)
    out += line.empty() ? "\n" : fmt::format("  {}\n", std::string_view(line.data(), line.size()));
  return out;
}

// Words in lines of at most some columns.
std::string wrapped(std::string_view text, size_t width) {
  llvm::SmallVector<llvm::StringRef, 128> words;
  llvm::SplitString(llvm::StringRef(text.data(), text.size()), words);
  std::string out, line;
  for (llvm::StringRef word : words) {
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      out += line + '\n';
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word.str();
  }
  return out + line + '\n';
}

// A sentence without the values of a place: `OP` is not linear in OPERAND.
std::string sentence_form(std::string_view message) {
  std::string text;
  bool field = false, noun = false; // `{count noun}`
  for (char c : message) {
    if (c == '{' || c == '}') {
      text += noun ? "s" : "";
      field = c == '{', noun = false;
      continue;
    }
    noun |= field && c == ' ';
    if (c != '[' && c != ']')
      text += field && !noun ? llvm::toUpper(c) : c;
  }
  return text;
}

// The sentence as the program of the page gives it; of a finding that a check alone does not give,
// its form.
std::string shown_sentence(const rules::DiagnosticInfo &row) {
  if (row.wrong.empty() || row.drawn_by != rules::ReportedBy::Check)
    return sentence_form(row.message);
  ir::ReadResult read = ir::read_program({row.wrong.data(), row.wrong.size()}, {});
  CheckOptions options;
  options.today = date_of_today();
  for (const Finding &finding : check(read.program, options).findings)
    if (finding.info().name == row.name)
      return message_of(read.program, finding);
  return sentence_form(row.message);
}

std::string finding_page(llvm::StringRef name) {
  const rules::DiagnosticInfo *row = rules::find_violation({name.data(), name.size()});
  if (!row)
    return "";
  std::string text = fmt::format("{} ({})\n\n{}\n", row->name,
                                 rules::kSeverityWords[static_cast<unsigned>(row->severity)],
                                 indented(shown_sentence(*row)));
  text += wrapped(row->explain, 96);
  if (row->is_cost)
    text += "\nIt is reported where it is asked for, by its name or by `--extend-select=perf`.\n";
  if (!row->wrong.empty())
    text += fmt::format("\na program with this finding:\n\n{}", indented(row->wrong));
  if (!row->right.empty())
    text += fmt::format("\nthe same without it:\n\n{}", indented(row->right));
  return text;
}

// What frameworks make of the same; of all, or of the one that is asked for.
std::string difference_page(llvm::StringRef name, std::optional<ir::Dialect> only) {
  std::string text;
  for (const Difference &row : differences()) {
    if (llvm::StringRef(row.finding.data(), row.finding.size()) != name ||
        (only && *only != row.dialect))
      continue;
    bool laxer = row.form == Difference::Form::Laxer;
    std::string said =
        fmt::format("{} is {}: it {}", ir::kDialectWords[static_cast<unsigned>(row.dialect)],
                    laxer ? "laxer" : "stricter", row.why);
    text += fmt::format("\n{}\n{}:\n\n{}", wrapped(said, 96),
                        laxer ? "reported here" : "accepted here", indented(row.shown));
  }
  return text;
}

Names finding_names() {
  Names names;
  for (const rules::DiagnosticInfo *row : rules::all_violations())
    names.push_back(row->name);
  return names;
}

std::string exit_code_page(llvm::StringRef name) {
  for (const ExitCodeInfo &row : kExitCodes)
    if (name == std::to_string(static_cast<unsigned>(row.code)))
      return fmt::format("exit code {}: {}\ntypical reaction: {}\n",
                         static_cast<unsigned>(row.code), row.meaning, row.reaction);
  return "";
}

Names exit_code_names() {
  static const std::vector<std::string> words = [] {
    std::vector<unsigned> codes;
    for (const ExitCodeInfo &row : kExitCodes)
      codes.push_back(static_cast<unsigned>(row.code));
    llvm::sort(codes);
    std::vector<std::string> texts;
    texts.reserve(codes.size());
    for (unsigned code : codes)
      texts.push_back(std::to_string(code));
    return texts;
  }();
  return Names(words.begin(), words.end());
}

constexpr ManualSection kSections[] = {
    {"findings", finding_page, finding_names},
    {"ops", op_page, op_names},
    {"transitions", transition_page, transition_names},
    {"statements", statement_page, statement_names},
    {"kinds", kind_page, kind_names},
    {"exit codes", exit_code_page, exit_code_names},
    {"input errors", input_error_page, input_error_names},
};

std::string all_names() {
  std::string text;
  for (const ManualSection &section : kSections) {
    std::string names;
    for (llvm::StringRef name : section.names())
      names += name.str() + ' ';
    text += fmt::format("{}{}\n{}", text.empty() ? "" : "\n", section.title,
                        indented(wrapped(names, 96)));
  }
  return text;
}

std::string pages(llvm::StringRef name, const Options &options) {
  std::string text;
  for (const ManualSection &section : kSections)
    if (std::string page = section.page(name); !page.empty())
      text += (text.empty() ? "" : "\n") + page;
  return text.empty() ? text : text + difference_page(name, options.dialect);
}

ExitCode unknown_name(llvm::StringRef name) {
  Names known;
  for (const ManualSection &section : kSections)
    llvm::append_range(known, section.names());
  say(fmt::format("the manual has no page `{}`{}", name.str(), nearest_hint(name, known)));
  return ExitCode::Call;
}

} // namespace

ExitCode run_explain(const Options &options) {
  std::string text = options.arguments.empty() ? all_names() : "";
  for (const std::string &name : options.arguments) {
    std::string page = pages(name, options);
    if (page.empty())
      return unknown_name(name);
    text += (text.empty() ? "" : "\n") + page;
  }
  return print_text(text);
}

} // namespace spmd::checker
