// Matches assertions with observations, both ways, and says what would make them agree.
#include "tests/file_test/kinds.h"
#include "tests/file_test/run_case.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <set>

namespace spmd::tests {
namespace {

class Comparison {
public:
  Comparison(const TestCase &test, const Observation &observation, Session &session,
             Problems &problems)
      : test_(test), observation_(observation), session_(session), problems_(problems),
        asserted_(observation.findings.size()), asserted_errors_(observation.errors.size()) {}

  void assertion(const Assertion &assertion) {
    if (assertion.form == Assertion::Form::InputError ? matches_error(assertion)
                                                      : matches(assertion))
      return;
    std::string found = replacement(assertion);
    problems_.push_back(fmt::format("{}: - {}", test_.place(assertion.comment_line),
                                    print(assertion.form, assertion.name, assertion.text)));
    if (!found.empty())
      problems_.push_back(fmt::format("{}: + {}", test_.place(assertion.comment_line), found));
    if (session_.update)
      session_.edits.replace(test_.path, test_.lines_before + assertion.comment_line,
                             assertion.begin, assertion.end, found);
  }

  void unmatched_findings() {
    std::set<std::string> seen;
    for (size_t i = 0; i < observation_.findings.size(); ++i) {
      const ObservedFinding &finding = observation_.findings[i];
      if (asserted_[i] || finding.form == Assertion::Form::Suppressed)
        continue;
      std::string comment = print(finding.form, finding.name, finding.axes);
      std::string problem =
          fmt::format("{}: + {}    {}", test_.place(finding.line), comment, finding.message);
      if (!seen.insert(problem).second)
        continue;
      problems_.push_back(problem);
      if (session_.update)
        session_.edits.append(test_.path, test_.lines_before + finding.line, comment);
    }
  }

  void unmatched_errors() {
    for (size_t i = 0; i < observation_.errors.size(); ++i) {
      const ir::InputError &error = observation_.errors[i];
      if (!asserted_errors_[i])
        problems_.push_back(fmt::format("{}: + // input-error: [{}] {}:{}    {}",
                                        test_.place(error.line), error.name, error.line, error.col,
                                        error.message));
    }
  }

private:
  // The line where the statement begins that a line belongs to.
  unsigned start_of(unsigned line) const {
    auto after = llvm::upper_bound(observation_.starts, line);
    return after == observation_.starts.begin() ? line : *(after - 1);
  }

  bool matches_error(const Assertion &assertion) {
    bool found = false;
    for (size_t i = 0; i < observation_.errors.size(); ++i) {
      const ir::InputError &error = observation_.errors[i];
      bool placed = assertion.text.empty()
                        ? error.line == assertion.line
                        : fmt::format("{}:{}", error.line, error.col) == assertion.text;
      if (!placed || error.name != assertion.name)
        continue;
      asserted_errors_[i] = true;
      found = true;
    }
    return found;
  }

  bool matches(const Assertion &assertion) {
    unsigned line = start_of(assertion.line);
    if (const ObservedResult *result = result_at(line);
        result && assertion.form == Assertion::Form::Type)
      return equal_kinds(assertion.text, result->kinds, observation_.how);
    else if (result && assertion.form == Assertion::Form::Shape)
      return result->shape == assertion.text;
    bool found = false;
    for (size_t i = 0; i < observation_.findings.size(); ++i)
      if (observation_.findings[i].line == line && matches(assertion, observation_.findings[i])) {
        asserted_[i] = asserted_[i] || assertion.is_finding();
        found = true;
      }
    return found;
  }

  static bool matches(const Assertion &assertion, const ObservedFinding &finding) {
    auto contains = [&](const std::string &text) {
      return text.find(assertion.text) != std::string::npos;
    };
    if (assertion.form == Assertion::Form::Note)
      return llvm::any_of(finding.notes, contains);
    if (assertion.form == Assertion::Form::Fix)
      return llvm::any_of(finding.fixes, contains);
    return assertion.form == finding.form && assertion.name == finding.name &&
           sorted_axes(assertion.text) == sorted_axes(finding.axes);
  }

  const ObservedResult *result_at(unsigned line) const {
    auto found = llvm::find_if(observation_.results,
                               [&](const ObservedResult &r) { return r.line == line; });
    return found == observation_.results.end() ? nullptr : &*found;
  }

  // What the assertion would have to be; empty if nothing of its form was observed there.
  std::string replacement(const Assertion &assertion) const {
    unsigned line = start_of(assertion.line);
    const ObservedResult *result = result_at(line);
    if (result && assertion.form == Assertion::Form::Type)
      return print(assertion.form, "", result->kinds);
    if (result && assertion.form == Assertion::Form::Shape)
      return print(assertion.form, "", result->shape);
    for (const ObservedFinding &finding : observation_.findings) {
      bool note = assertion.form == Assertion::Form::Note && !finding.notes.empty();
      bool fix = assertion.form == Assertion::Form::Fix && !finding.fixes.empty();
      if (finding.line == line && (note || fix))
        return print(assertion.form, "", note ? finding.notes.front() : finding.fixes.front());
    }
    return "";
  }

  const TestCase &test_;
  const Observation &observation_;
  Session &session_;
  Problems &problems_;
  std::vector<bool> asserted_, asserted_errors_;
};

} // namespace

void compare_assertions(const TestCase &test, const Comments &comments,
                        const Observation &observation, Session &session, Problems &problems) {
  Comparison comparison(test, observation, session, problems);
  bool unread = !observation.errors.empty();
  for (const Assertion &assertion : comments.assertions)
    if (!unread || assertion.form == Assertion::Form::InputError)
      comparison.assertion(assertion);
  comparison.unmatched_findings();
  comparison.unmatched_errors();
}

} // namespace spmd::tests
