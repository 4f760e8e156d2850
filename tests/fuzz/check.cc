// Any program, checked under options that its first byte picks: every finding has its sentence, its
// notes and its fixes, and memoisation changes nothing.
#include "tests/fuzz/fuzz.h"

#include "checker/render/render.h"
#include "checker/report/report.h"
#include "rules/ops/user_rules.h"

using namespace spmd;

namespace {

std::string full_report(ir::Program &program, const checker::CheckOptions &options,
                        llvm::StringRef bytes) {
  checker::CheckResult result = checker::check(program, options);
  SPMD_CHECK(result.types.size() == program.values.size(), "a value without a type");
  std::vector<checker::Report> reports;
  reports.push_back(checker::make_report("fuzz", bytes, program, result, options,
                                         {.max_findings = 20, .select = {"all"}, .ignore = {}}));
  std::string text;
  llvm::raw_string_ostream out(text);
  checker::SourceCache sources({});
  for (const checker::Renderer &renderer : checker::renderers())
    renderer.fn(reports, sources, {}, out);
  SPMD_CHECK(ir::printable_lines(out.str()) == out.str(), "a report has control characters");
  return out.str();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  llvm::StringRef bytes = fuzz::bytes_of(data + 1, size - 1);
  checker::CheckOptions options{.permissive = bool(data[0] & 1),
                                .infer_partial = bool(data[0] & 2)};
  static constexpr std::optional<ir::Mode> kModes[] = {std::nullopt, ir::Mode::Global,
                                                       ir::Mode::Gradual, ir::Mode::Local};
  options.mode = kModes[(data[0] >> 2) & 3];
  ir::ReadResult first = ir::read_program(bytes), second = ir::read_program(bytes);
  if (!fuzz::is_sound(first) || !rules::verify_rules(first.program).empty())
    return 0;
  std::string with = full_report(first.program, options, bytes);
  options.memoise = false;
  SPMD_CHECK(full_report(second.program, options, bytes) == with, "memoisation changes the report");
  return 0;
}
