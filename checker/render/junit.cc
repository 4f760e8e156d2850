// JUnit XML: a suite per input. One case says whether it was read and judged; then there is one
// for each claim of the program, and for each finding that none of these reports. A finding below
// --fail-on passes, and says what it found; a claim that is not decided is skipped. With --expect
// there is one for each expectation, and for each finding that is not expected.
#include "checker/render/facts.h"
#include "checker/report/expected.h"
#include "checker/report/verdicts/verdicts.h"

#include "llvm/ADT/DenseSet.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

// For attributes and for text. Whatever XML cannot hold is an escape already.
std::string xml(llvm::StringRef text) {
  std::string out;
  for (char c : ir::printable_lines(text))
    switch (c) {
    case '&':
      out += "&amp;";
      break;
    case '<':
      out += "&lt;";
      break;
    case '>':
      out += "&gt;";
      break;
    case '"':
      out += "&quot;";
      break;
    case '\n':
      out += "&#10;";
      break;
    default:
      out += c;
    }
  return out;
}

struct Suite {
  unsigned tests = 0, failures = 0, errors = 0, skipped = 0;
  std::string cases = {};

  // `inside`: empty of a case that passes without a word.
  void add(llvm::StringRef classname, llvm::StringRef name, const std::string &inside) {
    ++tests;
    cases += fmt::format("    <testcase classname=\"{}\" name=\"{}\"", xml(classname), xml(name));
    cases += inside.empty() ? "/>\n" : ">" + inside + "</testcase>\n";
  }
  void add_error(llvm::StringRef classname, llvm::StringRef type, llvm::StringRef message) {
    ++errors;
    add(classname, "is read and judged",
        fmt::format("<error type=\"{}\" message=\"{}\"/>", xml(type), xml(message)));
  }
};

// What stands inside of the case of a finding that nobody has accepted.
std::string text_of(Suite &suite, const Report &report, const Diagnostic &diagnostic,
                    SourceCache &sources, const RenderOptions &options) {
  const Finding &finding = *diagnostic.first;
  std::string full;
  llvm::raw_string_ostream text(full);
  print_in_full(report, diagnostic, sources, {}, text);
  if (finding.severity() > options.fail_on)
    return fmt::format("<system-out>{}</system-out>", xml(text.str()));
  ++suite.failures;
  return fmt::format("<failure type=\"{}\" message=\"{}\">{}</failure>", xml(heading_of(finding)),
                     xml(message_of(*report.program, finding)), xml(text.str()));
}

std::string skipped(Suite &suite, llvm::StringRef why) {
  ++suite.skipped;
  return fmt::format("<skipped message=\"{}\"/>", xml(why));
}

std::string class_of(const SourcePlace &place) {
  return place.scope.empty() ? place.path : place.scope;
}

void add_finding(Suite &suite, const Report &report, const Diagnostic &diagnostic,
                 SourceCache &sources, const RenderOptions &options) {
  const Finding &finding = *diagnostic.first;
  const SourcePlace place = locate(report, finding.place);
  suite.add(class_of(place), fmt::format("{} at {}", finding.info().name, print(place)),
            finding.suppressed ? skipped(suite, finding.reason)
                               : text_of(suite, report, diagnostic, sources, options));
}

// Adds a case for each claim; gives the findings that these report, which need no case of their
// own.
llvm::DenseSet<const Diagnostic *> add_claims(Suite &suite, const Report &report,
                                              SourceCache &sources, const RenderOptions &options) {
  llvm::DenseSet<const Diagnostic *> reported;
  for (const Verdict &verdict : verdicts_of(report)) {
    std::string inside;
    if (verdict.form == Verdict::Form::Open)
      inside = skipped(suite, verdict.why);
    if (verdict.form == Verdict::Form::Refuted) {
      inside = text_of(suite, report, *verdict.finding, sources, options);
      reported.insert(verdict.finding);
    }
    suite.add(class_of(locate(report, verdict.place)), verdict.claim, inside);
  }
  return reported;
}

void add_expectations(Suite &suite, const Report &report) {
  for (const ExpectationOutcome &each : outcomes_of_expectations(*report.program, *report.result)) {
    const SourcePlace place = locate(report, each.place);
    suite.failures += !each.difference.empty();
    suite.add(
        class_of(place), fmt::format("expects {} at {}", each.subject, print(place)),
        each.difference.empty()
            ? ""
            : fmt::format("<failure type=\"expectation\" message=\"{}\"/>", xml(each.difference)));
  }
}

std::string properties(const Report &report) {
  Totals totals = totals_of(report);
  std::string text = "    <properties>\n";
  auto add = [&](llvm::StringRef name, const std::string &value) {
    text += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", xml(name), xml(value));
  };
  add("summary", counts_line(totals));
  for (const Totals::Proved &of : totals.proved)
    for (const CheckCoverage::Proof &proof : of.axes)
      add(fmt::format("{} proved on {}", of.what, proof.axis),
          fmt::format("{} of {}", proof.proved, of.all));
  return text + "    </properties>\n";
}

Suite suite_of(const Report &report, SourceCache &sources, const RenderOptions &options) {
  Suite suite;
  for (const ir::InputError &error : report.input_errors) {
    auto [line, col] = line_of(report, error);
    suite.add_error(report.input, error.name,
                    fmt::format("{}:{}:{}: {}", report.input, line, col, error.message));
  }
  if (std::string why = nothing_judged(report); !why.empty())
    suite.add_error(report.input, "nothing judged", why);
  if (suite.errors == 0)
    suite.add(report.input, "is read and judged", "");
  if (options.expect && report.program) {
    add_expectations(suite, report);
    return suite;
  }
  llvm::DenseSet<const Diagnostic *> reported;
  if (report.program)
    reported = add_claims(suite, report, sources, options);
  for (const Diagnostic &diagnostic : report.diagnostics)
    if (!reported.contains(&diagnostic))
      add_finding(suite, report, diagnostic, sources, options);
  return suite;
}

} // namespace

void render_junit(llvm::ArrayRef<Report> reports, SourceCache &sources,
                  const RenderOptions &options, llvm::raw_ostream &out) {
  Suite all;
  for (const Report &report : reports) {
    Suite suite = suite_of(report, sources, options);
    all.tests += suite.tests, all.failures += suite.failures;
    all.errors += suite.errors, all.skipped += suite.skipped;
    all.cases += fmt::format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
                             "skipped=\"{}\">\n{}{}  </testsuite>\n",
                             xml(report.input), suite.tests, suite.failures, suite.errors,
                             suite.skipped, report.program ? properties(report) : "", suite.cases);
  }
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      << fmt::format("<testsuites name=\"spmdlint\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
                     "skipped=\"{}\">\n",
                     all.tests, all.failures, all.errors, all.skipped)
      << all.cases << "</testsuites>\n";
}

} // namespace spmd::checker
