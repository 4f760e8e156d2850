// What the checker says of one program, in the words that assertions use.
#pragma once

#include "checker/check.h"
#include "ir/input/input.h"
#include "tests/file_test/assertions.h"
#include "tests/file_test/kinds.h"

#include <optional>
#include <string>
#include <vector>

namespace spmd::tests {

struct ObservedFinding {
  unsigned line = 0;                             // in the text, from 1
  Assertion::Form form = Assertion::Form::Error; // Error, Warning, Info or Suppressed
  std::string name, axes, message;
  std::vector<std::string> notes, fixes;
};

// The first result on a line.
struct ObservedResult {
  unsigned line = 0;
  std::string kinds, shape;
};

struct Observation {
  std::vector<ir::InputError> errors; // not empty: nothing else is filled
  std::vector<ObservedFinding> findings;
  std::vector<ObservedResult> results; // by line
  std::vector<unsigned> starts;        // lines where something begins, ascending
  KindsRead how;                       // how kinds are compared
};

std::vector<ir::InputError> read_and_verify(llvm::StringRef text,
                                            std::optional<ir::Program> &program);
// True if shards play no part in types: all axes are judged locally.
bool is_erased(const ir::Program &program, const checker::CheckOptions &options);
// How kinds in the program's comments are compared with those that were found.
KindsRead reading_of(ir::Program &program, const checker::CheckOptions &options);
uint64_t origin_of(const ir::Program &program, const checker::Place &place);
std::string axes_text(const ir::Program &program, const checker::Finding &finding);
std::string kinds_text(const ir::Program &program, const checker::CheckResult &result,
                       ir::ValueId value);

// Findings with notes and fixes, and types, by line. `text` is what the program was read from.
Observation observe(llvm::StringRef text, ir::Program &program, const checker::CheckResult &result,
                    const checker::CheckOptions &options);

} // namespace spmd::tests
