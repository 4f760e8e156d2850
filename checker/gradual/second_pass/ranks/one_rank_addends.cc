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

// What a loop takes in each of its turns is to its body what it is to the loop. What begins with
// zeros has the scale of what is added to it.
void OneRankAddends::hand_in(const ir::Inst &inst, const rules::ResolvedOp &op) {
  const ir::AttrValue *same = program_.find(inst.attrs, "consts");
  if (op.form != rules::OpForm::Call || !same || same->form != ir::AttrForm::Integer)
    return;
  for (const ir::Attr &attr : program_.attrs[inst.attrs].attrs) {
    if (attr.value.form != ir::AttrForm::Function)
      continue;
    const ir::Function &body = program_.functions[attr.value.as<ir::FunctionId>()];
    const auto &values = state_.operands.values;
    for (size_t i = 0; i < body.params.size() && body.params.size() == values.size(); ++i)
      if (static_cast<int64_t>(i) < same->as_integer())
        alone_.learn(body.params[i].value, {alone_.mask(values[i]), {}, {}});
      else
        result_.scaled[body.params[i].value.index] |= program_.types[state_.args[i].type].zero();
  }
}

void OneRankAddends::judge(const rules::Application &app) {
  made_ = alone_.infer(app, state_.operands.values);
}

void OneRankAddends::learn(ValueId value) {
  alone_.learn(value, made_);
  axes_ |= made_.value;
}

void OneRankAddends::keep(Type &type) {
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
