// Reads the `rules` of a trace with the same parser that reads our rows.
#include "rules/ops/user_rules.h"

#include "rules/ops/registry.h"

#include "llvm/ADT/STLExtras.h"
#include "ir/support/format.h"

#include <fmt/format.h>

namespace spmd::rules {


std::vector<ir::InputError> verify_rules(const ir::Program &program) {
  std::vector<ir::InputError> errors;
  auto fail = [&](const ir::UserRule &rule, std::string message) {
    errors.push_back({.name = "trace-rule",
                      .message = std::move(message),
                      .offset = rule.origin,
                      .path = fmt::format("rules.{}", program.strings[rule.op])});
  };
  for (const ir::UserRule &rule : program.rules) {
    llvm::StringRef name = program.strings[rule.op];
    if (resolve_spelling(name, program.dialect_name()).form != OpForm::Unknown)
      fail(rule, fmt::format("`{}` has a rule of its own, which cannot be replaced", name));
    if (rule.like.valid()) {
      ResolvedOp like = resolve_spelling(program.strings[rule.like], program.dialect_name());
      if (like.form == OpForm::Unknown)
        fail(rule, fmt::format("the rule of `{}` is that of `{}`, which is no known op", name,
                               program.strings[rule.like]));
      continue;
    }
    Equation equation;
    EquationError error = parse_equation(program.strings[rule.equation], equation);
    if (!error.reason.empty())
      fail(rule, fmt::format("the equation of `{}` cannot be read: {} at character {}", name,
                             error.reason, error.position + 1));
  }
  return errors;
}

const ir::UserRule *UserRules::find(ir::OpNameId spelling) {
  for (; entered_ < program_.rules.size(); ++entered_)
    by_op_.try_emplace(program_.rules[entered_].op.index, entered_);
  auto rule_of = [&](uint32_t word) -> const ir::UserRule * {
    auto at = by_op_.find(word);
    return at == by_op_.end() ? nullptr : &program_.rules[at->second];
  };
  // An overload has the rule of its op, unless it has one of its own.
  const ir::UserRule *found = rule_of(spelling.index);
  llvm::StringRef name = program_.op_name(spelling);
  if (!found && !by_op_.empty() && name.count('.') > 1)
    found = rule_of(program_.strings.add(name.rsplit('.').first).index);
  return found;
}

std::optional<ResolvedOp> UserRules::resolve(ir::OpNameId spelling, std::unique_ptr<OpDef> &row) {
  const ir::Program &program = program_;
  const ir::UserRule *found = find(spelling);
  if (!found)
    return std::nullopt;
  llvm::StringRef name = program.op_name(spelling);
  ResolvedOp made;
  if (found->like.valid()) {
    made = resolve_spelling(program.strings[found->like], program.dialect_name());
  } else {
    Equation equation;
    if (!parse_equation(program.strings[found->equation], equation).reason.empty())
      return std::nullopt;
    row = std::make_unique<OpDef>(
        OpDef{.name = name, .equation = EquationText(equation)});
    made.form = OpForm::Equation;
    made.row = row.get();
    // Tensors by position are members of a list that ends the operands.
    if (equation.operand_count &&
        equation.operands[equation.operand_count - 1].list != ListForm::Single) {
      for (uint8_t i = 0; i < equation.operand_count; ++i)
        made.order.push_back(i);
      made.lists_rest = true;
    }
  }
  made.assumed = true;
  return made;
}

} // namespace spmd::rules
