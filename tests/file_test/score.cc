// A pair is caught when the named finding stands on the named line of the buggy program, with its
// axes, and the fixed one draws nothing. Findings behind that line count neither for nor against.
#include "tests/file_test/score.h"

#include "tests/file_test/kinds.h"
#include "tests/file_test/run_case.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Path.h"

#include <fmt/format.h>

#include <map>

namespace spmd::tests {
namespace {

struct Entry {
  const TestCase *buggy = nullptr, *fixed = nullptr, *control = nullptr;
};

// What one program draws beside what it asserts.
struct Run {
  bool caught = true;        // everything that it names is found
  unsigned false_alarms = 0; // ahead of the named line, or anywhere if it names none
  unsigned wrong_types = 0;
};

class Scorer {
public:
  explicit Scorer(std::vector<std::string> &problems) : problems_(problems) {}

  Run run(const TestCase &test) {
    Comments comments = read_comments(test.text);
    std::optional<ir::Program> program;
    std::vector<ir::InputError> errors = read_and_verify(test.text, program);
    if (!errors.empty()) {
      problem(test, 1, "cannot be read: " + errors.front().message);
      return {.caught = false, .wrong_types = 1};
    }
    checker::CheckResult result = checker::check(*program, comments.options);
    Observation seen = observe(test.text, *program, result, comments.options);
    Run made;
    unsigned named = ~0u;
    for (const Assertion &assertion : comments.assertions)
      if (assertion.form == Assertion::Form::Error) {
        named = std::min(named, assertion.line);
        made.caught &= found(test, assertion, seen);
      }
    for (const ObservedFinding &finding : seen.findings)
      if (finding.form == Assertion::Form::Error && finding.line < named) {
        problem(test, finding.line, "false alarm: " + finding.name + " " + finding.axes);
        ++made.false_alarms;
      }
    for (const Assertion &assertion : comments.assertions)
      if (assertion.form == Assertion::Form::Type)
        made.wrong_types += !is_typed(test, assertion, seen);
    return made;
  }

private:
  void problem(const TestCase &test, unsigned line, std::string what) {
    problems_.push_back(fmt::format("{}: {}", test.place(line), what));
  }
  bool found(const TestCase &test, const Assertion &assertion, const Observation &seen) {
    bool met = llvm::any_of(seen.findings, [&](const ObservedFinding &finding) {
      return finding.line == assertion.line && finding.name == assertion.name &&
             (assertion.text.empty() || sorted_axes(finding.axes) == sorted_axes(assertion.text));
    });
    if (!met)
      problem(test, assertion.line, "missed: " + assertion.name + " " + assertion.text);
    return met;
  }
  bool is_typed(const TestCase &test, const Assertion &assertion, const Observation &seen) {
    KindsRead how = seen.how;
    how.loose = true;
    for (const ObservedResult &result : seen.results)
      if (result.line == assertion.line) {
        bool equal = equal_kinds(assertion.text, result.kinds, how);
        if (!equal)
          problem(test, assertion.line,
                  fmt::format("wrong type: {}, expected {}", result.kinds, assertion.text));
        return equal;
      }
    problem(test, assertion.line, "no type");
    return false;
  }

  std::vector<std::string> &problems_;
};

// `| A01 | Megatron-LM | L | ...` gives A01 the class L; a row without a class is a control.
std::map<std::string, std::string> classes_of(llvm::StringRef folder) {
  std::string error, text = read_file((folder + "/README.md").str(), error);
  std::map<std::string, std::string> classes;
  for (llvm::StringRef line : lines_of(text)) {
    llvm::SmallVector<llvm::StringRef, 8> cells;
    line.split(cells, '|');
    if (cells.size() > 5 && cells[3].trim().size() == 1)
      classes[cells[1].trim().str()] = cells[3].trim().str();
  }
  return classes;
}

void add(ClassScore &to, const Run &run) {
  to.false_alarms += run.false_alarms;
  to.wrong_types += run.wrong_types;
}

} // namespace

Score score_corpus(llvm::StringRef folder) {
  Score score;
  FoundCases found = find_cases({folder.str()});
  score.problems = found.errors;
  std::map<std::string, Entry> entries;
  for (const TestCase &test : found.cases) {
    auto [id, rest] = llvm::sys::path::filename(test.path).split('.');
    if (rest == "buggy.spmd")
      entries[id.str()].buggy = &test;
    else if (rest == "fixed.spmd")
      entries[id.str()].fixed = &test;
    else if (rest == "control.spmd")
      entries[id.str()].control = &test;
  }
  std::map<std::string, std::string> classes = classes_of(folder);
  std::map<std::string, ClassScore> by_class;
  Scorer scorer(score.problems);
  for (const auto &[id, entry] : entries) {
    auto known = classes.find(id);
    std::string name = known != classes.end() ? known->second : entry.control ? "controls" : "?";
    ClassScore &to = by_class[name];
    if (entry.control) {
      Run run = scorer.run(*entry.control);
      ++to.controls;
      to.clean += run.false_alarms == 0;
      add(to, run);
    }
    if (!entry.buggy || !entry.fixed)
      continue;
    Run buggy = scorer.run(*entry.buggy), fixed = scorer.run(*entry.fixed);
    ++to.pairs;
    to.caught += buggy.caught && fixed.caught && fixed.false_alarms == 0;
    add(to, buggy);
    add(to, fixed);
  }
  ClassScore all{.name = "all"};
  for (auto &[name, made] : by_class) {
    made.name = name;
    all.pairs += made.pairs, all.caught += made.caught;
    all.controls += made.controls, all.clean += made.clean;
    all.false_alarms += made.false_alarms, all.wrong_types += made.wrong_types;
    score.classes.push_back(made);
  }
  score.classes.push_back(all);
  return score;
}

std::string print(const Score &score) {
  std::string out;
  for (const std::string &problem : score.problems)
    out += problem + "\n";
  out += fmt::format("{:<10}{:>14}{:>16}{:>14}{:>13}\n", "class", "pairs caught", "controls clean",
                     "false alarms", "wrong types");
  for (const ClassScore &row : score.classes)
    out += fmt::format("{:<10}{:>14}{:>16}{:>14}{:>13}\n", row.name,
                       row.pairs ? fmt::format("{} of {}", row.caught, row.pairs) : "",
                       row.controls ? fmt::format("{} of {}", row.clean, row.controls) : "",
                       row.false_alarms, row.wrong_types);
  return out;
}

} // namespace spmd::tests
