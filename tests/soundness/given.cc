// What is derived is printed, read as a draft, and held against the tape.
#include "tests/soundness/given.h"

#include "checker/backward/backward.h"
#include "ir/input/input.h"

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

Verdict judge_given(const Draft &original, const Draft &given, uint64_t seed,
                    llvm::SmallVectorImpl<unsigned> *wrong) {
  std::unique_ptr<Checked> before = check(original), after = check(given);
  Verdict verdict;
  if (!after->read)
    return {Verdict::Form::NotFollowed, "a backward that cannot be read again"};
  if (before->clean() && after->result.clean() && !after->clean())
    return {Verdict::Form::NotFollowed, "tensors that differ in size between ranks"};
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
  auto goes_on = [&] {
    return verdict.is(Verdict::Form::Upheld) || (wrong && verdict.is(Verdict::Form::Wrong));
  };
  auto take = [&](unsigned value, std::string what, std::string_view role) {
    if (what.empty())
      return;
    verdict.form = Verdict::Form::Wrong;
    verdict.what = fmt::format("%{}, {}: {}", value, role, what);
    if (wrong)
      wrong->push_back(value);
  };
  for (const Statement &statement : given.statements)
    for (size_t r = 0; r < statement.gradient_of.size() && goes_on(); ++r) {
      auto of = static_cast<size_t>(statement.gradient_of[r]);
      ir::ValueId made = after->ids[statement.results[r]];
      if (statement.gradient_of[r] >= 0 && of < before->ids.size() && before->ids[of].valid() &&
          made.valid())
        take(statement.results[r],
             stated.refute_against(made, taped, before->ids[of], verdict.gradients),
             fmt::format("stated as the gradient of %{}", of));
    }
  auto steps = [](const Draft &draft) {
    std::vector<std::pair<unsigned, unsigned>> found; // parameter, what is read
    for (const Statement &statement : draft.statements)
      if (statement.op == "step")
        found.push_back({statement.operands[0].values[0], statement.operands[1].values[0]});
    return found;
  };
  for (auto [param, read] : steps(given))
    for (auto [same, had] : steps(original))
      if (same == param && goes_on())
        take(read,
             stated.refute_step_against(after->ids[param], after->ids[read], taped,
                                        before->ids[had], verdict.gradients),
             fmt::format("read by the optimizer for %{}", param));
  // What was asked for by name; an alteration may ask for something else.
  for (const Statement &statement : original.statements)
    if (statement.op == "grad" && !wrong && goes_on())
      if (ir::ValueId made = after->ids[statement.results[0]]; made.valid())
        take(statement.results[0],
             stated.refute_against(made, taped, before->ids[statement.operands[0].values[0]],
                                   verdict.gradients),
             "derived for `grad`");
  return verdict;
}

} // namespace spmd::soundness
