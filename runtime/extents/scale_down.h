// The same program with other extents: axes of other sizes, symbols with values, or everything as
// small as its form allows. Extents that must stay in proportion change together.
#pragma once

#include "checker/check.h"

#include "llvm/Support/Error.h"

#include <string>
#include <utility>
#include <vector>

namespace spmd::runtime {

struct Resize {
  std::vector<std::pair<std::string, int64_t>> axes;    // name and new size
  std::vector<std::pair<std::string, int64_t>> symbols; // name and value
  bool scale_down = false;
};

// True if it changes anything: symbols without a value of their own take their hints.
bool needs_resize(const ir::Program &program, const Resize &resize);
// `checked`: of the program as it is. Returns notes on what kept its extent, and why. What comes
// out is to be checked again. An error: an axis or a symbol that is not there, a size that cannot
// be.
llvm::Expected<std::vector<std::string>>
resize_program(ir::Program &program, const checker::CheckResult &checked, Resize resize);

} // namespace spmd::runtime
