// Restates a check by lines of the text. Places are byte offsets in the input, whatever source
// frames say.
#include "tests/file_test/observation.h"

#include "checker/report/report.h"
#include "ir/dialect/print_type.h"
#include "ir/mesh/axis_scale.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace spmd::tests {
namespace {

class Lines {
public:
  explicit Lines(llvm::StringRef text) {
    for (size_t at = text.find('\n'); at != llvm::StringRef::npos; at = text.find('\n', at + 1))
      ends_.push_back(at);
  }
  unsigned of(uint64_t offset) const {
    return static_cast<unsigned>(std::lower_bound(ends_.begin(), ends_.end(), offset) -
                                 ends_.begin()) +
           1;
  }

private:
  std::vector<uint64_t> ends_;
};

Assertion::Form form_of(const checker::Finding &finding) {
  if (finding.suppressed)
    return Assertion::Form::Suppressed;
  return static_cast<Assertion::Form>(finding.severity());
}
static_assert(int(Assertion::Form::Error) == int(rules::Severity::Error));
static_assert(int(Assertion::Form::Warning) == int(rules::Severity::Warning));
static_assert(int(Assertion::Form::Info) == int(rules::Severity::Info));

void add_findings(const Lines &lines, const checker::Report &report, Observation &out) {
  for (const checker::Diagnostic &diagnostic : report.diagnostics) {
    const checker::Finding &finding = *diagnostic.first;
    ObservedFinding made{.line = lines.of(origin_of(*report.program, finding.place)),
                         .form = form_of(finding),
                         .name = std::string(finding.info().name),
                         .axes = axes_text(*report.program, finding),
                         .message = message_of(*report.program, finding)};
    for (const checker::Note &note : diagnostic.notes)
      made.notes.push_back(note.text);
    for (const checker::Fix &fix : diagnostic.fixes)
      made.fixes.push_back(fix.text);
    out.findings.push_back(std::move(made));
  }
}

void add_result(const Lines &lines, uint64_t origin, ir::ValueId value, const ir::Program &program,
                const checker::CheckResult &result, Observation &out) {
  ir::ShapeId shape = result.shapes[value.index];
  out.results.push_back({.line = lines.of(origin),
                         .kinds = kinds_text(program, result, value),
                         .shape = shape.valid() ? ir::print_shape(program, shape) : ""});
}

void add_results(const Lines &lines, const ir::Program &program, const checker::CheckResult &result,
                 Observation &out) {
  for (size_t i = 0; i < program.params.size(); ++i)
    add_result(lines, program.param_origins[i], program.params[i].value, program, result, out);
  for (uint32_t i = 0; i < program.insts.size(); ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    out.starts.push_back(lines.of(program.origins[i]));
    if (inst.result_count > 0)
      add_result(lines, program.origins[i], inst.first_result, program, result, out);
  }
  auto by_line = [](const ObservedResult &a, const ObservedResult &b) { return a.line < b.line; };
  std::stable_sort(out.results.begin(), out.results.end(), by_line);
  for (const ObservedResult &made : out.results)
    out.starts.push_back(made.line);
  for (const ir::Output &output : program.outputs)
    out.starts.push_back(lines.of(output.origin));
  for (const ObservedFinding &finding : out.findings)
    out.starts.push_back(finding.line);
  std::sort(out.starts.begin(), out.starts.end());
}

} // namespace

std::vector<ir::InputError> read_and_verify(llvm::StringRef text,
                                            std::optional<ir::Program> &program) {
  ir::ReadResult read = ir::read_program(text);
  if (!read.errors.empty())
    return std::move(read.errors);
  std::vector<ir::InputError> errors = ir::verify(read.program);
  program.emplace(std::move(read.program));
  return errors;
}

bool is_erased(const ir::Program &program, const checker::CheckOptions &options) {
  return options.mode.value_or(program.mode) == ir::Mode::Local;
}

KindsRead reading_of(ir::Program &program, const checker::CheckOptions &options) {
  KindsRead how{.erased = is_erased(program, options)};
  for (uint16_t m = static_cast<uint16_t>(program.meshes.size()); m-- > 0;) {
    const ir::Mesh mesh = program.meshes[ir::MeshId{m}];
    for (uint8_t a = 0; a < mesh.axes.size(); ++a) {
      ir::ScaleId size = ir::axis_scale(program, ir::MeshId{m}, ir::AxisId{a});
      std::string text = ir::print(program.scales[size], program.strings);
      std::string name = program.strings[mesh.axes[a].name].str();
      how.sizes.try_emplace(name, text); // the last mesh is the current one
      how.sizes.try_emplace(program.strings[mesh.name].str() + "." + name, text);
    }
  }
  return how;
}

uint64_t origin_of(const ir::Program &program, const checker::Place &place) {
  using Form = checker::Place::Form;
  switch (place.form) {
  case Form::Inst:
    return program.origins[place.index];
  case Form::Param:
    return program.param_origins[place.index];
  case Form::Output:
    return program.outputs[place.index].origin;
  case Form::Rule:
    return program.rules[place.index].origin;
  case Form::Suppression:
    return program.suppressions[place.index].origin;
  case Form::Function:
    return program.functions[spmd::ir::FunctionId{place.index}].origin;
  case Form::Symbol:
    return program.symbols[place.index].origin;
  case Form::File:
  case Form::Frame:
    return 0;
  }
  return 0;
}

std::string axes_text(const ir::Program &program, const checker::Finding &finding) {
  return field_text(program, finding, rules::Field(rules::axes_of(finding.violation)));
}

std::string kinds_text(const ir::Program &program, const checker::CheckResult &result,
                       ir::ValueId value) {
  ir::TypeId type = result.types[value.index];
  return type.valid() ? ir::print_kinds(program, program.types[type]) : "";
}

Observation observe(llvm::StringRef text, ir::Program &program, const checker::CheckResult &result,
                    const checker::CheckOptions &options) {
  Observation out;
  Lines lines(text);
  checker::Report report =
      make_report("", text, program, result, options, {.fold = false, .max_findings = 10'000});
  add_findings(lines, report, out);
  add_results(lines, program, result, out);
  out.how = reading_of(program, options);
  return out;
}

} // namespace spmd::tests
