// What is derived is printed, read as a draft, and held against the tape.
#include "tests/soundness/given.h"

#include "checker/backward.h"
#include "ir/input.h"

#include <fmt/format.h>

namespace spmd::soundness {

std::optional<Given> give_backward(const Draft &draft, std::string &why) {
  ir::ReadResult read = ir::read_text(draft.print());
  if (!read.errors.empty())
    return why = "the draft cannot be read", std::nullopt;
  ir::Program program = std::move(read.program);
  if (std::optional<checker::NoBackward> none = checker::derive_backward(program))
    return why = none->message, std::nullopt;
  unsigned next = draft.values;
  for (uint32_t v = 0; v < program.values.size(); ++v)
    if (ir::Value &value = program.values[ir::ValueId{v}]; !value.name.is_number())
      value.name = ir::ValueName::number(next++);
  std::optional<Draft> made = read_draft(ir::print_text(program));
  if (!made)
    return why = "the backward is in no form that is read here", std::nullopt;
  made->values = next;
  if (!llvm::StringRef(made->head).contains("trace "))
    made->head = "trace { mode = global }\n" + made->head;
  Given given{std::move(*made), 0};
  auto begins = [](const Statement &statement) {
    return !statement.gradient_of.empty() && statement.gradient_of[0] >= 0;
  };
  while (given.first < given.draft.statements.size() &&
         !begins(given.draft.statements[given.first]))
    ++given.first;
  // As it was recorded: without types of results, where it checks so.
  Draft bare = given.draft;
  for (Statement &statement : bare.statements)
    statement.claims.clear();
  if (check(bare)->clean())
    given.draft = std::move(bare);
  return given;
}

Verdict judge_given(const Draft &original, const Draft &given, uint64_t seed) {
  std::unique_ptr<Checked> before = check(original), after = check(given);
  Verdict verdict;
  if (!after->read)
    return {Verdict::Form::NotFollowed, "a backward that cannot be read again"};
  if (after->result.clean() && !after->clean())
    return {Verdict::Form::NotFollowed, "lists of uneven blocks, which are warned of"};
  if (!before->clean() || !after->clean()) {
    verdict.form = Verdict::Form::Wrong;
    verdict.what = "the backward that was derived does not check";
    return verdict;
  }
  Execution taped(before->program, before->result, seed);
  verdict = taped.run();
  if (!verdict.is(Verdict::Form::Upheld))
    return verdict;
  Execution stated(after->program, after->result, seed);
  verdict = stated.run();
  if (verdict.is(Verdict::Form::Upheld))
    verdict = stated.judge(Claims::All);
  for (const Statement &statement : given.statements)
    for (size_t r = 0; r < statement.gradient_of.size(); ++r) {
      auto of = static_cast<size_t>(statement.gradient_of[r]);
      if (statement.gradient_of[r] < 0 || of >= before->ids.size() || !before->ids[of].valid() ||
          !verdict.is(Verdict::Form::Upheld))
        continue;
      std::string what = stated.refute_against(after->ids[statement.results[r]], taped,
                                               before->ids[of], verdict.gradients);
      if (what.empty())
        continue;
      verdict.form = Verdict::Form::Wrong;
      verdict.what =
          fmt::format("%{}, derived as the gradient of %{}: {}", statement.results[r], of, what);
    }
  // What was asked for by name.
  for (const Statement &statement : original.statements)
    if (statement.op == "grad" && verdict.is(Verdict::Form::Upheld)) {
      ir::ValueId made = after->ids[statement.results[0]];
      if (!made.valid())
        continue;
      std::string what = stated.refute_against(
          made, taped, before->ids[statement.operands[0].values[0]], verdict.gradients);
      if (what.empty())
        continue;
      verdict.form = Verdict::Form::Wrong;
      verdict.what = fmt::format("%{}, derived for `grad`: {}", statement.results[0], what);
    }
  return verdict;
}

} // namespace spmd::soundness
