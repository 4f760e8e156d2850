// Branches and loops: a condition that differs between ranks, results of two branches, and carries
// that keep their type (rules/README.md).
#include "checker/walk/bodies/control_flow.h"

#include "checker/program_queries.h"

#include "rules/boundary/claims.h"
#include "rules/kinds/scale.h"
#include "rules/shapes/extent_facts.h"
#include "rules/shards/sizes.h"
#include "rules/shards/stacked.h"
#include "rules/transitions/call.h"
#include "rules/violations/control.h"
#include "rules/violations/local.h"
#include "rules/violations/operands.h"
#include "rules/violations/shards.h"
#include "rules/violations/transitions.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"

#include <fmt/format.h>

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;

namespace {

AxisSet pending(const Type &type) { return type.of(Kind::Partial) - type.zero(); }

// What two ways to the same value have in common. Where they contradict, the type is that of `a`.
struct Common {
  Type type;
  AxisSet differs;
};

Common common(const Type &a, const Type &b) {
  Common met{a, {}};
  bool free = a.gradient_free() && b.gradient_free();
  met.type.set_gradient_free(free);
  AxisSet known = a.claimed() & b.claimed();
  met.type.unknown |= b.unknown;
  known -= met.type.unknown;
  AxisSet shared;
  for (const ir::KindInfo &row : ir::kKinds) {
    AxisSet both = a.of(row.kind) & b.of(row.kind) & known;
    if (row.kind == Kind::Replicate) // Reduced is R whose owner is known: kept where both have one
      both =
          (a.replicated() & b.replicated() & known) - (a.of(Kind::Reduced) & b.of(Kind::Reduced));
    if (row.kind == Kind::Partial)
      for (AxisId axis : both)
        if (a.combiner(axis) != b.combiner(axis) && pending(a).contains(axis))
          both -= axis;
    if (row.kind == Kind::Varying)
      for (AxisId axis : both)
        if (!rules::same_shard(a, b, axis) || !rules::same_shard(b, a, axis))
          both -= axis;
    met.type.of(row.kind) = (a.of(row.kind) - known) | both;
    shared |= both;
  }
  // Without a gradient R and I are equivalent.
  AxisSet equivalent = a.same_on_all_ranks() & b.same_on_all_ranks() & (known - shared);
  if (free) {
    met.type.of(Kind::Replicate) |= equivalent;
    shared |= equivalent;
  }
  met.differs = known - shared;
  for (const ir::KindInfo &row : ir::kKinds)
    met.type.of(row.kind) |= a.of(row.kind) & met.differs;
  return met;
}

// Takes the kinds of `from` on these axes.
void adopt(Type &type, const Type &from, AxisSet axes) {
  for (const ir::KindInfo &row : ir::kKinds)
    type.of(row.kind) = (type.of(row.kind) - axes) | (from.of(row.kind) & axes);
  for (AxisId axis : axes &pending(from))
    type.set_combiner(axis, from.combiner(axis));
}

// A zero on all axes: of every scale.
bool is_zero(const ir::Program &program, const Type &type) {
  AxisSet axes = program.meshes[type.mesh()].typed_axes();
  return axes && type.zero().contains(axes);
}

int64_t integer(const ir::Program &program, ir::AttrsId attrs, llvm::StringRef name) {
  const ir::AttrValue *attr = program.find(attrs, name);
  return attr && attr->form == ir::AttrForm::Integer ? attr->as_integer() : 0;
}

} // namespace

// A condition acts as that of `where`: where it differs, results that were equal differ too. What
// is one tensor in pieces has no piece of its own choice.
ControlFlow::Choice ControlFlow::choose(const CallSite &site, const Type &condition, Type type) {
  Choice choice;
  AxisSet varying = condition.of(Kind::Varying) - type.unknown;
  choice.partial = varying & pending(type);
  choice.invariant = (varying & type.of(Kind::Invariant)) - type.either();
  choice.cut = (varying & type.sharded()) - state_.local_axes(type.mesh(), site.inst.context);
  AxisSet refused = choice.partial | choice.invariant | choice.cut;
  type.set_kind(varying - refused, Kind::Varying);
  type.set_unknown(condition.unknown | pending(condition) | refused);
  choice.type = type;
  return choice;
}

void ControlFlow::report_choice(InstId id, size_t result, const Choice &choice) {
  rules::ResultIndex index{static_cast<uint32_t>(result)};
  if (choice.invariant)
    state_.report(Place::inst(id), rules::VaryingChoice{index, Kind::Invariant, choice.invariant});
  if (choice.partial)
    state_.report(Place::inst(id), rules::VaryingChoice{index, Kind::Partial, choice.partial});
  if (choice.cut)
    state_.report(Place::inst(id), rules::VaryingChoice{index, Kind::Varying, choice.cut});
}

// A condition is one truth value, on one device too: the axes along which it is cut, where that is
// reported, and nothing follows.
AxisSet ControlFlow::several(const CallSite &site, const rules::TensorInfo &condition) {
  if (!condition.type.valid() || !condition.shape.valid())
    return {};
  rules::TensorInfo whole = condition;
  Type type = program_.types[condition.type];
  type = type.without_shards(state_.local_axes(type.mesh(), site.inst.context));
  ir::ShapeId shape = type.sharded() ? rules::global_shape(program_, type, whole) : whole.shape;
  if (!shape.valid() || !program_.shapes[shape].ranked)
    return {};
  std::optional<int64_t> count = ir::element_count(program_.shapes[shape]);
  if (!count || *count == 1)
    return {};
  state_.report(Place::inst(site.id),
                rules::ShapeMismatch{"the condition and one truth value", "bool[]",
                                     ir::print_shape(program_, shape), type.sharded()});
  return type.sharded();
}

void ControlFlow::branches(CallSite &site) {
  std::optional<ir::FunctionId> then = bodies_.region(site, "then"),
                                other = bodies_.region(site, "else");
  if (!then || !other)
    return;
  if (site.args.empty())
    return state_.report(Place::inst(site.id),
                         rules::OperandMismatch{"a condition", "none is given"});
  size_t params = site.args.size() - 1, results = site.inst.result_count;
  bool fits = bodies_.counts(site, *then, params, results);
  if (!bodies_.counts(site, *other, params, results) || !fits)
    return;
  Type condition = program_.types[site.args[0].type];
  condition.set_unknown(several(site, site.args[0]));
  if (AxisSet partial = pending(condition))
    state_.report(Place::inst(site.id), rules::PartialIntoNonlinear{{0}, partial});
  Args left = bodies_.enter(site, *then, 1), right = bodies_.enter(site, *other, 1);
  bool pushed = conditions_.push(condition);
  Round first = bodies_.evaluate(*then, left), second = bodies_.evaluate(*other, right);
  if (pushed)
    conditions_.pop();
  bodies_.reach(site, first);
  bodies_.reach(site, second);
  for (size_t r = 0; r < results; ++r)
    site.results[r] = joined(site, condition, r, first.results[r], second.results[r]);
  undecided_.branches(site, first, second);
}

// One result of `cond`.
rules::TensorInfo ControlFlow::joined(const CallSite &site, const Type &condition, size_t r,
                                      const rules::TensorInfo &then,
                                      const rules::TensorInfo &other) {
  if (!then.type.valid() || !other.type.valid()) // a number: equal on all ranks
    return then.type.valid() ? then : other;
  const Type a = program_.types[then.type];
  const Type b = state_.remapped_to(program_.types[other.type], a.mesh());
  Common met = common(a, b);
  if (met.differs)
    state_.report(Place::inst(site.id), rules::BranchMismatch{{static_cast<uint32_t>(r)},
                                                              state_.on_axes(a, met.differs),
                                                              state_.on_axes(b, met.differs),
                                                              met.differs});
  same_shape(site.id, fmt::format("the branches' result {}", r), other, then);
  met.type.set_unknown(met.differs);
  met.type.scale = is_zero(program_, a) ? b.scale : a.scale;
  if (!is_zero(program_, a) && !is_zero(program_, b) && !met.differs)
    same_scale(site.id, a, b, "the other branch gives ", {},
               site.inst.result(static_cast<uint32_t>(r)), met.type);
  Choice choice = choose(site, state_.remapped_to(condition, a.mesh()), met.type);
  report_choice(site.id, r, choice);
  return {state_.intern(choice.type), then.shape.valid() ? then.shape : other.shape, then.sizes};
}

// Two values that take turns must be what is meant by the same factor; else the factor is not
// known.
void ControlFlow::same_scale(InstId id, const Type &found, const Type &other, std::string who,
                             rules::OperandIndex operand, ir::ValueId value, Type &made) {
  std::string text =
      other.scale.valid() ? ir::print_scale(program_, other.scale, other.mesh()) : "";
  std::optional<rules::Violation> differs =
      rules::scale_differs(program_, found, other.scale, who + text, operand, value);
  if (differs) {
    state_.report(Place::inst(id), state_.named(std::move(*differs)));
    made.scale = {};
  }
}

// Two values that take turns have the same extents and, where they are cut, the same blocks.
void ControlFlow::same_shape(InstId id, std::string what, const rules::TensorInfo &stated,
                             const rules::TensorInfo &found) {
  if (std::optional<rules::Violation> differs =
          rules::value_shape_differs(program_, what, stated, found))
    state_.report(Place::inst(id), std::move(*differs));
}

// Zeros of which each rank has a block: their type says the block, and not that they are of every
// scale.
bool ControlFlow::starts_as_zeros(const CallSite &site, size_t operand) const {
  const llvm::SmallVector<ir::ValueId, 4> values = tensors_of(program_, site.id);
  if (operand >= values.size())
    return false;
  const InstId made = defining_inst(program_, values[operand]);
  const rules::OpDef *row =
      made.valid() ? state_.rules.resolve(program_.insts[made].op).row : nullptr;
  return row && row->constant == rules::OpDef::Constant::Zero;
}

ControlFlow::Carried ControlFlow::carry(ir::TypeId enters_id, ir::TypeId leaves_id) {
  const Type enters = program_.types[enters_id];
  const Type leaves = state_.remapped_to(program_.types[leaves_id], enters.mesh());
  Common met = common(enters, leaves);
  // A zero that each rank has whole is no shard of one.
  AxisSet started = (met.differs & enters.zero()) - leaves.sharded();
  if (enters.gradient_free()) // R and I are equivalent as it enters, and not from then on
    started |= met.differs & enters.same_on_all_ranks() & leaves.same_on_all_ranks();
  adopt(met.type, leaves, started);
  if (enters.gradient_free())
    met.type.set_either(enters.same_on_all_ranks() & undecided_axes(leaves));
  met.differs -= started;
  AxisSet loose; // where nobody declares what a carry is: what rounds do not agree in
  if (state_.inference) {
    AxisSet blocks = met.differs & (enters.either() | enters.zero()) & leaves.sharded();
    adopt(met.type, leaves, blocks); // a number everywhere is a block, too
    for (AxisId axis : blocks)
      met.type.set_shard(axis, *leaves.dim(axis), leaves.order(axis));
    met.differs -= blocks;
    loose = met.differs - pending(enters) - pending(leaves);
    met.type.drop_shards(loose);
    met.type.set_kind(loose & leaves.of(Kind::Varying), Kind::Varying);
    met.type.set_unknown(loose - leaves.of(Kind::Varying));
    met.differs -= loose;
  }
  // What is unknown at the end was reported inside: the body keeps what it was typed with.
  Type next = met.type;
  next.scale = is_zero(program_, enters) ? leaves.scale : enters.scale;
  next.unknown = enters.unknown | (met.type.unknown & loose);
  adopt(next, enters, met.type.unknown - next.unknown);
  return {state_.intern(next), met.type, met.differs};
}

// Per carry of a body, those that it leaves as: a rotation hands each to the next.
static std::vector<llvm::SmallVector<uint32_t, 1>>
takers_of(const ir::Program &program, ir::FunctionId id, size_t first, size_t count) {
  std::vector<llvm::SmallVector<uint32_t, 1>> takers(count);
  const ir::Function &body = program.functions[id];
  if (body.opaque)
    return takers;
  llvm::DenseMap<uint32_t, uint32_t> carry; // by the value that it is in the body
  for (uint32_t c = 0; c < count; ++c)
    carry[body.params[first + c].value.index] = c;
  llvm::ArrayRef<ir::Operand> results = program.operand_lists[body.results];
  for (uint32_t c = 0; c < count; ++c)
    if (results[c].is_value())
      if (auto at = carry.find(results[c].as_value().index); at != carry.end())
        takers[at->second].push_back(c);
  return takers;
}

// Types a loop whose operands [first, first + count) are handed from round to round. A zero takes
// the kind of what is added to it, R|I what the body needs, R or I without a gradient the other
// one; everything else leaves as it entered.
Round ControlFlow::carry_through(CallSite &site, ir::FunctionId body, Args &args, size_t first,
                                 size_t count, llvm::function_ref<Round(const Args &)> run) {
  Round round;
  llvm::SmallVector<Carried, 4> met(count);
  const std::vector<llvm::SmallVector<uint32_t, 1>> takers =
      takers_of(program_, body, first, count);
  llvm::SmallVector<uint32_t, 4> todo;
  for (bool stable = false; !stable;) {
    round = run(args);
    stable = true;
    for (uint32_t c = static_cast<uint32_t>(count); c-- > 0;)
      todo.push_back(c);
    while (!todo.empty()) {
      uint32_t c = todo.pop_back_val();
      ir::TypeId &type = args[first + c].type;
      const ir::TypeId before = type, leaves = round.results[c].type;
      met[c] = carry(type, leaves.valid() ? leaves : type);
      type = met[c].next;
      if (Type next = program_.types[type]; leaves.valid() && next.scale == program_.one() &&
                                            program_.types[leaves].scale != next.scale &&
                                            starts_as_zeros(site, first + c)) {
        next.scale = program_.types[leaves].scale;
        type = met[c].next = state_.intern(next);
      }
      if (type == before)
        continue;
      stable = false;
      // What the body only hands on leaves as it enters: no round is needed to see it.
      for (uint32_t taker : takers[c])
        if (round.results[taker].type == before) {
          round.results[taker].type = type;
          todo.push_back(taker);
        }
    }
  }
  bodies_.reach(site, round);
  llvm::SmallVector<Type, 4> carried;
  for (const Carried &each : met)
    carried.push_back(each.type);
  undecided_.loop(site, round, args, first, carried);
  for (size_t c = 0; c < count; ++c) {
    const rules::TensorInfo &arg = args[first + c];
    rules::TensorInfo &leaving = round.results[c];
    uint32_t operand = static_cast<uint32_t>(first + c);
    if (AxisSet differs = met[c].differs)
      state_.report(Place::inst(site.id),
                    rules::CarryMismatch{{operand},
                                         static_cast<int64_t>(c),
                                         state_.on_axes(program_.types[arg.type], differs),
                                         state_.on_axes(program_.types[leaving.type], differs),
                                         differs});
    same_shape(site.id, fmt::format("carry {} as it enters and as it leaves", c), arg, leaving);
    met[c].type.set_unknown(met[c].differs);
    const Type entered = program_.types[arg.type];
    met[c].type.scale = entered.scale;
    if (leaving.type.valid() && !met[c].differs && !is_zero(program_, entered))
      same_scale(site.id, entered, state_.remapped_to(program_.types[leaving.type], entered.mesh()),
                 "it leaves the body with ", {operand}, {}, met[c].type);
    leaving = {state_.intern(met[c].type), arg.shape.valid() ? arg.shape : leaving.shape,
               arg.sizes};
  }
  return round;
}

// Constants, carries, then what is taken apart along dimension 0; carries, then what is stacked.
void ControlFlow::scan(CallSite &site) {
  std::optional<ir::FunctionId> body = bodies_.region(site, "body");
  if (!body || !bodies_.counts(site, *body, site.args.size(), site.inst.result_count))
    return;
  int64_t consts = integer(program_, site.inst.attrs, "consts");
  int64_t carry = integer(program_, site.inst.attrs, "carry");
  int64_t operands = static_cast<int64_t>(site.args.size());
  if (consts < 0 || carry < 0 || consts > operands || carry > operands - consts ||
      carry > site.inst.result_count)
    return state_.report(Place::inst(site.id),
                         rules::AttributeMismatch{"carry", "a count of operands and results"});
  size_t first = static_cast<size_t>(consts), count = static_cast<size_t>(carry);
  std::optional<ir::Extent> length;
  if (const ir::AttrValue *stated = program_.find(site.inst.attrs, "length");
      stated && stated->form == ir::AttrForm::Integer && stated->as_integer() >= 0)
    length = ir::Extent(stated->as_integer());
  for (size_t i = first + count; i < site.args.size(); ++i)
    site.args[i] = one_of(site, i, length);
  Args args = bodies_.enter(site, *body, 0);
  Round round = carry_through(site, *body, args, first, count,
                              [&](const Args &taken) { return bodies_.evaluate(*body, taken); });
  for (size_t r = count; r < round.results.size(); ++r)
    round.results[r] = rules::stack_of(program_, round.results[r], length);
  site.results = std::move(round.results);
}

// One element of a scanned operand, whose number all of them share. Each rank takes its elements
// apart in its own order, so none may have a part of them.
rules::TensorInfo ControlFlow::one_of(const CallSite &site, size_t operand,
                                      std::optional<ir::Extent> &length) {
  rules::TensorInfo whole = site.args[operand];
  const Type type = program_.types[whole.type];
  rules::TensorInfo one = rules::entry_of(program_, whole);
  const AxisSet cut = ir::set_of(ir::shards_of(type, 0));
  if (cut) {
    state_.report(Place::inst(site.id),
                  rules::UnwholeDimension{{static_cast<uint32_t>(operand)}, 0, cut});
    Type made = program_.types[one.type];
    made.set_unknown(cut);
    one.type = state_.intern(made);
  }
  if (!whole.shape.valid() || !program_.shapes[whole.shape].ranked)
    return one;
  const ir::Shape &shape = program_.shapes[whole.shape];
  llvm::SmallVector<rules::UndecidedExtents, 0> open;
  auto what = [&] { return fmt::format("dimension 0 of scanned operand {}", operand); };
  if (shape.dims.empty() ||
      (length && !cut && !rules::may_be_equal(program_, *length, shape.dims[0], open, what))) {
    std::string needed = length ? ir::print(*length, program_.exprs, program_.strings) : "a length";
    state_.report(
        Place::inst(site.id),
        rules::ShapeMismatch{what(), std::move(needed), ir::print_shape(program_, whole.shape)});
    one.shape = {};
    return one;
  }
  for (rules::UndecidedExtents &each : open)
    state_.report(Place::inst(site.id), std::move(each));
  if (!length)
    length = shape.dims[0];
  return one;
}

// `consts` operands that both regions take, then the carries. None, and reported, if the numbers of
// values do not fit; else how many constants there are.
std::optional<size_t> ControlFlow::loop_constants(const CallSite &site, ir::FunctionId more,
                                                  ir::FunctionId body) {
  int64_t consts = integer(program_, site.inst.attrs, "consts");
  size_t operands = site.args.size(), carries = site.inst.result_count;
  if (consts < 0 || static_cast<size_t>(consts) > operands) {
    state_.report(Place::inst(site.id), rules::AttributeMismatch{"consts", "a count of operands"});
    return std::nullopt;
  }
  bool fits = bodies_.counts(site, more, operands, 1);
  if (!bodies_.counts(site, body, operands, carries) || !fits)
    return std::nullopt;
  size_t given = operands - static_cast<size_t>(consts);
  if (given == carries)
    return static_cast<size_t>(consts);
  state_.report(Place::inst(site.id), rules::OperandMismatch{fmt::format("{} carries", carries),
                                                             fmt::format("{} given", given)});
  return std::nullopt;
}

// One round: the condition, under itself where it differs, and the body; `chosen` is what ranks
// that went on and ranks that did not have together.
ControlFlow::Turn ControlFlow::turn(const CallSite &site, ir::FunctionId more, ir::FunctionId body,
                                    const Args &args) {
  Round asked = bodies_.evaluate(more, args);
  Turn made{condition_of(site, asked), asked.results[0], {}, {}};
  bool pushed = conditions_.push(made.condition);
  if (pushed)
    asked = bodies_.evaluate(more, args);
  made.left = bodies_.evaluate(body, args);
  if (pushed)
    conditions_.pop();
  made.chosen = made.left;
  // Who goes on decides what all of them are.
  for (AxisSet &axes : made.chosen.believed)
    axes |= asked.believed.empty() ? AxisSet() : asked.believed.front();
  if (made.chosen.believed.empty())
    made.chosen.believed.assign(made.left.results.size(),
                                asked.believed.empty() ? AxisSet() : asked.believed.front());
  made.chosen.bodies = asked.bodies;
  made.chosen.bodies.append(made.left.bodies.begin(), made.left.bodies.end());
  for (rules::TensorInfo &result : made.chosen.results)
    if (result.type.valid()) {
      const Type type = program_.types[result.type];
      result.type =
          state_.intern(choose(site, state_.remapped_to(made.condition, type.mesh()), type).type);
    }
  return made;
}

void ControlFlow::loop(CallSite &site) {
  std::optional<ir::FunctionId> more = bodies_.region(site, "cond"),
                                body = bodies_.region(site, "body");
  if (!more || !body)
    return;
  std::optional<size_t> first = loop_constants(site, *more, *body);
  if (!first)
    return;
  site.args = bodies_.enter(site, *more, 0);
  Args args = bodies_.enter(site, *body, 0);
  Turn last;
  Round round =
      carry_through(site, *body, args, *first, site.inst.result_count, [&](const Args &now) {
        last = turn(site, *more, *body, now);
        return last.chosen;
      });
  if (AxisSet partial = pending(last.condition)) {
    const ir::Function &asking = program_.functions[*more];
    ir::ValueId value;
    if (!asking.opaque)
      value = program_.operand_lists[asking.results].front().as_value();
    state_.report(Place::inst(site.id), rules::PartialCondition{value, partial});
  }
  bool one = several(site, last.asked).empty();
  for (size_t r = 0; r < last.left.results.size() && one; ++r)
    if (last.left.results[r].type.valid()) {
      const Type type = program_.types[last.left.results[r].type];
      report_choice(site.id, r,
                    choose(site, state_.remapped_to(last.condition, type.mesh()), type));
    }
  site.results = std::move(round.results);
}

// A loop that goes on by a number does so on all ranks.
Type ControlFlow::condition_of(const CallSite &site, const Round &asked) {
  if (asked.results[0].type.valid())
    return program_.types[asked.results[0].type];
  Type type;
  type.set_mesh(program_.contexts[site.inst.context].mesh);
  type.set_either(program_.meshes[type.mesh()].typed_axes());
  return type;
}

} // namespace spmd::checker
