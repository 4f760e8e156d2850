// One instruction in the words of a framework: what `dump --dialect` writes and what fixes are
// printed in.
#pragma once

#include "checker/check.h"
#include "checker/operand_list.h"

#include "ir/dialect/dialect.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace spmd::checker {

// An instruction with what is known of its operands and results.
struct TypedCall {
  ir::OpNameId op;
  ir::AttrsId attrs;
  ir::ContextId context;
  ir::OperandsId operands;
  OperandList list;
  llvm::SmallVector<rules::TensorInfo, 4> args, results;
  llvm::SmallVector<rules::ResultClaim, 2> claims;
};
TypedCall call_of(const ir::Program &program, const CheckResult &result, const ir::Inst &inst);

// One instruction of a sequence; each but the first takes the result of the one before.
struct DialectStep {
  std::string name; // as the dialect reads it; `spmd.` in front where it has no word
  ir::AttrsId attrs;
  ir::OperandsId operands; // none: as they are
};
struct DialectText {
  llvm::SmallVector<DialectStep, 2> steps;
  std::vector<std::string> no_equivalent; // why our words stand, or what theirs leave out
  bool found = false;                     // false: our words stand
};

class DialectPrinter {
public:
  // `from`: what the calls are written in, by default the dialect of the program.
  DialectPrinter(ir::Program &program, ir::Dialect to,
                 std::optional<ir::Dialect> from = std::nullopt);
  ~DialectPrinter();
  DialectText print(const TypedCall &call);

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace spmd::checker
