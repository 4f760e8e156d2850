// Programs that check have a backward, or a reason of meaning why not: never one of form.
#include "tests/unit/catch.h"
#include "tests/unit/run_program.h"

#include "checker/backward/backward.h"
#include "checker/check.h"

#include "llvm/ADT/STLExtras.h"

#include <fstream>
#include <sstream>

using namespace spmd;

namespace {

// What has no derivative: checker/README.md, "Backward".
bool is_of_meaning(llvm::StringRef why) {
  static constexpr llvm::StringLiteral kReasons[] = {
      "has no derivative", "draws random numbers",        "is opaque",
      "joins by",          "is of another stage",         "runs a number of rounds",
      "is no op of ours",  "instructions with all bodies"};
  return llvm::any_of(kReasons, [&](llvm::StringRef reason) { return why.contains(reason); });
}

} // namespace

TEST_CASE("what checks has a backward, or something in it has no derivative") {
  unsigned derived = 0;
  for (const std::string &path : runtime::case_files()) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    const std::string bytes = text.str();
    ir::ReadResult read = ir::read_program(bytes);
    if (!read.errors.empty() || !checker::has_loss(read.program) ||
        !checker::check(read.program).clean())
      continue;
    INFO(path);
    std::optional<checker::NoBackward> none = checker::derive_backward(read.program);
    derived += !none;
    if (none && !is_of_meaning(none->message))
      FAIL_CHECK(none->message);
  }
  CHECK(derived > 20);
}
