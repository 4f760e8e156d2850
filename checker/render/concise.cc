// One line per finding, as compilers print: editors and scripts read it.
#include "checker/render/render.h"

#include <fmt/format.h>

namespace spmd::checker {

void render_concise(llvm::ArrayRef<Report> reports, SourceCache &, const RenderOptions &options,
                    llvm::raw_ostream &out) {
  for (const Report &report : reports) {
    for (const Diagnostic &diagnostic : report.diagnostics) {
      const Finding &finding = *diagnostic.first;
      if (finding.suppressed)
        continue;
      rules::Severity severity = finding.severity();
      std::string word = fmt::format(
          "{}[{}]", rules::kSeverityWords[static_cast<unsigned>(severity)], finding.info().name);
      std::string more =
          diagnostic.places.size() > 1 ? fmt::format(" (+{})", diagnostic.places.size() - 1) : "";
      out << printable(print(locate(report, finding.place))) << ": "
          << painted(options, style_of(severity), word) << ": "
          << printable(message_of(*report.program, finding)) << more << '\n';
    }
    if (report.cut)
      out << fmt::format("{}: {} more not shown (--max-findings)\n", printable(report.input),
                         report.cut);
  }
}

} // namespace spmd::checker
