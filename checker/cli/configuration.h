// What a configuration file says besides options: it teaches ops and accepts findings.
#pragma once

#include "ir/program.h"

#include <string>
#include <vector>

namespace spmd::checker {

struct Configuration {
  struct Rule {
    std::string op, equation, like; // equation or like
  };
  struct Suppression {
    std::string finding, scope, reason, until; // scope, until: may be empty
  };
  std::vector<Rule> rules;
  std::vector<Suppression> suppressions;
  std::vector<std::string> files; // that were read, the extended ones first
  std::vector<std::pair<std::string, std::string>> settings; // keys in force, values as in TOML

  // Adds what the program does not say itself.
  void add_to(ir::Program &program) const;
};

} // namespace spmd::checker
