// The format for people: message, place, source line, operand types, notes, priced fixes, counts.
#include "checker/render/render.h"

#include "checker/definitions.h"

#include "ir/text/text.h"
#include "rules/ops/registry.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

#include <set>

namespace spmd::checker {
namespace {

constexpr size_t kGutter = 2; // digits of a line number that need no wider margin

struct Printer {
  const Report &report;
  SourceCache &sources;
  const RenderOptions &options;
  llvm::raw_ostream &out;
  size_t gutter = kGutter;

  const ir::Program &program() const { return *report.program; }

  void margin(std::string_view number, std::string_view text) {
    std::string line = painted(options, Style::Gutter, fmt::format("{:>{}} |", number, gutter));
    out << line << (text.empty() ? "" : " ") << text << '\n';
  }
  void fact(std::string_view text) {
    out << painted(options, Style::Gutter, fmt::format("{:>{}} =", "", gutter)) << ' ' << text
        << '\n';
  }
};

// The values that a finding names, in the order of its fields.
llvm::SmallVector<ir::ValueId, 2> values_of(const ir::Program &program, const Finding &finding) {
  llvm::SmallVector<ir::ValueId, 2> values;
  llvm::SmallVector<ir::ValueId, 4> tensors;
  if (finding.place.form == Place::Form::Inst)
    tensors = tensors_of(program, finding.place.as_inst());
  auto add = [&](ir::ValueId value) {
    if (value.valid() && !llvm::is_contained(values, value))
      values.push_back(value);
  };
  auto add_operand = [&](rules::OperandIndex operand) {
    if (operand.index < tensors.size())
      add(tensors[operand.index]);
  };
  rules::for_each_field(finding.violation, [&](std::string_view, const rules::Field &field) {
    if (const auto *operand = std::get_if<rules::OperandIndex>(&field))
      add_operand(*operand);
    else if (const auto *addend = std::get_if<rules::Addend>(&field);
             addend && addend->form == rules::Addend::Form::Operand)
      add_operand(addend->operand);
    else if (const auto *value = std::get_if<ir::ValueId>(&field))
      add(value_of(program, finding, *value));
  });
  return values;
}

bool is_value_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         llvm::StringRef("_./-%").contains(c);
}

// Columns [from, to) of a whole word after some offset; {0, 0} if it is not there. The text is
// ASCII up to there in what the printer writes; elsewhere code points are counted.
std::pair<unsigned, unsigned> columns_of(llvm::StringRef line, llvm::StringRef word, size_t from) {
  for (size_t at = line.find(word, from); at != llvm::StringRef::npos;
       at = line.find(word, at + 1)) {
    size_t end = at + word.size();
    if (end < line.size() && is_value_char(line[end]))
      continue;
    unsigned col = ir::line_and_column(line, at).second;
    return {col, col + ir::line_and_column(word, word.size()).second - 1};
  }
  return {0, 0};
}

// Where the marks belong on a line of the program: under the first operand that the finding names,
// else under the spelling of the op.
std::pair<unsigned, unsigned> marks_on(const ir::Program &program, const Finding &finding,
                                       llvm::StringRef line) {
  llvm::StringRef op;
  size_t op_at = 0;
  if (finding.place.form == Place::Form::Inst) {
    op = program.op_name(program.insts[finding.place.as_inst()].op);
    size_t equals = line.find(" = ");
    op_at = line.find(op, equals == llvm::StringRef::npos ? 0 : equals);
    op_at = op_at == llvm::StringRef::npos ? 0 : op_at;
  }
  for (ir::ValueId value : values_of(program, finding))
    if (auto found = columns_of(line, ir::print_value(program, value), op_at); found.first)
      return found;
  return op.empty() ? std::pair(0u, 0u) : columns_of(line, op, op_at);
}

void print_excerpt(Printer &printer, std::string_view number, llvm::StringRef line, unsigned col,
                   unsigned end_col) {
  unsigned width = printer.options.width;
  unsigned margin = static_cast<unsigned>(printer.gutter) + 3;
  Excerpt shown = excerpt(line, col, end_col, width > margin ? width - margin : width);
  printer.margin("", "");
  printer.margin(number, shown.line);
  if (!shown.marks.empty())
    printer.margin("", painted(printer.options, Style::Error, shown.marks));
}

llvm::StringRef input_line(const Report &report, uint32_t line) {
  llvm::StringRef rest = report.bytes.drop_front(report.line_starts[line - 1]);
  return rest.take_until([](char byte) { return byte == '\n'; }).rtrim('\r');
}

// The line of the source; without it the line of the program, which has no number where it is not
// in the input.
void print_source(Printer &printer, const Finding &finding, const SourcePlace &place) {
  const ir::Program &program = printer.program();
  std::string number = std::to_string(place.line);
  if (std::optional<llvm::StringRef> line = printer.sources.line(program, place)) {
    unsigned end = place.end_line > place.line ? ir::line_and_column(*line, line->size()).second
                                               : place.end_col;
    print_excerpt(printer, number, *line, place.col, end);
    return;
  }
  if (place.in_input && ir::format_of(printer.report.bytes).by_hand) {
    llvm::StringRef line = input_line(printer.report, place.line);
    auto [col, end] = marks_on(program, finding, line);
    print_excerpt(printer, number, line, col ? col : place.col, end);
    return;
  }
  if (finding.place.form != Place::Form::Inst)
    return;
  std::string line = ir::print_inst(program, finding.place.as_inst());
  auto [col, end] = marks_on(program, finding, line);
  print_excerpt(printer, "", line, col, end);
}

void print_types(Printer &printer, const Finding &finding) {
  const ir::Program &program = printer.program();
  for (ir::ValueId value : values_of(program, finding)) {
    ir::TypeId type = printer.report.result->types[value.index];
    if (!type.valid())
      continue;
    std::string text =
        ir::print_type(program, program.types[type], printer.report.result->shapes[value.index],
                       program.values[value].global_shape);
    if (printer.report.words != ir::Dialect::Spmd)
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ",
                          ir::kDialectWords[static_cast<unsigned>(printer.report.words)],
                          ir::print_words(program, program.types[type], printer.report.words));
    if (!text.empty())
      printer.fact(printable(fmt::format("{}: {}", ir::print_named(program, value), text)));
  }
}

// The calls that led to a collective: it often stands in a helper function. The modules that led to
// other operations are in their scope.
std::string called_from(const Printer &printer, const Place &place) {
  constexpr size_t kShown = 3;
  const ir::Program &program = printer.program();
  if (place.form != Place::Form::Inst ||
      rules::resolve_op(program, program.insts[place.as_inst()].op).form !=
          rules::OpForm::Transition)
    return "";
  std::vector<std::string> lines;
  for (const SourcePlace &caller : callers(printer.report, place))
    lines.push_back(print(caller));
  lines.resize(std::min(lines.size(), kShown));
  return lines.empty() ? "" : "called from " + llvm::join(lines, ", ");
}

// Whether a declaration without a place of its own stands where the value is read.
bool is_first_use(const Printer &printer, const Place &place) {
  return !printer.program().params[place.index].loc.valid() &&
         !locate(printer.report, place).in_input;
}

void print_notes(Printer &printer, const Diagnostic &diagnostic) {
  for (const Note &note : diagnostic.notes) {
    std::string place = note.has_place ? " " + print(locate(printer.report, note.place)) : "";
    std::string calls = note.has_place ? called_from(printer, note.place) : "";
    if (note.place.form == Place::Form::Param && is_first_use(printer, note.place))
      calls = "it is read first there";
    printer.fact(printable(fmt::format("{}{}: {}{}", kNoteWords[static_cast<unsigned>(note.form)],
                                       place, note.text, calls.empty() ? "" : "; " + calls)));
  }
}

// What a rank sends, and what it sends in backward where that differs; nothing where it is not
// known.
std::string price_tail(const Fix &fix) {
  if (!fix.forward_bytes)
    return "";
  if (!fix.backward_bytes || *fix.backward_bytes == *fix.forward_bytes)
    return " per rank";
  return fmt::format(" per rank, {} backward", print_bytes(*fix.backward_bytes));
}

std::string forward_price(const Fix &fix) {
  return fix.forward_bytes ? print_bytes(*fix.forward_bytes) : "";
}

// What to do; the texts of the other forms begin with a verb.
std::string fix_text(const Fix &fix) {
  bool inserts = fix.form == Fix::Form::Transition || fix.form == Fix::Form::Result;
  return (inserts ? "insert " : "") + (fix.words.empty() ? fix.text : fix.words);
}

// Prices stand in a column of their own.
void print_fixes(Printer &printer, const Diagnostic &diagnostic) {
  size_t text_width = 0, price_width = 0;
  for (const Fix &fix : diagnostic.fixes) {
    text_width = std::max(text_width, fix_text(fix).size());
    price_width = std::max(price_width, forward_price(fix).size());
  }
  for (const Fix &fix : diagnostic.fixes) {
    std::string line = fmt::format("{:<{}}  {:>{}}{}", printable(fix_text(fix)), text_width,
                                   forward_price(fix), price_width, price_tail(fix));
    line = llvm::StringRef(line).rtrim().str();
    if (fix.changes_value)
      line += " (changes the value)";
    printer.fact(painted(printer.options, Style::Good, "fix:") + " " + line);
  }
  if (diagnostic.fixes_cut)
    printer.fact("fix: the search was cut short: there may be others, or cheaper ones");
  else if (diagnostic.fixes_sought && diagnostic.fixes.empty())
    printer.fact("fix: none of the changes that were tried repairs this alone");
}

void print_fold(Printer &printer, const Diagnostic &diagnostic) {
  size_t more = diagnostic.places.size() - 1;
  if (more == 0)
    return;
  std::string line;
  const Place &place = diagnostic.first->place;
  const bool step = place.form == Place::Form::Inst &&
                    printer.program().insts[place.as_inst()].phase == ir::Phase::Optimizer;
  if (place.form != Place::Form::Param && (!step || diagnostic.parameters.size() < 2)) {
    line = fmt::format("and at {} more place{} with the same types", more, more == 1 ? "" : "s");
    if (!diagnostic.folded_scope.empty())
      line += fmt::format(" ({})", printable(diagnostic.folded_scope));
    printer.fact(line);
  }
  constexpr size_t kShown = 8;
  llvm::ArrayRef<std::string> others = diagnostic.parameters;
  others = others.drop_front(std::min<size_t>(1, others.size()));
  if (others.empty())
    return;
  line = (line.empty() ? "and for " : "for ") + llvm::join(others.take_front(kShown), ", ");
  if (others.size() > kShown)
    line += fmt::format(" and {} more", others.size() - kShown);
  printer.fact(printable(line));
}

void print_diagnostic(Printer &printer, const Diagnostic &diagnostic) {
  const Finding &finding = *diagnostic.first;
  rules::Severity severity = finding.severity();
  std::string word = fmt::format("{}[{}]", rules::kSeverityWords[static_cast<unsigned>(severity)],
                                 finding.info().name);
  std::string message = ": " + printable(message_of(printer.program(), finding));
  printer.out << painted(printer.options, style_of(severity), word)
              << painted(printer.options, Style::Bold, message) << '\n';
  SourcePlace place = locate(printer.report, finding.place);
  printer.gutter = std::max(kGutter, place.line ? std::to_string(place.line).size() : 0);
  std::string where = printable(print(place));
  if (!place.scope.empty())
    where += " in " + printable(place.scope);
  printer.out << painted(printer.options, Style::Gutter,
                         fmt::format("{:>{}}-->", "", printer.gutter))
              << ' ' << where << '\n';
  print_source(printer, finding, place);
  if (std::string calls = called_from(printer, finding.place); !calls.empty())
    printer.fact(printable(calls));
  print_types(printer, finding);
  print_notes(printer, diagnostic);
  print_fixes(printer, diagnostic);
  print_fold(printer, diagnostic);
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

} // namespace

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
      Printer printer{.report = report, .sources = sources, .options = options, .out = out};
      print_diagnostic(printer, diagnostic);
      names.insert(diagnostic.first->info().name);
    }
  if (options.quiet)
    return;
  print_last_lines(reports, out);
  print_manual(names, out);
}

} // namespace spmd::checker
