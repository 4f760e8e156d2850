// The two passes, and what one tells the other.
#include "checker/gradual/gradual.h"

#include "checker/gradual/blocks/numbering.h"
#include "checker/gradual/inference.h"
#include "checker/gradual/micro_batches/micro_batches.h"
#include "checker/gradual/step/accumulation.h"
#include "checker/gradual/step/counted_norms.h"
#include "checker/gradual/step/expert_gradients.h"
#include "checker/gradual/step/owned_norms.h"
#include "checker/gradual/step/repeated_gradients.h"
#include "checker/gradual/step/returned.h"
#include "checker/gradual/step/unread.h"
#include "checker/gradual/step/unseen_collectives.h"
#include "checker/operand_list.h"
#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"
#include "checker/walk/suppress.h"
#include "checker/walk/walk.h"

#include "rules/bind.h"
#include "rules/boundary/claims.h"
#include "rules/ops/registry.h"
#include "rules/transitions/call.h"
#include "rules/violations/claims.h"
#include "rules/violations/coverage.h"
#include "rules/violations/gradients.h"
#include "rules/violations/local.h"
#include "rules/violations/meshes.h"
#include "rules/violations/transitions.h"

#include "ir/mesh/symbols.h"
#include "ir/support/product.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/Sequence.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::Type;
using ir::ValueId;

namespace {

CheckResult judged_by_kinds(ir::Program &program, const CheckOptions &options) {
  program.mode = ir::Mode::Local;
  program.axis_scales = {}; // a check before this one has made them for whole tensors
  CheckResult result;
  Walk(program, options, result).run();
  // On one device the axes of whole tensors are axes, and their sizes count.
  program.mode = ir::Mode::Gradual;
  program.axis_scales = {};
  return result;
}

} // namespace

Gradual::Gradual(ir::Program &program, const CheckOptions &options,
                 AxisSizeNumbers::Reading numbers)
    : program_(program), copies_(program), first_(judged_by_kinds(program, options)),
      cuts_(program, first_), numbers_(program, first_, numbers), pieces_(program, first_),
      updates_(program) {
  for (const Finding &finding : first_.findings)
    reported_.insert(
        {static_cast<unsigned>(finding.place.form), finding.place.index, finding.info().name});
  copies_.find_updated_equally(program, first_, cuts_);
  find_broadcast();
  state_cuts();
  find_derivatives();
}

// What begins with ones in the place of the gradient of a number, ahead of any backward: autograd
// knows nothing of them, and of all that is made of them.
void Gradual::find_derivatives() {
  rules::Rules rules(program_);
  OperandList operands;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst inst = program_.insts[ir::InstId{i}];
    for (uint32_t r = 0; r < inst.result_count; ++r) // views, in the backward as well
      if (const ValueId of = program_.values[inst.result(r)].alias_of;
          of.valid() && derivatives_.count(of.index))
        derivatives_.insert(inst.result(r).index);
    if (!is_forward(inst) || inst.result_count == 0)
      continue;
    operands.read(program_, inst.operands);
    const rules::OpDef *row = rules.resolve(inst.op).row;
    const ir::Value &made = program_.values[inst.first_result];
    const bool begins = row && row->constant != rules::OpDef::Constant::No &&
                        operands.values.size() == 1 && program_.contexts[inst.context].grad &&
                        made.requires_grad == ir::Tristate::False && made.shape.valid() &&
                        program_.shapes[made.shape].dims.empty();
    if (begins ||
        llvm::any_of(operands.values, [&](ValueId v) { return derivatives_.count(v.index) != 0; }))
      for (uint32_t r = 0; r < inst.result_count; ++r)
        derivatives_.insert(inst.result(r).index);
  }
}

// A number that is stretched over a dimension, or made there, is a block of it as well as the
// whole, and so is what is computed of nothing else that has the dimension. Numbers that are
// counted up are not.
void Gradual::find_broadcast() {
  rules::Rules rules(program_);
  OperandList operands;
  llvm::DenseSet<uint32_t> some;  // values that are constant along any
  llvm::DenseSet<uint32_t> again; // what a backward makes of one value of the forward
  const CutPositions &positions = cuts_.positions();
  for (uint32_t i = 0; i < program_.insts.size(); ++i) {
    const ir::Inst inst = program_.insts[ir::InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    const bool makes = op.row && (op.row->constant != rules::OpDef::Constant::No ||
                                  op.row->equation.equation.has_generator);
    const bool repeats = stretches(op.row);
    operands.read(program_, inst.operands);
    // A backward takes values of the forward in other shapes. What it makes of gradients is no
    // number that was stretched.
    const auto is_ahead = [&](ValueId value) {
      const ir::InstId by = defining_inst(program_, value);
      return !by.valid() || is_forward(program_.insts[by]) || again.count(value.index) != 0;
    };
    const bool is_again =
        !is_forward(inst) && operands.values.size() == 1 && is_ahead(operands.values[0]);
    for (uint32_t r = 0; r < inst.result_count && is_again; ++r)
      again.insert(inst.result(r).index);
    if (!makes && !repeats &&
        (!(is_forward(inst) || is_again) || llvm::none_of(operands.values, [&](ValueId value) {
          return some.count(value.index) != 0;
        })))
      continue;
    // Of the operands that have the dimension: whether all are constant along it; none: there are
    // none.
    auto constant = [&](CutPositions::Class cls) -> std::optional<bool> {
      std::optional<bool> all;
      for (ValueId value : operands.values)
        for (const CutPositions::Found &each : positions.of(value))
          if (each.cls == cls)
            all = all.value_or(true) && broadcast_dims_.count({value.index, cls}) != 0;
      return all;
    };
    for (uint32_t r = 0; r < inst.result_count; ++r)
      for (const CutPositions::Found &each : positions.of(inst.result(r)))
        if (makes || constant(each.cls).value_or(repeats)) {
          broadcast_dims_.insert({inst.result(r).index, each.cls});
          some.insert(inst.result(r).index);
        }
  }
}

bool Gradual::is_broadcast_along(ValueId value, unsigned dim) const {
  return llvm::any_of(cuts_.positions().of(value), [&](const CutPositions::Found &each) {
    return each.at.dim == dim && broadcast_dims_.count({value.index, each.cls}) != 0;
  });
}

// The axes of which a number is stretched over as many rows as each rank has of a dimension that
// they cut: however many that is, it is a block.
AxisSet Gradual::blocks_of_number(const ir::Inst &inst, ValueId value, AxisSet cut) const {
  const rules::ResolvedOp op = rules::resolve_op(program_, inst.op);
  AxisSet blocks;
  for (AxisId axis : op.row &&op.row->factors == rules::expand_factors ? cut : AxisSet())
    if (const std::optional<unsigned> dim = cuts_.dim(value, axis);
        dim && is_broadcast_along(value, *dim))
      blocks |= axis;
  return blocks;
}

ir::TypeId Gradual::with_cuts(ir::TypeId declared, ValueId value) const {
  if (!declared.valid())
    return declared;
  Type type = program_.types[declared];
  const AxisSet open = (type.of(Kind::Varying) - type.sharded()) | type.unknown;
  for (AxisId axis : cuts_.in_order(value, open))
    if (std::optional<unsigned> dim = cuts_.dim(value, axis); dim && !cuts_.inside(value, axis))
      cut(type, axis, *dim);
  for (AxisId axis : type.same_on_all_ranks())
    if (cuts_.repeats(value, axis))
      cut(type, axis, 0);
  return program_.types.add(type);
}

// A parameter or its state that began as one number on all ranks.
void Gradual::assume_same(const ir::Param &param) {
  if (param.role != ir::Role::Param && param.role != ir::Role::OptState)
    return;
  ir::Value &value = program_.values[param.value];
  if (!value.declared.valid())
    return;
  Type type = program_.types[value.declared];
  const AxisSet loose = type.of(Kind::Varying) - type.sharded();
  for (AxisId axis : type.unknown | loose)
    if (type.unknown.contains(axis) || cuts_.has_drifted(param.value, axis))
      if (std::optional<Kind> kind = cuts_.same(param.value, axis))
        type.set_kind(axis, *kind);
  value.declared = program_.types.add(type);
}

void Gradual::state_cuts() {
  for (ir::Param &param : program_.params) {
    const Type &first = program_.types[first_.types[param.value.index]];
    for (AxisId axis : first.of(Kind::Varying) | first.unknown)
      if (cuts_.origin(param.value, axis).value_or(Origin::Inferred) != Origin::Stated)
        inferred_ |= axis;
    ir::Value &value = program_.values[param.value];
    stated_.push_back(value.declared);
    value.declared = with_cuts(value.declared, param.value);
    assume_same(param);
    for (ir::ClaimId *id : {&param.grad.grad, &param.grad.step})
      if (id->valid()) {
        ir::Claim claim = program_.claims[*id];
        claim.type = with_cuts(claim.type, param.value);
        *id = program_.claims.add(claim);
      }
  }
  for (ir::Output &output : program_.outputs)
    output.declared = with_cuts(output.declared, output.of.valid() ? output.of : output.value);
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[ir::InstId{i}];
    for (uint32_t r = 0; r < inst.result_count; ++r) {
      ir::Value &value = program_.values[inst.result(r)];
      if (!value.declared.valid())
        continue;
      const ir::TypeId stated = value.declared;
      value.declared = with_cuts(stated, inst.result(r));
      const AxisSet cut = program_.types[stated].unknown - program_.types[value.declared].unknown;
      if (!cut)
        continue;
      assumed_cuts_[inst.result(r).index] = {cut, stated};
      Type type = program_.types[value.declared];
      type.clear(blocks_of_number(inst, inst.result(r), cut)); // the rule says what it is
      value.declared = program_.types.add(type);
    }
  }
}

void Gradual::restore() const {
  for (size_t p = 0; p < program_.params.size(); ++p)
    program_.values[program_.params[p].value].declared = stated_[p];
  for (const auto &[value, cut] : assumed_cuts_)
    program_.values[ValueId{value}].declared = cut.stated;
}

Type Gradual::known(ValueId value, Type type, AxisSet lost) const {
  ir::TypeId id = first_.types[value.index];
  if (!id.valid() || program_.types[id].mesh() != type.mesh())
    return type;
  const Type &first = program_.types[id];
  rules::take_kinds(type, first, lost & type.unknown);
  AxisSet blocks = type.of(Kind::Varying);
  for (AxisId axis : type.same_on_all_ranks())
    if (std::optional<unsigned> dim = cuts_.dim(value, axis);
        dim && is_broadcast_along(value, *dim))
      blocks |= axis; // equal blocks of one tensor
  for (AxisId axis : cuts_.in_order(value, blocks))
    if (std::optional<unsigned> dim = cuts_.dim(value, axis); dim && type.dim(axis) != dim) {
      type.drop_shards(axis);
      type.renumber_shard_orders();
      cut(type, axis, *dim);
    }
  return type;
}

bool Gradual::stands_on_inference(const Place &place, const rules::Violation &violation) const {
  return !reported_.count(
             {static_cast<unsigned>(place.form), place.index, violation.info().name}) &&
         (rules::axes_of(violation) & inferred_);
}

bool Gradual::only_restates(const rules::Application &app) {
  auto varies = [&](llvm::StringRef key) {
    const ir::AttrValue *word = app.attr(key);
    return word && word->form == ir::AttrForm::Kind && word->as_kind().kind == Kind::Varying;
  };
  return app.op.transition == rules::TransitionOp::Reinterpret && !app.args.empty() &&
         (varies("src") || varies("dst"));
}

// The instructions close behind one that take its first result.
static llvm::SmallVector<ir::InstId, 4> taken_close_behind(const ir::Program &program,
                                                           ir::InstId made) {
  constexpr uint32_t kClose = 8;
  const ValueId value = program.insts[made].first_result;
  const auto end = std::min<uint32_t>(made.index + 1 + kClose, program.insts.size());
  llvm::SmallVector<ir::InstId, 4> found;
  for (uint32_t i = made.index + 1; i < end; ++i)
    if (llvm::is_contained(tensors_of(program, ir::InstId{i}), value))
      found.push_back(ir::InstId{i});
  return found;
}

// Whether a list of addends is added up close behind.
static bool is_added_up(const ir::Program &program, ir::InstId made) {
  return llvm::any_of(taken_close_behind(program, made), [&](ir::InstId id) {
    return op_of(program, id).computes(rules::Computes::ReduceSum);
  });
}

// What lies side by side is not added up, and ranks that send their addends to each other, one
// after the other, may add them up themselves. What one rank has, or the greatest addend, may
// decide or tell something; a gradient it is not.
static bool keeps_addends_apart(const ir::Program &program, const Updates &updates,
                                const Place &place, const rules::Violation &violation) {
  const auto *source = violation.as<rules::WrongSource>();
  const bool sends = source && source->found.kind == Kind::Partial;
  const bool compares = violation.is<rules::ReductionMismatch>();
  if (place.form != Place::Form::Inst ||
      !(sends || compares || violation.is<rules::PartialPlusReplicate>()))
    return false;
  const rules::ResolvedOp op = op_of(program, place.as_inst());
  if (compares)
    return !updates.feeds_parameter(place.as_inst());
  // Addends that are brought together for a log, such as the losses of ranks, are added up there.
  if (sends && op.transition == rules::TransitionOp::AllGather)
    return updates.has_any() && !updates.feeds_parameter(place.as_inst());
  if (sends)
    return op.transition == rules::TransitionOp::Broadcast &&
           (!updates.feeds_parameter(place.as_inst()) ||
            updates.is_broadcast_by_each_owner(place.as_inst()));
  const bool lists =
      op.row && (op.row->factors == rules::cat_factors || op.row->factors == rules::stack_factors);
  return lists && !is_added_up(program, place.as_inst());
}

// Whether a value is made of whole numbers alone, in a few steps.
static bool is_of_counts(const ir::Program &program, ValueId value, unsigned steps = 6) {
  const ir::InstId by = defining_inst(program, value);
  if (!by.valid() || steps == 0 || op_of(program, by).form == rules::OpForm::Transition)
    return false;
  const ir::Inst &inst = program.insts[by];
  OperandList operands;
  operands.read(program, inst.operands);
  const auto is_part = [](const ir::AttrValue &number) {
    const double is = number_of(number).value_or(0);
    return is != std::floor(is);
  };
  for (llvm::StringRef name : {"s", "value", "fill_value"})
    if (const ir::AttrValue *number = program.find(inst.attrs, name); number && is_part(*number))
      return false;
  for (const rules::Slot &slot : operands.slots)
    if (slot.form == rules::Slot::Form::Literal && is_part(slot.literal))
      return false;
  const rules::OpDef *row = op_of(program, by).row;
  // Numbers that are drawn are a tensor as any other; `full_like` takes the shape of another one.
  const bool filled = row && row->constant != rules::OpDef::Constant::No;
  if (operands.values.empty() || filled)
    return filled;
  return llvm::all_of(operands.values,
                      [&](ValueId operand) { return is_of_counts(program, operand, steps - 1); });
}

// Whole numbers are counts when they are added up: ones those of the ranks, others how many things
// each of them has.
static bool adds_counts(const ir::Program &program, const Place &place,
                        const rules::Violation &violation) {
  if (place.form != Place::Form::Inst || !violation.is<rules::ReduceOfReplicated>())
    return false;
  return llvm::any_of(tensors_of(program, place.as_inst()), [&](ValueId value) {
    const ir::InstId by = defining_inst(program, value);
    const bool ones = by.valid() && op_of(program, by).variant() == rules::Variant::Ones;
    return ones || is_of_counts(program, value);
  });
}

// Where all ranks have one loss and each has divided it by their number, the transpose of a sum
// adds up equal gradients to that of the whole loss.
static bool adds_shares(const ir::Program &program, const Place &place,
                        const rules::Violation &violation) {
  if (place.form != Place::Form::Inst || !violation.is<rules::ReduceOfReplicated>() ||
      is_forward(program.insts[place.as_inst()]))
    return false;
  const ir::Mesh &mesh =
      program.meshes[program.contexts[program.insts[place.as_inst()].context].mesh];
  int64_t ranks = 1;
  for (ir::AxisId axis : rules::axes_of(violation))
    ranks = ir::saturating_product(ranks, ir::assumed_ranks(program, mesh[axis].size()));
  constexpr unsigned kSteps = 32; // between the loss and the first sum
  ir::InstId at = place.as_inst();
  for (unsigned step = 0; step < kSteps && at.valid() && !is_forward(program.insts[at]); ++step) {
    OperandList operands;
    operands.read(program, program.insts[at].operands);
    if (std::optional<double> factor = factor_of(op_of(program, at), operands))
      if (std::abs(*factor * double(ranks) - 1) < 1e-9)
        return true;
    const auto from = llvm::find_if(operands.values, [&](ValueId value) {
      const ir::InstId by = defining_inst(program, value);
      return by.valid() && !is_forward(program.insts[by]);
    });
    at = from == operands.values.end() ? ir::InstId() : defining_inst(program, *from);
  }
  return false;
}

// What a script keeps count of, and no parameter is made of, it may weigh and add up as it likes:
// what it has of it, nobody has declared.
static bool keeps_count(const Updates &updates, const Place &place,
                        const rules::Violation &violation) {
  if (place.form != Place::Form::Inst ||
      !(violation.is<rules::ScaleMismatch>() || violation.is<rules::PartialWithVarying>() ||
        violation.is<rules::PartialPlusReplicate>()))
    return false;
  return updates.is_tally(place.as_inst()) && !updates.feeds_parameter(place.as_inst());
}

// A sum of what differs along one axis over the ranks of another one too, which the script only
// reads to print it: it may divide by all of them there. `first`: what the first pass has found.
static bool sums_for_a_log(const ir::Program &program, const Updates &updates,
                           const CheckResult &first, const Place &place,
                           const rules::Violation &violation) {
  if (place.form != Place::Form::Inst || !violation.is<rules::ReduceOfReplicated>() ||
      !updates.has_any() || updates.feeds_parameter(place.as_inst()))
    return false;
  const ir::Inst &inst = program.insts[place.as_inst()];
  const bool left = llvm::any_of(program.outputs, [&](const ir::Output &output) {
    return inst.result_count != 0 && output.value == inst.first_result;
  });
  const bool adds = llvm::any_of(tensors_of(program, place.as_inst()), [&](ValueId value) {
    const Type &type = program.types[first.types[value.index]];
    return !(type.of(Kind::Varying) | type.of(Kind::Partial)).empty();
  });
  if (left || !adds)
    return false;
  return llvm::all_of(taken_close_behind(program, place.as_inst()), [&](ir::InstId id) {
    return op_of(program, id).computes(rules::Computes::Item);
  });
}

// Whether ranks write several parts, each at a place of its own, into what is stated to be equal,
// as a ring that gathers all blocks does: where each has written all parts, it is.
static bool is_put_together(const ir::Program &program, const CheckResult &first,
                            const Place &place, const rules::Violation &violation) {
  const auto *claim = violation.as<rules::ClaimMismatch>();
  if (!claim || place.form != Place::Form::Inst)
    return false;
  ValueId value = program.insts[place.as_inst()].first_result;
  constexpr unsigned kSteps = 8; // of views, and of writes
  unsigned writes = 0;
  for (unsigned step = 0; step < kSteps && value.valid() && writes < 2; ++step) {
    const ir::InstId by = defining_inst(program, value);
    const llvm::SmallVector<ValueId, 4> operands =
        by.valid() ? tensors_of(program, by) : llvm::SmallVector<ValueId, 4>();
    if (operands.empty())
      return false;
    const rules::ResolvedOp op = op_of(program, by);
    const bool writes_part = op.alias && op.alias->factors == rules::dynamic_update_slice_factors;
    const bool at_own_place = llvm::any_of(operands, [&](ValueId operand) {
      const ir::ShapeId shape = first.shapes[operand.index];
      return shape.valid() && !ir::differentiable(program.shapes[shape].dtype) &&
             program.types[first.types[operand.index]].of(Kind::Varying).contains(claim->axes);
    });
    if (writes_part ? !at_own_place : operands.size() != 1 || !moves_elements(op))
      return false;
    writes += writes_part;
    value = operands[0];
  }
  return writes == 2;
}

// Nothing is wrong there, whichever pass says so. `first`: what the first one has found.
static bool is_meant(const ir::Program &program, const Updates &updates, const CheckResult &first,
                     const Place &place, const rules::Violation &violation) {
  return keeps_addends_apart(program, updates, place, violation) ||
         adds_counts(program, place, violation) || adds_shares(program, place, violation) ||
         keeps_count(updates, place, violation) ||
         sums_for_a_log(program, updates, first, place, violation) ||
         is_put_together(program, first, place, violation);
}

// Whether all that follows close behind a value, and takes it, compares it with infinity.
static bool compared_with_infinity(const ir::Program &program, ir::InstId made) {
  const llvm::SmallVector<ir::InstId, 4> takers = taken_close_behind(program, made);
  return !takers.empty() && llvm::all_of(takers, [&](ir::InstId id) {
    OperandList operands;
    operands.read(program, program.insts[id].operands);
    const rules::OpDef *row = op_of(program, id).row;
    return row && row->dtype == rules::DTypeRule::Boolean &&
           llvm::any_of(operands.slots, [](const rules::Slot &s) { return rules::is_infinite(s); });
  });
}

// An addend that is not finite makes a sum that is not: each rank may look at its own.
static bool asks_whether_finite(const ir::Program &program, const Place &place,
                                const rules::Violation &violation) {
  if (place.form != Place::Form::Inst || !violation.is<rules::PartialIntoNonlinear>())
    return false;
  const rules::ResolvedOp op = op_of(program, place.as_inst());
  if (op.computes(rules::Computes::Abs))
    return compared_with_infinity(program, place.as_inst());
  const rules::OpDef *row = op.row;
  if (!row || row->dtype != rules::DTypeRule::Boolean)
    return false;
  OperandList operands;
  operands.read(program, program.insts[place.as_inst()].operands);
  const bool with_itself = operands.values.size() == 2 && operands.values[0] == operands.values[1];
  return with_itself || (!row->gradient && row->function_scale == rules::OpDef::FunctionScale::Any);
}

bool Gradual::certain(const Place &place, const rules::Violation &violation, AxisSet open) const {
  // Frameworks write parts of a storage whose other parts are read on.
  if (violation.is<rules::StaleAlias>())
    return false;
  if (is_meant(program_, updates_, first_, place, violation))
    return false;
  if (reported_.count({static_cast<unsigned>(place.form), place.index, violation.info().name}))
    return true;
  if (asks_whether_finite(program_, place, violation))
    return false;
  return violation.info().holds_for_inferred_cuts && !(rules::axes_of(violation) & open);
}

namespace {

// Inputs that the forward reads and that are tensors: what may be a batch.
llvm::SmallVector<uint32_t, 8> batches_of(const ir::Program &program) {
  llvm::DenseSet<uint32_t> read;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    if (!is_forward(inst))
      continue;
    OperandList operands;
    operands.read(program, inst.operands);
    for (ValueId value : operands.values)
      read.insert(value.index);
  }
  llvm::SmallVector<uint32_t, 8> found;
  for (uint32_t i = 0; i < program.params.size(); ++i) {
    const ir::Param &param = program.params[i];
    ir::ShapeId shape = program.values[param.value].shape;
    if (param.role == ir::Role::Input && read.count(param.value.index) && shape.valid() &&
        !program.shapes[shape].dims.empty())
      found.push_back(i);
  }
  return found;
}

// Axes along which ranks take parts of data that all of them have, or of data of which nothing is
// known: a part differs in any case.
AxisSet split_data(ir::Program &program, const CheckResult &result) {
  AxisSet axes;
  rules::Rules rules(program);
  OperandList operands;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    if (!inst.result_count || !is_forward(inst) || op.transition != rules::TransitionOp::Convert)
      continue;
    const Type &type = program.types[result.types[inst.first_result.index]];
    axes |= type.gradient_free() ? type.sharded() : AxisSet();
    operands.read(program, inst.operands);
    rules::Application app{program, op, inst.attrs, inst.context, operands.slots, {}, {}};
    const ir::AttrValue *to = app.attr("dst");
    if (to && to->form == ir::AttrForm::Kind &&
        to->as_kind().form == ir::WrittenKind::Form::Shard && type.unknown)
      axes |= rules::named_axes(app) & type.unknown;
  }
  return axes;
}

// Axes along which ranks have batches of their own, as the mesh says, and none that differs.
void find_equal_batches(ir::Program &program, CheckResult &result) {
  llvm::SmallVector<uint32_t, 8> batches = batches_of(program);
  if (batches.empty())
    return;
  AxisSet equal = ~AxisSet();
  const ir::MeshId mesh =
      program.types[result.types[program.params[batches.front()].value.index]].mesh();
  for (uint32_t index : batches) {
    const Type &type = program.types[result.types[program.params[index].value.index]];
    equal &= type.mesh() == mesh ? type.same_on_all_ranks() : AxisSet();
  }
  const AxisSet data = data_axes(program, mesh);
  if ((equal & data).empty())
    return;
  equal -= split_data(program, result);
  if (equal & data)
    result.findings.push_back(
        {rules::SameBatch{program.params[batches.front()].value, equal & data},
         {Place::Form::Param, batches.front()}});
}

// Where both passes have a finding at one place, that of the first says it without inference.
void prefer_kinds(const CheckResult &first, CheckResult &second) {
  auto overlap = [](const Finding &a, const Finding &b) {
    return a.place == b.place && (rules::axes_of(a.violation) & rules::axes_of(b.violation));
  };
  std::vector<Finding> merged;
  std::vector<bool> added(first.findings.size());
  for (Finding &finding : second.findings) {
    bool replaced = false;
    for (size_t i = 0; finding.inferred && i < first.findings.size(); ++i) {
      const Finding &other = first.findings[i];
      if (other.severity() != rules::Severity::Error || !overlap(finding, other))
        continue;
      replaced = true;
      if (!added[i])
        merged.push_back(other);
      added[i] = true;
    }
    if (!replaced)
      merged.push_back(std::move(finding));
  }
  second.findings = std::move(merged);
}

// Whether the second pass knows all that meets at a place: kinds, and cuts of what differs. What
// varies by kinds alone may be a pending sum.
bool is_known(const ir::Program &program, const CheckResult &result, const Place &place,
              AxisSet axes) {
  auto open = [&](ValueId value) {
    const Type &type = program.types[result.types[value.index]];
    return !((type.unknown | (type.of(Kind::Varying) - type.sharded())) & axes).empty();
  };
  if (place.form == Place::Form::Output)
    return !open(program.outputs[place.index].value);
  if (place.form != Place::Form::Inst)
    return false;
  const ir::Inst &inst = program.insts[place.as_inst()];
  for (uint32_t r = 0; r < inst.result_count; ++r)
    if (open(inst.result(r)))
      return false;
  OperandList operands;
  operands.read(program, inst.operands);
  return llvm::none_of(operands.values, open);
}

// An error by kinds alone stays one: as what the second pass finds on the axis instead, or as it
// is, unless the second pass knows better.
void keep_errors(const ir::Program &program, const Updates &updates, const CheckResult &first,
                 CheckResult &second) {
  for (const Finding &finding : first.findings) {
    AxisSet axes = rules::axes_of(finding.violation);
    if (finding.severity() != rules::Severity::Error || !finding.info().holds_for_inferred_cuts ||
        !axes)
      continue;
    // What varies by kinds may be the addend that it is to meet: only the second pass can tell.
    if (&finding.info() == &rules::PartialWithVarying::info ||
        is_meant(program, updates, first, finding.place, finding.violation))
      continue;
    bool kept = false;
    for (Finding &other : second.findings)
      if (rules::axes_of(other.violation) & axes) {
        kept = true;
        if (other.severity() == rules::Severity::Error)
          break;
        if (other.inferred) {
          other.inferred = false;
          break;
        }
      }
    if (!kept && !is_known(program, second, finding.place, axes))
      second.findings.push_back(finding);
  }
}

// Of a backward and of what comes behind it, what no parameter gets and nothing is made of, such as
// gradients that are left in another model and cleared before its next step, or averages of all
// gradients in the place of which others are taken.
void drop_unused(const ir::Program &program, CheckResult &result) {
  llvm::BitVector needed(program.values.size());
  bool leaves = false;
  for (const ir::Output &output : program.outputs) {
    needed.set(output.value.index);
    leaves |= output.role == ir::OutputRole::State || output.role == ir::OutputRole::Output;
  }
  uint32_t first = program.main.first.index;
  while (first < program.main.last.index &&
         program.insts[ir::InstId{first}].phase != ir::Phase::Backward)
    ++first;
  auto may_be_unused = [&](ir::InstId id) {
    const ir::Inst &inst = program.insts[id];
    // What has the storage of something else may have been written to that.
    const bool behind = leaves && id.index >= first && id.index < program.main.last.index &&
                        llvm::all_of(llvm::seq<uint32_t>(0, inst.result_count), [&](uint32_t r) {
                          return !program.values[inst.result(r)].alias_of.valid();
                        });
    return inst.result_count != 0 && (behind || inst.phase == ir::Phase::Backward);
  };
  add_needed(program, needed, [&](ir::InstId id) { return !may_be_unused(id); });
  llvm::erase_if(result.findings, [&](const Finding &finding) {
    if (finding.place.form != Place::Form::Inst || !may_be_unused(finding.place.as_inst()))
      return false;
    const ir::Inst &inst = program.insts[finding.place.as_inst()];
    for (uint32_t r = 0; r < inst.result_count; ++r)
      if (needed.test(inst.result(r).index))
        return false;
    return true;
  });
}

// Per op without a rule, how many others have unknown results that depend on it: a bit of a mask
// each, the last one of all that are left.
llvm::DenseMap<uint32_t, uint32_t> count_behind(const ir::Program &program,
                                                const CheckResult &result) {
  constexpr size_t kBits = 64;
  llvm::MapVector<uint32_t, uint64_t> bits; // by name
  for (const Finding &finding : result.findings)
    if (finding.violation.is<rules::UnknownOp>() && finding.place.form == Place::Form::Inst)
      bits.insert({program.insts[finding.place.as_inst()].op.index,
                   uint64_t(1) << std::min(bits.size(), kBits - 1)});
  std::vector<uint64_t> depends(program.values.size());
  std::array<uint32_t, kBits> counts{};
  OperandList operands;
  for (uint32_t i = 0; !bits.empty() && i < program.insts.size(); ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    auto is_open = [&](uint32_t r) {
      ir::TypeId type = result.types[inst.result(r).index];
      return type.valid() && !program.types[type].unknown.empty();
    };
    uint64_t on = 0;
    operands.read(program, inst.operands);
    for (ValueId value : operands.values)
      on |= depends[value.index];
    if (llvm::none_of(llvm::seq<uint32_t>(0, inst.result_count), is_open))
      continue;
    for (uint64_t left = on; left; left &= left - 1)
      ++counts[static_cast<size_t>(std::countr_zero(left))];
    on |= bits.lookup(inst.op.index);
    for (uint32_t r = 0; r < inst.result_count; ++r)
      depends[inst.result(r).index] = is_open(r) ? on : 0;
  }
  llvm::DenseMap<uint32_t, uint32_t> behind;
  for (auto [name, bit] : bits)
    behind[name] = counts[static_cast<size_t>(std::countr_zero(bit))];
  return behind;
}

// Nobody has declared a mesh that would have the group, or there is no rule: what comes of it is
// unknown, and that is all.
void note_unjudged(const ir::Program &program, CheckResult &result) {
  const llvm::DenseMap<uint32_t, uint32_t> behind = count_behind(program, result);
  for (Finding &finding : result.findings) {
    auto *unknown = finding.violation.as<rules::UnknownOp>();
    finding.note |= unknown || finding.violation.is<rules::UnknownGroup>();
    if (unknown && finding.place.form == Place::Form::Inst)
      if (uint32_t ops = behind.lookup(program.insts[finding.place.as_inst()].op.index))
        unknown->behind = fmt::format("{} of {} ops", ops, result.stats.ops);
  }
}

// Parameters that began as one number, and which no cut explains, have drifted as others have that
// surely did.
void join_drift(CheckResult &result) {
  AxisSet sure;
  for (const Finding &finding : result.findings)
    if (finding.violation.is<rules::CopiesDrift>() && !finding.inferred)
      sure |= rules::axes_of(finding.violation);
  for (Finding &finding : result.findings)
    if (finding.violation.is<rules::CopiesDrift>())
      finding.inferred &= !sure.contains(rules::axes_of(finding.violation));
}

} // namespace

static CheckResult judged(ir::Program &program, CheckOptions options,
                          AxisSizeNumbers::Reading numbers) {
  CheckResult result;
  result.gradual = std::make_shared<Gradual>(program, options, numbers);
  options.infer_partial = true;
  Walk(program, options, result, second_pass).run();
  prefer_kinds(result.gradual->by_kinds(), result);
  keep_errors(program, result.gradual->updates(), result.gradual->by_kinds(), result);
  join_drift(result);
  drop_unused(program, result);
  note_unjudged(program, result);
  find_equal_batches(program, result);
  judge_accumulation(program, result);
  judge_unseen_collectives(program, result);
  judge_repeated_gradients(program, result);
  judge_received_gradients(program, result);
  judge_counted_norms(program, result);
  judge_owned_norms(program, result);
  judge_expert_gradients(program, result);
  judge_micro_batches(program, result);
  leave_unread_open(program, result);
  result.gradual->restore();
  result.gradual->copies().restore(program, result);
  llvm::ArrayRef<Finding> copies = result.gradual->copies().findings();
  result.findings.insert(result.findings.begin(), copies.begin(), copies.end());
  return result;
}

// What is wrong by one reading of a number only is not wrong whatever it means.
CheckResult check_gradually(ir::Program &program, const CheckOptions &given) {
  using Reading = AxisSizeNumbers::Reading;
  CheckOptions options = given;
  options.mode.reset();
  options.undeclared = true;
  CheckResult result = judged(program, options, Reading::Sizes);
  if (!result.findings.empty() && result.gradual->numbers().has_other_reading())
    if (CheckResult other = judged(program, options, Reading::Numbers);
        other.findings.size() <= result.findings.size())
      result = std::move(other);
  apply_suppressions(program, options, result);
  return result;
}

} // namespace spmd::checker
