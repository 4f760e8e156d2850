// Programs written in the words of each dialect, and read back: what is said to be lost is all that
// is lost.
#include "checker/dialect/translate.h"

#include "checker/report/report.h"

#include "ir/dialect/print_type.h"
#include "ir/input/input.h"
#include "ir/text/text.h"

#include "llvm/Support/MemoryBuffer.h"

#include "tests/unit/catch.h"

#include <filesystem>
#include <map>

namespace spmd::checker {
namespace {

// What is known of a program: the type of each value by its name, and the findings.
struct Known {
  std::map<std::string, std::string> types;
  std::vector<std::string> findings;
};

Known known(ir::Program &program) {
  CheckResult result = check(program);
  Known made;
  auto add = [&](ir::ValueId value) {
    if (ir::TypeId type = result.types[value.index]; type.valid())
      made.types[ir::print_value(program, value)] =
          ir::print_type(program, program.types[type], result.shapes[value.index]);
  };
  for (const ir::Param &param : program.params)
    add(param.value);
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
    for (uint32_t r = 0; r < program.insts[ir::InstId{i}].result_count; ++r)
      add(program.insts[ir::InstId{i}].result(r));
  for (const Finding &finding : result.findings)
    if (finding.info().severity != rules::Severity::Info)
      made.findings.push_back(std::string(finding.info().name) + " " +
                              ir::print_axes(program, mesh_of(program, finding.place),
                                             rules::axes_of(finding.violation)));
  return made;
}

ir::Program read(llvm::StringRef text) {
  ir::ReadResult read = ir::read_text(text);
  INFO(text.str());
  INFO((read.errors.empty() ? std::string() : read.errors.front().message));
  REQUIRE(read.errors.empty());
  return std::move(read.program);
}

struct Counts {
  unsigned programs = 0, exact = 0;
};

void there_and_back(const std::string &path, llvm::StringRef text, ir::Dialect dialect,
                    Counts &counts) {
  ir::ReadResult original = ir::read_text(text);
  if (!original.errors.empty() || original.program.meshes.empty())
    return;
  ir::Program program = std::move(original.program);
  std::string own = ir::print_text(program);
  // LTensor's casts are written into the calls of functions.
  bool inlined = ir::dialect_of(program) == ir::Dialect::LTensor && !program.functions.empty();
  Known before = known(program);
  std::vector<NoEquivalent> no_equivalent = translate(program, {}, dialect);
  std::string written = ir::print_text_in_dialect(program);
  INFO(path << " in " << ir::kDialectWords[static_cast<unsigned>(dialect)] << "\n"
            << own << "becomes\n"
            << written);
  ir::Program again = read(written);
  ++counts.programs;
  if (!no_equivalent.empty())
    return;
  ++counts.exact;
  Known after = known(again);
  for (const auto &[name, type] : before.types)
    if (!inlined || after.types.count(name))
      CHECK(after.types[name] == type);
  CHECK(after.findings == before.findings);
  CHECK(translate(again, {}, ir::Dialect::Spmd).empty());
  ir::Program back = read(ir::print_text(again));
  Known last = known(back);
  for (const auto &[name, type] : before.types)
    if (!inlined || last.types.count(name))
      CHECK(last.types[name] == type);
  CHECK(last.findings == before.findings);
}

} // namespace

TEST_CASE("programs written in other words read back as what they were") {
  Counts counts[4];
  for (const char *folder : {"tests/cases/dialects", "tests/cases/rules",
                             "tests/cases/redistribute", "tests/corpus", "examples"})
    if (std::filesystem::exists(folder))
      for (const auto &entry : std::filesystem::recursive_directory_iterator(folder)) {
        if (entry.path().extension() != ".spmd")
          continue;
        auto buffer = llvm::MemoryBuffer::getFile(entry.path().string());
        REQUIRE(buffer);
        for (unsigned i = 0; i < 4; ++i)
          there_and_back(entry.path().string(), (*buffer)->getBuffer(), static_cast<ir::Dialect>(i),
                         counts[i]);
      }
  for (unsigned i = 0; i < 4; ++i) {
    INFO(ir::kDialectWords[i] << ": " << counts[i].exact << " of " << counts[i].programs);
    CHECK(counts[i].programs > 200);
    // LTensor has no words for whole tensors.
    CHECK(counts[i].exact > (i == 3 ? 5u : 40u));
  }
}

} // namespace spmd::checker
