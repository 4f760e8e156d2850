// The code quality report of GitLab: findings, each with a fingerprint by which a merge request
// tells old ones from new ones. The format has no place for what is not a finding of some file.
#include "checker/render/facts.h"

#include "checker/render/json_text.h"

#include "llvm/ADT/StringMap.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSeverities[] = {"critical", "major", "info"};

Json entry(std::string_view name, std::string_view description, std::string_view severity,
           const std::string &path, uint32_t line, std::string fingerprint) {
  return {{"description", description},
          {"check_name", name},
          {"fingerprint", std::move(fingerprint)},
          {"severity", severity},
          {"location", {{"path", path}, {"lines", {{"begin", std::max(line, 1u)}}}}}};
}

} // namespace

void render_gitlab(llvm::ArrayRef<Report> reports, SourceCache &sources, const RenderOptions &,
                   llvm::raw_ostream &out) {
  Json entries = Json::array();
  llvm::StringMap<unsigned> taken; // fingerprints have to differ within a report
  auto unique = [&](const std::string &fingerprint) {
    unsigned before = taken[fingerprint]++;
    return before ? fmt::format("{}-{}", fingerprint, before) : fingerprint;
  };
  for (const Report &report : reports) {
    for (const ir::InputError &error : report.input_errors)
      entries.push_back(entry(error.name, error.message, "blocker", report.input,
                              line_of(report, error).first,
                              unique(fmt::format("{}:{}", error.name, report.input))));
    if (std::string why = nothing_judged(report); !why.empty())
      entries.push_back(entry("nothing-judged", why, "critical", report.input, 1,
                              unique("nothing-judged:" + report.input)));
    for (const Diagnostic &diagnostic : report.diagnostics) {
      const Finding &finding = *diagnostic.first;
      if (finding.suppressed)
        continue;
      SourcePlace place = locate(report, finding.place);
      Json made = entry(finding.info().name, message_of(*report.program, finding),
                        kSeverities[static_cast<unsigned>(finding.severity())], place.path,
                        place.line, unique(diagnostic.fingerprint));
      if (place.end_line >= place.line && place.line)
        made["location"]["lines"]["end"] = place.end_line;
      std::string full;
      llvm::raw_string_ostream text(full);
      print_in_full(report, diagnostic, sources, {}, text);
      made["content"] = {{"body", "```text\n" + text.str() + "```"}};
      made["categories"] = {"Bug Risk"};
      entries.push_back(std::move(made));
    }
  }
  out << print_json(entries, 1) << '\n';
}

} // namespace spmd::checker
