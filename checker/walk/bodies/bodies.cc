// Bodies are typed once per distinct operand types, opaque functions by their signature.
#include "checker/walk/bodies/bodies.h"

#include "rules/boundary/claims.h"
#include "rules/kinds/scale.h"
#include "rules/shapes/extent_facts.h"
#include "rules/shards/sizes.h"
#include "rules/violations/claims.h"
#include "rules/violations/transitions.h"

#include "ir/claims.h"
#include "ir/mesh/axis_scale.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Type;
using ir::ValueId;

// Inside of a region a shard on one of its axes is a value per rank.
void Bodies::forget_shards(const CallSite &site, size_t operand, rules::TensorInfo &arg) {
  const Type before = program_.types[arg.type];
  if (before.mesh() != program_.contexts[site.inst.context].mesh ||
      !(before.sharded() & site.region))
    return;
  llvm::SmallVector<rules::Violation, 1> found;
  rules::warn_uneven_shards(program_, arg, site.region, {static_cast<uint32_t>(operand)}, found);
  for (rules::Violation &violation : found)
    state_.report(Place::inst(site.id), std::move(violation));
  Type type = before.without_shards(site.region);
  arg.type = state_.intern(type);
  if (!arg.sizes.valid())
    return;
  ir::ShardSizes sizes = program_.shard_sizes[arg.sizes];
  llvm::erase_if(sizes.dims,
                 [&](const ir::UnevenDim &each) { return ir::shards_of(type, each.dim).empty(); });
  arg.sizes = sizes.dims.empty() ? ir::ShardSizesId() : program_.shard_sizes.add(std::move(sizes));
}

std::optional<ir::FunctionId> Bodies::region(const CallSite &site, llvm::StringRef role) {
  const ir::AttrValue *attr = program_.find(site.inst.attrs, role);
  if (attr && attr->form == ir::AttrForm::Function)
    return attr->as<ir::FunctionId>();
  state_.report(Place::inst(site.id), rules::AttributeMismatch{role.str(), "a function"});
  return std::nullopt;
}

bool Bodies::counts(const CallSite &site, ir::FunctionId function, size_t params, size_t results) {
  const ir::Function &callee = program_.functions[function];
  size_t returned =
      callee.opaque ? callee.outs.size() : program_.operand_lists[callee.results].size();
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

Args Bodies::enter(const CallSite &site, ir::FunctionId function, size_t first) {
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

void Bodies::cross(const CallSite &site, size_t operand, rules::TensorInfo &arg,
                   const Declared &declared, const ir::Function &callee) {
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

Round Bodies::opaque(const ir::Function &function, llvm::ArrayRef<rules::TensorInfo> args) {
  bool free = llvm::all_of(
      args, [&](const rules::TensorInfo &arg) { return program_.types[arg.type].gradient_free(); });
  AxisSet silent;
  for (const rules::TensorInfo &arg : args)
    silent |= program_.types[arg.type].unknown;
  Round round;
  for (ir::ClaimId out : function.outs) {
    const ir::Claim &claim = program_.claims[out];
    rules::TensorInfo &result = round.results.emplace_back();
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

Round Bodies::evaluate(ir::FunctionId function, llvm::ArrayRef<rules::TensorInfo> args) {
  if (program_.functions[function].opaque)
    return opaque(program_.functions[function], args);
  std::vector<uint32_t> key{function.index};
  for (const rules::TensorInfo &arg : args)
    key.insert(key.end(), {arg.type.index, arg.shape.index, arg.sizes.index});
  for (ir::TypeId condition : conditions_.types())
    key.push_back(condition.index);
  std::optional<uint32_t> known = state_.bodies.find(key);
  if (!known) {
    TypedBody made{std::move(key), {}, {}, {}, {}};
    OperandList kept = state_.operands; // of the call, which findings behind the body name
    type_body(function, args, made);
    state_.operands = std::move(kept);
    known = state_.bodies.add(std::move(made));
  }
  return {state_.bodies[*known].results, {*known}, *known};
}

void Bodies::reach(CallSite &site, const Round &round) {
  if (state_.body_result->sites.empty() || state_.body_result->sites.back().inst != site.id)
    state_.body_result->sites.push_back({site.id, {}});
  state_.body_result->sites.back().bodies.append(round.bodies.begin(), round.bodies.end());
  for (uint32_t body : round.bodies)
    state_.body_result->entries.push_back({std::nullopt, body});
  for (size_t r = 0; r < round.believed.size(); ++r) {
    if (r == site.believed.size())
      site.believed.emplace_back();
    site.believed[r] |= round.believed[r];
  }
}

// The next call may type the same body otherwise.
void Bodies::keep_values(ir::FunctionId id, TypedBody &typed) {
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
  typed.first = first;
  for (uint32_t i = first; i < last; ++i)
    typed.values.push_back(state_.known(ValueId{i}));
}

static bool has_error(const BodyResult &body_result) {
  return llvm::any_of(body_result.entries, [](const BodyResult::Entry &entry) {
    return entry.finding && entry.finding->severity() == rules::Severity::Error;
  });
}

// That of the main body first; a typed body is found one after its own index.
void Bodies::keep_typings() {
  auto take = [&](BodyResult &body_result) {
    for (BodyInstance::Site &site : body_result.sites)
      for (uint32_t &body : site.bodies)
        ++body;
    return std::move(body_result.sites);
  };
  result_.body_instances.push_back({take(state_.main), 0, {}});
  for (TypedBody &each : state_.bodies)
    result_.body_instances.push_back({take(each.body_result), each.first, std::move(each.values)});
  // Of a body that calls type in several ways, the first one in which something is wrong is shown:
  // the sentences speak of its values.
  std::vector<bool> reached(result_.body_instances.size());
  llvm::DenseSet<uint32_t> shown;
  llvm::SmallVector<uint32_t, 8> open{0};
  while (!open.empty()) {
    uint32_t index = open.pop_back_val();
    if (reached[index])
      continue;
    reached[index] = true;
    for (const BodyInstance::Site &site : result_.body_instances[index].sites)
      open.append(site.bodies.begin(), site.bodies.end());
  }
  for (uint32_t i = 1; i < reached.size(); ++i) {
    const BodyInstance &typing = result_.body_instances[i];
    if (reached[i] && has_error(state_.bodies[i - 1].body_result) &&
        shown.insert(typing.first).second)
      for (uint32_t v = 0; v < typing.values.size(); ++v)
        state_.learn(ValueId{typing.first + v}, typing.values[v]);
  }
}

void Bodies::type_body(ir::FunctionId id, llvm::ArrayRef<rules::TensorInfo> args,
                       TypedBody &typed) {
  const ir::Function &function = program_.functions[id];
  for (size_t i = 0; i < function.params.size(); ++i) {
    ValueId param = function.params[i].value;
    if (state_.edit)
      edits_.remember(param);
    ir::ShapeId shape = rules::stated_shape(program_, program_.values[param].shape, args[i].shape);
    state_.learn(param, {args[i].type, shape, args[i].sizes});
    if (state_.inference) {
      Type type = program_.types[args[i].type];
      state_.inference->declare(param, type);
    }
    if (state_.recording) {
      undecided_.define(param, 0, program_.types[args[i].type]);
      typed.param_rows.push_back(undecided_.row(param));
    }
    if (!state_.edit)
      state_.storage.define(param);
  }
  ir::Body body = function.body;
  ir::OperandsId results = function.results;
  BodyResult *outer = std::exchange(state_.body_result, &typed.body_result);
  for (InstId inst = body.first; state_.edit && inst.index < body.last.index; ++inst.index)
    for (uint32_t r = 0; r < program_.insts[inst].result_count; ++r)
      edits_.remember(program_.insts[inst].result(r));
  type_instructions_(body);
  state_.body_result = outer;
  if (state_.recording)
    keep_values(id, typed);
  for (const ir::Operand &operand : program_.operand_lists[results]) {
    rules::TensorInfo &result = typed.results.emplace_back();
    if (operand.is_value())
      result = state_.known(operand.as_value());
    if (state_.recording)
      typed.result_rows.push_back(operand.is_value() ? undecided_.row(operand.as_value()) : 0);
  }
}

} // namespace spmd::checker
