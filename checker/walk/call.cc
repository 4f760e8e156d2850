// Calls: bodies are typed once per distinct operand types, opaque functions by their signature.
#include "checker/walk/walk.h"

#include "rules/attributes/attributes.h"
#include "rules/kinds/scale.h"
#include "rules/shapes/extent_facts.h"
#include "rules/shards/shards.h"
#include "rules/transitions/axes.h"
#include "rules/violations/claims.h"
#include "rules/violations/coverage.h"
#include "rules/violations/gradients.h"
#include "rules/violations/shards.h"
#include "rules/violations/transitions.h"

#include "ir/claims.h"
#include "ir/mesh/axis_scale.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Type;
using ir::ValueId;

namespace {

Type unknown_on(const ir::Program &program, ir::MeshId mesh) {
  Type type;
  type.set_mesh(mesh);
  type.unknown = program.meshes[mesh].typed_axes();
  return type;
}

} // namespace

void Walk::call(InstId id, const ir::Inst &inst, const rules::ResolvedOp &op,
                rules::Outcome &outcome) {
  rules::Arg unknown{state_.intern(unknown_on(program_, program_.contexts[inst.context].mesh)), {}};
  if (std::optional<rules::OperandIndex> cut =
          rules::cut_gradient({program_, op, inst.attrs, inst.context, state_.operands.slots,
                               state_.args, state_.claims})) {
    state_.report(Place::inst(id), rules::MissingVjp{*cut, {}});
    for (rules::Arg &arg : state_.args)
      arg.type = rules::without_gradient(program_, arg.type);
  }
  rules::Outcome attributes;
  rules::Application app{
      program_,      op,   inst.attrs, inst.context, state_.operands.slots, state_.args,
      state_.claims, false};
  bool wrong = rules::check_boundary_attributes(app, attributes);
  for (rules::Violation &violation : attributes.violations)
    state_.report(Place::inst(id), std::move(violation));
  CallSite site{id, inst, state_.args, {}, {}};
  for (size_t i = 0; undecided_.recording() && i < state_.args.size(); ++i)
    site.arg_rows.push_back(undecided_.operand_row(i));
  if (op.boundary == rules::Boundary::LocalMap)
    site.region = region_axes(site, op);
  site.results.assign(inst.result_count, unknown);
  OperandList kept = state_.operands;
  if (wrong) {
    // What it says is not known, so neither is what it gives.
  } else if (op.boundary == rules::Boundary::Cond)
    branches(site);
  else if (op.boundary == rules::Boundary::Scan)
    scan(site);
  else if (op.boundary == rules::Boundary::While)
    loop(site);
  else
    plain_call(site);
  tell_believed(site);
  state_.operands = std::move(kept);
  undecided_.set_result_rows(site.rows);
  for (const rules::Arg &result : site.results) {
    outcome.types.push_back(result.type.valid() ? result.type : unknown.type);
    outcome.shapes.push_back(result.shape);
    outcome.sizes.push_back(result.sizes);
  }
  state_results(site, outcome);
}

// The axes that a `local_map` makes local, where they were not before.
AxisSet Walk::region_axes(const CallSite &site, const rules::ResolvedOp &op) {
  rules::Application app{
      program_,      op,   site.inst.attrs, site.inst.context, state_.operands.slots, state_.args,
      state_.claims, false};
  rules::Outcome found;
  std::optional<rules::CallAxes> axes = rules::resolve_axes(app, {}, found);
  for (rules::Violation &violation : found.violations)
    state_.report(Place::inst(site.id), std::move(violation));
  return axes ? axes->all() & app.global_axes() : AxisSet();
}

// Inside of a region a shard on one of its axes is a value per rank.
void Walk::forget_shards(const CallSite &site, size_t operand, rules::Arg &arg) {
  const Type before = program_.types[arg.type];
  if (before.mesh() != program_.contexts[site.inst.context].mesh ||
      !(before.sharded() & site.region))
    return;
  llvm::SmallVector<rules::Violation, 1> found;
  rules::warn_uneven_lists(program_, arg, site.region, {static_cast<uint32_t>(operand)}, found);
  for (rules::Violation &violation : found)
    state_.report(Place::inst(site.id), std::move(violation));
  Type type = before.erased(site.region);
  arg.type = state_.intern(type);
  if (!arg.sizes.valid())
    return;
  ir::ShardSizes sizes = program_.shard_sizes[arg.sizes];
  llvm::erase_if(sizes.dims,
                 [&](const ir::UnevenDim &each) { return ir::shards_of(type, each.dim).empty(); });
  arg.sizes = sizes.dims.empty() ? ir::ShardSizesId() : program_.shard_sizes.add(std::move(sizes));
}

void Walk::plain_call(CallSite &site) {
  std::optional<ir::FunctionId> function = region(site, "body");
  if (!function || !counts(site, *function, site.args.size(), site.inst.result_count))
    return;
  Args args = enter(site, *function, 0);
  Round round = evaluate(*function, args);
  reach(site, round);
  undecided_.call(site, round);
  site.results = std::move(round.results);
}

std::optional<ir::FunctionId> Walk::region(const CallSite &site, llvm::StringRef role) {
  const ir::AttrValue *attr = program_.find(site.inst.attrs, role);
  if (attr && attr->form == ir::AttrForm::Function)
    return attr->as<ir::FunctionId>();
  state_.report(Place::inst(site.id), rules::AttributeMismatch{role.str(), "a function"});
  return std::nullopt;
}

// The numbers of values that cross the boundary.
bool Walk::counts(const CallSite &site, ir::FunctionId function, size_t params, size_t results) {
  const ir::Function &callee = program_.functions[function];
  size_t returned = callee.opaque ? callee.outs.size() : program_.blocks[callee.results].size();
  auto agree = [&](const char *what, size_t declared, size_t found) {
    if (declared != found)
      state_.report(Place::inst(site.id), rules::BoundaryShape{program_.strings[callee.name].str(),
                                                               what, static_cast<int64_t>(declared),
                                                               static_cast<int64_t>(found)});
    return declared == found;
  };
  bool enters = agree("parameters", callee.params.size(), params);
  return agree("results", returned, results) && enters;
}

// The operands from `first` on as the function sees them: the claims of its parameters, and those
// of a region's `in_types`, are compared.
Args Walk::enter(const CallSite &site, ir::FunctionId function, size_t first) {
  const ir::Function &callee = program_.functions[function];
  const ir::AttrValue *stated = program_.find(site.inst.attrs, "in_types");
  Args args(llvm::drop_begin(site.args, first));
  for (size_t i = 0; i < args.size(); ++i) {
    const ir::Value &param = program_.values[callee.params[i].value];
    cross(site, i + first, args[i], {param.declared, param.shape, param.global_shape}, callee);
    if (!stated || stated->form != ir::AttrForm::List)
      continue;
    llvm::ArrayRef<ir::AttrValue> claims = program_.lists[stated->as<ir::AttrListId>()].items;
    if (i + first >= claims.size() || claims[i + first].form != ir::AttrForm::Claim)
      continue;
    const ir::Claim &claim = program_.claims[claims[i + first].as<ir::ClaimId>()];
    cross(site, i + first, args[i], {claim.type, claim.shape, claim.global_shape}, callee);
  }
  for (size_t i = 0; i < args.size(); ++i)
    forget_shards(site, i + first, args[i]);
  return args;
}

void Walk::cross(const CallSite &site, size_t operand, rules::Arg &arg, const Declared &declared,
                 const ir::Function &callee) {
  if (!declared.type.valid())
    return;
  Type claimed = state_.seen(declared.type, site.inst.context), found = program_.types[arg.type];
  if (claimed.mesh() != found.mesh())
    return;
  rules::ClaimCheck check = rules::check_claim(found, claimed, found.gradient_free());
  AxisSet wrong = check.mismatched | check.unowned;
  AxisSet judged =
      claimed.claimed() - state_.local_axes(claimed.mesh(), site.inst.context) - site.region;
  llvm::SmallVector<rules::UndecidedExtents, 0> open;
  std::optional<rules::ShapesDiffer> shapes = rules::claimed_shape_differs(
      program_, arg, claimed, declared.shape, declared.global_shape, judged, open);
  for (rules::UndecidedExtents &each : open)
    state_.report(Place::inst(site.id), std::move(each));
  if (wrong || shapes)
    state_.report(Place::inst(site.id),
                  rules::BoundaryMismatch{{static_cast<uint32_t>(operand)},
                                          program_.strings[callee.name].str(),
                                          arg.type,
                                          state_.intern(claimed),
                                          shapes ? wrong | shapes->axes : wrong,
                                          shapes ? shapes->found : "",
                                          shapes ? shapes->claimed : ""});
  if (shapes)
    arg.shape = {}, arg.sizes = {};
  std::string needed = ir::print_scale(program_, claimed.scale, claimed.mesh());
  if (std::optional<rules::Violation> differs =
          rules::scale_differs(program_, found, claimed.scale, "its declaration states " + needed,
                               {static_cast<uint32_t>(operand)});
      differs && !wrong)
    state_.report(Place::inst(site.id), state_.named(std::move(*differs)));
  undecided_.meet(operand < site.arg_rows.size() ? site.arg_rows[operand] : 0, found, 0, check.type,
                  Place::inst(site.id), [&](AxisId axis, ir::Kind other) {
                    return rules::BoundaryMismatch{{static_cast<uint32_t>(operand)},
                                                   program_.strings[callee.name].str(),
                                                   state_.as_kind(found, axis, other),
                                                   state_.on_axes(claimed, axis),
                                                   axis};
                  });
  check.type.scale = claimed.scale;
  arg.type = state_.intern(check.type);
}

Round Walk::opaque(const ir::Function &function, llvm::ArrayRef<rules::Arg> args) {
  bool free = llvm::all_of(
      args, [&](const rules::Arg &arg) { return program_.types[arg.type].gradient_free(); });
  AxisSet silent;
  for (const rules::Arg &arg : args)
    silent |= program_.types[arg.type].unknown;
  Round round;
  for (ir::ClaimId out : function.outs) {
    const ir::Claim &claim = program_.claims[out];
    rules::Arg &result = round.results.emplace_back();
    AxisSet &believed = round.believed.emplace_back();
    if (!claim.type.valid())
      continue;
    Type type = state_.seen(claim.type, ir::ContextId{0});
    type.set_gradient_free(free);
    type.set_unknown(silent);
    believed = type.claimed() - type.unknown;
    ir::ShardSizesId sizes;
    if (program_.mode == ir::Mode::Global)
      sizes = rules::declared_sizes(program_, type, claim.shape, claim.global_shape, 0).sizes;
    result = {state_.intern(type), claim.shape, sizes};
  }
  return round;
}

// Types the function for these operands, under the conditions around it; nothing is reported until
// the body is reached.
Round Walk::evaluate(ir::FunctionId function, llvm::ArrayRef<rules::Arg> args) {
  if (program_.functions[function].opaque)
    return opaque(program_.functions[function], args);
  std::vector<uint32_t> key{function.index};
  for (const rules::Arg &arg : args)
    key.insert(key.end(), {arg.type.index, arg.shape.index, arg.sizes.index});
  for (ir::TypeId condition : conditions_)
    key.push_back(condition.index);
  uint64_t hash = ir::hash_bytes(key.data(), key.size() * sizeof(uint32_t));
  uint32_t known = body_table_.find(hash, [&](uint32_t i) { return state_.bodies[i].key == key; });
  if (known == ir::IndexTable::kEmpty) {
    TypedBody made{std::move(key), {}, {}, {}, {}};
    OperandList kept = state_.operands; // of the call, which findings behind the body name
    type_body(function, args, made);
    state_.operands = std::move(kept);
    known = static_cast<uint32_t>(state_.bodies.size());
    // Typing the body may have grown the table: the slot is looked up again.
    uint32_t &slot =
        body_table_.find(hash, [&](uint32_t i) { return state_.bodies[i].key == made.key; });
    slot = known;
    state_.bodies.push_back(std::move(made));
    body_table_.inserted();
  }
  return {state_.bodies[known].results, {known}, known};
}

void Walk::reach(CallSite &site, const Round &round) {
  if (state_.trail->sites.empty() || state_.trail->sites.back().inst != site.id)
    state_.trail->sites.push_back({site.id, {}});
  state_.trail->sites.back().bodies.append(round.bodies.begin(), round.bodies.end());
  for (uint32_t instance : round.bodies)
    state_.trail->entries.push_back({std::nullopt, instance});
  for (size_t r = 0; r < round.believed.size(); ++r) {
    if (r == site.believed.size())
      site.believed.emplace_back();
    site.believed[r] |= round.believed[r];
  }
}

// What a function without a body claims of its results is not proved by anything.
void Walk::tell_believed(const CallSite &site) {
  for (size_t r = 0; r < site.believed.size() && r < site.results.size(); ++r) {
    if (!site.results[r].type.valid())
      continue;
    const Type type = program_.types[site.results[r].type];
    if (AxisSet axes = site.believed[r] & (type.claimed() - type.unknown))
      state_.report(Place::inst(site.id),
                    rules::UncheckedClaim{site.inst.result(static_cast<uint32_t>(r)),
                                          state_.on_axes(type, axes)});
  }
}

// The next call may type the same body otherwise.
void Walk::keep_values(ir::FunctionId id, TypedBody &instance) {
  const ir::Function &function = program_.functions[id];
  uint32_t first = ~0u, last = 0;
  auto span = [&](ValueId value, uint32_t count) {
    first = std::min(first, value.index);
    last = std::max(last, value.index + count);
  };
  for (const ir::FunctionParam &param : function.params)
    span(param.value, 1);
  for (InstId inst = function.body.first; inst.index < function.body.last.index; ++inst.index)
    if (const ir::Inst &each = program_.insts[inst]; each.result_count > 0)
      span(each.first_result, each.result_count);
  instance.first = first;
  for (uint32_t i = first; i < last; ++i)
    instance.values.push_back(state_.known(ValueId{i}));
}

static bool has_error(const BodyResult &trail) {
  return llvm::any_of(trail.entries, [](const BodyResult::Entry &entry) {
    return entry.finding && entry.finding->severity() == rules::Severity::Error;
  });
}

// That of the main body first; an instance is found one after its own index.
void Walk::keep_typings() {
  auto take = [&](BodyResult &trail) {
    for (Typing::Site &site : trail.sites)
      for (uint32_t &body : site.bodies)
        ++body;
    return std::move(trail.sites);
  };
  result_.typings.push_back({take(state_.main), 0, {}});
  for (TypedBody &each : state_.bodies)
    result_.typings.push_back({take(each.trail), each.first, std::move(each.values)});
  // Of a body that calls type in several ways, the first one in which something is wrong is shown: the
  // sentences speak of its values.
  std::vector<bool> reached(result_.typings.size());
  llvm::DenseSet<uint32_t> shown;
  llvm::SmallVector<uint32_t, 8> open{0};
  while (!open.empty()) {
    uint32_t index = open.pop_back_val();
    if (reached[index])
      continue;
    reached[index] = true;
    for (const Typing::Site &site : result_.typings[index].sites)
      open.append(site.bodies.begin(), site.bodies.end());
  }
  for (uint32_t i = 1; i < reached.size(); ++i) {
    const Typing &typing = result_.typings[i];
    if (reached[i] && has_error(state_.bodies[i - 1].trail) && shown.insert(typing.first).second)
      for (uint32_t v = 0; v < typing.values.size(); ++v)
        state_.learn(ValueId{typing.first + v}, typing.values[v]);
  }
}

void Walk::type_body(ir::FunctionId id, llvm::ArrayRef<rules::Arg> args, TypedBody &instance) {
  const ir::Function &function = program_.functions[id];
  for (size_t i = 0; i < function.params.size(); ++i) {
    ValueId param = function.params[i].value;
    if (state_.edit)
      remember(param);
    ir::ShapeId shape = rules::stated_shape(program_, program_.values[param].shape, args[i].shape);
    state_.learn(param, {args[i].type, shape, args[i].sizes});
    if (state_.recording) {
      undecided_.define(param, 0, program_.types[args[i].type]);
      instance.param_rows.push_back(undecided_.row(param));
    }
    if (!state_.edit)
      state_.storage.define(param);
  }
  ir::Body body = function.body;
  ir::BlockId results = function.results;
  BodyResult *outer = std::exchange(state_.trail, &instance.trail);
  for (InstId inst = body.first; state_.edit && inst.index < body.last.index; ++inst.index)
    for (uint32_t r = 0; r < program_.insts[inst].result_count; ++r)
      remember(program_.insts[inst].result(r));
  instructions(body);
  state_.trail = outer;
  if (state_.recording)
    keep_values(id, instance);
  for (const ir::Operand &operand : program_.blocks[results]) {
    rules::Arg &result = instance.results.emplace_back();
    if (operand.is_value())
      result = state_.known(operand.as_value());
    if (state_.recording)
      instance.result_rows.push_back(operand.is_value() ? undecided_.row(operand.as_value()) : 0);
  }
}

// What a region states of its results says how their pieces join; a list of values without a statement
// does not leave it.
void Walk::state_results(const CallSite &site, rules::Outcome &outcome) {
  const ir::AttrValue *stated = program_.find(site.inst.attrs, "out_types");
  llvm::ArrayRef<ir::AttrValue> claims;
  if (stated && stated->form == ir::AttrForm::List)
    claims = program_.lists[stated->as<ir::AttrListId>()].items;
  for (size_t i = 0; i < outcome.types.size(); ++i) {
    ValueId result = site.inst.result(static_cast<uint32_t>(i));
    ir::ClaimId id = i < claims.size() && claims[i].form == ir::AttrForm::Claim
                         ? claims[i].as<ir::ClaimId>()
                         : ir::ClaimId();
    ir::TypeId declared = id.valid() ? program_.claims[id].type : program_.values[result].declared;
    Type type = program_.types[outcome.types[i]].erased(site.region);
    if (declared.valid() && site.region)
      restate_scale(site.id, result, type, state_.seen(declared, site.inst.context), site.args,
                    site.region);
    if (declared.valid())
      join_region(site, result, type, declared);
    if (id.valid() && declared.valid())
      claim(site.id, result, type, declared, rules::Spec::Compared);
    if (AxisSet loose = (type.of(ir::Kind::Varying) - type.sharded()) & site.region) {
      state_.report(Place::inst(site.id), rules::NoSpec{{}, result, loose});
      type.set_unknown(loose);
    }
    rules::Arg inside{outcome.types[i], outcome.shapes[i], outcome.sizes[i]};
    outcome.types[i] = state_.intern(type);
    if (id.valid())
      claim_shape(site.id, result, program_.claims[id].shape, outcome.shapes[i]);
    ir::ShapeId global = id.valid() ? program_.claims[id].global_shape : ir::ShapeId();
    if (!global.valid())
      global = program_.values[result].global_shape;
    if (!site.region)
      continue;
    std::optional<ir::ShardSizesId> sizes;
    if (global.valid()) {
      claim_whole(site.id, type, inside, global, site.region);
      // Of dimensions that the region cuts it is trusted.
      sizes = rules::declared_sizes(program_, type, outcome.shapes[i], global,
                                    program_.rank.value_or(0))
                  .sizes;
    }
    llvm::SmallVector<rules::Violation, 1> found;
    outcome.sizes[i] = rules::joined_sizes(program_, inside, type, sizes, found);
    if (outcome.sizes[i].valid() && !inside.sizes.valid() &&
        gives_even(site.id, site.args, site.region))
      if (std::optional<rules::Violation> differs =
              rules::value_shape_differs(program_, ir::print_value(program_, result),
                                         {outcome.types[i], outcome.shapes[i], outcome.sizes[i]},
                                         {outcome.types[i], outcome.shapes[i], {}}))
        found.push_back(std::move(*differs));
    for (rules::Violation &violation : found)
      state_.report(Place::inst(site.id), std::move(violation));
  }
}

// True if each rank of the axes has as much of a result as the others: no operand differs in size between
// them, and nothing that runs divides by stated lengths.
bool Walk::gives_even(InstId id, llvm::ArrayRef<rules::Arg> args, AxisSet axes) {
  for (const rules::Arg &arg : args)
    if (arg.sizes.valid())
      for (const ir::UnevenDim &each : program_.shard_sizes[arg.sizes].dims)
        for (AxisId axis : ir::shards_of(program_.types[arg.type], each.dim))
          if (axes.contains(axis))
            return false;
  llvm::SmallDenseSet<uint32_t, 8> bodies;
  return divides_evenly(id, bodies);
}

// Collectives that cut may give ranks unequal parts. `bodies`: those that were looked at.
bool Walk::divides_evenly(InstId id, llvm::SmallDenseSet<uint32_t, 8> &bodies) {
  const ir::Inst &inst = program_.insts[id];
  if (state_.rules.resolve(inst.op).form == rules::OpForm::Transition) {
    OperandList operands;
    operands.read(program_, inst.operands);
    for (uint32_t r = 0; r < inst.result_count; ++r)
      if (r >= operands.values.size() ||
          result_.shapes[operands.values[r].index] != result_.shapes[inst.result(r).index])
        return false;
  }
  return llvm::all_of(program_.attrs[inst.attrs].attrs, [&](const ir::Attr &attr) {
    if (attr.value.form != ir::AttrForm::Function)
      return true;
    auto callee = attr.value.as<ir::FunctionId>();
    const ir::Function &body = program_.functions[callee];
    if (!bodies.insert(callee.index).second)
      return true;
    for (InstId each = body.body.first; each.index < body.body.last.index; ++each.index)
      if (!divides_evenly(each, bodies))
        return false;
    return !body.opaque;
  });
}

// Along its own axes a region means lists, and has no factors but those that it makes itself: which they
// are of the whole is for the statement to say. What came in, and what is of other axes, stays.
void Walk::restate_scale(InstId id, ValueId result, Type &type, const Type &claimed,
                         llvm::ArrayRef<rules::Arg> args, AxisSet own) {
  Type found = type;
  type.scale = claimed.scale;
  if (!found.scale.valid() || found.scale == claimed.scale || found.mesh() != claimed.mesh())
    return;
  for (const rules::Arg &arg : args)
    if (ir::ScaleId entered = program_.types[arg.type].scale; entered.valid())
      own -= ir::axes_in(program_, entered, type.mesh());
  AxisSet axes =
      ir::axes_in(program_, ir::quotient(program_, found.scale, claimed.scale), type.mesh()) & own;
  found.scale = ir::without(program_, found.scale, type.mesh(), own);
  ir::ScaleId needed = ir::without(program_, claimed.scale, type.mesh(), own);
  if (scale_claim_differs(id, result, found, needed, claimed.scale) || axes.empty())
    return;
  Type stated = rules::restricted(claimed, axes);
  stated.scale = claimed.scale;
  state_.report(Place::inst(id), rules::UncheckedClaim{result, state_.intern(stated)});
}

// What leaves a region is joined as the statement says, on the axes of the region. Values that differ between
// ranks are pieces or addends of a whole, never the same on all.
void Walk::join_region(const CallSite &site, ValueId result, Type &type, ir::TypeId declared) {
  const Type claimed = program_.types[declared];
  if (claimed.mesh() != type.mesh())
    return;
  take_as_addends(site.id, result, type, claimed, site.region);
  AxisSet loose = (type.of(ir::Kind::Varying) - type.sharded()) & site.region;
  if (!loose)
    return;
  // Axes outside of the region keep their place among those of a dimension.
  Type pieces = claimed;
  pieces.clear(~(loose | (claimed.sharded() & type.sharded())));
  rules::ClaimCheck check =
      rules::check_claim(type, pieces, type.gradient_free(), rules::Spec::Joined);
  if (AxisSet wrong = (check.mismatched | check.unowned) & loose)
    state_.report(Place::inst(site.id),
                  rules::ClaimMismatch{result, state_.on_axes(type, wrong),
                                       state_.on_axes(claimed, wrong), wrong});
  type = check.type;
}

// V that is stated to be a pending sum where it leaves a region: what each rank has is taken as its addend.
void Walk::take_as_addends(InstId id, ValueId value, Type &type, const Type &claimed,
                           AxisSet region) {
  AxisSet taken = (type.of(ir::Kind::Varying) - type.sharded()) & region &
                  (claimed.of(ir::Kind::Partial) - claimed.zero());
  if (!type.gradient_free())
    taken -= claimed.combining();
  if (taken.empty())
    return;
  type.set_kind(taken, ir::Kind::Partial);
  for (AxisId axis : taken)
    type.set_combiner(axis, claimed.combiner(axis));
  state_.report(Place::inst(id), rules::UncheckedClaim{value, state_.on_axes(claimed, taken)});
}

} // namespace spmd::checker
