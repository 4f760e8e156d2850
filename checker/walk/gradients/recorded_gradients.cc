// A gradient in the program is held against the dual of its value's type where it is made. What was
// never summed is followed to the outputs and to the writes of the optimizer.
#include "checker/walk/gradients/recorded_gradients.h"

#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"
#include "checker/walk/gradients/joint.h"

#include "rules/boundary/claims.h"
#include "rules/kinds/scale.h"
#include "rules/shapes/extent_facts.h"
#include "rules/shards/remesh.h"
#include "rules/violations/gradients.h"

#include "ir/mesh/axis_scale.h"
#include "ir/text/text.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

RecordedGradients::RecordedGradients(WalkState &state, GradientContracts &contracts,
                                     UndecidedKinds &undecided)
    : state_(state), program_(state.program), result_(state.result), contracts_(contracts),
      undecided_(undecided) {
  llvm::ArrayRef<ir::Value> values = program_.values.all();
  const auto note = [&](uint32_t i) {
    ValueId of = values[i].grad_of;
    if (!of.valid())
      return;
    if (first_gradients_.empty())
      first_gradients_.resize(values.size());
    if (ValueId &first = first_gradients_[of.index]; !first.valid())
      first = ValueId{i};
  };
  // What the step before has left comes after what this one makes.
  llvm::BitVector left(static_cast<unsigned>(values.size()));
  for (const ir::Param &param : program_.params)
    if (param.role == ir::Role::Buffer && values[param.value.index].grad_of.valid())
      left.set(param.value.index);
  for (uint32_t i = 0; i < values.size(); ++i)
    if (values[i].grad_of.valid() && !left.test(i))
      note(i);
  for (unsigned i : left.set_bits())
    note(i);
}

// Reported in their turn, after the types of all results.
void RecordedGradients::meet(InstId id, const ir::Inst &inst, bool transition) {
  for (uint32_t i = 0; i < inst.result_count; ++i)
    if (program_.values[inst.result(i)].grad_of.valid())
      judge(Place::inst(id), inst.result(i), state_.was_reported(id));
  if (!state_.edit && transition)
    note_move(id);
}

// Remembers which value a transition made of which, where gradients of them may be met.
void RecordedGradients::note_move(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  if (first_gradients_.empty() || inst.result_count != 1)
    return;
  keeps_one(id);
  llvm::ArrayRef<ir::Operand> operands = program_.operand_lists[inst.operands];
  if (operands.size() == 1 && operands.front().is_value()) {
    moved_.try_emplace(operands.front().index, inst.first_result);
    return;
  }
  llvm::SmallVector<ValueId, 4> tensors = tensors_of(program_, id);
  if (tensors.size() == 1)
    moved_.try_emplace(tensors.front().index, inst.first_result);
}

// Of what is the same on all ranks a convert to a sum, or to one value for all, counts one: so its
// gradient is that of one rank and zeros. Marks what the operand is made of, on the axes.
void RecordedGradients::keeps_one(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  if (!is_forward(inst) || state_.rules.resolve(inst.op).transition != rules::TransitionOp::Convert)
    return;
  llvm::SmallVector<ValueId, 4> tensors = tensors_of(program_, id);
  if (tensors.size() != 1)
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
AxisSet RecordedGradients::never_summed(ValueId id) {
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
             (state_.rules.resolve(program_.insts[inst].op).form != rules::OpForm::Transition ||
              !runs_over(program_, inst, axis)) &&
             result_.types[operand.index].valid() && type(operand).of(Kind::Varying).contains(axis);
    };
    if (search(program_, id, follow, [&](ValueId value) { return value == first; }).valid())
      found |= axis;
  }
  return found;
}

// The axes on which a value of this type has no such gradient.
AxisSet RecordedGradients::refused_gradient(ValueId id, const Type &forward, const Type &gradient,
                                            AxisSet local) {
  ValueId of = program_.values[id].grad_of;
  AxisSet wrong = not_dual(forward, gradient, local);
  if (state_.is_persistent(of) && first_gradient(of) != id)
    wrong -= forward.replicated() - gradient.of(Kind::Partial); // summed since backward left it
  // What never met the data of other ranks may be an addend that is the same on all.
  for (AxisId axis : ((wrong & local) & forward.replicated()) - gradient.sharded())
    if (gradient.kind(axis) != Kind::Partial && !equal_by_collective(program_, result_, id, axis))
      wrong -= axis;
  if (auto kept = kept_of_one_.find(of.index);
      kept != kept_of_one_.end() &&
      gradient.mesh() == program_.types[result_.types[of.index]].mesh())
    wrong |= kept->second & forward.replicated() & (gradient.same_on_all_ranks() - gradient.zero());
  return wrong;
}

// The gradient is unknown on the axes where it is refused. `reported`: the instruction has a
// finding already, from which this one would follow.
void RecordedGradients::judge(Place place, ValueId id, bool reported) {
  const ir::Value &value = program_.values[id];
  if (!value.grad_of.valid() || !result_.types[value.grad_of.index].valid())
    return;
  Type gradient = program_.types[result_.types[id.index]];
  Type forward = program_.types[result_.types[value.grad_of.index]];
  if (forward.mesh() != gradient.mesh()) {
    rules::Remeshed seen = rules::remesh(program_, forward, gradient.mesh(), {0});
    if (seen.violation)
      return;
    forward = seen.type;
  }
  if (forward.gradient_free())
    return;
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
    if (!reported)
      state_.report(place, rules::GradientTypeMismatch{
                               value.grad_of, state_.intern(rules::restricted(gradient, wrong)),
                               state_.intern(dual_on(forward, wrong)), wrong});
    gradient.drop_shards(wrong);
    gradient.set_unknown(wrong);
    state_.learn_type(id, state_.intern(gradient));
    return;
  }
  if (reported)
    return;
  rules::TensorInfo of = state_.known(value.grad_of), found = state_.known(id);
  if (of.shape != found.shape || of.sizes != found.sizes) {
    std::string what =
        "the shapes of " + ir::print_value(program_, value.grad_of) + " and of its gradient";
    if (std::optional<rules::Violation> differs =
            rules::value_shape_differs(program_, what, of, found))
      return state_.report(place, std::move(*differs)), judge_scale(place, id, forward, gradient);
  }
  judge_scale(place, id, forward, gradient);
}

// Where all ranks add to their own losses what they have in common, its gradient is equal on all,
// once for each of them: an addend of the sum that is needed, and that of one device.
bool RecordedGradients::is_one_of_equal(const Type &root, ValueId of, const Type &forward,
                                        const Type &gradient, ir::ScaleId needed) const {
  const ir::ScaleId times = ir::quotient(program_, needed, gradient.scale);
  if (program_.mode != ir::Mode::Gradual || program_.find_param(of) || !times.valid() ||
      root.mesh() != gradient.mesh() || forward.mesh() != gradient.mesh())
    return false;
  const ir::AxisSet axes = ir::axes_in(program_, times, gradient.mesh());
  return times == ir::axes_scale(program_, gradient.mesh(), axes) &&
         (forward.same_on_all_ranks() & gradient.same_on_all_ranks() & root.of(ir::Kind::Partial))
             .contains(axes);
}

// Gradients of one root carry its scale: that of a value times that of its gradient is the same for
// all. The root is that of `backward`, the loss, or else what the first gradient tells. A body does
// not know its root.
void RecordedGradients::judge_scale(Place place, ValueId id, const Type &forward, Type gradient) {
  ValueId of = program_.values[id].grad_of;
  bool reduced = state_.is_persistent(of) && first_gradient(of) != id; // perhaps by an average
  bool in_body = place.form == Place::Form::Inst && (place.index < program_.main.first.index ||
                                                     place.index >= program_.main.last.index);
  if (reduced || in_body || !forward.scale.valid() || !gradient.scale.valid())
    return;
  if (state_.inference && place.form == Place::Form::Inst && !state_.is_persistent(of) &&
      state_.inference->may_be_scaled_later(place.as_inst()))
    return;
  gradient.unknown |= forward.unknown;
  ValueId root = contracts_.boundary().root_of(place);
  bool known = root.valid() && result_.types[root.index].valid();
  if (!known && !gradient_scale_.valid()) {
    if (gradient.unknown.empty())
      gradient_scale_ = ir::product(program_, forward.scale, gradient.scale);
    return;
  }
  ir::ScaleId whole = gradient_scale_;
  if (known) {
    const Type &type = contracts_.root_type(root);
    whole = type.mesh() == gradient.mesh() || type.unknown.empty() ? type.scale : ir::ScaleId();
    if (type.mesh() == gradient.mesh())
      gradient.unknown |= type.unknown;
  }
  if (!whole.valid())
    return;
  ir::ScaleId needed = ir::quotient(program_, whole, forward.scale);
  // A backward by hand may average over ranks what the optimizer is to read.
  if (program_.mode == ir::Mode::Gradual && state_.is_persistent(of) &&
      gradient.scale == program_.one())
    return;
  if (gradient.scale == needed ||
      (known && is_one_of_equal(contracts_.root_type(root), of, forward, gradient, needed)))
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

// Declared values that are gradients of what is made later. Reported among the declarations.
void RecordedGradients::judge_declared(size_t position) {
  size_t before = state_.body_result->entries.size();
  for (uint32_t i = 0; i < program_.params.size(); ++i)
    judge({Place::Form::Param, i}, program_.params[i].value, false);
  auto at = [&](size_t entry) {
    return state_.body_result->entries.begin() + static_cast<std::ptrdiff_t>(entry);
  };
  std::rotate(at(position), at(before), state_.body_result->entries.end());
}

// What the optimizer reads is the sum. The axes on which it reads addends of the gradient of a
// parameter, of `param` if it is one; reported where the first of them is read.
AxisSet RecordedGradients::unreduced(Place place, llvm::ArrayRef<ValueId> read, ValueId param,
                                     AxisSet axes) {
  if (axes.empty())
    return {};
  ValueId known = param.valid() ? parameter_behind(program_, param) : param;
  ValueId found = pending_gradient(program_, result_, read, known, axes);
  if (!found.valid())
    return {};
  AxisSet missing = axes & program_.types[result_.types[found.index]].replicated();
  AxisSet fresh = missing;
  if (!state_.edit) {
    AxisSet &reported = unreduced_[found.index];
    fresh -= reported;
    reported |= missing;
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

} // namespace spmd::checker
