// Calls, branches and loops as instructions: what goes in, and what is stated of what comes out.
#include "checker/walk/bodies/calls.h"

#include "rules/attributes/attributes.h"
#include "rules/boundary/claims.h"
#include "rules/shards/sizes.h"
#include "rules/transitions/axes.h"
#include "rules/violations/claims.h"
#include "rules/violations/gradients.h"
#include "rules/violations/shards.h"

#include "ir/claims.h"
#include "ir/text/text.h"

namespace spmd::checker {

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

void Calls::run(InstId id, const ir::Inst &inst, const rules::ResolvedOp &op,
                rules::Outcome &outcome) {
  rules::TensorInfo unknown{
      state_.intern(unknown_on(program_, program_.contexts[inst.context].mesh)), {}};
  if (std::optional<rules::OperandIndex> cut =
          rules::cut_gradient({program_, op, inst.attrs, inst.context, state_.operands.slots,
                               state_.args, state_.claims})) {
    state_.report(Place::inst(id), rules::MissingVjp{*cut, {}});
    for (rules::TensorInfo &arg : state_.args)
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
    control_.branches(site);
  else if (op.boundary == rules::Boundary::Scan)
    control_.scan(site);
  else if (op.boundary == rules::Boundary::While)
    control_.loop(site);
  else
    plain_call(site);
  warn_unchecked_results(site);
  state_.operands = std::move(kept);
  undecided_.set_result_rows(site.rows);
  for (const rules::TensorInfo &result : site.results) {
    outcome.types.push_back(result.type.valid() ? result.type : unknown.type);
    outcome.shapes.push_back(result.shape);
    outcome.sizes.push_back(result.sizes);
  }
  state_results(site, outcome);
}

// The axes that a `local_map` makes local, where they were not before.
AxisSet Calls::region_axes(const CallSite &site, const rules::ResolvedOp &op) {
  rules::Application app{
      program_,      op,   site.inst.attrs, site.inst.context, state_.operands.slots, state_.args,
      state_.claims, false};
  rules::Outcome found;
  std::optional<rules::CallAxes> axes = rules::resolve_axes(app, {}, found);
  for (rules::Violation &violation : found.violations)
    state_.report(Place::inst(site.id), std::move(violation));
  return axes ? axes->all() & app.global_axes() : AxisSet();
}

void Calls::plain_call(CallSite &site) {
  std::optional<ir::FunctionId> function = bodies_.region(site, "body");
  if (!function || !bodies_.counts(site, *function, site.args.size(), site.inst.result_count))
    return;
  Args args = bodies_.enter(site, *function, 0);
  Round round = bodies_.evaluate(*function, args);
  bodies_.reach(site, round);
  undecided_.call(site, round);
  site.results = std::move(round.results);
}

// What a function without a body claims of its results is not proved by anything.
void Calls::warn_unchecked_results(const CallSite &site) {
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

// What a region states of its results says how their pieces join; a list of values without a
// statement does not leave it.
void Calls::state_results(const CallSite &site, rules::Outcome &outcome) {
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
    Type type = program_.types[outcome.types[i]].without_shards(site.region);
    if (declared.valid() && site.region)
      claims_.restate_scale(site.id, result, type, state_.seen(declared, site.inst.context),
                            site.args, site.region);
    if (declared.valid())
      join_region(site, result, type, declared);
    if (id.valid() && declared.valid())
      claims_.judge(site.id, result, type, declared, rules::Spec::Compared);
    if (AxisSet loose = (type.of(ir::Kind::Varying) - type.sharded()) & site.region) {
      state_.report(Place::inst(site.id), rules::NoSpec{{}, result, loose});
      type.set_unknown(loose);
    }
    rules::TensorInfo inside{outcome.types[i], outcome.shapes[i], outcome.sizes[i]};
    outcome.types[i] = state_.intern(type);
    if (id.valid())
      claims_.judge_shape(site.id, result, program_.claims[id].shape, outcome.shapes[i]);
    ir::ShapeId global = id.valid() ? program_.claims[id].global_shape : ir::ShapeId();
    if (!global.valid())
      global = program_.values[result].global_shape;
    if (!site.region)
      continue;
    std::optional<ir::ShardSizesId> sizes;
    if (global.valid()) {
      claims_.judge_whole(site.id, type, inside, global, site.region);
      // Of dimensions that the region cuts it is trusted.
      sizes = rules::declared_sizes(program_, type, outcome.shapes[i], global,
                                    program_.rank.value_or(0))
                  .sizes;
    }
    llvm::SmallVector<rules::Violation, 1> found;
    outcome.sizes[i] = rules::joined_sizes(program_, inside, type, sizes, found);
    if (outcome.sizes[i].valid() && !inside.sizes.valid() &&
        claims_.gives_even(site.id, site.args, site.region))
      if (std::optional<rules::Violation> differs =
              rules::value_shape_differs(program_, ir::print_value(program_, result),
                                         {outcome.types[i], outcome.shapes[i], outcome.sizes[i]},
                                         {outcome.types[i], outcome.shapes[i], {}}))
        found.push_back(std::move(*differs));
    for (rules::Violation &violation : found)
      state_.report(Place::inst(site.id), std::move(violation));
  }
}

// What leaves a region is joined as the statement says, on the axes of the region. Values that
// differ between ranks are pieces or addends of a whole, never the same on all.
void Calls::join_region(const CallSite &site, ValueId result, Type &type, ir::TypeId declared) {
  const Type claimed = program_.types[declared];
  if (claimed.mesh() != type.mesh())
    return;
  claims_.take_as_addends(site.id, result, type, claimed, site.region);
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

} // namespace spmd::checker
