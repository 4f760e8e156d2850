// What `explain` shows of frameworks is so: the program of a laxer one has the finding here, that
// of a stricter one nothing.
#include "checker/report/differences.h"

#include "checker/check.h"

#include "ir/input/input.h"

#include "tests/unit/catch.h"

namespace spmd::checker {

TEST_CASE("differences from frameworks are as their programs show") {
  for (const Difference &row : differences()) {
    ir::ReadResult read = ir::read_text(llvm::StringRef(row.shown.data(), row.shown.size()));
    INFO(row.finding << " of " << ir::kDialectWords[static_cast<unsigned>(row.dialect)]
                     << row.shown);
    INFO((read.errors.empty() ? std::string() : read.errors.front().message));
    REQUIRE(read.errors.empty());
    CHECK(rules::find_violation(row.finding));
    CheckResult result = check(read.program);
    unsigned drawn = 0, other = 0;
    for (const Finding &finding : result.findings)
      if (finding.info().severity == rules::Severity::Error)
        ++(finding.info().name == row.finding ? drawn : other);
    CHECK(other == 0);
    CHECK((drawn > 0) == (row.form == Difference::Form::Laxer));
  }
}

} // namespace spmd::checker
