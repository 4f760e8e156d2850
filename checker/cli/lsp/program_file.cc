// Finds the names at a position with the lexer that reads programs, and resolves them by the
// statement that they stand in.
#include "checker/cli/lsp/program_file.h"

#include "checker/cli/gates/patch.h"
#include "checker/cli/inputs/described.h"
#include "checker/cli/report_output.h"
#include "checker/program_queries.h"
#include "checker/render/facts.h"
#include "checker/report/verified_edits.h"

#include "ir/text/text.h"
#include "rules/ops/registry.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker::lsp {

std::string words_of(const Report &report, const Diagnostic &diagnostic) {
  std::string text = message_of(*report.program, *diagnostic.first);
  for (const Fact &fact : facts_of(report, diagnostic))
    if (!fact.note || !fact.note->has_place)
      text += "\n" + fact.line();
  return ir::printable_lines(text);
}

Json diagnostic_json(const Report &report, const Diagnostic &diagnostic, Range range) {
  const Finding &finding = *diagnostic.first;
  return {{"range", to_json(range)},
          {"severity", severity_number(finding.severity())},
          {"code", finding.info().name},
          {"source", "spmdlint"},
          {"message", words_of(report, diagnostic)}};
}

ProgramFile::ProgramFile(std::string uri, std::string name, llvm::StringRef text,
                         const Options &options)
    : uri_(std::move(uri)), options_(options),
      checked_(check_loaded(load_text(std::move(name), text, options), options)),
      sources_(options.sources), lines_(checked_->input.bytes()) {
  options_.report = report_options(options);
  if (checked_->input.checkable())
    report_.emplace(checked_->report(options_.report));
}

Range ProgramFile::range_of(const Diagnostic &diagnostic, const Place &place) const {
  if (place == diagnostic.first->place && locate(*report_, place).in_input)
    if (std::optional<Quote> quote = quote_of(*report_, diagnostic, sources_);
        quote && quote->number && quote->col)
      return {lines_.position(quote->number, quote->col),
              lines_.position(quote->number, std::max(quote->end_col, quote->col))};
  return lines_.whole(lines_.position(byte_of(program(), place)).line);
}

// The places of the notes: in this file, and in the source that it was made from.
Json ProgramFile::related(const Diagnostic &diagnostic, const FindSource &source) const {
  Json out = Json::array();
  for (const Note &note : diagnostic.notes) {
    if (!note.has_place)
      continue;
    std::string text =
        fmt::format("{}: {}", kNoteWords[static_cast<unsigned>(note.form)], printable(note.text));
    Range range = lines_.whole(lines_.position(byte_of(program(), note.place)).line);
    out.push_back({{"location", location(uri_, range)}, {"message", std::move(text)}});
  }
  SourcePlace place = locate(*report_, diagnostic.first->place);
  std::optional<std::string> uri =
      place.file.valid() ? source(program(), place.file) : std::nullopt;
  if (uri && place.line) {
    Position at{place.line - 1, 0};
    out.push_back({{"location", location(*uri, {at, at})}, {"message", "recorded here"}});
  }
  return out;
}

Json ProgramFile::diagnostics(const FindSource &source) const {
  Json out = Json::array();
  auto add_errors = [&](const std::vector<ir::InputError> &errors, int severity) {
    for (const ir::InputError &error : errors) {
      Position at =
          error.line ? lines_.position(error.line, error.col) : lines_.position(error.offset);
      Range range = lines_.whole(at.line);
      if (at.character < range.end.character)
        range.start = at;
      out.push_back({{"range", to_json(range)},
                     {"severity", severity},
                     {"code", error.name},
                     {"source", "spmdlint"},
                     {"message", printable(error.message)}});
    }
  };
  add_errors(checked_->input.read.errors, 1);
  add_errors(checked_->input.read.warnings, 2);
  if (!usable())
    return out;
  for (const Diagnostic &diagnostic : report_->diagnostics) {
    if (diagnostic.first->suppressed)
      continue;
    Json notes = related(diagnostic, source);
    for (const Place &place : diagnostic.places) {
      Json made = diagnostic_json(*report_, diagnostic, range_of(diagnostic, place));
      if (!notes.empty())
        made["relatedInformation"] = notes;
      out.push_back(std::move(made));
    }
  }
  return out;
}

// Tokens on a line follow each other from its start: none but strings hold the sign of a value.
ir::Token ProgramFile::token_at(uint64_t offset) const {
  ir::Lexer lexer(checked_->input.bytes());
  lexer.seek(lines_.start(lines_.position(offset).line));
  while (true) {
    ir::Token token = lexer.next(/*skip_newlines=*/false);
    bool at_end = token.ends_statement() && token.text != ";";
    if (at_end || token.kind == ir::TokenKind::Bad || token.offset > offset)
      return {};
    if (offset <= token.end && token.kind != ir::TokenKind::Punctuation && !token.ends_statement())
      return token;
  }
}

ir::InstId ProgramFile::statement_at(uint64_t offset) const {
  ir::InstId best;
  for (uint32_t i = 0; i < program().origins.size(); ++i)
    if (program().origins[i] <= offset &&
        (!best.valid() || program().origins[best.index] < program().origins[i]))
      best = ir::InstId{i};
  return best;
}

// Spellings of frameworks are several names with points between them.
ir::InstId ProgramFile::operation_at(const ir::Token &token) const {
  ir::InstId id = token.kind == ir::TokenKind::Name ? statement_at(token.offset) : ir::InstId();
  if (!id.valid())
    return {};
  const ir::Inst &inst = program().insts[id];
  llvm::StringRef bytes = checked_->input.bytes(), op = program().op_name(inst.op);
  size_t at = program().origins[id.index];
  at = bytes.find(op, inst.result_count ? bytes.find('=', at) : at);
  return at <= token.offset && token.offset < at + op.size() ? id : ir::InstId();
}

std::optional<uint64_t> ProgramFile::defined_at(ir::ValueId value) const {
  if (ir::InstId made = defining_inst(program(), value); made.valid())
    return program().origins[made.index];
  for (uint32_t i = 0; i < program().params.size(); ++i)
    if (program().params[i].value == value)
      return byte_of(program(), {Place::Form::Param, i});
  for (const ir::Function &function : program().functions)
    for (const ir::FunctionParam &param : function.params)
      if (param.value == value)
        return function.origin;
  return std::nullopt;
}

// One that the statement makes or takes; else the last one of that name before it.
ir::ValueId ProgramFile::value_at(const ir::Token &token) const {
  llvm::StringRef name = checked_->input.bytes().slice(token.offset, token.end);
  auto named = [&](ir::ValueId value) { return ir::print_value(program(), value) == name; };
  if (ir::InstId id = statement_at(token.offset); id.valid()) {
    const ir::Inst &inst = program().insts[id];
    for (uint32_t i = 0; i < inst.result_count; ++i)
      if (named(inst.result(i)))
        return inst.result(i);
    for (ir::ValueId value : tensors_of(program(), id))
      if (named(value))
        return value;
  }
  ir::ValueId best;
  std::optional<uint64_t> best_at;
  for (uint32_t i = 0; i < program().values.size(); ++i) {
    ir::ValueId value{i};
    if (!named(value))
      continue;
    std::optional<uint64_t> at = defined_at(value);
    bool before = at && *at <= token.offset;
    if (!best.valid() || (before && (!best_at || *best_at > token.offset || *best_at <= *at)))
      best = value, best_at = at;
  }
  return best;
}

std::optional<Json> ProgramFile::hover(Position position) const {
  if (!usable())
    return std::nullopt;
  ir::Token token = token_at(lines_.offset(position));
  Described described(*report_, options_.dialect.value_or(ir::dialect_of(program())));
  std::string text;
  if (token.kind == ir::TokenKind::Value) {
    ir::ValueId value = value_at(token);
    if (!value.valid())
      return std::nullopt;
    text = fenced(llvm::StringRef(described.typed(value)).ltrim(), "spmd");
    for (const Note &note : explain_value(program(), checked_->result, value)) {
      std::string at = note.has_place ? print(locate(*report_, note.place)) + ": " : "";
      text += fmt::format("\n- {} {}", kNoteWords[static_cast<unsigned>(note.form)],
                          markdown_cell(at + note.text));
    }
  } else if (token.kind == ir::TokenKind::Name) {
    ir::InstId id = operation_at(token);
    if (!id.valid())
      return std::nullopt;
    text = fenced(described.instruction(id), "spmd");
    if (const rules::OpDef *row = rules::resolve_op(program(), program().insts[id].op).row)
      text += fmt::format("\n`{}: {}`", row->name, row->equation.equation.text);
  } else {
    return std::nullopt;
  }
  return Json{{"contents", markdown(text)},
              {"range", to_json(lines_.range(token.offset, token.end))}};
}

// Of a value and a function in this file; of an operation in the source that it was made from.
std::optional<Json> ProgramFile::definition(Position position, const FindSource &source) const {
  if (!usable())
    return std::nullopt;
  ir::Token token = token_at(lines_.offset(position));
  auto here = [&](uint64_t offset) {
    Position at = lines_.position(offset);
    return location(uri_, {at, at});
  };
  if (token.kind == ir::TokenKind::Value) {
    ir::ValueId value = value_at(token);
    std::optional<uint64_t> at = value.valid() ? defined_at(value) : std::nullopt;
    return at ? std::optional(here(*at)) : std::nullopt;
  }
  if (token.kind == ir::TokenKind::Function) {
    llvm::StringRef name = checked_->input.bytes().slice(token.offset, token.end);
    for (const ir::Function &function : program().functions)
      if (program().strings[function.name] == name)
        return here(function.origin);
    return std::nullopt;
  }
  ir::InstId id = operation_at(token);
  if (!id.valid())
    return std::nullopt;
  SourcePlace place = locate(*report_, Place::inst(id));
  std::optional<std::string> uri =
      place.file.valid() ? source(program(), place.file) : std::nullopt;
  if (!uri || place.line == 0)
    return std::nullopt;
  Position at{place.line - 1, place.col ? place.col - 1 : 0};
  return location(*uri, {at, at});
}

// Behind each result whose type the program does not state.
Json ProgramFile::hints(Range range) const {
  Json out = Json::array();
  if (!usable())
    return out;
  Described described(*report_, options_.dialect.value_or(ir::Dialect::Spmd));
  for (uint32_t i = 0; i < program().insts.size(); ++i) {
    const ir::Inst &inst = program().insts[ir::InstId{i}];
    Position at = lines_.position(program().origins[i]);
    if (inst.result_count == 0 || !overlap({at, at}, {{range.start.line, 0}, range.end}))
      continue;
    ir::Lexer lexer(checked_->input.bytes());
    lexer.seek(program().origins[i]);
    for (uint32_t result = 0; result < inst.result_count;) {
      ir::Token token = lexer.next(/*skip_newlines=*/false);
      if (token.ends_statement() || token.kind == ir::TokenKind::Bad || token.is('='))
        break;
      if (token.kind != ir::TokenKind::Value)
        continue;
      ir::ValueId value = inst.result(result++);
      if (program().values[value].declared.valid() || !checked_->result.types[value.index].valid())
        continue;
      out.push_back({{"position", to_json(lines_.position(token.end))},
                     {"label", printable(": " + described.type(value))},
                     {"kind", 1}});
    }
  }
  return out;
}

Json ProgramFile::edit(const std::vector<TextEdit> &edits) const {
  Json list = Json::array();
  for (const TextEdit &each : edits)
    list.push_back({{"range", to_json(lines_.range(each.offset, each.offset + each.length))},
                    {"newText", each.text}});
  return {{"changes", {{uri_, std::move(list)}}}};
}

Json ProgramFile::actions(Range range) const {
  Json out = Json::array();
  if (!usable() || !checked_->input.readable())
    return out;
  for (const Diagnostic &diagnostic : report_->diagnostics) {
    Range own = range_of(diagnostic, diagnostic.first->place);
    bool here = !diagnostic.first->suppressed && overlap(own, range);
    bool preferred = true;
    for (const Fact &fact : here ? facts_of(*report_, diagnostic) : std::vector<Fact>()) {
      if (!fact.fix)
        continue;
      std::vector<TextEdit> edits = verified_edits(*report_, *diagnostic.first, *fact.fix);
      if (edits.empty())
        continue;
      Json action = {{"title", fact.line()},
                     {"kind", "quickfix"},
                     {"diagnostics", Json::array({diagnostic_json(*report_, diagnostic, own)})},
                     {"edit", edit(edits)}};
      if (preferred && !fact.fix->changes_value)
        action["isPreferred"] = true;
      preferred = false;
      out.push_back(std::move(action));
    }
  }
  if (Patch patch = make_patch(checked_->input, options_); patch.fixed)
    out.push_back({{"title", fmt::format("spmdlint: repair {} finding{}", patch.fixed,
                                         patch.fixed == 1 ? "" : "s")},
                   {"kind", "source.fixAll"},
                   {"edit", edit({{0, checked_->input.bytes().size(), patch.after}})}});
  return out;
}

} // namespace spmd::checker::lsp
