#include "checker/gradual/gradual.h"

#include "checker/suppress.h"
#include "checker/walk/walk.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::Type;
using ir::ValueId;

namespace {

CheckResult judged_by_kinds(ir::Program &program, const CheckOptions &options) {
  program.mode = ir::Mode::Local;
  CheckResult result;
  Walk(program, options, result).run();
  // On one device the axes of whole tensors are axes, and their sizes count.
  program.mode = ir::Mode::Gradual;
  program.axis_scales = {};
  return result;
}

} // namespace

Gradual::Gradual(ir::Program &program, const CheckOptions &options)
    : program_(program), first_(judged_by_kinds(program, options)), cuts_(program, first_),
      numbers_(program, first_) {
  for (const Finding &finding : first_.findings)
    told_.insert(
        {static_cast<unsigned>(finding.place.form), finding.place.index, finding.info().name});
  state_cuts();
  find_stretched();
}

// A number that is stretched over a dimension, or made there, is a block of it as well as the whole.
void Gradual::find_stretched() {
  rules::Rules rules(program_);
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst inst = program_.insts[ir::InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    bool stretches = op.row && (op.row->constant != rules::OpDef::Constant::No ||
                                op.row->factors == rules::expand_factors ||
                                op.row->factors == rules::expand_as_factors ||
                                op.row->factors == rules::broadcast_in_dim_factors);
    for (uint32_t r = 0; stretches && r < inst.result_count; ++r)
      stretched_.insert(inst.result(r).index);
  }
}

ir::TypeId Gradual::with_cuts(ir::TypeId declared, ValueId value) const {
  if (!declared.valid())
    return declared;
  Type type = program_.types[declared];
  for (AxisId axis : (type.of(Kind::Varying) - type.sharded()) | type.unknown)
    if (std::optional<unsigned> dim = cuts_.dim(value, axis))
      if (ir::shards_of(type, *dim).empty()) {
        type.set_kind(axis, Kind::Varying);
        type.set_shard(axis, *dim, 0);
      }
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
  for (AxisId axis : type.unknown)
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
      value.declared = with_cuts(value.declared, inst.result(r));
    }
  }
}

Type Gradual::known(ValueId value, Type type, AxisSet lost) const {
  ir::TypeId id = first_.types[value.index];
  if (!id.valid() || program_.types[id].mesh() != type.mesh())
    return type;
  const Type &first = program_.types[id];
  for (AxisId axis : lost &type.unknown) {
    type.clear(axis);
    for (const ir::KindInfo &row : ir::kKinds)
      if (first.of(row.kind).contains(axis))
        type.of(row.kind) |= axis;
    if (first.unknown.contains(axis))
      type.unknown |= axis;
  }
  AxisSet blocks = type.of(Kind::Varying);
  if (stretched_.count(value.index)) // equal blocks of one tensor
    blocks |= type.replicated() | type.of(Kind::Invariant);
  for (AxisId axis : blocks)
    if (std::optional<unsigned> dim = cuts_.dim(value, axis); dim && type.dim(axis) != dim) {
      if (!type.of(Kind::Varying).contains(axis))
        type.set_kind(axis, Kind::Varying);
      type.drop_shards(axis);
      type.close_orders();
      if (ir::shards_of(type, *dim).empty())
        type.set_shard(axis, *dim, 0);
    }
  return type;
}

bool Gradual::stands_on_inference(const Place &place, const rules::Violation &violation) const {
  return !told_.count({static_cast<unsigned>(place.form), place.index, violation.info().name}) &&
         (rules::axes_of(violation) & inferred_);
}

bool Gradual::only_restates(const rules::Application &app) {
  auto varies = [&](llvm::StringRef key) {
    const ir::AttrValue *word = app.attr(key);
    return word && word->form == ir::AttrForm::Kind && word->as_kind().kind == Kind::Varying;
  };
  return app.op.transition == "reinterpret" && !app.args.empty() &&
         (varies("src") || varies("dst"));
}

bool Gradual::certain(const Place &place, const rules::Violation &violation, AxisSet open) const {
  if (told_.count({static_cast<unsigned>(place.form), place.index, violation.info().name}))
    return true;
  return violation.info().by_meaning && !(rules::axes_of(violation) & open);
}

CheckResult check_gradually(ir::Program &program, const CheckOptions &given) {
  CheckOptions options = given;
  options.mode.reset();
  CheckResult result;
  result.gradual = std::make_shared<Gradual>(program, options);
  options.infer_partial = true;
  Walk(program, options, result).run();
  apply_suppressions(program, options, result);
  return result;
}

} // namespace spmd::checker
