// Where a framework is stricter or laxer than the rules, and why: what `explain` adds to a page.
// Each is shown by a program; tests hold the programs against the checker. Measured by the
// exporters: jax_differences.toml, dtensor_differences.toml.
#pragma once

#include "ir/dialect/words.h"

#include "llvm/ADT/ArrayRef.h"

namespace spmd::checker {

struct Difference {
  enum class Form : uint8_t {
    Laxer,    // the framework accepts what triggers the finding
    Stricter, // it refuses what is right; the program triggers nothing
  };
  std::string_view finding; // of whose page it is a part
  ir::Dialect dialect;
  Form form;
  std::string_view why;
  std::string_view shown; // a program
};
llvm::ArrayRef<Difference> differences();

} // namespace spmd::checker
