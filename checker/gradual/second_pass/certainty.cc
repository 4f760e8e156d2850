// A finding is certain if it does not depend on what is unknown of the operands.
#include "checker/gradual/second_pass/certainty.h"

#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/apply.h"
#include "rules/transitions/call.h"
#include "rules/violations/claims.h"
#include "rules/violations/diagnostic_info.h"
#include "rules/violations/gradients.h"
#include "rules/violations/local.h"
#include "rules/violations/operands.h"
#include "rules/violations/shards.h"
#include "rules/violations/steps/edges.h"
#include "rules/violations/steps/positions.h"
#include "rules/violations/steps/rings.h"
#include "rules/violations/transitions.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using rules::Computes;

bool Certainty::admits(Place place, rules::Violation &violation) {
  const bool inst = place.form == Place::Form::Inst;
  // What is written to is a rank's own, as the operands are.
  if (inst && violation.is<rules::MutationChangesType>() &&
      parts_.experts.facts().seen_whole().contains(rules::axes_of(violation)))
    return false;
  // An addend may go round, and meet those of all other ranks.
  if (inst && violation.is<rules::WrongSource>() && !parts_.rings.facts().results.empty())
    return false;
  // What is exchanged by counts is as long as these say.
  if (inst && violation.is<rules::ShapeMismatch>() && parts_.experts.facts().counted)
    return false;
  if (certain(place, violation) && !again_in_optimizer(place, violation)) {
    if (inst)
      now_.reported |= rules::axes_of(violation);
    return true;
  }
  if (inst)
    now_.open |= rules::axes_of(violation) - moved(place.as_inst()) - now_.parts;
  now_.scale_open |= violation.is<rules::ScaleMismatch>();
  if (const auto *whole = violation.as<rules::UnwholeDimension>(); whole && inst)
    if (const rules::OpDef *row = state_.rules.resolve(program_.insts[place.as_inst()].op).row;
        row && !row->factors)
      now_.own |= whole->axes;
  return false;
}

// The axes of which it is known where each cut goes in what an instruction moves: a rule that asks
// for a whole dimension does not know of cuts inside of it, as of the heads in a fused qkv.
AxisSet Certainty::moved(InstId id) const {
  const ir::Inst &inst = program_.insts[id];
  const rules::OpDef *row = state_.rules.resolve(inst.op).row;
  if (!row || !row->factors || inst.result_count == 0 ||
      !moves_elements(state_.rules.resolve(inst.op)))
    return {};
  AxisSet axes;
  for (AxisId axis : program_.meshes[program_.contexts[inst.context].mesh].typed_axes()) {
    auto known = [&](ValueId value) { return gradual_.cuts().dim(value, axis).has_value(); };
    // An operand that another dimension of is cut is not what that knowledge is of.
    bool all = llvm::all_of(state_.operands.values, [&](ValueId value) {
      const std::optional<unsigned> dim = program_.types[result_.types[value.index]].dim(axis);
      return known(value) && (!dim || dim == gradual_.cuts().dim(value, axis));
    });
    for (uint32_t r = 0; r < inst.result_count; ++r)
      all = all && known(inst.result(r));
    if (all)
      axes |= axis;
  }
  return axes;
}

// Zeros may be added to anything, and leave a pending sum where they overwrite rows of one. A
// gradient of zeros is that of any kind, at any scale.
bool Certainty::is_of_zeros(Place place, const rules::Violation &violation) const {
  if (place.form != Place::Form::Inst)
    return false;
  auto zero = [&](ir::TypeId type) { // none before it is judged
    return type.valid() && program_.types[type].zero().contains(rules::axes_of(violation));
  };
  auto zero_operand = [&](rules::OperandIndex operand) {
    return operand.index < state_.args.size() && zero(state_.args[operand.index].type);
  };
  if (const auto *added = violation.as<rules::PartialPlusReplicate>())
    return zero_operand(added->addend.operand);
  if (const auto *mixed = violation.as<rules::PartialWithVarying>())
    return zero_operand(mixed->operand);
  if (!violation.is<rules::GradientTypeMismatch>() && !violation.is<rules::ScaleMismatch>())
    return false;
  const ir::Inst &inst = program_.insts[place.as_inst()];
  for (uint32_t r = 0; r < inst.result_count; ++r)
    if (program_.values[inst.result(r)].grad_of.valid() &&
        zero(result_.types[inst.result(r).index]))
      return true;
  return false;
}

// What the step starts from, and is no block that anybody knows, may be a rank's addend, such as
// what was left of a gradient that was compressed.
bool Certainty::meets_kept_addend(Place place, const rules::Violation &violation) const {
  if (place.form != Place::Form::Inst || !violation.is<rules::PartialWithVarying>())
    return false;
  return llvm::any_of(state_.operands.values, [&](ValueId operand) {
    const ir::Param *param = program_.find_param(operand);
    const Type &type = program_.types[result_.types[operand.index]];
    return param && param->role != ir::Role::Param &&
           ((type.of(Kind::Varying) - type.sharded()) & rules::axes_of(violation));
  });
}

bool Certainty::certain(Place place, rules::Violation &violation) {
  if (is_of_zeros(place, violation) || meets_kept_addend(place, violation) ||
      parts_.weights.explain(place, violation))
    return false;
  // The gradient of a loss that all ranks share is what each has, or an addend of as many.
  if (violation.is<rules::PartialWithVarying>() && place.form == Place::Form::Inst &&
      llvm::any_of(tensors_of(program_, place.as_inst()),
                   [&](ValueId value) { return parts_.gradients.is_shared(value); }))
    return false;
  if (steps_inside(place, violation))
    return false;
  return gradual_.certain(place, violation, open_at(place, violation));
}

// The sum of a derivative over a rank's rows is an addend, and a number of its own as well, such as
// the inner step of a rank's own task, with which the forward goes on.
bool Certainty::steps_inside(Place place, const rules::Violation &violation) const {
  if (place.form != Place::Form::Inst)
    return false;
  const AxisSet axes = rules::axes_of(violation);
  auto sums = [&](ValueId value) {
    if (!value.valid() || !gradual_.of_derivative(value))
      return false;
    const Type &type = program_.types[result_.types[value.index]];
    return bool((type.of(Kind::Partial) | type.unknown) & axes);
  };
  if (violation.is<rules::PartialWithVarying>())
    return llvm::any_of(state_.operands.values, sums);
  const ir::Inst &inst = program_.insts[place.as_inst()];
  if (violation.is<rules::GradientTypeMismatch>())
    for (uint32_t r = 0; r < inst.result_count; ++r)
      if (sums(program_.values[inst.result(r)].grad_of))
        return true;
  return false;
}

// That each rank has an addend is a guess as well, unless it is of a gradient, of which one is
// picked: a gradient that an optimizer takes is pending, whatever is unknown of what it is made of.
AxisSet Certainty::open_addends(const ir::Inst &inst, const rules::Violation &violation) const {
  AxisSet open;
  const auto *source = violation.as<rules::WrongSource>();
  const bool compares = violation.is<rules::ReductionMismatch>();
  if (!compares && !(source && source->found.kind == Kind::Partial))
    return open;
  const bool picks =
      compares || state_.rules.resolve(inst.op).transition == rules::TransitionOp::Broadcast;
  if (picks)
    open = parts_.one_rank.axes(); // the others have zeros
  for (ValueId value : state_.operands.values)
    if (!picks || is_forward(inst))
      open |= ~result_.proved[value.index];
  return open;
}

// The operands of the forward instruction that one of the backward belongs to.
llvm::SmallVector<ValueId, 4> Certainty::forward_operands(const ir::Inst &inst) const {
  const InstId forward = inst.bwd_of.valid() ? defining_inst(program_, inst.bwd_of) : ir::InstId();
  return forward.valid() ? tensors_of(program_, forward) : llvm::SmallVector<ValueId, 4>();
}

// The axes on which a gradient may be right, although it is of another type than its value.
AxisSet Certainty::open_gradient(const rules::GradientTypeMismatch &mismatch) const {
  const Type &found = program_.types[mismatch.found];
  // What a rank adds up over its rows is all that its own parameter gets.
  AxisSet open = parts_.experts.owned(mismatch.value) & found.of(Kind::Partial);
  const ir::TypeId of = mismatch.value.valid() ? result_.types[mismatch.value.index] : ir::TypeId();
  for (AxisId axis : of.valid() ? program_.types[of].sharded() : AxisSet()) {
    // What is equal on all ranks may be the gradient of what is cut in no dimension that is known.
    const std::optional<Origin> origin = gradual_.cuts().origin(mismatch.value, axis);
    if (origin ? *origin != Origin::Stated : !found.sharded().contains(axis))
      open |= axis;
    if (gradual_.cuts().is_of_repeated(mismatch.value, *program_.types[of].dim(axis), axis))
      open |= axis;
  }
  return open;
}

// The axes on which something that a finding depends on is not known.
AxisSet Certainty::open_at(Place place, rules::Violation &violation) {
  AxisSet open;
  // Whose blocks these are is known, whatever else is not; so is a number that was seen to differ,
  // and so are the counts of the ranks.
  if (violation.info().needs_no_types ||
      (violation.is<rules::MisplacedEdge>() && parts_.edges.gradient().misplaced))
    return open;
  // What has no word yet may be of the kind that the step takes; a part of an addend is none.
  if (const auto *step = violation.as<rules::NoTransition>();
      step && step->src.kind != Kind::Partial)
    return ~AxisSet();
  // What is printed or logged goes no further.
  if (place.form == Place::Form::Inst)
    if (state_.rules.resolve(program_.insts[place.as_inst()].op).computes(Computes::Item))
      open = ~AxisSet();
  auto add = [&](ir::TypeId id, AxisSet roots = {}) {
    if (id.valid())
      open |= program_.types[id].unknown |
              (program_.types[id].of(Kind::Varying) - program_.types[id].sharded() - roots);
  };
  if (place.form == Place::Form::Inst)
    for (size_t i = 0; i < state_.args.size(); ++i)
      add(state_.args[i].type, i < state_.operands.values.size()
                                   ? parts_.norms.roots(state_.operands.values[i]) |
                                         parts_.lookups.axes(state_.operands.values[i]) |
                                         parts_.edges.axes(state_.operands.values[i]) |
                                         parts_.own_counts.logs(state_.operands.values[i])
                                   : AxisSet());
  if (place.form == Place::Form::Inst &&
      (violation.is<rules::PartialIntoNonlinear>() || violation.is<rules::PartialTimesPartial>()))
    for (ValueId value : state_.operands.values)
      open |= parts_.one_rank.on_one_rank(value);
  if (const ValueId *value = violation.value(); value && value->valid())
    add(result_.types[value->index], parts_.experts.owned(*value));
  // What is stated as unknown is of the kind that follows, whatever cut was assumed of it.
  if (const auto *claim = violation.as<rules::ClaimMismatch>(); claim && claim->value.valid())
    open |= gradual_.assumed_cuts(claim->value);
  // A gradient that is the rank's own, or that of a block which was inferred, may be right.
  if (const auto *mismatch = violation.as<rules::GradientTypeMismatch>()) {
    add(mismatch->found);
    open |= open_gradient(*mismatch);
  }
  // Where a rank has data of its own, which it does not by an index of its own, the scale is a
  // guess.
  if (violation.is<rules::ScaleMismatch>()) {
    open |= parts_.doubts.open(place, violation);
    for (ValueId value : state_.operands.values)
      if (place.form == Place::Form::Inst)
        open |= ~result_.scaled[value.index];
    if (const ValueId *value = violation.value(); value && value->valid())
      open |= ~result_.scaled[value->index];
    // So it is of a gradient where something else that the forward added was not known.
    if (place.form == Place::Form::Inst)
      for (ValueId value : forward_operands(program_.insts[place.as_inst()]))
        add(result_.types[value.index]);
  }
  if (place.form == Place::Form::Inst)
    open |= open_addends(program_.insts[place.as_inst()], violation);
  // What is equal on all ranks may be handed on, as the first block of a pipeline is.
  if (violation.is<rules::WrongSource>() && place.form == Place::Form::Inst &&
      state_.rules.resolve(program_.insts[place.as_inst()].op).transition ==
          rules::TransitionOp::CollectivePermute)
    for (const rules::TensorInfo &arg : state_.args)
      open |= program_.types[arg.type].replicated() | program_.types[arg.type].either();
  // Counts and positions of its own are what a rank may need them for.
  if (const rules::OperandIndex *operand = violation.operand();
      operand && !violation.is<rules::RepeatedPositions>() &&
      !violation.is<rules::RepeatedDraws>() && !violation.is<rules::MissingEdge>() &&
      !violation.is<rules::ShiftedBlock>() && place.form == Place::Form::Inst &&
      operand->index < state_.args.size()) {
    ir::ShapeId shape = state_.args[operand->index].shape;
    if (shape.valid() && program_.shapes[shape].dtype != ir::DType::Unknown &&
        !ir::differentiable(program_.shapes[shape].dtype))
      open = ~AxisSet();
  }
  return open;
}

// The optimizer reads a gradient that is pending more than once.
bool Certainty::again_in_optimizer(Place place, rules::Violation &violation) {
  const auto *unreduced = violation.as<rules::UnreducedGradient>();
  const rules::OperandIndex *operand = unreduced ? &unreduced->gradient : violation.operand();
  if (place.form != Place::Form::Inst || !operand ||
      operand->index >= state_.operands.values.size() ||
      program_.insts[place.as_inst()].phase != ir::Phase::Optimizer)
    return false;
  const ValueId value = state_.operands.values[operand->index];
  if ((program_.types[state_.args[operand->index].type].of(Kind::Partial) &
       rules::axes_of(violation))
          .empty())
    return false;
  Place &first = first_pending_.try_emplace(value.index, place).first->second;
  return first != place && !unreduced;
}

} // namespace spmd::checker
