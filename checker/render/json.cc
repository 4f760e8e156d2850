// The format for programs: every argument by its type, all places, notes, fixes with bytes,
// suppressions. checker/report/output.schema.json describes it; keys stand in a fixed order.
#include "checker/render/render.h"

#include "checker/program_queries.h"
#include "checker/render/json_text.h"
#include "checker/rewrite/annotate.h"

#include "ir/dialect/print_type.h"
#include "ir/mesh/symbols.h"
#include "ir/text/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace spmd::checker {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kOutputVersion = "1.5";
constexpr std::string_view kWhyWords[] = {"call", "use", "no_gradient", "no_use"};
constexpr std::string_view kFixWords[] = {"transition", "attribute", "drop", "result"};

Json text_or_null(std::string text) { return text.empty() ? Json(nullptr) : Json(std::move(text)); }

// As the program states it: places of two runs are compared.
Json source_json(const ir::Program &program, const SourcePlace &place) {
  Json out = {{"path", place.file.valid() ? program.strings[program.files[place.file].path].str()
                                          : place.path}};
  auto add = [&](const char *key, uint32_t number) {
    if (number)
      out[key] = number;
  };
  add("line", place.line), add("col", place.col);
  add("end_line", place.end_line), add("end_col", place.end_col);
  return out;
}

Json place_json(const Report &report, const Place &place) {
  SourcePlace found = locate(report, place);
  Json out = source_json(*report.program, found);
  out["in_input"] = found.in_input;
  if (!found.scope.empty())
    out["scope"] = found.scope;
  if (place.form == Place::Form::Inst)
    out["op_index"] = place.index;
  for (const SourcePlace &caller : callers(report, place))
    out["callers"].push_back(source_json(*report.program, caller));
  return out;
}

struct FieldPrinter {
  const Report &report;
  const Finding &finding;

  const ir::Program &program() const { return *report.program; }
  Json value(ir::ValueId id) const {
    return id.valid() ? Json(ir::print_value(program(), id)) : Json(nullptr);
  }

  Json operator()(rules::OperandIndex operand) const {
    Json out = {{"operand", operand.index}};
    if (finding.place.form == Place::Form::Inst) {
      auto tensors = tensors_of(program(), finding.place.as_inst());
      out["value"] = operand.index < tensors.size() ? value(tensors[operand.index]) : Json(nullptr);
    }
    return out;
  }
  Json operator()(rules::ResultIndex result) const {
    Json out = {{"result", result.index}};
    if (finding.place.form == Place::Form::Inst)
      out["value"] = value(program().insts[finding.place.as_inst()].result(result.index));
    return out;
  }
  Json operator()(rules::Addend addend) const {
    return addend.form == rules::Addend::Form::Number ? Json{{"number", true}}
                                                      : (*this)(addend.operand);
  }
  Json operator()(ir::AxisSet axes) const {
    Json out = Json::array();
    llvm::SmallVector<llvm::StringRef, 4> names;
    std::string text = field_text(program(), finding, rules::Field(axes));
    llvm::StringRef(text).split(names, ", ", -1, /*KeepEmpty=*/false);
    for (llvm::StringRef name : names)
      out.push_back(name.str());
    return out;
  }
  Json operator()(ir::Kind kind) const { return ir::info(kind).word; }
  Json operator()(ir::WrittenKind word) const { return ir::print(word); }
  Json operator()(ir::Combiner combiner) const { return ir::word(combiner); }
  Json operator()(int64_t number) const { return number; }
  Json operator()(rules::RankCount ranks) const {
    return ir::is_symbolic(program(), ranks.count) ? Json(ir::print_ranks(program(), ranks.count))
                                                   : Json(ranks.count);
  }
  Json operator()(ir::TypeId type) const {
    return type.valid() ? Json(ir::print_kinds(program(), program().types[type])) : Json(nullptr);
  }
  Json operator()(ir::ShapeId shape) const {
    return shape.valid() ? Json(ir::print_shape(program(), shape)) : Json(nullptr);
  }
  Json operator()(ir::ValueId id) const { return value(value_of(program(), finding, id)); }
  Json operator()(const std::string &text) const { return text; }
};

Json arguments_json(const Report &report, const Finding &finding) {
  Json out = Json::object();
  if (finding.place.form == Place::Form::Inst)
    out["op"] = report.program->op_name(report.program->insts[finding.place.as_inst()].op).str();
  rules::for_each_field(finding.violation, [&](std::string_view name, const rules::Field &field) {
    out[std::string(name)] = std::visit(FieldPrinter{report, finding}, field);
  });
  return out;
}

Json operands_json(const Report &report, const Finding &finding) {
  Json out = Json::array();
  if (finding.place.form != Place::Form::Inst)
    return out;
  const ir::Program &program = *report.program;
  for (ir::ValueId value : tensors_of(program, finding.place.as_inst())) {
    ir::TypeId type = report.result->types[value.index];
    std::string text;
    if (type.valid())
      text = ir::print_type(program, program.types[type], report.result->shapes[value.index],
                            program.values[value].global_shape);
    out.push_back({{"value", ir::print_value(program, value)}, {"type", text_or_null(text)}});
    if (type.valid() && report.words != ir::Dialect::Spmd)
      out.back()["words"] = ir::print_kinds_in(program, program.types[type], report.words);
  }
  return out;
}

Json note_json(const Report &report, const Note &note) {
  Json out = {{"form", kNoteWords[static_cast<unsigned>(note.form)]}, {"text", note.text}};
  out["place"] = note.has_place ? place_json(report, note.place) : Json(nullptr);
  return out;
}

Json bytes_json(std::optional<int64_t> bytes) { return bytes ? Json(*bytes) : Json(nullptr); }

Json fix_json(const ir::Program &program, const Fix &fix) {
  Json out = {{"form", kFixWords[static_cast<unsigned>(fix.form)]},
              {"text", fix.text},
              {"replacement", fix.replacement},
              {"changes_value", fix.changes_value},
              {"forward_bytes", bytes_json(fix.forward_bytes)},
              {"backward_bytes", bytes_json(fix.backward_bytes)}};
  if (!fix.words.empty()) {
    out["words"] = fix.words;
    out["words_replacement"] = fix.words_replacement;
  }
  if (fix.inst.valid() && fix.inst.index < program.insts.size())
    out["op_index"] = fix.inst.index;
  if (fix.form == Fix::Form::Transition)
    out["operands"] = std::vector<uint32_t>(fix.operands.begin(), fix.operands.end());
  return out;
}

Json finding_json(const Report &report, size_t input, const Diagnostic &diagnostic) {
  const Finding &finding = *diagnostic.first;
  Json places = Json::array(), notes = Json::array(), fixes = Json::array();
  for (const Place &place : diagnostic.places)
    places.push_back(place_json(report, place));
  for (const Note &note : diagnostic.notes)
    notes.push_back(note_json(report, note));
  for (const Fix &fix : diagnostic.fixes)
    fixes.push_back(fix_json(*report.program, fix));
  return {{"name", finding.info().name},
          {"severity", rules::kSeverityWords[static_cast<unsigned>(finding.severity())]},
          {"message", message_of(*report.program, finding)},
          {"arguments", arguments_json(report, finding)},
          {"operands", operands_json(report, finding)},
          {"input", input},
          {"places", std::move(places)},
          {"scope", text_or_null(diagnostic.folded_scope)},
          {"parameters", diagnostic.parameters},
          {"notes", std::move(notes)},
          {"fixes", std::move(fixes)},
          {"fixes_sought", diagnostic.fixes_sought},
          {"fixes_cut", diagnostic.fix_budget_exhausted},
          {"suppression",
           finding.suppressed ? Json{{"reason", text_or_null(finding.reason)}} : Json(nullptr)},
          {"fold_key", diagnostic.fold_key},
          {"fingerprint", diagnostic.fingerprint}};
}

Json axes_json(const ir::Program &program, ir::MeshId mesh, ir::AxisSet axes) {
  Json out = Json::array();
  for (ir::AxisId axis : axes)
    out.push_back(program.strings[program.meshes[mesh][axis].name].str());
  return out;
}

Json annotation_json(const Report &report, size_t input, const Annotation &annotation) {
  const ir::Program &program = *report.program;
  const ir::Inst &inst = program.insts[annotation.inst];
  Json words = Json::array();
  for (const InferredSrcDst &at : annotation.words)
    words.push_back(
        {{"axes", axes_json(program, program.contexts[inst.context].mesh, at.word.axes)},
         {"src", ir::print(at.word.src)},
         {"dst", ir::print(at.word.dst)},
         {"addends", read_as_addends(program, at)},
         {"why", kWhyWords[static_cast<unsigned>(at.why)]},
         {"use", at.why == InferredSrcDst::Why::Use ? place_json(report, at.use) : Json(nullptr)}});
  return {{"op", program.op_name(inst.op).str()},
          {"input", input},
          {"place", place_json(report, Place::inst(annotation.inst))},
          {"text", annotation.line},
          {"words", std::move(words)}};
}

Json input_error_json(const Report &report, const ir::InputError &error) {
  auto [line, col] = line_of(report, error);
  return {{"name", error.name},
          {"message", error.message},
          {"offset", error.offset},
          {"line", line},
          {"col", col},
          {"key", text_or_null(error.path)}};
}

Json input_json(const Report &report) {
  Json errors = Json::array(), warnings = Json::array();
  for (const ir::InputError &error : report.input_errors)
    errors.push_back(input_error_json(report, error));
  for (const ir::InputError &warning : report.input_warnings)
    warnings.push_back(input_error_json(report, warning));
  Json out = {{"path", report.input},
              {"read", report.program != nullptr},
              {"errors", errors},
              {"warnings", warnings}};
  if (report.program) {
    out["ops"] = report.result->stats.ops;
    out["unknown_ops"] = report.result->stats.unknown_ops;
    out["values"] = report.judged.values;
    out["unknown_values"] = report.judged.unknown_values;
    out["judged"] = report.judged.anything();
    if (report.judged.trained) {
      out["trained"] = report.judged.trained;
      out["confirmed"] = report.judged.confirmed;
      for (const CheckCoverage::Proof &proof : report.judged.proofs)
        out["proved"][proof.axis] = proof.proved;
    }
    if (report.judged.results) {
      out["results"] = report.judged.results;
      for (const CheckCoverage::Proof &proof : report.judged.proofs)
        out["results_proved"][proof.axis] = proof.proved;
    }
  }
  return out;
}

Json summary_json(const Totals &totals) {
  return {{"errors", totals.errors},
          {"warnings", totals.warnings},
          {"infos", totals.infos},
          {"suppressed", totals.suppressed},
          {"known", totals.known},
          {"not_shown", totals.cut},
          {"ops", totals.ops},
          {"unknown_ops", totals.unknown_ops},
          {"undecided_words", totals.undecided},
          {"not_selected", totals.not_selected},
          {"values", totals.values},
          {"unknown_values", totals.unknown_values},
          {"unchecked_ops", totals.unchecked_ops},
          {"uncalled_ops", totals.uncalled_ops},
          {"inputs_unjudged", totals.unjudged},
          {"inputs_of_one_rank", totals.one_rank}};
}

} // namespace

void render_json(llvm::ArrayRef<Report> reports, SourceCache &, const RenderOptions &,
                 llvm::raw_ostream &out) {
  Json inputs = Json::array(), findings = Json::array(), erased = Json::array();
  for (size_t input = 0; input < reports.size(); ++input) {
    inputs.push_back(input_json(reports[input]));
    for (const Diagnostic &diagnostic : reports[input].diagnostics)
      findings.push_back(finding_json(reports[input], input, diagnostic));
    if (reports[input].program)
      for (const Annotation &annotation : annotate(*reports[input].program, *reports[input].result))
        erased.push_back(annotation_json(reports[input], input, annotation));
  }
  Json document = {
      {"version", kOutputVersion},   {"tool", {{"name", "spmdlint"}, {"version", kVersion}}},
      {"inputs", std::move(inputs)}, {"findings", std::move(findings)},
      {"erased", std::move(erased)}, {"summary", summary_json(totals_of(reports))}};
  out << print_json(document, 1) << '\n';
}

} // namespace spmd::checker
