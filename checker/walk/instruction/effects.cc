// Effects: what is written in place must leave its storage with a type that other names of it can
// rely on, and what was written is no longer what older names say.
#include "checker/walk/instruction/effects.h"

#include "checker/program_queries.h"

#include "rules/boundary/claims.h"
#include "rules/boundary/name.h"
#include "rules/violations/claims.h"
#include "rules/violations/local.h"

#include "ir/support/arrays.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

namespace {

struct Target {
  ValueId value;
  uint32_t position; // among the tensors of the instruction
};

// Operands that the instruction writes: marked `mut`, alone or as a list, or given as `out`.
llvm::SmallVector<Target, 4> targets_of(const ir::Program &program, const ir::Inst &inst) {
  llvm::SmallVector<Target, 4> targets;
  uint32_t position = 0;
  bool out = false;
  for (const ir::Operand &operand : program.operand_lists[inst.operands]) {
    if (operand.form == ir::Operand::Form::Name) {
      out = program.is_out(operand.as_name());
      continue;
    }
    bool written = operand.mut || out;
    out = false;
    if (operand.is_value()) {
      if (written)
        targets.push_back({operand.as_value(), position});
      ++position;
    } else if (operand.form == ir::Operand::Form::List) {
      for (const ir::Operand &member : program.operand_lists[operand.as_list()]) {
        if (!member.is_value())
          continue;
        if (written)
          targets.push_back({member.as_value(), position});
        ++position;
      }
    }
  }
  return targets;
}

// The new value of a target: the first result that aliases it, else the one in its place.
class ResultsFor {
public:
  ResultsFor(const ir::Program &program, const ir::Inst &inst) : last_(inst.result_count - 1) {
    for (uint32_t r = 0; r < inst.result_count; ++r)
      if (ValueId base = program.values[inst.result(r)].alias_of; base.valid())
        aliases_.try_emplace(base.index, r);
  }
  uint32_t of(ValueId target, uint32_t place) const {
    auto at = aliases_.find(target.index);
    return at != aliases_.end() ? at->second : std::min(place, last_);
  }

private:
  llvm::SmallDenseMap<uint32_t, uint32_t, 4> aliases_;
  uint32_t last_;
};

bool draws(const rules::ResolvedOp &op) {
  if (op.form != rules::OpForm::Equation)
    return false;
  const rules::Equation &equation = op.row->equation.equation;
  return llvm::any_of(ir::as_array(equation.refs.data(), equation.ref_count),
                      [](const rules::Ref &ref) { return ref.operand == rules::kGenerator; });
}

} // namespace

void Effects::resume(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  for (const Target &target : targets_of(program_, inst))
    state_.storage.write(target.value, id);
  for (uint32_t r = 0; r < inst.result_count; ++r)
    state_.storage.define(inst.result(r));
}

// Every write since the older name was made that reaches what it shows, in their order.
void Effects::derive(InstId id) {
  if (state_.operands.values.size() < 2)
    return;
  const ValueId old = state_.operands.values[1];
  const ir::TypeId seen = state_.args[1].type;
  Type type =
      state_.remapped_to(program_.types[state_.storage.type_before_write(old).value_or(seen)],
                         program_.types[seen].mesh());
  // What nothing was written to is of every kind.
  bool empty = is_empty(old);
  for (const Storage::Write &write : state_.storage.writes_after(old, id)) {
    ValueId written = write.target;
    const ir::Inst &inst = program_.insts[write.by];
    for (uint32_t r = 0; r < inst.result_count; ++r)
      if (program_.values[inst.result(r)].alias_of == write.target)
        written = inst.result(r);
    const rules::TensorInfo known = state_.known(written);
    const Type made = state_.remapped_to(program_.types[known.type], type.mesh());
    type = !empty && is_part(written, old) ? beside(made, type) : made;
    empty = false;
  }
  state_.args[0].type = state_.intern(type);
}

bool Effects::is_empty(ValueId value) {
  const InstId id = defining_inst(program_, state_.storage.root(value));
  if (!id.valid() || !state_.storage.writes_before(value).empty())
    return false;
  const rules::ResolvedOp &op = state_.rules.resolve(program_.insts[id].op);
  return op.alias && op.alias->variant == rules::Variant::Empty;
}

// True if some element of the older name was not written.
bool Effects::is_part(ValueId written, ValueId old) {
  const ir::ShapeId part = result_.shapes[written.index], whole = result_.shapes[old.index];
  if (state_.storage.regions().misses(written, old))
    return true;
  return part.valid() && whole.valid() &&
         ir::element_count(program_.shapes[part]) < ir::element_count(program_.shapes[whole]);
}

// What holds elements of one type beside others of another one: they are of one kind, or differ on
// the ranks where either does. Zeros are of every kind; addends beside anything else are of none.
Type Effects::beside(const Type &written, const Type &before) const {
  const AxisSet zeros = written.zero(), others = before.zero();
  const AxisSet equal = before.same_on_all_ranks();
  const AxisSet changed = (others | (equal - written.of(Kind::Partial))) - zeros;
  Type type = before;
  rules::take_kinds(type, written, changed);
  AxisSet mixed; // sums beside maxima
  for (ir::AxisId axis : (written.of(Kind::Partial) - zeros) & before.of(Kind::Partial))
    if (changed.contains(axis))
      type.set_combiner(axis, written.combiner(axis));
    else if (written.combiner(axis) != before.combiner(axis))
      mixed |= AxisSet(axis);
  type.set_unknown(mixed | written.unknown | before.unknown |
                   ((written.of(Kind::Partial) - zeros) - before.of(Kind::Partial)) |
                   ((before.of(Kind::Partial) - others) - written.of(Kind::Partial)));
  const AxisSet all = program_.meshes[type.mesh()].typed_axes();
  if (others == all)
    type.scale = written.scale;
  else if (written.scale != before.scale && zeros != all)
    type.set_unknown(all);
  return type;
}

void Effects::judge_stale(InstId id) {
  if (!state_.storage.any_written())
    return;
  for (size_t i = 0; i < state_.operands.values.size(); ++i) {
    InstId writer = state_.storage.stale_since(state_.operands.values[i]);
    if (!writer.valid())
      continue;
    const ir::Inst &wrote = program_.insts[writer];
    std::string text = "`" + program_.op_name(wrote.op).str() + "`";
    if (wrote.result_count)
      text += ", which made " + ir::print_value(program_, wrote.first_result);
    state_.report(Place::inst(id), rules::StaleAlias{{static_cast<uint32_t>(i)}, std::move(text)});
  }
}

void Effects::write(InstId id, const ir::Inst &inst, const rules::ResolvedOp &op,
                    const rules::Outcome &outcome, llvm::MutableArrayRef<AxisSet> unknown_axes) {
  // What gives no new name leaves nothing that could be read.
  if (!state_.edit && rules::writes_first(op.boundary) && state_.operands.values.size() > 1)
    state_.storage.write(state_.operands.values.front(), id);
  if (inst.result_count == 0)
    return;
  uint32_t place = 0;
  llvm::SmallVector<Target, 4> targets = targets_of(program_, inst);
  if (targets.empty())
    return;
  ResultsFor results(program_, inst);
  for (const Target &target : targets) {
    uint32_t result = results.of(target.value, place++);
    const Type made = program_.types[outcome.types[result]]; // a finding makes types
    unknown_axes[result] |= written(id, target.value, target.position, made, result);
  }
}

bool Effects::keep_types(const ir::Inst &inst, const rules::Outcome &outcome) const {
  const OperandList &operands = state_.operands;
  if (operands.writes == Writes::None)
    return true;
  return operands.writes == Writes::First && inst.result_count == 1 &&
         left_with(operands.values.front(), inst.context, program_.types[outcome.types[0]]).empty();
}

// The axes on which a value that is written is left with another type, which other names of it
// notice.
AxisSet Effects::left_with(ValueId target, ir::ContextId context, const Type &made) const {
  const Type before = state_.seen(result_.types[target.index], context);
  if (before.mesh() != made.mesh())
    return {};
  AxisSet bad = rules::check_claim(made, before, made.gradient_free()).mismatched - before.either();
  return before.gradient_free() ? bad - before.of(Kind::Varying) : bad;
}

AxisSet Effects::written(InstId id, ValueId target, uint32_t position, const Type &made,
                         uint32_t result) {
  AxisSet bad;
  const Type before = state_.seen(result_.types[target.index], program_.insts[id].context);
  bool state = state_.is_persistent(state_.storage.root(target));
  if ((state || state_.storage.has_other_names_after(target, id)) && before.mesh() == made.mesh()) {
    bad = left_with(target, program_.insts[id].context, made);
    AxisSet reported = drawn(id, position, before, made, bad);
    if (state)
      reported |= gradients_.unreduced(Place::inst(id), tensors_of(program_, id),
                                       state_.storage.root(target), bad - reported);
    AxisSet partial = state ? (bad - reported) & made.of(Kind::Partial) : AxisSet();
    if (partial)
      state_.report(Place::inst(id), rules::PartialState{state_.storage.root(target), partial});
    reported |= partial;
    if (!state && state_.options.undeclared) {
      forget_others(id, target, bad - reported);
      bad &= reported;
    } else if (bad - reported)
      state_.report(Place::inst(id),
                    rules::MutationChangesType{
                        {position}, state_.intern(before), state_.intern(made), bad - reported});
  }
  if (undecided_.recording() && (state || state_.storage.has_other_names_after(target, id))) {
    Type after = made;
    after.set_unknown(made.of(Kind::Varying));
    undecided_.meet(undecided_.row(target), before, undecided_.result_row(result), after,
                    Place::inst(id), [&](ir::AxisId axis, Kind kind) {
                      return rules::MutationChangesType{{position},
                                                        state_.as_kind(before, axis, kind),
                                                        state_.on_axes(made, axis),
                                                        axis};
                    });
  }
  if (!state_.edit)
    state_.storage.write(target, id);
  return bad;
}

// Nobody has said what temporary storage is: it is what was written last, and what other names of
// it hold from then on is not known.
void Effects::forget_others(InstId id, ValueId target, AxisSet axes) {
  if (!axes || state_.edit)
    return;
  for (ValueId value : state_.storage.other_names_after(target, id)) {
    Type type = program_.types[result_.types[value.index]];
    state_.storage.keep_type(value, result_.types[value.index]);
    type.set_unknown(axes & program_.meshes[type.mesh()].typed_axes());
    result_.types[value.index] = state_.intern(type);
  }
}

// Random numbers are drawn where the storage differs between ranks, and nowhere else; the axes on
// which they are not, reported.
AxisSet Effects::drawn(InstId id, uint32_t position, const Type &before, const Type &made,
                       AxisSet bad) {
  if (bad.empty() || !draws(state_.rules.resolve(program_.insts[id].op)))
    return {};
  AxisSet repeats = bad & before.of(Kind::Varying) & made.same_on_all_ranks();
  if (repeats)
    state_.report(Place::inst(id), rules::ShardedRandomRepeats{{position}, repeats});
  AxisSet reported = repeats;
  for (Kind kind : {Kind::Replicate, Kind::Reduced, Kind::Invariant})
    if (AxisSet diverges = (bad & before.of(kind) & made.of(Kind::Varying)) - reported) {
      state_.report(Place::inst(id), rules::RandomDiverges{{position}, kind, diverges});
      reported |= diverges;
    }
  return reported;
}

} // namespace spmd::checker
