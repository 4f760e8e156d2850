// Gathers the facts of one finding; the sentences are those that people read in every format.
#include "checker/render/facts.h"

#include "checker/fix/calls.h"
#include "checker/program_queries.h"

#include "ir/dialect/print_type.h"
#include "ir/text/text.h"
#include "rules/ops/registry.h"
#include "rules/violations/gradients.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

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

Fact fact(Fact::Form form, std::string label, std::string text) {
  return {.form = form,
          .label = std::move(label),
          .text = std::move(text),
          .price = {},
          .backward = {}};
}

void add_types(const Report &report, const Finding &finding, std::vector<Fact> &facts) {
  const ir::Program &program = *report.program;
  for (ir::ValueId value : values_of(program, finding)) {
    ir::TypeId type = report.result->types[value.index];
    if (!type.valid())
      continue;
    std::string text =
        ir::print_type(program, program.types[type], report.result->shapes[value.index],
                       program.values[value].global_shape);
    if (report.words != ir::Dialect::Spmd)
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ",
                          ir::kDialectWords[static_cast<unsigned>(report.words)],
                          ir::print_kinds_in(program, program.types[type], report.words));
    if (!text.empty())
      facts.push_back(fact(Fact::Form::Type, ir::print_named(program, value), std::move(text)));
  }
}

// The calls that led to a collective: it often stands in a helper function. The modules that led to
// other operations are in their scope.
std::string called_from(const Report &report, const Place &place) {
  constexpr size_t kShown = 3;
  const ir::Program &program = *report.program;
  if (place.form != Place::Form::Inst ||
      rules::resolve_op(program, program.insts[place.as_inst()].op).form !=
          rules::OpForm::Transition)
    return "";
  std::vector<std::string> lines;
  for (const SourcePlace &caller : callers(report, place))
    lines.push_back(print(caller));
  lines.resize(std::min(lines.size(), kShown));
  return lines.empty() ? "" : "called from " + llvm::join(lines, ", ");
}

// Whether a declaration without a place of its own stands where the value is read.
bool is_first_use(const Report &report, const Place &place) {
  return !report.program->params[place.index].loc.valid() && !locate(report, place).in_input;
}

void add_notes(const Report &report, const Diagnostic &diagnostic, std::vector<Fact> &facts) {
  for (const Note &note : diagnostic.notes) {
    std::string place = note.has_place ? " " + print(locate(report, note.place)) : "";
    std::string calls = note.has_place ? called_from(report, note.place) : "";
    if (note.place.form == Place::Form::Param && is_first_use(report, note.place))
      calls = "it is read first there";
    facts.push_back(fact(Fact::Form::Note,
                         fmt::format("{}{}", kNoteWords[static_cast<unsigned>(note.form)], place),
                         fmt::format("{}{}", note.text, calls.empty() ? "" : "; " + calls)));
    facts.back().note = &note;
  }
}

// What a rank sends in backward where that differs; nothing where it is not known.
std::string backward_price(const Fix &fix) {
  if (!fix.forward_bytes)
    return "";
  if (!fix.backward_bytes || *fix.backward_bytes == *fix.forward_bytes)
    return " per rank";
  return fmt::format(" per rank, {} backward", print_bytes(*fix.backward_bytes));
}

void add_fixes(const Diagnostic &diagnostic, std::vector<Fact> &facts) {
  for (const Fix &fix : diagnostic.fixes) {
    // The texts of the other forms begin with a verb.
    bool inserts = fix.form == Fix::Form::Transition || fix.form == Fix::Form::Result;
    Fact &made = facts.emplace_back(
        fact(Fact::Form::Fix, "fix",
             (inserts ? "insert " : "") + printable(fix.words.empty() ? fix.text : fix.words)));
    made.price = fix.forward_bytes ? print_bytes(*fix.forward_bytes) : "";
    made.backward = backward_price(fix);
    made.fix = &fix;
  }
  if (diagnostic.fix_budget_exhausted)
    facts.push_back(fact(Fact::Form::Rest, "fix",
                         "the search was cut short: there may be others, or cheaper ones"));
  else if (diagnostic.fixes_sought && diagnostic.fixes.empty())
    facts.push_back(
        fact(Fact::Form::Rest, "fix", "none of the changes that were tried repairs this alone"));
}

// `%a, %b`
std::string names_of(const ir::Program &program, llvm::ArrayRef<ir::ValueId> values) {
  std::string text;
  for (ir::ValueId value : values)
    text += (text.empty() ? "" : ", ") + ir::print_named(program, value);
  return text;
}

// Where a call stands, or what it is about.
std::string place_of(const Report &report, const Diagnostic &diagnostic, const ScriptCall &call,
                     bool gradient) {
  const ir::Program &program = *report.program;
  const ScriptWords words = script_words(program);
  const std::string at = print(locate(report, diagnostic.first->place));
  if (gradient) {
    const bool several = diagnostic.parameters.size() > 1;
    if (words.gradient == "p.grad")
      return fmt::format("before {}, {}", at,
                         several ? "for each p of these parameters" : "where p is the parameter");
    return fmt::format("before {}, for the gradient {} of {}", at, words.gradient,
                       several ? "each of these parameters" : "the parameter");
  }
  if (call.form == ScriptCall::Form::OfCall && call.tensors.empty())
    return "at " + at;
  if (call.form == ScriptCall::Form::AfterBackward) {
    const char *each = call.tensors.size() > 1 ? "for each" : "where";
    const std::string names = names_of(program, call.tensors);
    if (words.gradient == "p.grad")
      return fmt::format("after the backward, {} p {} {}", each,
                         call.tensors.size() > 1 ? "of" : "is", names);
    return fmt::format("after the backward, {} {} {} the gradient{} of {}", each, words.gradient,
                       call.tensors.size() > 1 ? "of" : "is", call.tensors.size() > 1 ? "s" : "",
                       names);
  }
  if (call.tensors.size() > 1)
    return fmt::format("for each {} of {}", words.tensor, names_of(program, call.tensors));
  const ir::InstId made = defining_inst(program, call.tensors.front());
  if (!made.valid())
    return fmt::format("where {} is {}", words.tensor, names_of(program, call.tensors));
  return fmt::format("where {} is what `{}` makes at {}", words.tensor,
                     program.op_name(program.insts[made].op).str(),
                     print(locate(report, Place::inst(made))));
}

// The first fix that the framework has a call for, else the first one that it takes a function of
// its own for, and where it would stand.
void add_call(const Report &report, const Diagnostic &diagnostic, std::vector<Fact> &facts) {
  const Finding &finding = *diagnostic.first;
  const bool gradient = finding.violation.is<rules::UnreducedGradient>();
  const ScriptWords words = script_words(*report.program);
  constexpr auto kDescribed = ScriptCall::Form::Described;
  std::optional<ScriptCall> call;
  for (const Fix &fix : diagnostic.fixes)
    if (std::optional<ScriptCall> found =
            script_call(*report.program, finding, fix, gradient ? words.gradient : words.tensor);
        found && (!call || (call->form == kDescribed && found->form != kDescribed)))
      call = std::move(found);
  if (call)
    facts.push_back(fact(Fact::Form::Rest, std::string(words.where),
                         printable(fmt::format("{}, {}", call->text,
                                               place_of(report, diagnostic, *call, gradient)))));
}

void add_fold(const Report &report, const Diagnostic &diagnostic, std::vector<Fact> &facts) {
  size_t more = diagnostic.places.size() - 1;
  if (more == 0)
    return;
  std::string line;
  const Place &place = diagnostic.first->place;
  const bool step = place.form == Place::Form::Inst &&
                    report.program->insts[place.as_inst()].phase == ir::Phase::Optimizer;
  if (place.form != Place::Form::Param && (!step || diagnostic.parameters.size() < 2)) {
    line = fmt::format("and at {} more place{} with the same types", more, more == 1 ? "" : "s");
    if (!diagnostic.folded_scope.empty())
      line += fmt::format(" ({})", printable(diagnostic.folded_scope));
    facts.push_back(fact(Fact::Form::Rest, "", line));
  }
  constexpr size_t kShown = 8;
  llvm::ArrayRef<std::string> others = diagnostic.parameters;
  others = others.drop_front(std::min<size_t>(1, others.size()));
  if (others.empty())
    return;
  line = (line.empty() ? "and for " : "for ") + llvm::join(others.take_front(kShown), ", ");
  if (others.size() > kShown)
    line += fmt::format(" and {} more", others.size() - kShown);
  facts.push_back(fact(Fact::Form::Rest, "", line));
}

} // namespace

std::optional<Quote> quote_of(const Report &report, const Diagnostic &diagnostic,
                              SourceCache &sources) {
  const ir::Program &program = *report.program;
  const Finding &finding = *diagnostic.first;
  SourcePlace place = locate(report, finding.place);
  if (std::optional<llvm::StringRef> line = sources.line(program, place)) {
    unsigned end = place.end_line > place.line ? ir::line_and_column(*line, line->size()).second
                                               : place.end_col;
    return Quote{place.line, line->str(), place.col, end};
  }
  const bool by_hand = place.in_input && ir::format_of(report.bytes).by_hand;
  if (!by_hand && finding.place.form != Place::Form::Inst)
    return std::nullopt;
  std::string line = by_hand ? report.lines.line(place.line).str()
                             : ir::print_inst(program, finding.place.as_inst());
  auto [col, end] = marks_on(program, finding, line);
  if (by_hand)
    return Quote{place.line, std::move(line), col ? col : place.col, end};
  return Quote{0, std::move(line), col, end};
}

std::string Fact::line() const {
  std::string all = label.empty() ? text : fmt::format("{}: {}", label, text);
  if (!price.empty())
    all += fmt::format(", {}{}", price, backward);
  if (fix && fix->changes_value)
    all += " (changes the value)";
  return printable(all);
}

std::vector<Fact> facts_of(const Report &report, const Diagnostic &diagnostic) {
  std::vector<Fact> facts;
  if (std::string calls = called_from(report, diagnostic.first->place); !calls.empty())
    facts.push_back(fact(Fact::Form::Callers, "", calls));
  add_types(report, *diagnostic.first, facts);
  add_notes(report, diagnostic, facts);
  add_fixes(diagnostic, facts);
  add_call(report, diagnostic, facts);
  add_fold(report, diagnostic, facts);
  return facts;
}

std::string heading_of(const Finding &finding) {
  return fmt::format("{}[{}]", rules::kSeverityWords[static_cast<unsigned>(finding.severity())],
                     finding.info().name);
}

} // namespace spmd::checker
