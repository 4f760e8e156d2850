// What an instruction makes of norms of blocks, and what is wrong with it.
#include "checker/gradual/second_pass/blocks/block_norms.h"

#include "rules/kinds/scale.h"
#include "rules/violations/norms.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using rules::Computes;

// The norm of a block asks for the scale that the norm of a whole tensor asks for.
static std::optional<rules::Violation> scale_of_norm(const rules::Application &app,
                                                     llvm::ArrayRef<ValueId> operands,
                                                     const Norms::Facts &facts, uint32_t result,
                                                     AxisSet reported) {
  const uint32_t i = app.results.size() > 1 ? result : 0;
  if (!facts.root.axes || !app.op.computes(Computes::Norm) || i >= app.args.size())
    return std::nullopt;
  auto differs = rules::scale_differs(app.program, app.type(app.args[i]), app.program.one(),
                                      "1 is needed", {i}, operands[i]);
  return differs && !(rules::axes_of(*differs) & reported) ? std::move(differs) : std::nullopt;
}

// The root of a rank's own squares, which are added up over one axis after the other.
void BlockNorms::take_squares(const ir::Inst &inst, const rules::ResolvedOp &op) {
  if (op.form != rules::OpForm::Equation || inst.result_count != 1 || state_.args.empty())
    return;
  const rules::Application app = application(inst, op);
  Type type = program_.types[state_.args[0].type];
  type.set_kind(norms_.rooted(app, state_.operands.values[0], inst.result(0)) &
                    type.of(Kind::Partial),
                Kind::Varying);
  state_.args[0].type = state_.intern(type);
}

void BlockNorms::begin() {
  made_.clear();
  of_one_rank_ = {};
}

void BlockNorms::judge(InstId id, const rules::Application &app, llvm::ArrayRef<ValueId> results) {
  begin();
  if (app.op.computes(Computes::Norm) && app.args.size() == 1)
    of_one_rank_ = axes_in(program_.insts[id], "alone") & app.type(app.args[0]).same_on_all_ranks();
  for (uint32_t r = 0; r < app.results.size(); ++r) {
    Norms::Facts facts = norms_.infer(app, state_.operands.values, r, results[r]);
    facts.root.axes |= of_one_rank_;
    if (AxisSet axes = facts.left_out - now_.reported)
      state_.report(Place::inst(id), rules::NormUndercount{{facts.operand}, axes});
    if (AxisSet axes = facts.counted - now_.reported)
      state_.report(Place::inst(id), rules::NormOvercount{{facts.operand}, axes});
    if (auto differs = scale_of_norm(app, state_.operands.values, facts, r, now_.reported))
      state_.report(Place::inst(id), std::move(*differs));
    made_.push_back(facts);
  }
}

// Squares of norms of blocks are addends.
bool BlockNorms::keep(ValueId value, uint32_t index, Type &type) {
  if (index >= made_.size())
    return false;
  const Norms::Facts &facts = made_[index];
  norms_.learn(value, facts, type.of(Kind::Partial) - type.zero());
  type.set_kind(of_one_rank_, Kind::Varying);
  type.set_kind(facts.square.axes - now_.reported, Kind::Partial);
  now_.open -= facts.root.axes | facts.square.axes;
  return true;
}

} // namespace spmd::checker
