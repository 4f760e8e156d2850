// How variables of operands and results belong together. Rules are not asked how they judge a kind;
// each is tried with the operand as R and as I, once per distinct application.
#include "checker/walk/undecided/undecided_kinds.h"

#include "checker/walk/gradients/joint.h"
#include "ir/support/arrays.h"

#include "rules/redistribute/call.h"
#include "rules/shards/remesh.h"
#include "rules/transitions/call.h"
#include "rules/violations/control.h"
#include "rules/violations/gradients.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using Row = KindVariables::Row;

namespace {

// Beyond this many open operands (long lists) they are tried together, so that time stays linear.
constexpr size_t kTriedApart = 8;

bool is_error(const rules::Violation &violation) {
  return rules::info(violation).severity == rules::Severity::Error;
}

// What an outcome refuses on the axis; null if nothing.
const rules::Violation *refusal(const rules::Outcome &outcome, AxisId axis) {
  for (const rules::Violation &violation : outcome.violations)
    if (is_error(violation) && rules::axes_of(violation).contains(axis))
      return &violation;
  return nullptr;
}

bool follows(const Type &base, const Type &as_replicate, const Type &as_invariant, AxisId axis) {
  AxisSet replicate = as_replicate.replicated() - as_replicate.of(Kind::Invariant);
  AxisSet invariant = as_invariant.of(Kind::Invariant) - as_invariant.replicated();
  return undecided_axes(base).contains(axis) && (replicate & invariant).contains(axis);
}

// Equal findings of several axes at one place are one.
bool joins(KindVariables::Contradiction &known, const KindVariables::Contradiction &next) {
  if (known.body != next.body || !(known.finding.place == next.finding.place))
    return false;
  llvm::SmallVector<rules::Violation, 2> both{known.finding.violation};
  rules::add_merged(both, 0, next.finding.violation);
  if (both.size() > 1)
    return false;
  known.finding.violation = std::move(both[0]);
  known.clash.axes |= next.clash.axes;
  return true;
}

} // namespace

void UndecidedKinds::fact(KindFact::Form form, uint32_t a, uint32_t b, AxisId axis) {
  state_.body_result->open.push_back({form, axis, a, b});
}

void UndecidedKinds::need(Row row, AxisId axis, Kind kind, Place place,
                          rules::Violation violation) {
  uint32_t said = open_.say(std::move(violation));
  uint32_t entry = static_cast<uint32_t>(state_.body_result->entries.size());
  fact(KindFact::Form::Needs, open_.variable(row, axis), open_.use(place, kind, axis, said, entry));
}

// The variables of an operand, on the mesh on which the instruction sees it.
Row UndecidedKinds::operand_row(size_t operand) {
  ValueId value = state_.operands.values[operand];
  AxisSet open = undecided_axes(program_.types[state_.args[operand].type]);
  if (!open)
    return 0;
  const Type own = program_.types[result_.types[value.index]];
  ir::MeshId here = program_.types[state_.args[operand].type].mesh();
  Row row = open_.row(value);
  if (own.mesh() == here) {
    Row whole = open_.completed(row, open);
    if (whole != row)
      open_.set(value, whole);
    return whole;
  }
  std::array<uint32_t, ir::kMaxAxes> variables{};
  AxisSet known;
  for (AxisId axis : open_.axes(row))
    for (AxisId seen : rules::counterparts(program_, own.mesh(), axis, here) & open) {
      uint32_t variable = open_.variable(row, axis);
      if (known.contains(seen))
        fact(KindFact::Form::Same, variables[seen.index], variable);
      else
        variables[seen.index] = variable;
      known |= seen;
    }
  return open_.completed(open_.make(known, variables, 0), open);
}

const rules::Outcome &UndecidedKinds::probe(const rules::Application &app,
                                            llvm::ArrayRef<Probe> probes) {
  Args args(app.args.begin(), app.args.end());
  for (auto [operand, kind] : probes) {
    Type type = program_.types[args[operand].type];
    type.set_kind(undecided_axes(type), kind);
    args[operand].type = state_.intern(type);
  }
  rules::Application tried = app;
  tried.args = args;
  return state_.rules.apply(tried);
}

// Results that are open because the call states no `dst`. The pieces of a flattened axis have one
// word together: `a` is the first of them.
void UndecidedKinds::link_words(const rules::Application &app, const rules::Outcome &outcome,
                                KindLinks &links) {
  rules::Outcome ignored;
  std::optional<rules::TransitionCall> call;
  if (!rules::redistribute::states_whole_type(app) && !(call = rules::read_call(app, ignored)))
    return;
  for (const rules::InferredKinds &word : outcome.inferred) {
    if (!call) { // of a whole type: axis by axis, and the operand is as it is
      for (AxisId axis : word.axes &undecided_axes(program_.types[outcome.types[0]]))
        links.push_back({.form = KindLink::Form::Word, .axis = axis, .a = axis.index, .b = 0});
      continue;
    }
    if (word.dst.form == ir::WrittenKind::Form::Either)
      for (const rules::WrittenAxis &written : call->axes.written)
        for (AxisId axis : written.axes)
          for (uint32_t r = 0; word.axes.contains(axis) && r < outcome.types.size(); ++r)
            if (undecided_axes(program_.types[outcome.types[r]]).contains(axis))
              links.push_back(
                  {.form = KindLink::Form::Word, .axis = axis, .a = written.axes[0].index, .b = r});
    if (word.src.kind != Kind::Replicate || word.src.form != ir::WrittenKind::Form::Plain)
      continue;
    for (uint32_t operand : rules::operands_of(app))
      for (AxisId axis : undecided_axes(app.type(app.args[operand])) & word.axes)
        links.push_back({.form = KindLink::Form::Source, .axis = axis, .a = operand});
  }
}

// True of two operands that may not be of different kinds, whatever becomes of them.
void UndecidedKinds::link_pair(const rules::Application &app, Probe one, uint32_t other,
                               AxisSet axes, KindLinks &links) {
  if (!axes)
    return;
  const rules::Outcome &mixed =
      probe(app, {one, {other, one.second == Kind::Replicate ? Kind::Invariant : Kind::Replicate}});
  for (AxisId axis : axes)
    if (refusal(mixed, axis))
      links.push_back({.form = KindLink::Form::Same, .axis = axis, .a = one.first, .b = other});
}

// Operands that are tried together, as R and as I.
void UndecidedKinds::link_group(const rules::Application &app, const rules::Outcome &outcome,
                                llvm::ArrayRef<uint32_t> operands, AxisSet refused,
                                KindLinks &links) {
  llvm::SmallVector<Probe, 8> replicate, invariant;
  for (uint32_t i : operands) {
    replicate.push_back({i, Kind::Replicate});
    invariant.push_back({i, Kind::Invariant});
  }
  const rules::Outcome &as_r = probe(app, replicate), &as_i = probe(app, invariant);
  for (uint32_t i : operands)
    for (AxisId axis : undecided_axes(app.type(app.args[i])) - refused) {
      const rules::Violation *no_r = refusal(as_r, axis), *no_i = refusal(as_i, axis);
      if (!no_r != !no_i)
        links.push_back({.form = KindLink::Form::Needs,
                         .axis = axis,
                         .needs = no_i ? Kind::Replicate : Kind::Invariant,
                         .a = i,
                         .violation = open_.say(no_i ? *no_i : *no_r)});
      for (uint32_t r = 0; r < outcome.types.size(); ++r)
        if (follows(program_.types[outcome.types[r]], program_.types[as_r.types[r]],
                    program_.types[as_i.types[r]], axis))
          links.push_back({.form = KindLink::Form::Result, .axis = axis, .a = i, .b = r});
    }
}

KindLinks UndecidedKinds::links_of(const rules::Application &app, const rules::Outcome &outcome) {
  KindLinks links;
  if (!outcome.inferred.empty())
    link_words(app, outcome, links);
  AxisSet refused;
  for (const rules::Violation &violation : outcome.violations)
    if (is_error(violation))
      refused |= rules::axes_of(violation);
  llvm::SmallVector<uint32_t, 8> open;
  for (uint32_t i = 0; i < app.args.size(); ++i)
    if (undecided_axes(app.type(app.args[i])) - refused)
      open.push_back(i);
  auto axes_of_operand = [&](uint32_t i) {
    return undecided_axes(app.type(app.args[i])) - refused;
  };
  size_t step = open.size() > kTriedApart ? open.size() : 1;
  for (size_t at = 0; at < open.size(); at += step)
    link_group(app, outcome, ir::as_array(open).slice(at, step), refused, links);
  for (size_t a = 0; a + 1 < open.size(); ++a)
    for (size_t b = a + 1; b < (step == 1 ? open.size() : a + 2); ++b)
      link_pair(app, {open[a], Kind::Replicate}, open[b],
                axes_of_operand(open[a]) & axes_of_operand(open[b]), links);
  return links;
}

void UndecidedKinds::apply(InstId id, const rules::Application &app, const rules::Outcome &outcome,
                           uint32_t application) {
  if (!state_.recording || (!open_.any() && outcome.inferred.empty()))
    return;
  rows_.clear();
  bool open = open_.any() && llvm::any_of(state_.operands.values,
                                          [&](ValueId value) { return open_.row(value) != 0; });
  if (!open && outcome.inferred.empty())
    return;
  const KindLinks *links = open_.known_links(application);
  if (!links)
    links = &open_.remember_links(application, links_of(app, outcome));
  if (links->empty())
    return;
  KindRows operands;
  for (size_t i = 0; i < state_.args.size(); ++i)
    operands.push_back(operand_row(i));
  llvm::SmallVector<ResultVariables, 1> made(outcome.types.size());
  for (const KindLink &link : *links)
    follow(id, link, operands, made);
  for (const ResultVariables &result : made)
    rows_.push_back(open_.make(result.axes, result.variables, result.like));
}

// One thing that an application says, of these operands.
void UndecidedKinds::follow(InstId id, const KindLink &link, llvm::ArrayRef<Row> operands,
                            llvm::MutableArrayRef<ResultVariables> made) {
  const AxisId axis = link.axis;
  switch (link.form) {
  case KindLink::Form::Needs:
    fact(KindFact::Form::Needs, open_.variable(operands[link.a], axis),
         open_.use(Place::inst(id), link.needs, axis, link.violation,
                   static_cast<uint32_t>(state_.body_result->entries.size())));
    break;
  case KindLink::Form::Same:
    fact(KindFact::Form::Same, open_.variable(operands[link.a], axis),
         open_.variable(operands[link.b], axis));
    break;
  case KindLink::Form::Source:
    fact(KindFact::Form::Source, open_.variable(operands[link.a], axis), id.index, axis);
    break;
  case KindLink::Form::Word: {
    ResultVariables &result = made[link.b];
    result.axes |= axis;
    result.variables[axis.index] = open_.add_variable();
    fact(KindFact::Form::Word, result.variables[axis.index], id.index, axis);
    if (link.a != axis.index)
      fact(KindFact::Form::Word, result.variables[axis.index], id.index,
           AxisId{static_cast<uint8_t>(link.a)});
    break;
  }
  case KindLink::Form::Result: {
    ResultVariables &result = made[link.b];
    uint32_t variable = open_.variable(operands[link.a], axis);
    if (result.axes.contains(axis)) {
      fact(KindFact::Form::Same, result.variables[axis.index], variable);
      break;
    }
    result.axes |= axis;
    result.variables[axis.index] = variable;
    result.like = operands[link.a];
    break;
  }
  }
}

void UndecidedKinds::define(ValueId value, Row row, const Type &type) {
  AxisSet open = undecided_axes(type);
  open_.set(value, open ? open_.completed(row, open) : 0);
}

void UndecidedKinds::gradient(Place place, ValueId gradient, const Type &value, const Type &found,
                              llvm::function_ref<AxisSet(const Type &)> refused) {
  ValueId of = program_.values[gradient].grad_of;
  AxisSet open = undecided_axes(value) & open_.axes(open_.row(of));
  if (!open || program_.types[result_.types[of.index]].mesh() != found.mesh())
    return;
  Type replicate = value, invariant = value;
  replicate.set_kind(open, Kind::Replicate), invariant.set_kind(open, Kind::Invariant);
  AxisSet no_r = refused(replicate) & open;
  AxisSet no_i = refused(invariant) & open;
  for (AxisId axis : (no_r | no_i) - (no_r & no_i)) {
    bool is_r = no_i.contains(axis);
    need(open_.row(of), axis, is_r ? Kind::Replicate : Kind::Invariant, place,
         rules::GradientTypeMismatch{of, state_.on_axes(found, axis),
                                     state_.intern(dual_on(is_r ? invariant : replicate, axis)),
                                     axis});
  }
}

void UndecidedKinds::meet(Row row, const Type &one, Row other, const Type &two, Place place,
                          Say say) {
  if (!row || !state_.recording || one.mesh() != two.mesh())
    return;
  const Type before = one, after = two; // what is counted makes types
  for (AxisId axis : undecided_axes(before) & open_.axes(row)) {
    if (undecided_axes(after).contains(axis)) {
      if (open_.axes(other).contains(axis))
        fact(KindFact::Form::Same, open_.variable(row, axis), open_.variable(other, axis));
      continue;
    }
    std::optional<Kind> kind = after.kind(axis);
    if (!kind || *kind == Kind::Partial)
      continue;
    bool invariant = *kind == Kind::Invariant;
    need(row, axis, *kind == Kind::Varying ? Kind::Replicate : *kind, place,
         say(axis, invariant ? Kind::Replicate : Kind::Invariant));
  }
}

// The call of a body: the variables of its parameters, as the caller has them.
KindRows UndecidedKinds::bind_params(uint32_t instance, llvm::ArrayRef<Row> args) {
  fact(KindFact::Form::Enter, 0, instance);
  const KindRows params(state_.bodies[instance].param_rows.begin(),
                        state_.bodies[instance].param_rows.end());
  KindRows bound;
  for (size_t i = 0; i < params.size(); ++i) {
    Row row = open_.completed(i < args.size() ? args[i] : 0, open_.axes(params[i]));
    for (AxisId axis : open_.axes(params[i]))
      fact(KindFact::Form::Bind, open_.variable(row, axis), open_.variable(params[i], axis));
    bound.push_back(row);
  }
  return bound;
}

KindRows UndecidedKinds::bind_results(uint32_t instance) {
  const KindRows results(state_.bodies[instance].result_rows.begin(),
                         state_.bodies[instance].result_rows.end());
  KindRows bound;
  for (Row inside : results) {
    Row row = open_.fresh(open_.axes(inside));
    for (AxisId axis : open_.axes(inside))
      fact(KindFact::Form::Bind, open_.variable(row, axis), open_.variable(inside, axis));
    bound.push_back(row);
  }
  return bound;
}

void UndecidedKinds::call(CallSite &site, const Round &round) {
  if (!state_.recording || round.body == BodyResult::kNone)
    return;
  bind_params(round.body, site.arg_rows);
  site.rows = bind_results(round.body);
}

// `met`: the carries as the loop leaves them, from operand `first` on.
void UndecidedKinds::loop(CallSite &site, const Round &round, const Args &args, size_t first,
                          llvm::ArrayRef<Type> met) {
  if (!recording())
    return;
  KindRows params;
  for (uint32_t instance : round.bodies)
    params = bind_params(instance, site.arg_rows);
  KindRows results;
  if (round.body != BodyResult::kNone)
    results = bind_results(round.body);
  for (size_t c = 0; c < met.size(); ++c) {
    uint32_t operand = static_cast<uint32_t>(first + c);
    const Type enters = program_.types[site.args[operand].type];
    Type leaves = met[c];
    auto say = [&](AxisId axis, Kind other) -> rules::Violation {
      if (leaves.of(Kind::Varying).contains(axis))
        return rules::VaryingChoice{{static_cast<uint32_t>(c)}, Kind::Invariant, axis};
      return rules::CarryMismatch{{operand},
                                  static_cast<int64_t>(c),
                                  state_.as_kind(enters, axis, other),
                                  state_.on_axes(leaves, axis),
                                  axis};
    };
    Row entering = operand < site.arg_rows.size() ? site.arg_rows[operand] : 0;
    meet(entering, enters, 0, program_.types[args[operand].type], Place::inst(site.id), say);
    if (c >= results.size())
      continue;
    const Type inside = program_.types[state_.bodies[round.body].results[c].type];
    meet(results[c], inside, operand < params.size() ? params[operand] : 0, leaves,
         Place::inst(site.id), say);
  }
  site.rows = std::move(results);
}

void UndecidedKinds::branches(CallSite &site, const Round &then, const Round &other) {
  if (!recording())
    return;
  llvm::ArrayRef<Row> args(site.arg_rows);
  KindRows sides[2];
  const Round *rounds[] = {&then, &other};
  for (unsigned side = 0; side < 2; ++side)
    if (rounds[side]->body != BodyResult::kNone) {
      bind_params(rounds[side]->body, args.empty() ? args : args.drop_front());
      sides[side] = bind_results(rounds[side]->body);
    }
  for (size_t r = 0; r < site.results.size(); ++r) {
    const Type made = program_.types[site.results[r].type];
    auto say = [&](AxisId axis, Kind kind) -> rules::Violation {
      if (made.of(Kind::Varying).contains(axis))
        return rules::VaryingChoice{{static_cast<uint32_t>(r)}, Kind::Invariant, axis};
      Type is = made;
      is.set_kind(axis, kind);
      return rules::BranchMismatch{
          {static_cast<uint32_t>(r)}, state_.on_axes(made, axis), state_.on_axes(is, axis), axis};
    };
    Row rows[2] = {};
    for (unsigned side = 0; side < 2; ++side)
      rows[side] = r < sides[side].size() ? sides[side][r] : 0;
    for (unsigned side = 0; side < 2; ++side)
      if (rows[side] && rounds[side]->results[r].type.valid())
        meet(rows[side], program_.types[rounds[side]->results[r].type], rows[1 - side], made,
             Place::inst(site.id), say);
    site.rows.push_back(rows[0] ? rows[0] : rows[1]);
  }
}

// Rules know neither the names of values nor on which of their axes the kinds contradict.
void UndecidedKinds::name_clash(KindVariables::Contradiction &clash) {
  Finding &finding = clash.finding;
  state_.operands.values.clear();
  if (finding.place.form == Place::Form::Inst)
    state_.operands.read(program_, program_.insts[finding.place.as_inst()].operands);
  finding.violation = state_.named(std::move(finding.violation));
  if (AxisSet *axes = finding.violation.axes())
    *axes = clash.clash.axes;
}

void UndecidedKinds::settle(size_t declared, size_t reported, size_t late) {
  if (!recording())
    return;
  open_.solve(state_.main.open, [&](uint32_t body) -> llvm::ArrayRef<KindFact> {
    return state_.bodies[body].body_result.open;
  });
  auto moved = [&](Place place, uint32_t entry) {
    if (place.form == Place::Form::Param)
      return static_cast<uint32_t>(entry - reported + declared);
    return place.form == Place::Form::Inst ? static_cast<uint32_t>(entry + late) : entry;
  };
  std::vector<KindVariables::Contradiction> found;
  for (KindVariables::Contradiction &each : open_.contradictions(moved)) {
    name_clash(each);
    if (!found.empty() && joins(found.back(), each))
      continue;
    found.push_back(std::move(each));
  }
  for (KindVariables::Contradiction &each : found) {
    each.finding.clash = static_cast<uint32_t>(result_.clashes.size());
    result_.clashes.push_back(each.clash);
  }
  put_in_order(std::move(found));
  open_.settle_types(program_, result_);
}

// The findings of each body are rebuilt once, in the order that the findings have.
void UndecidedKinds::put_in_order(std::vector<KindVariables::Contradiction> found) {
  for (size_t first = 0; first < found.size();) {
    uint32_t name = found[first].body;
    std::vector<BodyResult::Entry> &entries =
        (name == KindVariables::kMain ? state_.main : state_.bodies[name].body_result).entries;
    std::vector<BodyResult::Entry> merged;
    size_t at = 0;
    for (; first < found.size() && found[first].body == name; ++first) {
      while (at < found[first].entry)
        merged.push_back(std::move(entries[at++]));
      merged.push_back({std::move(found[first].finding)});
    }
    while (at < entries.size())
      merged.push_back(std::move(entries[at++]));
    entries = std::move(merged);
  }
}

void UndecidedKinds::use_decided_src_dst() {
  for (const InferredSrcDst &at : result_.inferred)
    if (at.why != InferredSrcDst::Why::Call && at.why != InferredSrcDst::Why::NoGradient)
      words_[at.inst.index].push_back({at.word.axes, at.word.dst.kind});
}

void UndecidedKinds::apply_decided_dst(InstId id, Type &type) const {
  if (type.gradient_free())
    return;
  auto words = words_.find(id.index);
  if (words == words_.end())
    return;
  for (auto [axes, kind] : words->second)
    type.set_kind(axes & undecided_axes(type), kind);
}

} // namespace spmd::checker
