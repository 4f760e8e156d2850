// Checked programs and small tensors for tests of the runtime.
#pragma once

#include "runtime/reference/meaning.h"

#include "checker/checked_program.h"
#include "checker/report/report.h"
#include "ir/input/input.h"
#include "ir/text/text.h"

#include "tests/unit/catch.h"

#include <random>

namespace spmd::runtime {

inline checker::CheckedProgram checked(std::string_view text) {
  ir::ReadResult read = ir::read_text({text.data(), text.size()});
  for (const ir::InputError &error : read.errors)
    UNSCOPED_INFO(error.line << ": " << error.name << ": " << error.message);
  REQUIRE(read.errors.empty());
  checker::CheckResult result = checker::check(read.program);
  for (const checker::Finding &finding : result.findings)
    UNSCOPED_INFO(finding.info().name << ": " << message_of(read.program, finding));
  std::optional<checker::CheckedProgram> made = checker::check_and_lower(std::move(read.program));
  REQUIRE(made);
  return std::move(*made);
}

inline ir::ValueId value_named(const checker::CheckedProgram &program, llvm::StringRef name) {
  for (uint32_t i = 0; i < program.program().values.size(); ++i)
    if (ir::print_value(program.program(), ir::ValueId{i}) == name)
      return ir::ValueId{i};
  FAIL("no value " << name.str());
  return {};
}

inline Tensor reals(Dims dims, std::vector<double> cells, ir::DType dtype = ir::DType::F32) {
  return {dtype, std::move(dims), std::move(cells)};
}
// first, first + 1, ...
inline Tensor counted(Dims dims, double first, ir::DType dtype = ir::DType::F32) {
  std::vector<double> cells(static_cast<size_t>(count(dims)));
  for (double &cell : cells)
    cell = first++;
  return reals(std::move(dims), std::move(cells), dtype);
}
// Mixed signs, order 1, rounded to the dtype.
inline Tensor drawn(Dims dims, std::mt19937 &random, ir::DType dtype = ir::DType::F32) {
  std::normal_distribution<double> normal;
  std::vector<double> cells(static_cast<size_t>(count(dims)));
  for (double &cell : cells)
    cell = rounded(normal(random), dtype);
  return reals(std::move(dims), std::move(cells), dtype);
}

inline Distribution distribution(checker::CheckedProgram &program, ir::ValueId value) {
  llvm::Expected<Distribution> made = Distribution::make(program.program(), program.known(value));
  REQUIRE(static_cast<bool>(made));
  return std::move(*made);
}

} // namespace spmd::runtime
