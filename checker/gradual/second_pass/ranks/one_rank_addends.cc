// What one rank alone adds, and what a loop hands in of it.
#include "checker/gradual/second_pass/ranks/one_rank_addends.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using rules::Computes;

// What one rank alone adds to a sum, and all would add alike, is an addend: the others have zeros.
void OneRankAddends::add(const ir::Inst &inst, const rules::ResolvedOp &op) {
  AxisSet axes = axes_in(inst, "alone");
  if (!axes || !op.computes(Computes::Add) || state_.args.size() != 2)
    return;
  Type type = program_.types[state_.args[1].type];
  const AxisSet equal = type.same_on_all_ranks() - type.zero();
  type.set_unknown(axes - equal - type.zero());
  type.set_kind(axes & equal, Kind::Partial);
  state_.args[1].type = state_.intern(type);
}

// What one rank alone has it hands to a body, too. What a loop takes in each of its turns is to its
// body what it is to the loop; what begins with zeros has the scale of what is added to it.
void OneRankAddends::hand_in(const ir::Inst &inst, const rules::ResolvedOp &op) {
  const ir::AttrValue *consts = program_.find(inst.attrs, "consts");
  const bool loops = consts && consts->form == ir::AttrForm::Integer;
  if (op.form != rules::OpForm::Call)
    return;
  for (const ir::Attr &attr : program_.attrs[inst.attrs].attrs) {
    if (attr.value.form != ir::AttrForm::Function)
      continue;
    const ir::Function &body = program_.functions[attr.value.as<ir::FunctionId>()];
    const auto &values = state_.operands.values;
    for (size_t i = 0; i < body.params.size() && body.params.size() == values.size(); ++i) {
      if (const AxisSet axes = on_one_rank(values[i]))
        on_one_rank_[body.params[i].value.index] = axes;
      if (loops && static_cast<int64_t>(i) < consts->as_integer())
        alone_.learn(body.params[i].value, {alone_.mask(values[i]), {}, {}});
      else if (loops)
        result_.scaled[body.params[i].value.index] |= program_.types[state_.args[i].type].zero();
    }
  }
}

void OneRankAddends::judge(const rules::Application &app, const ZeroBlocks &zeros) {
  made_ = alone_.infer(app, state_.operands.values,
                       [&](ValueId value) { return zeros.are_zeros(value); });
}

void OneRankAddends::learn(ValueId value) {
  alone_.learn(value, made_);
  axes_ |= made_.value;
}

// What is made of nothing else that is pending. The result of a call is what its bodies return.
void OneRankAddends::follow(ir::InstId id, ValueId value, const Type &type) {
  AxisSet axes = type.of(Kind::Partial), pending;
  if (!axes)
    return;
  const auto returned = returned_as(id, value);
  for (ValueId each : returned)
    pending |= on_one_rank(each);
  for (size_t i = 0;
       returned.empty() && i < state_.args.size() && i < state_.operands.values.size(); ++i) {
    const AxisSet own = program_.types[state_.args[i].type].of(Kind::Partial);
    axes -= own - on_one_rank(state_.operands.values[i]);
    pending |= own;
  }
  if (const AxisSet found = axes & (pending | made_.value)) {
    on_one_rank_[value.index] = found;
    std::optional<int64_t> rank = made_.rank;
    for (ValueId operand : state_.operands.values)
      rank = rank ? rank : rank_of(operand);
    ranks_[value.index] = rank;
  }
}

// The axes along which what one rank has is added to what another one has. That may be a sum to
// come, or a block on each rank, as in a product whose blocks are sent out one after the other
// (SUMMA, van de Geijn and Watts 1997).
AxisSet OneRankAddends::of_several() const {
  AxisSet axes = ~AxisSet();
  std::optional<int64_t> first;
  bool several = false;
  for (ValueId operand : state_.operands.values) {
    const std::optional<int64_t> rank = rank_of(operand);
    axes &= rank ? on_one_rank(operand) : AxisSet();
    several |= first && first != rank;
    first = rank;
  }
  return several ? axes : AxisSet();
}

void OneRankAddends::keep(const rules::ResolvedOp &op, Type &type) {
  if (op.computes(Computes::Add))
    type.set_unknown(of_several() - now_.reported);
  for (AxisId axis : made_.value - now_.reported) {
    type.drop_shards(axis);
    type.set_kind(axis, Kind::Partial);
  }
  if (made_.value && !type.scale.valid()) { // what one rank alone has is taken as it is
    type.scale = program_.one();
    made_.scaled = {};
  }
}

} // namespace spmd::checker
