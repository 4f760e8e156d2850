// Follows blocks that are sent round: whose they are, and what is made of them.
#include "checker/gradual/sent/rings.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/apply.h"
#include "rules/bind.h"
#include "rules/ops/op.h"
#include "rules/shapes/attrs.h"
#include "rules/transitions/axes.h"
#include "rules/transitions/call.h"
#include "rules/violations/operands.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::ValueId;

// As many ranks as a set of blocks has bits.
constexpr int64_t kMostRanks = 64;

Expressions::Id Expressions::of(Kind kind, llvm::ArrayRef<uint64_t> parts) {
  std::vector<uint64_t> key{kind};
  key.insert(key.end(), parts.begin(), parts.end());
  return known_.try_emplace(std::move(key), static_cast<Id>(known_.size())).first->second;
}

// By how many ranks a permutation moves what each has, if by as many for all, around the ends.
static std::optional<unsigned> turn_of(const rules::Application &app, int64_t ranks) {
  const ir::AttrValue *pairs = app.attr("perm");
  if (!pairs || pairs->form != ir::AttrForm::List || ranks < 2 || ranks > kMostRanks)
    return std::nullopt;
  llvm::ArrayRef<ir::AttrValue> items = app.program.lists[pairs->as<ir::AttrListId>()].items;
  uint64_t senders = 0;
  std::optional<int64_t> turn;
  for (const ir::AttrValue &item : items) {
    const auto pair = rules::numbers_of(app, item);
    if (!pair || pair->size() != 2 ||
        llvm::any_of(*pair, [&](int64_t rank) { return rank < 0 || rank >= ranks; }))
      return std::nullopt;
    const int64_t moved = ((*pair)[1] - (*pair)[0] + ranks) % ranks;
    if (turn.value_or(moved) != moved)
      return std::nullopt;
    turn = moved;
    senders |= uint64_t{1} << (*pair)[0];
  }
  const uint64_t all = ranks == kMostRanks ? ~uint64_t{0} : (uint64_t{1} << ranks) - 1;
  return turn && senders == all ? std::optional(static_cast<unsigned>(*turn)) : std::nullopt;
}

// The axes that a collective, or a cast, names.
static AxisSet axes_of_call(const rules::Application &app) {
  rules::Outcome ignored;
  const std::optional<rules::TransitionCall> call = rules::read_call(app, ignored);
  return call ? call->axes.all() : AxisSet();
}

Rings::Rings(ir::Program &program, const CheckResult &checked, rules::Rules &rules)
    : program_(program), checked_(checked) {
  llvm::SmallVector<ir::InstId, 8> sends;
  for (uint32_t i = 0; i < program.insts.size(); ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    if (op.transition != rules::TransitionOp::CollectivePermute)
      continue;
    const rules::Application app{program, op, inst.attrs, inst.context, {}, {}, {}};
    for (const ir::Operand &operand : program.operand_lists[inst.operands])
      if (operand.is_value())
        sent_.insert(operand.as_value().index);
    const AxisSet axes = axes_of_call(app);
    if (axes.size() == 1 && turn_of(app, app.mesh()[*axes.begin()].size()).value_or(0) != 0) {
      axes_ |= axes;
      sends.push_back(ir::InstId{i});
    }
  }
  if (sends.empty())
    return;
  find_away(rules, sends);
  number_blocks(rules);
}

// Programs that ask for the position of a rank may count from there.
void Rings::number_blocks(rules::Rules &rules) {
  for (uint32_t i = 0; i < program_.insts.size(); ++i) {
    const ir::Inst inst = program_.insts[ir::InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    if (op.boundary != rules::Boundary::AxisIndex)
      continue;
    const rules::Application app{program_, op, inst.attrs, inst.context, {}, {}, {}};
    const ir::MeshId mesh = program_.contexts[inst.context].mesh;
    for (AxisId axis : rules::named_axes(app) & axes_)
      if (RankInterpreter::can_follow(program_, mesh, axis))
        numbers_.try_emplace(axis.index, program_, checked_, mesh, axis);
  }
}

// Rows of data, or a block of a flat optimizer's state, that a rank does not keep: to its others
// they do not belong. Blocks that go round, and negatives, are used where they come from as well.
void Rings::find_away(rules::Rules &rules, llvm::ArrayRef<ir::InstId> sends) {
  std::vector<unsigned> reads(program_.values.size());
  for (uint32_t i = 0; i < program_.insts.size(); ++i)
    for (ValueId value : tensors_of(program_, ir::InstId{i}))
      ++reads[value.index];
  for (const ir::Output &output : program_.outputs)
    ++reads[output.value.index];
  for (ir::InstId send : sends) {
    const ir::Phase phase = program_.insts[send].phase;
    if (phase == ir::Phase::Backward) // gradients go home to the rows that were sent
      continue;
    for (ir::InstId at = send;;) {
      const llvm::SmallVector<ValueId, 4> operands = tensors_of(program_, at);
      if (operands.size() != 1 || reads[operands[0].index] != 1)
        break;
      at = defining_inst(program_, operands[0]);
      const ir::Param *param = at.valid() ? nullptr : program_.find_param(operands[0]);
      const bool takes = at.valid() && rules.resolve(program_.insts[at].op).transition ==
                                           rules::TransitionOp::Convert;
      if (takes || (param && (param->role == ir::Role::Input || phase == ir::Phase::Optimizer)))
        away_.insert(send.index);
      if (takes || !at.valid())
        break;
    }
  }
}

std::optional<int64_t> Rings::extent(ValueId value, unsigned dim) const {
  return extent_of(program_, checked_.shapes[value.index], dim);
}

size_t Rings::rank(ValueId value) const {
  return dimension_count(program_, checked_.shapes[value.index]);
}

const RingValue *Rings::find(ValueId value) const {
  const auto at = held_.find(value.index);
  return at == held_.end() ? nullptr : &at->second;
}

Expressions::Id Rings::form(ValueId value) {
  const auto at = form_.find(value.index);
  return at != form_.end() ? at->second : forms_.of(Expressions::Value, {value.index});
}

// What an ordinary tensor is, of which the type says what ranks have.
std::optional<RingValue> Rings::seen(const ir::Type &type, ValueId value, AxisId axis,
                                     bool proved) {
  if (const RingValue *held = find(value); held && !(held->pure && proved))
    return held->axis == axis ? std::optional(*held) : std::nullopt;
  RingValue held;
  held.axis = axis;
  if (type.unknown.contains(axis))
    return std::nullopt;
  const auto filled = uniform_.find(value.index);
  held.uniform = filled != uniform_.end();
  if (type.zero().contains(axis) || (held.uniform && filled->second))
    return held;
  held.proved = proved;
  held.terms.push_back({form(value), false, 0});
  held.guessed = guessed_.count(value.index) != 0;
  if (type.same_on_all_ranks().contains(axis))
    return held;
  if (type.of(Kind::Partial).contains(axis)) {
    held.terms[0].summed = true;
    held.terms[0].blocks = 1;
    return held;
  }
  const std::optional<unsigned> dim = type.dim(axis);
  const std::optional<int64_t> length = dim ? extent(value, *dim) : std::nullopt;
  // One element in a dimension may be one that is stretched.
  if (!length || *length < 2)
    return std::nullopt;
  held.cuts.push_back({{*dim, 1, *length}, 0});
  return held;
}

static uint64_t rotated(uint64_t blocks, unsigned by, unsigned ranks) {
  uint64_t found = 0;
  for (unsigned i = 0; i < ranks; ++i)
    if (blocks >> i & 1)
      found |= uint64_t{1} << ((i + by) % ranks);
  return found;
}

void RingValue::turn(unsigned by, unsigned ranks, ir::InstId sent) {
  for (Cut &cut : cuts)
    cut.back = (cut.back + by) % ranks;
  for (Shift &shift : shifts)
    shift.back = (shift.back + by) % ranks;
  for (Term &term : terms)
    term.blocks = rotated(term.blocks, by, ranks);
  sent_by = sent;
}

void Rings::send(Step &step) {
  if (step.operands.size() != 1)
    return;
  const AxisSet axes = axes_of_call(step.app);
  if (axes.size() != 1)
    return;
  step.axis = *axes.begin();
  step.ranks = static_cast<unsigned>(step.app.mesh()[step.axis].size());
  const std::optional<unsigned> by = turn_of(step.app, step.ranks);
  std::optional<RingValue> held = seen(step.app.type(step.app.args[0]), step.operands[0], step.axis,
                                       step.proved[0].contains(step.axis));
  if (by)
    send_members(step, *by);
  if (!by || !held || members_.count(step.operands[0].index))
    return;
  held->turn(*by, step.ranks, step.id);
  step.facts.axis = step.axis;
  finish(step, 0, *held);
}

// A rank's block of a whole tensor whose blocks were moved on first is that of another rank.
void Rings::take(Step &step) {
  const AxisSet axes = axes_of_call(step.app);
  if (step.operands.size() != 1 || axes.size() != 1)
    return;
  const auto rolled = rolled_.find(step.operands[0].index);
  const ir::Type &type = step.app.type(step.app.args[0]);
  const ir::AttrValue *dst = step.app.attr("dst");
  if (rolled == rolled_.end() || !dst || dst->form != ir::AttrForm::Kind ||
      !type.same_on_all_ranks().contains(*axes.begin()) || !axes_.contains(*axes.begin()))
    return;
  step.axis = *axes.begin();
  step.ranks = static_cast<unsigned>(step.app.mesh()[step.axis].size());
  const auto [of, dim, by] = rolled->second;
  const std::optional<int64_t> length = extent(step.result(0), dim);
  if (dst->as_kind().dim != int(dim) || !length || *length < 2 || by % *length != 0)
    return;
  RingValue held;
  held.axis = step.axis;
  held.proved = step.proved[0].contains(step.axis);
  held.sent_by = step.id;
  const int64_t ranks = step.ranks;
  const auto back = static_cast<unsigned>((by / *length % ranks + ranks) % ranks);
  held.cuts.push_back({{dim, 1, *length}, back});
  held.terms.push_back({block_form(of, dim, step.axis), false, 0});
  step.facts.axis = step.axis;
  finish(step, 0, held);
}

// A gather puts the block of each rank in the place of that rank.
void Rings::gather(Step &step) {
  const RingValue *held = find(step.operands[0]);
  const AxisSet axes = axes_of_call(step.app);
  if (!held || llvm::count(step.unread, false) != 1 || step.unread[0] || axes.size() != 1 ||
      *axes.begin() != held->axis || held->cuts.size() != 1 || !held->is_plain() ||
      held->is_zero() || held->collected || held->guessed || !held->proved)
    return;
  const RingValue::Cut &cut = held->cuts[0];
  const auto dims = rules::placed_dims(step.app, rules::DefaultDim::First, rank(step.operands[0]));
  if (cut.back == 0 || !dims || dims->size() != 1 || dims->front() != cut.at.dim ||
      cut.at.inner * cut.at.extent != extent(step.operands[0], cut.at.dim))
    return;
  step.facts.axis = held->axis;
  step.facts.fault = Fault::Mixed;
  step.facts.back = cut.back;
}

Expressions::Id Rings::block_form(ValueId whole, unsigned dim, AxisId axis) {
  return forms_.of(Expressions::Block, {form(whole), dim, axis.index});
}

// Several expressions, none of them a sum that is still to go on, are one.
void Rings::collapse(RingValue &held) {
  if (held.is_summed() || held.terms.size() < 2)
    return;
  std::vector<uint64_t> parts;
  for (const RingValue::Term &term : held.terms)
    parts.push_back(term.form);
  llvm::sort(parts);
  held.terms = {{forms_.of(Expressions::Sum, parts), false, 0}};
}

// Which tensor a result is when all has been put together: an ordinary one, or still blocks.
void Rings::finish(Step &step, uint32_t result, RingValue held) {
  const uint64_t all = step.ranks == kMostRanks ? ~uint64_t{0} : (uint64_t{1} << step.ranks) - 1;
  for (RingValue::Term &term : held.terms)
    if (term.summed && term.blocks == all)
      term = {forms_.of(Expressions::All, {term.form}), false, 0};
  if (held.shifts.empty())
    collapse(held);
  llvm::sort(held.cuts);
  if (held.shifts.empty())
    held.added = false;
  step.facts.results.resize(std::max<size_t>(step.facts.results.size(), result + 1));
  Result &made = step.facts.results[result];
  if (held.is_plain() && !held.is_zero() && held.at_home() && !held.is_tile() && !held.collected) {
    std::optional<unsigned> dim;
    if (!held.cuts.empty()) {
      const DimRange &at = held.cuts[0].at;
      dim = at.dim;
      if (at.inner * at.extent != extent(step.result(result), at.dim)) {
        made.held = std::move(held);
        return;
      }
    }
    made.known = Known{step.axis, dim, held.proved, held.terms[0].form};
    return;
  }
  made.held = std::move(held);
}

Rings::Facts Rings::infer(ir::InstId id, const rules::Application &app,
                          llvm::ArrayRef<ValueId> operands, llvm::ArrayRef<bool> unread,
                          llvm::ArrayRef<AxisSet> proved) {
  Step step{id, app, operands, unread, proved};
  if (axes_.empty() || operands.empty() || operands.size() != app.args.size() ||
      program_.insts[id].result_count == 0)
    return {};
  step.results = program_.insts[id].result_count;
  step.first = program_.insts[id].first_result;
  if (app.op.transition == rules::TransitionOp::CollectivePermute)
    send(step);
  else if (app.op.transition == rules::TransitionOp::Convert)
    take(step);
  else if (app.op.transition == rules::TransitionOp::AllGather)
    gather(step);
  else if (app.op.boundary == rules::Boundary::Alias)
    write_member(step);
  else if (app.op.form == rules::OpForm::Equation)
    compute(step);
  else if (copies_operand(app.op, operands.size()))
    if (const RingValue *held = find(operands.back())) {
      step.axis = held->axis;
      step.ranks = static_cast<unsigned>(app.mesh()[step.axis].size());
      step.facts.axis = step.axis;
      finish(step, 0, *held);
    }
  return std::move(step.facts);
}

Expressions::Id Rings::ordinary_form(const rules::Application &app,
                                     llvm::ArrayRef<ValueId> operands, ValueId value,
                                     uint32_t result) {
  const bool equation = app.op.form == rules::OpForm::Equation && app.op.row;
  if (copies_operand(app.op, operands.size()))
    return form(operands.back());
  if (operands.size() == 1)
    if (const auto same = reshaped(app, form(operands[0]), operands[0], value))
      return *same;
  if (app.op.transition == rules::TransitionOp::Convert && operands.size() == 1)
    if (const ir::AttrValue *dst = app.attr("dst"); dst && dst->form == ir::AttrForm::Kind)
      if (const AxisSet axes = axes_of_call(app); axes.size() == 1 && dst->as_kind().dim >= 0)
        return block_form(operands[0], unsigned(dst->as_kind().dim), *axes.begin());
  if (!equation || app.op.row->equation.equation.has_generator)
    return forms_.of(Expressions::Value, {value.index});
  std::vector<Expressions::Id> parts;
  for (ValueId operand : operands)
    parts.push_back(form(operand));
  return op_form(app, parts, result);
}

// The elements of a tensor in other dimensions, whatever these were in between. None: the row does
// something else.
std::optional<Expressions::Id> Rings::reshaped(const rules::Application &app, Expressions::Id form,
                                               ValueId operand, ValueId result) {
  if (!app.op.row || app.op.row->factors != rules::reshape_factors)
    return std::nullopt;
  auto extents = [&](ValueId value) {
    std::vector<uint64_t> found;
    for (unsigned d = 0; d < rank(value); ++d)
      found.push_back(uint64_t(extent(value, d).value_or(-1)));
    return found;
  };
  const std::vector<uint64_t> before = extents(operand), after = extents(result);
  if (llvm::is_contained(before, ~uint64_t{0}) || llvm::is_contained(after, ~uint64_t{0}))
    return std::nullopt;
  const auto known = bases_.find(form);
  const Base base = known == bases_.end() ? Base{form, before} : known->second;
  if (base.extents == after)
    return base.form;
  std::vector<uint64_t> parts{base.form};
  parts.insert(parts.end(), after.begin(), after.end());
  const Expressions::Id made = forms_.of(Expressions::Reshaped, parts);
  bases_.emplace(made, base);
  return made;
}

// The same op of operands of these forms.
Expressions::Id Rings::op_form(const rules::Application &app,
                               llvm::ArrayRef<Expressions::Id> operands, uint32_t result) {
  std::vector<uint64_t> parts{app.op.spelling.index, app.attrs.index, result};
  for (const rules::Slot &slot : app.slots) {
    parts.push_back(uint64_t(slot.form));
    parts.push_back(slot.name.valid() ? slot.name.index + 1 : 0);
    parts.push_back(uint64_t(slot.literal.form));
    parts.push_back(slot.literal.bits);
    if (slot.form == rules::Slot::Form::Tensor || slot.form == rules::Slot::Form::List)
      for (uint32_t i = 0; i < slot.count; ++i)
        parts.push_back(slot.first + i < operands.size() ? operands[slot.first + i] : 0);
  }
  return forms_.of(Expressions::Op, parts);
}

// Whether all elements of the result are those of the one operand, some of them or each several
// times.
static bool reads_one(const rules::Application &app, size_t operands) {
  const bool takes = app.op.row && app.op.row->factors == rules::slice_factors;
  if (operands != 1 || !app.op.row || !(takes || moves_elements(app.op)))
    return false;
  const rules::Equation &row = app.op.row->equation.equation;
  return !row.has_generator && app.op.row->from_attr.empty() &&
         row.refs[row.atoms[0].first].role == rules::RefRole::Value &&
         !app.op.computes(rules::Computes::ReduceSum);
}

// A number that differs between ranks and is not the rank times another one: where the block of
// some rank begins, but not which one's. Positions that are counted from there may be of any block.
bool Rings::is_unknown_start(const rules::Application &app, size_t operand, ValueId value) const {
  constexpr int kMostOps = 8;
  if (operand >= app.args.size() || rank(value) != 0 ||
      !(app.type(app.args[operand]).of(Kind::Varying) & axes_))
    return false;
  for (int i = 0; i < kMostOps; ++i) {
    const ir::InstId made = defining_inst(program_, value);
    if (!made.valid())
      return false; // a number of the script
    const rules::ResolvedOp op = rules::resolve_op(program_, program_.insts[made].op);
    if (op.boundary == rules::Boundary::AxisIndex)
      return false;
    const auto from = tensors_of(program_, made);
    if (from.size() != 1 || !(op.computes(rules::Computes::Mul) || moves_elements(op)))
      return true;
    value = from[0];
  }
  return true;
}

// Whether the result may be numbers of any rank's rows.
bool Rings::is_guessed(const rules::Application &app, llvm::ArrayRef<ValueId> operands) const {
  for (size_t i = 0; i < operands.size(); ++i)
    if (guessed_.count(operands[i].index) || is_unknown_start(app, i, operands[i]))
      return true;
  return false;
}

// The numbers of a block's rows are those of the rank that the program computes them from.
bool Rings::learn_rows(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                       ValueId value) {
  for (auto &[axis, numbers] : numbers_) {
    numbers.learn(app, operands, value);
    const auto block = numbers.block(value);
    if (!block)
      continue;
    const Expressions::Id rows = forms_.of(
        Expressions::Rows, {rank(value), block->dim, static_cast<uint64_t>(block->length)});
    if (block->back == 0 && !is_guessed(app, operands)) { // its type says so
      form_[value.index] = rows;
      return true;
    }
    RingValue held;
    held.axis = AxisId{axis};
    held.cuts.push_back({{block->dim, 1, block->length}, block->back});
    held.terms.push_back({rows, false, 0});
    held_[value.index] = std::move(held);
    return true;
  }
  return false;
}

void Rings::learn(const rules::Application &app, ir::InstId id, llvm::ArrayRef<ValueId> operands,
                  const Facts &facts) {
  if (axes_.empty())
    return;
  const ir::Inst &inst = program_.insts[id];
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    const ValueId value = inst.result(r);
    if (inst.result_count == 1 && learn_rows(app, operands, value))
      continue;
    const ir::ShapeId shape = checked_.shapes[value.index];
    if (shape.valid() && !ir::differentiable(program_.shapes[shape].dtype) &&
        is_guessed(app, operands))
      guessed_.insert(value.index);
    const Result *known = r < facts.results.size() ? &facts.results[r] : nullptr;
    if (known && known->held)
      held_[value.index] = *known->held;
    else if (known && known->known)
      form_[value.index] = known->known->form;
    else
      form_[value.index] = ordinary_form(app, operands, value, r);
  }
  if (inst.result_count != 1 || app.op.form != rules::OpForm::Equation || !app.op.row)
    return;
  const ValueId value = inst.first_result;
  const bool filled = rules::any_attr(app, {"fill_value", "value"}) != nullptr;
  const bool constant = app.op.row->constant != rules::OpDef::Constant::No &&
                        (filled || app.op.row->constant == rules::OpDef::Constant::Zero);
  learn_entry(app, operands, value);
  if (constant)
    uniform_[value.index] = app.op.row->constant == rules::OpDef::Constant::Zero;
  else if (reads_one(app, operands.size()))
    if (const auto at = uniform_.find(operands[0].index); at != uniform_.end())
      uniform_[value.index] = bool(at->second);
  if (reads_one(app, operands.size()))
    follow_broadcast(app, operands[0], value);
  if (const auto by = rules::numbers_attr(app, {"shifts"}); by && operands.size() == 1) {
    const auto dims = rules::dim_numbers(app);
    if (by && dims && by->size() == 1 && dims->size() == 1)
      if (const auto dim = rules::place_of((*dims)[0], rank(operands[0])))
        rolled_[value.index] = {operands[0], *dim, (*by)[0]};
  }
}

std::optional<Rings::Astray> Rings::astray(ValueId gradient, ValueId of,
                                           const ir::Type &type) const {
  const RingValue *held = find(gradient);
  if (!held || held->guessed || held->cuts.size() != 1)
    return std::nullopt;
  const RingValue::Cut &cut = held->cuts[0];
  std::optional<unsigned> wanted;
  if (const RingValue *whose = find(of)) {
    for (const RingValue::Cut &each : whose->cuts)
      if (whose->axis == held->axis && each.at == cut.at)
        wanted = each.back;
  } else if (type.dim(held->axis) == cut.at.dim && extent(of, cut.at.dim) == cut.at.extent) {
    wanted = 0;
  }
  if (!wanted || *wanted == cut.back)
    return std::nullopt;
  return Astray{cut.back, *wanted, held->axis, held->sent_by};
}

} // namespace spmd::checker
