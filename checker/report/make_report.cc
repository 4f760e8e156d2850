// Makes a report: folds, counts, accepts and cuts findings; asks for notes and fixes of those that
// are shown, of no others.
#include "checker/report/report.h"

#include "checker/fix/calls.h"
#include "checker/fix/fix_finder.h"
#include "checker/program_queries.h"
#include "checker/report/verified_edits.h"
#include "checker/walk/suppress.h"

#include "ir/dialect/print_type.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace spmd::checker {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// `layers.12.mlp` as `layers.*.mlp`.
std::string star_digits(llvm::StringRef scope) {
  std::string out;
  for (size_t at = 0; at < scope.size(); ++at) {
    bool digit = is_digit(scope[at]);
    if (!digit || at == 0 || !is_digit(scope[at - 1]))
      out += digit ? '*' : scope[at];
  }
  return out;
}

// Two scopes that star_digits() makes equal; numbers that are equal in both stay.
std::string merge_scopes(llvm::StringRef folded, llvm::StringRef scope) {
  std::string out;
  while (!folded.empty() && !scope.empty()) {
    llvm::StringRef left = folded.take_while(is_digit), right = scope.take_while(is_digit);
    if (left.empty() && folded.front() != '*') {
      out += folded.front();
      folded = folded.drop_front(), scope = scope.drop_front();
      continue;
    }
    out += left == right && !left.empty() ? left.str() : "*";
    folded = folded.drop_front(std::max<size_t>(left.size(), 1));
    scope = scope.drop_front(right.size());
  }
  return out;
}

bool at_declaration(const Finding &finding) { return finding.place.form == Place::Form::Param; }

// Where declared values are read first, by value; nothing where a program has no places of its own.
// `by_hand`: people read the program itself, and its declarations.
llvm::DenseMap<uint32_t, ir::LocId> first_uses(const ir::Program &program,
                                               const CheckResult &result, bool by_hand) {
  llvm::DenseMap<uint32_t, ir::LocId> found;
  const bool asked =
      by_hand ? llvm::any_of(result.findings, at_declaration) : !result.findings.empty();
  if (!asked || program.frames.size() == 0)
    return found;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
    for (ir::ValueId value : tensors_of(program, ir::InstId{i}))
      if (program.insts[ir::InstId{i}].loc.valid() && program.find_param(value))
        found.try_emplace(value.index, program.insts[ir::InstId{i}].loc);
  return found;
}

// What an optimizer reads of many parameters, or what is wrong with many of them, has one cause.
std::string fold_step(const Report &report, const Finding &finding) {
  const Place &place = finding.place;
  std::string text =
      fmt::format("{}|{}|{}|{}", finding.info().name, static_cast<unsigned>(finding.severity()),
                  rules::axes_of(finding.violation).bits(), finding.suppressed);
  if (place.form == Place::Form::Inst && frame_of(report, place).valid())
    text += "|" + print(locate_as_stated(report, place));
  rules::for_each_field(finding.violation, [&](std::string_view, const rules::Field &field) {
    if (const auto *words = std::get_if<std::string>(&field)) // a factor
      text += "|" + *words;
  });
  return text;
}

bool concerns_parameters(const Report &report, const Finding &finding) {
  const Place &place = finding.place;
  if (!finding.info().holds_for_inferred_cuts)
    return false;
  return place.form == Place::Form::Param ||
         (place.form == Place::Form::Inst && frame_of(report, place).valid() &&
          report.program->insts[place.as_inst()].phase == ir::Phase::Optimizer);
}

// What must be equal for two findings to be one. Without a frame and a scope no two findings are
// equal.
std::string fold_text(const Report &report, const Finding &finding) {
  const ir::Program &program = *report.program;
  const Place &place = finding.place;
  if (concerns_parameters(report, finding))
    return fold_step(report, finding);
  std::string scope = scope_of(report, place);
  std::string text = fmt::format("{}|{}|{}|{}", finding.info().name, star_digits(scope),
                                 finding.reason, static_cast<unsigned>(place.form));
  if (frame_of(report, place).valid())
    text += "|" + print(locate_as_stated(report, place));
  else if (scope.empty() || place.form != Place::Form::Inst)
    text += fmt::format("|@{}", byte_of(program, place));
  text += fmt::format("|{}|{}", rules::axes_of(finding.violation).bits(), finding.suppressed);
  if (place.form != Place::Form::Inst)
    return text + fmt::format("|#{}", place.index);
  text += "|" + program.op_name(program.insts[place.as_inst()].op).str();
  // Each operand has a declaration of its own to be completed.
  if (const auto *missing = finding.violation.as<rules::MissingClaim>())
    text += fmt::format("|{}", missing->operand.index);
  for (ir::ValueId value : tensors_of(program, place.as_inst()))
    text += fmt::format("|{}:{}", report.result->types[value.index].index,
                        report.result->shapes[value.index].index);
  return text;
}

std::string key_of(llvm::StringRef text) {
  return fmt::format("{:016x}", ir::fingerprint(text.data(), text.size()));
}

// What stays where lines move and values get other names: no line, no number of a value, no index
// of a table. The types are those of the operands, as people read them.
std::string identity_text(const Report &report, const Diagnostic &diagnostic) {
  const Finding &finding = *diagnostic.first;
  const ir::Program &program = *report.program;
  SourcePlace place = locate_as_stated(report, finding.place);
  // A program is compared with other versions of itself, wherever they lie.
  std::string text = fmt::format(
      "{}|{}|{}|{}", finding.info().name, place.in_input ? "" : place.path,
      star_digits(place.scope),
      ir::print_axes(program, mesh_of(program, finding.place), rules::axes_of(finding.violation)));
  for (const std::string &name : diagnostic.parameters)
    if (std::string stars = star_digits(name); text.find("|" + stars) == std::string::npos)
      text += "|" + stars;
  if (finding.place.form != Place::Form::Inst)
    return text;
  text += "|" + program.op_name(program.insts[finding.place.as_inst()].op).str();
  for (ir::ValueId value : tensors_of(program, finding.place.as_inst()))
    if (ir::TypeId type = report.result->types[value.index]; type.valid())
      text += "|" + ir::print_type(program, program.types[type], report.result->shapes[value.index],
                                   program.values[value].global_shape);
  return text;
}

void count(Report &report, const Finding &finding, int by = 1) {
  unsigned &counter = finding.suppressed                               ? report.suppressed
                      : finding.severity() == rules::Severity::Error   ? report.errors
                      : finding.severity() == rules::Severity::Warning ? report.warnings
                                                                       : report.infos;
  counter += static_cast<unsigned>(by);
}

// The declared value in whose storage a value lies, or whose gradient does; null if there is none.
const ir::Param *param_behind(const ir::Program &program, ir::ValueId value) {
  while (value.valid()) {
    if (const ir::Param *param = program.find_param(value))
      return param;
    const ir::Value &known = program.values[value];
    if (known.grad_of.valid())
      if (const ir::Param *param = program.find_param(known.grad_of))
        return param;
    value = known.alias_of.valid() && known.alias_of.index < value.index ? known.alias_of
                                                                         : ir::ValueId();
  }
  return nullptr;
}

void add_parameters(const Report &report, Diagnostic &diagnostic, const Finding &finding) {
  const ir::Program &program = *report.program;
  auto add = [&](const ir::Param *param) {
    if (!param || !param->name.valid())
      return false;
    std::string name = program.strings[param->name].str();
    if (!llvm::is_contained(diagnostic.parameters, name))
      diagnostic.parameters.push_back(std::move(name));
    return true;
  };
  bool named = false;
  const bool of_step = concerns_parameters(report, finding);
  llvm::SmallVector<ir::ValueId, 4> operands;
  if (finding.place.form == Place::Form::Inst)
    operands = tensors_of(program, finding.place.as_inst());
  rules::for_each_field(finding.violation, [&](std::string_view, const rules::Field &field) {
    if (const auto *value = std::get_if<ir::ValueId>(&field); value && value->valid())
      named |= add(of_step ? param_behind(program, *value) : program.find_param(*value));
    if (const auto *at = std::get_if<rules::OperandIndex>(&field);
        at && at->index < operands.size())
      if (const ir::Param *param = param_behind(program, operands[at->index]);
          of_step || (param && param->role == ir::Role::Param))
        named |= add(param);
  });
  if (named || !of_step || operands.empty() ||
      program.insts[finding.place.as_inst()].result_count != 1)
    return;
  for (ir::ValueId operand : operands)
    if (const ir::Param *param = param_behind(program, operand);
        param && param->role == ir::Role::Param)
      add(param);
}

void add_place(Report &report, Diagnostic &diagnostic, const Finding &finding) {
  diagnostic.places.push_back(finding.place);
  add_parameters(report, diagnostic, finding);
  diagnostic.folded_scope = merge_scopes(diagnostic.folded_scope, scope_of(report, finding.place));
}

// Those of the check, and those of the costs that are asked for, in the order of the program.
std::vector<const Finding *> all_findings(Report &report) {
  std::vector<const Finding *> all;
  size_t next = 0;
  auto add_before = [&](uint32_t inst) {
    for (; next < report.added.size() && report.added[next].place.index < inst; ++next)
      all.push_back(&report.added[next]);
  };
  for (const Finding &finding : report.result->findings) {
    if (finding.place.form == Place::Form::Inst)
      add_before(finding.place.index);
    else if (finding.place.form == Place::Form::Output)
      add_before(~0u);
    all.push_back(&finding);
  }
  add_before(~0u);
  return all;
}

void find_costs(Report &report, const ReportOptions &options) {
  bool wanted = llvm::any_of(rules::all_violations(), [&](const rules::DiagnosticInfo *info) {
    return info->is_cost && selected(options, *info);
  });
  if (!wanted)
    return;
  report.savings = savings_of(*report.program, *report.result);
  for (const Saving &saving : report.savings) {
    if (!selected(options, saving.finding.info()))
      continue;
    report.added.push_back(saving.finding);
    suppress(*report.program, report.check_options, report.added.back());
  }
}

void fold(Report &report, const ReportOptions &options) {
  llvm::StringMap<size_t> known;
  for (const Finding *each : all_findings(report)) {
    const Finding &finding = *each;
    if (!selected(options, finding.info())) {
      report.not_selected += !finding.suppressed;
      continue;
    }
    count(report, finding);
    std::string text = fold_text(report, finding);
    auto [entry, fresh] = known.try_emplace(text, report.diagnostics.size());
    if (!fresh && options.fold) {
      add_place(report, report.diagnostics[entry->second], finding);
      continue;
    }
    report.diagnostics.push_back({.first = &finding,
                                  .places = {finding.place},
                                  .folded_scope = scope_of(report, finding.place),
                                  .fold_key = key_of(text)});
    add_parameters(report, report.diagnostics.back(), finding);
  }
}

// Keeps the first ones; those that are suppressed have a bound of their own.
void cut(Report &report, unsigned limit) {
  unsigned kept[2] = {0, 0};
  auto beyond = [&](const Diagnostic &diagnostic) {
    if (kept[diagnostic.first->suppressed]++ < limit)
      return false;
    report.cut += !diagnostic.first->suppressed;
    return true;
  };
  std::vector<Diagnostic> shown;
  for (Diagnostic &diagnostic : report.diagnostics)
    if (!beyond(diagnostic))
      shown.push_back(std::move(diagnostic));
  report.diagnostics = std::move(shown);
}

void identify(Report &report) {
  for (Diagnostic &diagnostic : report.diagnostics)
    diagnostic.fingerprint = key_of(identity_text(report, diagnostic));
}

// Findings of the check stay as they are: what is accepted is a copy.
void accept(Report &report, Diagnostic &diagnostic) {
  if (diagnostic.first->suppressed)
    return;
  std::optional<Accepted> accepted;
  for (const AcceptRule &ask : report.accept)
    if (!accepted)
      accepted = ask(report, diagnostic);
  if (!accepted || accepted->places == 0)
    return;
  count(report, *diagnostic.first, -static_cast<int>(accepted->places));
  report.suppressed += static_cast<unsigned>(accepted->places);
  if (accepted->known) {
    diagnostic.known = accepted->places;
    report.known += static_cast<unsigned>(accepted->places);
  }
  if (accepted->places < diagnostic.places.size())
    return;
  Finding &copy = report.added.emplace_back(*diagnostic.first);
  copy.suppressed = true;
  copy.reason = accepted->reason;
  diagnostic.first = &copy;
}

// Each costs a check of the whole program.
constexpr unsigned kMostSavings = 20;
// Instructions that all checks of written fixes of a report may look at.
constexpr uint64_t kMostRechecked = 200'000;

// The search tries a fix in memory, where what a text brings along may be overlooked: a fix that
// can be written into the text holds there, or is not shown.
void drop_unheld(const Report &report, uint64_t &rechecked, Diagnostic &diagnostic) {
  llvm::erase_if(diagnostic.fixes, [&](const Fix &fix) {
    if (rechecked > kMostRechecked || text_edits(*report.program, report.bytes, fix).empty())
      return false;
    rechecked += report.program->insts.size();
    return verified_edits(report, *diagnostic.first, fix).empty();
  });
}

void add_saving(const Report &report, unsigned &tried, Diagnostic &diagnostic) {
  const Finding &finding = *diagnostic.first;
  diagnostic.fixes_sought = true;
  diagnostic.fix_budget_exhausted = tried >= kMostSavings;
  for (const Saving &saving : report.savings) {
    if (saving.finding.place != finding.place || saving.finding.violation != finding.violation ||
        diagnostic.fix_budget_exhausted)
      continue;
    ++tried;
    if (is_verified(report, saving))
      diagnostic.fixes.push_back(saving.fix);
  }
}

void explain(Report &report, const CheckOptions &check_options, bool fixes) {
  unsigned tried = 0;
  uint64_t rechecked = 0;
  std::optional<FixFinder> finder; // costs a copy of the types: made for the first finding only
  for (Diagnostic &diagnostic : report.diagnostics) {
    const Finding &finding = *diagnostic.first;
    if (finding.suppressed)
      continue;
    diagnostic.notes = explain_finding(*report.program, *report.result, finding);
    // What the trace says of the framework that is there is nearer than what may be called.
    const bool hinted = llvm::any_of(
        diagnostic.notes, [](const Note &note) { return note.form == Note::Form::Hint; });
    if (std::string hint = script_hint(*report.program, finding); !hinted && !hint.empty())
      diagnostic.notes.push_back({Note::Form::Hint, {}, false, std::move(hint)});
    if (diagnostic.parameters.empty()) // a search, where no field names one
      if (const ir::Param *param =
              report.program->find_param(parameter_of(*report.program, *report.result, finding));
          param && param->name.valid())
        diagnostic.parameters.push_back(report.program->strings[param->name].str());
    if (fixes && finding.info().is_cost)
      add_saving(report, tried, diagnostic);
    // A program that checks has nothing to repair: what a run refutes is not what it says.
    if (!fixes || finding.info().drawn_by != rules::ReportedBy::Check)
      continue;
    if (!finder)
      finder.emplace(*report.program, *report.result, check_options);
    diagnostic.fixes = finder->find(finding);
    diagnostic.fixes_sought = finder->tried();
    diagnostic.fix_budget_exhausted = finder->cut();
    drop_unheld(report, rechecked, diagnostic);
    if (report.words != ir::Dialect::Spmd)
      translate_fixes(*report.program, report.words, diagnostic.fixes);
  }
}

} // namespace

Report make_report(std::string input, llvm::StringRef bytes, ir::Program &program,
                   const CheckResult &result, const CheckOptions &check_options,
                   const ReportOptions &options) {
  Report report;
  report.input = std::move(input);
  report.bytes = bytes;
  report.lines = ir::InputLines(bytes);
  report.program = &program;
  report.result = &result;
  report.check_options = check_options;
  report.check_options.progress = {};
  find_costs(report, options);
  for (uint32_t i = 0; options.shown_path && i < program.files.size(); ++i)
    report.shown_paths.push_back(options.shown_path(program, ir::FileId{i}));
  report.words = options.dialect.value_or(ir::dialect_of(program));
  report.judged = check_coverage(program, result);
  report.first_uses = first_uses(program, result, ir::format_of(bytes).by_hand);
  fold(report, options);
  identify(report);
  report.accept = options.accept;
  report.compared = options.compared;
  for (Diagnostic &diagnostic : report.diagnostics)
    accept(report, diagnostic);
  cut(report, options.max_findings);
  explain(report, check_options, options.fixes);
  return report;
}

Report make_unread_report(std::string input, llvm::StringRef bytes,
                          std::vector<ir::InputError> errors) {
  Report report;
  report.input = std::move(input);
  report.bytes = bytes;
  report.input_errors = std::move(errors);
  return report;
}

void add_finding(Report &report, Finding finding) {
  report.added.push_back(std::move(finding));
  const Finding &added = report.added.back();
  count(report, added);
  report.diagnostics.push_back(
      {.first = &added, .places = {added.place}, .fold_key = key_of(fold_text(report, added))});
  report.diagnostics.back().fingerprint = key_of(identity_text(report, report.diagnostics.back()));
}

} // namespace spmd::checker
