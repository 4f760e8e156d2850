// Which rows of the tables the cases exercised, and which they did not.
#pragma once

#include "checker/check.h"

#include <set>
#include <string>
#include <vector>

namespace spmd::tests {

class Coverage {
public:
  void record(ir::Program &program, const checker::CheckResult &result);

  struct Table {
    std::string name;
    std::vector<std::string> missing; // one line each, a skeleton of a case below it
  };
  // Findings, op rows, transition rows, statements.
  std::vector<Table> tables() const;

private:
  void record_transition(const ir::Program &program, ir::InstId inst, std::string_view name);

  std::set<std::string, std::less<>> findings_, ops_, transitions_;
};

} // namespace spmd::tests
