// spmd_file_test [--update] [--coverage] PATH...: runs every program below the paths against its
// assertions.
// --coverage: also the manual of every violation, and whether every row of the tables occurs in
// some case.
// spmd_file_test --score FOLDER: what of a corpus of real bugs is caught, and what is a false
// alarm.
#include "tests/file_test/run_case.h"
#include "tests/file_test/score.h"

#include "llvm/Support/raw_ostream.h"

#include <fmt/format.h>

namespace spmd::tests {
namespace {

struct Counts {
  unsigned passed = 0, failed = 0;

  void add(const std::string &name, const Problems &problems) {
    ++(problems.empty() ? passed : failed);
    if (problems.empty())
      return;
    llvm::outs() << "FAIL " << name << '\n';
    for (const std::string &problem : problems)
      llvm::outs() << "  " << problem << '\n';
  }
};

void run_cases(llvm::ArrayRef<std::string> paths, Session &session, Counts &counts) {
  FoundCases found = find_cases(paths);
  for (const std::string &error : found.errors)
    counts.add(error, {error});
  for (const TestCase &test : found.cases)
    counts.add(test.name(), run_case(test, session));
}

void run_gates(const Session &session, Counts &counts) {
  for (const ManualCase &manual : run_manual())
    counts.add(manual.name, manual.problems);
  for (const Coverage::Table &table : session.coverage.tables()) {
    Problems problems;
    for (const std::string &missing : table.missing)
      problems.push_back("no case yet, for example:\n" + missing);
    counts.add(fmt::format("every row has a case: {} of {}", table.missing.size(), table.name),
               problems);
  }
}

int score(llvm::ArrayRef<std::string> folders) {
  bool perfect = true;
  for (const std::string &folder : folders) {
    Score made = score_corpus(folder);
    llvm::outs() << print(made);
    perfect &= made.problems.empty() && made.classes.back().pairs + made.classes.back().controls;
  }
  return perfect ? 0 : 1;
}

int run(llvm::ArrayRef<std::string> arguments) {
  if (arguments.size() > 1 && arguments.front() == "--score")
    return score(arguments.drop_front());
  Session session;
  Counts counts;
  bool gates = false;
  std::vector<std::string> paths;
  for (const std::string &argument : arguments) {
    if (argument == "--update")
      session.update = true;
    else if (argument == "--coverage")
      gates = true;
    else
      paths.push_back(argument);
  }
  if (paths.empty()) {
    llvm::errs() << "usage: spmd_file_test [--update] [--coverage] PATH...\n"
                    "       spmd_file_test --score FOLDER...\n";
    return 2;
  }
  run_cases(paths, session, counts);
  if (gates)
    run_gates(session, counts);
  for (const std::string &error : session.edits.apply())
    counts.add(error, {error});
  llvm::outs() << fmt::format("{} passed, {} failed, 0 skipped\n", counts.passed, counts.failed);
  return counts.failed == 0 || session.update ? 0 : 1;
}

} // namespace
} // namespace spmd::tests

int main(int count, char **arguments) {
  return spmd::tests::run(std::vector<std::string>(arguments + 1, arguments + count));
}
