// A gradient in the program is held against the dual of its value's type where it is made. What was
// never summed is followed to the outputs and to the writes of the optimizer.
#include "checker/walk/joint.h"

#include "checker/report/provenance.h"
#include "checker/walk/walk.h"

#include "rules/kinds/scale.h"
#include "rules/ops/registry.h"
#include "rules/shards/remesh.h"
#include "rules/transitions/transition.h"
#include "rules/violations/claims.h"
#include "rules/violations/gradients.h"

#include "ir/mesh/axis_scale.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Phase;
using ir::Type;
using ir::ValueId;

namespace {

constexpr size_t kReach = 1 << 10; // values that a search backwards looks at

bool is_forward(const ir::Inst &inst) {
  return inst.phase == Phase::Unstated || inst.phase == Phase::Forward;
}

rules::ResolvedOp op_of(const ir::Program &program, InstId inst) {
  return rules::resolve_spelling(program.op_name(program.insts[inst].op), "spmd");
}

// The operands that a result is made of: of a call on a list, the one in its place.
llvm::SmallVector<ValueId, 4> sources(const ir::Program &program, InstId id, ValueId result) {
  const ir::Inst &inst = program.insts[id];
  llvm::SmallVector<ValueId, 4> tensors = tensors_of(program, id);
  llvm::ArrayRef<ir::Operand> operands = program.blocks[inst.operands];
  uint32_t place = result.index - inst.first_result.index;
  if (inst.result_count > 1 && !operands.empty() &&
      operands.front().form == ir::Operand::Form::List &&
      program.blocks[operands.front().as_list()].size() == inst.result_count &&
      tensors.size() >= inst.result_count)
    return {tensors[place]};
  return tensors;
}

// Visits definitions backwards, nearest first, through operands that `follow` names; until `found`.
template <class Follow, class Found>
ValueId search(const ir::Program &program, llvm::ArrayRef<ValueId> start, Follow follow,
               Found found) {
  llvm::SmallVector<ValueId, 16> queue(start.begin(), start.end());
  llvm::DenseSet<uint32_t> seen;
  for (size_t at = 0; at < queue.size() && at < kReach; ++at) {
    ValueId value = queue[at];
    if (!seen.insert(value.index).second)
      continue;
    if (found(value))
      return value;
    InstId inst = defining_inst(program, value);
    if (!inst.valid())
      continue;
    for (ValueId operand : sources(program, inst, value))
      if (follow(inst, operand))
        queue.push_back(operand);
  }
  return {};
}

// The parameter that a value is, or is a cast or a view of; none if it is made of several values.
ValueId parameter_behind(const ir::Program &program, ValueId value) {
  for (size_t step = 0; step < kReach; ++step) {
    InstId inst = defining_inst(program, value);
    if (!inst.valid()) {
      const ir::Param *param = program.find_param(value);
      return param && param->role == ir::Role::Param ? value : ValueId{};
    }
    llvm::SmallVector<ValueId, 4> tensors = sources(program, inst, value);
    if (tensors.size() != 1)
      return {};
    value = tensors.front();
  }
  return {};
}

} // namespace

AxisSet not_dual(const Type &value, const Type &gradient, AxisSet local) {
  AxisSet known = (value.claimed() - value.unknown - value.either()) &
                  (gradient.claimed() - gradient.unknown - gradient.zero());
  AxisSet equal =
      (gradient.replicated() | gradient.of(Kind::Invariant)) - (gradient.either() & local);
  AxisSet partial = gradient.of(Kind::Partial), varying = gradient.of(Kind::Varying);
  AxisSet summed = value.of(Kind::Partial) - value.combining();
  AxisSet wrong = value.replicated() & (equal | gradient.sharded() | gradient.combining());
  wrong |= (value.of(Kind::Invariant) | summed) & (partial | varying);
  wrong |= value.of(Kind::Varying) & partial;
  wrong |= value.sharded() & (equal - local);
  for (AxisId axis : value.sharded() & gradient.sharded())
    if (!rules::same_shard(gradient, value, axis))
      wrong |= axis;
  return wrong & known;
}

Type dual_on(const Type &value, AxisSet axes) {
  Type dual = value;
  dual.clear(~axes);
  dual.scale = {};
  dual.set_kind(value.replicated() & axes, Kind::Partial);
  dual.set_kind(value.of(Kind::Partial) & axes, Kind::Replicate);
  return dual;
}

bool made_equal(const ir::Program &program, const CheckResult &result, ValueId value, AxisId axis) {
  auto type = [&](ValueId each) { return program.types[result.types[each.index]]; };
  auto equal = [&](ValueId each) {
    return result.types[each.index].valid() &&
           (type(each).replicated() | type(each).of(Kind::Invariant)).contains(axis);
  };
  InstId first = defining_inst(program, value);
  if (!first.valid())
    return false;
  Phase phase = program.insts[first].phase;
  return search(
             program, value,
             [&](InstId inst, ValueId operand) {
               return program.insts[inst].phase == phase && equal(operand);
             },
             [&](ValueId each) {
               InstId inst = defining_inst(program, each);
               if (!inst.valid() || program.insts[inst].phase != phase ||
                   op_of(program, inst).transition.empty())
                 return false;
               return llvm::any_of(tensors_of(program, inst),
                                   [&](ValueId operand) { return !equal(operand); });
             })
      .valid();
}

InstId forward_of(const ir::Program &program, InstId backward, AxisSet axes) {
  const ir::Inst &inst = program.insts[backward];
  ValueId value;
  for (uint32_t r = 0; r < inst.result_count && !value.valid(); ++r)
    value = program.values[inst.result(r)].grad_of;
  InstId taker;
  for (uint32_t i = program.main.first.index;
       value.valid() && i < std::min(program.main.last.index, backward.index); ++i) {
    InstId id{i};
    if (!is_forward(program.insts[id]) || !llvm::is_contained(tensors_of(program, id), value))
      continue;
    if (!op_of(program, id).transition.empty() && (axes.empty() || runs_over(program, id, axes)))
      return id;
    if (!taker.valid())
      taker = id;
  }
  InstId stated = inst.bwd_of.valid() ? defining_inst(program, inst.bwd_of) : InstId{};
  return stated.valid() ? stated : taker;
}

ValueId pending_gradient(const ir::Program &program, const CheckResult &result,
                         llvm::ArrayRef<ValueId> values, ValueId param, AxisSet axes) {
  auto pending = [&](ValueId value) {
    if (!result.types[value.index].valid())
      return false;
    const Type &type = program.types[result.types[value.index]];
    return ((type.of(Kind::Varying) | type.of(Kind::Partial)) - type.zero()).contains(axes);
  };
  llvm::SmallVector<ValueId, 4> start;
  llvm::copy_if(values, std::back_inserter(start), pending);
  ValueId found;
  search(
      program, start, [&](InstId, ValueId operand) { return pending(operand); },
      [&](ValueId value) {
        ValueId of = program.values[value].grad_of;
        found = of.valid() ? parameter_behind(program, of) : ValueId{};
        return found.valid() && (!param.valid() || found == param);
      });
  return !param.valid() || found == param ? found : ValueId{};
}

// Told of in their turn, after the types of all results.
void Walk::gradients_and_moves(InstId id, const ir::Inst &inst, bool transition) {
  for (uint32_t i = 0; i < inst.result_count; ++i)
    if (program_.values[inst.result(i)].grad_of.valid())
      joint(Place::inst(id), inst.result(i), state_.told_of(id));
  if (!state_.edit && transition)
    moves(id);
}

// Remembers which value a transition made of which, where gradients of them may be met.
void Walk::moves(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  if (first_gradients_.empty() || inst.result_count != 1)
    return;
  keeps_one(id);
  llvm::ArrayRef<ir::Operand> operands = program_.blocks[inst.operands];
  if (operands.size() == 1 && operands.front().is_value()) {
    moved_.try_emplace(operands.front().index, inst.first_result);
    return;
  }
  llvm::SmallVector<ValueId, 4> tensors = tensors_of(program_, id);
  if (tensors.size() == 1)
    moved_.try_emplace(tensors.front().index, inst.first_result);
}

// Of what is the same on all ranks a convert to a sum, or to one value for all, counts one: so its gradient
// is that of one rank and zeros. Marks what the operand is made of, on the axes.
void Walk::keeps_one(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  llvm::SmallVector<ValueId, 4> tensors = tensors_of(program_, id);
  if (!is_forward(inst) || op_of(program_, id).transition != "convert" || tensors.size() != 1)
    return;
  auto type = [&](ValueId value) -> const Type & {
    return program_.types[result_.types[value.index]];
  };
  if (!result_.types[tensors[0].index].valid() || !result_.types[inst.first_result.index].valid())
    return;
  const Type &made = type(inst.first_result);
  if (type(tensors[0]).mesh() != made.mesh())
    return;
  AxisSet axes = type(tensors[0]).replicated() &
                 ((made.of(Kind::Partial) | made.of(Kind::Invariant)) - made.either());
  llvm::SmallVector<std::pair<ValueId, AxisSet>, 8> next = {{tensors[0], axes}};
  while (!next.empty()) {
    auto [value, left] = next.pop_back_val();
    if (!result_.types[value.index].valid() || type(value).mesh() != made.mesh())
      continue;
    AxisSet &known = kept_of_one_[value.index];
    left = (left & type(value).replicated()) - known;
    known |= left;
    InstId maker = left.empty() ? InstId() : defining_inst(program_, value);
    if (maker.valid())
      for (ValueId operand : sources(program_, maker, value))
        next.push_back({operand, left});
  }
}

// Where each rank's own value was gathered, the gradient of what was gathered is an addend on each
// rank. The axes on which the gradient is made of these without a collective between.
AxisSet Walk::never_summed(ValueId id) {
  ValueId of = program_.values[id].grad_of, made = moved_.lookup(of.index);
  ValueId first = made.valid() ? first_gradient(made) : made;
  if (!first.valid() || first == id || !result_.types[first.index].valid())
    return {};
  InstId maker = defining_inst(program_, id);
  if (!maker.valid())
    return {};
  auto type = [&](ValueId value) { return program_.types[result_.types[value.index]]; };
  AxisSet asked = type(of).of(Kind::Varying) & type(made).replicated() &
                  type(first).of(Kind::Varying) & type(id).of(Kind::Varying);
  asked -= type(first).sharded();
  AxisSet found;
  for (AxisId axis : asked) {
    auto follow = [&](InstId inst, ValueId operand) {
      return program_.insts[inst].phase == program_.insts[maker].phase &&
             (op_of(program_, inst).transition.empty() || !runs_over(program_, inst, axis)) &&
             result_.types[operand.index].valid() && type(operand).of(Kind::Varying).contains(axis);
    };
    if (search(program_, id, follow, [&](ValueId value) { return value == first; }).valid())
      found |= axis;
  }
  return found;
}

// The axes on which a value of this type has no such gradient.
AxisSet Walk::refused_gradient(ValueId id, const Type &forward, const Type &gradient,
                               AxisSet local) {
  ValueId of = program_.values[id].grad_of;
  AxisSet wrong = not_dual(forward, gradient, local);
  if (state_.is_kept(of) && first_gradient(of) != id)
    wrong -= forward.replicated() - gradient.of(Kind::Partial); // summed since backward left it
  // What never met the data of other ranks may be an addend that is the same on all.
  for (AxisId axis : ((wrong & local) & forward.replicated()) - gradient.sharded())
    if (gradient.kind(axis) != Kind::Partial && !made_equal(program_, result_, id, axis))
      wrong -= axis;
  if (auto kept = kept_of_one_.find(of.index);
      kept != kept_of_one_.end() &&
      gradient.mesh() == program_.types[result_.types[of.index]].mesh())
    wrong |= kept->second & forward.replicated() &
             ((gradient.replicated() | gradient.of(Kind::Invariant)) - gradient.zero());
  return wrong;
}

// True if a gradient was judged that is known as this one is, and so is its value, and all that was to
// say is its scale; that is reported.
bool Walk::fits(Place place, ValueId id) {
  using Pair = PlaceCache::Pair;
  if (!state_.caches || undecided_.any() || place.form != Place::Form::Inst)
    return false;
  ValueId of = program_.values[id].grad_of;
  if (kept_of_one_.count(of.index))
    return false;
  uint32_t at = place_cache_.pairs.number(
      {state_.number(of), state_.number(id), program_.insts[place.as_inst()].context.index});
  if (at >= place_cache_.pair.size())
    place_cache_.pair.resize(at + 1);
  Pair pair = place_cache_.pair[at];
  if (pair == Pair::Free)
    return true;
  if (pair != Pair::Fits && (pair != Pair::Varies || !never_summed(id).empty()))
    return false;
  const Type forward = program_.types[result_.types[of.index]];
  gradient_scale(place, id, forward, program_.types[result_.types[id.index]]);
  return true;
}

void Walk::note_pair(Place place, ValueId id, PlaceCache::Pair pair) {
  if (!state_.caches || undecided_.any() || place.form != Place::Form::Inst)
    return;
  ValueId of = program_.values[id].grad_of;
  const Type &value = program_.types[result_.types[of.index]];
  bool same_mesh = value.mesh() == program_.types[result_.types[id.index]].mesh();
  uint32_t at = place_cache_.pairs.number(
      {state_.number(of), state_.number(id), program_.insts[place.as_inst()].context.index});
  if (at >= place_cache_.pair.size())
    place_cache_.pair.resize(at + 1);
  place_cache_.pair[at] = same_mesh ? pair : PlaceCache::Pair::Ask;
}

// The gradient is unknown on the axes where it is refused. `told`: the instruction has a finding
// already, from which this one would follow.
void Walk::joint(Place place, ValueId id, bool told) {
  const ir::Value &value = program_.values[id];
  if (!value.grad_of.valid() || !result_.types[value.grad_of.index].valid())
    return;
  if (!told && fits(place, id))
    return;
  using Pair = PlaceCache::Pair;
  Type gradient = program_.types[result_.types[id.index]];
  Type forward = program_.types[result_.types[value.grad_of.index]];
  if (forward.mesh() != gradient.mesh()) {
    rules::Remeshed seen = rules::remesh(program_, forward, gradient.mesh(), {0});
    if (seen.violation)
      return;
    forward = seen.type;
  }
  if (forward.gradient_free())
    return note_pair(place, id, Pair::Free);
  ir::ContextId context =
      place.form == Place::Form::Inst ? program_.insts[place.as_inst()].context : ir::ContextId{0};
  AxisSet local = state_.local_axes(gradient.mesh(), context);
  if (undecided_.recording())
    undecided_.gradient(place, id, forward, gradient, [&](const Type &value) {
      return refused_gradient(id, value, gradient, local);
    });
  AxisSet wrong = refused_gradient(id, forward, gradient, local);
  AxisSet addends = never_summed(id) & gradient.of(Kind::Varying) & forward.of(Kind::Varying);
  if (wrong.empty() && addends) {
    wrong = addends;
    gradient.set_kind(wrong, Kind::Partial);
  }
  if (wrong) {
    if (!told)
      state_.report(place, rules::GradientTypeMismatch{
                               value.grad_of, state_.intern(rules::restricted(gradient, wrong)),
                               state_.intern(dual_on(forward, wrong)), wrong});
    gradient.drop_shards(wrong);
    gradient.set_unknown(wrong);
    state_.learn_type(id, state_.intern(gradient));
    return;
  }
  if (told)
    return;
  rules::Arg of = state_.known(value.grad_of), found = state_.known(id);
  if (of.shape != found.shape || of.sizes != found.sizes) {
    std::string what =
        "the shapes of " + ir::print_value(program_, value.grad_of) + " and of its gradient";
    if (std::optional<rules::Violation> differs =
            rules::value_shape_differs(program_, what, of, found))
      return state_.report(place, std::move(*differs)),
             gradient_scale(place, id, forward, gradient);
  }
  bool dual = not_dual(forward, gradient, local).empty();
  AxisSet varying = gradient.of(Kind::Varying) & forward.of(Kind::Varying);
  note_pair(place, id, dual ? varying ? Pair::Varies : Pair::Fits : Pair::Ask);
  gradient_scale(place, id, forward, gradient);
}

// Gradients of one root carry its scale: that of a value times that of its gradient is the same for
// all. The root is that of `backward`, the loss, or else what the first gradient tells. A body does not
// know its root.
void Walk::gradient_scale(Place place, ValueId id, const Type &forward, Type gradient) {
  ValueId of = program_.values[id].grad_of;
  bool reduced = state_.is_kept(of) && first_gradient(of) != id; // perhaps by an average
  bool in_body = place.form == Place::Form::Inst && (place.index < program_.main.first.index ||
                                                     place.index >= program_.main.last.index);
  if (reduced || in_body || !forward.scale.valid() || !gradient.scale.valid())
    return;
  gradient.unknown |= forward.unknown;
  ValueId root = boundary_.root_of(place);
  bool known = root.valid() && result_.types[root.index].valid();
  if (!known && !gradient_scale_.valid()) {
    if (gradient.unknown.empty())
      gradient_scale_ = ir::product(program_, forward.scale, gradient.scale);
    return;
  }
  ir::ScaleId whole = gradient_scale_;
  if (known) {
    const Type &type = root_type(root);
    whole = type.mesh() == gradient.mesh() || type.unknown.empty() ? type.scale : ir::ScaleId();
    if (type.mesh() == gradient.mesh())
      gradient.unknown |= type.unknown;
  }
  if (!whole.valid())
    return;
  ir::ScaleId needed = ir::quotient(program_, whole, forward.scale);
  if (gradient.scale == needed)
    return;
  std::string other = known ? ir::print_value(program_, root) + " has " +
                                  ir::print_scale(program_, whole, gradient.mesh()) + " and "
                            : "";
  other += ir::print_value(program_, of) + " has " +
           ir::print_scale(program_, forward.scale, gradient.mesh()) + ": " +
           ir::print_scale(program_, needed, gradient.mesh()) + " is needed";
  std::optional<rules::Violation> differs =
      rules::scale_differs(program_, gradient, needed, std::move(other), {}, id);
  if (!differs)
    return;
  state_.report(place, std::move(*differs));
  Type mended = program_.types[result_.types[id.index]];
  mended.scale = needed;
  state_.learn_type(id, state_.intern(mended));
}

// Declared values that are gradients of what is made later. Told among the declarations.
void Walk::late_gradients(size_t position) {
  size_t before = state_.trail->entries.size();
  for (uint32_t i = 0; i < program_.params.size(); ++i)
    joint({Place::Form::Param, i}, program_.params[i].value, false);
  auto at = [&](size_t entry) {
    return state_.trail->entries.begin() + static_cast<std::ptrdiff_t>(entry);
  };
  std::rotate(at(position), at(before), state_.trail->entries.end());
}

// What the optimizer reads is the sum. The axes on which it reads addends of the gradient of a
// parameter, of `param` if it is one; reported where the first of them is read.
AxisSet Walk::unreduced(Place place, llvm::ArrayRef<ValueId> read, ValueId param, AxisSet axes) {
  if (axes.empty())
    return {};
  state_.quiet = false;
  ValueId known = param.valid() ? parameter_behind(program_, param) : param;
  ValueId found = pending_gradient(program_, result_, read, known, axes);
  if (!found.valid())
    return {};
  AxisSet missing = axes & program_.types[result_.types[found.index]].replicated();
  AxisSet fresh = missing;
  if (!state_.edit) {
    AxisSet &told = unreduced_[found.index];
    fresh -= told;
    told |= missing;
  }
  if (fresh) {
    const auto *through = llvm::find_if(read, [&](ValueId operand) {
      return pending_gradient(program_, result_, operand, known, axes) == found;
    });
    auto position = static_cast<uint32_t>(through - read.begin());
    state_.report(place, rules::UnreducedGradient{found, {position}, fresh});
  }
  return missing;
}

// The new value of a parameter or buffer has the type of the old one.
void Walk::state_output(uint32_t index) {
  const ir::Output &out = program_.outputs[index];
  if (out.role != ir::OutputRole::State || !out.of.valid() || out.declared.valid())
    return;
  const Type &made = program_.types[result_.types[out.value.index]];
  ir::TypeId needed = result_.types[out.of.index];
  if (made.mesh() != program_.types[needed].mesh())
    return;
  AxisSet wrong = rules::check_claim(made, program_.types[needed], made.gradient_free()).mismatched;
  Place place{Place::Form::Output, index};
  wrong -= unreduced(place, out.value, out.of, wrong);
  if (wrong)
    state_.report(place,
                  rules::ClaimMismatch{out.value, result_.types[out.value.index], needed, wrong});
}

} // namespace spmd::checker
