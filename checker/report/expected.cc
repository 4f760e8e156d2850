// Findings are compared by place, name, severity and axes; types by what is printed of them.
#include "checker/report/expected.h"

#include "checker/report/report.h"

#include "ir/dialect/print_type.h"
#include "ir/text/text.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

std::string axes_text(const ir::Program &program, const Finding &finding) {
  return ir::print_axes(program, mesh_of(program, finding.place),
                        rules::axes_of(finding.violation));
}

std::string axes_text(const ir::Program &program, const ir::Expectation &expected) {
  ir::MeshId mesh = mesh_of(program, Place::inst(expected.inst));
  ir::AxisSet axes;
  for (ir::StringId name : expected.axes)
    for (ir::AxisId axis : mesh.valid() ? program.meshes[mesh].typed_axes() : ir::AxisSet())
      if (program.meshes[mesh][axis].name == name)
        axes |= axis;
  return ir::print_axes(program, mesh, axes);
}

std::string finding_text(std::string_view severity, std::string_view name,
                         const std::string &axes) {
  return fmt::format("{}[{}]{}{}", severity, name, axes.empty() ? "" : " on ", axes);
}

std::string text_of(const ir::Program &program, const Finding &finding) {
  return finding_text(rules::kSeverityWords[static_cast<size_t>(finding.severity())],
                      finding.info().name, axes_text(program, finding));
}

std::string text_of(const ir::Program &program, const ir::Expectation &expected) {
  return finding_text(expected.warning ? "warning" : "error",
                      program.strings[expected.finding].str(), axes_text(program, expected));
}

// Of the axes that were asked for, or all of them. Local judgment knows no specs.
std::string kinds_text(const ir::Program &program, ir::TypeId id,
                       std::optional<ir::AxisSet> asked = std::nullopt) {
  if (!id.valid())
    return "";
  ir::Type type = program.types[id];
  if (program.mode == ir::Mode::Local)
    type = type.without_shards();
  if (asked)
    type.clear((type.claimed() | type.unknown) & ~*asked);
  return ir::print_kinds(program, type);
}

std::string unmet_type(const ir::Program &program, const CheckResult &result,
                       const ir::Expectation &expected) {
  std::string wanted = kinds_text(program, expected.type);
  ir::AxisSet asked;
  if (expected.type.valid())
    asked = program.types[expected.type].claimed() | program.types[expected.type].unknown;
  std::string found = kinds_text(program, result.types[expected.value.index], asked);
  return wanted == found ? ""
                         : fmt::format("{} was expected to be {}, it is {}",
                                       ir::print_value(program, expected.value), wanted,
                                       found.empty() ? "not known" : found);
}

} // namespace

std::vector<ExpectationOutcome> outcomes_of_expectations(const ir::Program &program,
                                                         const CheckResult &result) {
  std::vector<ExpectationOutcome> outcomes;
  std::vector<bool> met(result.findings.size());
  for (const ir::Expectation &expected : program.expectations) {
    const Place place = Place::inst(expected.inst);
    if (!expected.finding.valid()) {
      outcomes.push_back(
          {place, ir::print_value(program, expected.value), unmet_type(program, result, expected)});
      continue;
    }
    const std::string subject = text_of(program, expected);
    bool found = false;
    for (size_t i = 0; i < result.findings.size(); ++i)
      if (result.findings[i].place == place && text_of(program, result.findings[i]) == subject)
        found = met[i] = true;
    outcomes.push_back({place, subject, found ? "" : subject + " was expected"});
  }
  for (size_t i = 0; i < result.findings.size(); ++i) {
    const Finding &finding = result.findings[i];
    if (met[i] || finding.suppressed || finding.severity() == rules::Severity::Info)
      continue;
    const std::string subject = text_of(program, finding);
    outcomes.push_back({finding.place, subject, subject + " was not expected"});
  }
  return outcomes;
}

} // namespace spmd::checker
