// Calls: bodies are typed once per distinct operand types, opaque functions by their signature.
#include "checker/walk.h"

#include "rules/boundary.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::InstId;
using ir::Type;
using ir::ValueId;

namespace {

ir::FunctionId body_of(const ir::Program &program, ir::AttrsId attrs) {
  const ir::AttrValue *body = program.find(attrs, "body");
  return body && body->form == ir::AttrForm::Function ? body->as<ir::FunctionId>()
                                                      : ir::FunctionId();
}

Type unknown_on(const ir::Program &program, ir::MeshId mesh) {
  Type type;
  type.set_mesh(mesh);
  type.unknown = program.meshes[mesh].typed_axes();
  return type;
}

} // namespace

void Walk::call(InstId id, const ir::Inst &inst, const rules::ResolvedOp &op,
                rules::Outcome &outcome) {
  ir::MeshId mesh = program_.contexts[inst.context].mesh;
  outcome.types.assign(inst.result_count, intern(unknown_on(program_, mesh)));
  outcome.shapes.assign(inst.result_count, {});
  ir::FunctionId function = body_of(program_, inst.attrs);
  if (!function.valid() || llvm::is_contained(active_, function)) {
    ++result_.stats.unknown_ops;
    return report(Place::inst(id), rules::UnknownOp{op.nearest});
  }
  const ir::Function &callee = program_.functions[function];
  if (callee.params.size() != args_.size())
    return report(Place::inst(id), rules::BoundaryShape{program_.strings[callee.name].str(),
                                                        static_cast<int64_t>(callee.params.size()),
                                                        static_cast<int64_t>(args_.size())});
  enter(id, inst, callee);
  if (callee.opaque)
    opaque(callee, outcome);
  else
    body(function, outcome);
  state_results(id, inst, outcome);
}

// The claims at the boundary: of the function's parameters, and of a region's `in_types`.
void Walk::enter(InstId id, const ir::Inst &inst, const ir::Function &callee) {
  const ir::AttrValue *stated = program_.find(inst.attrs, "in_types");
  for (size_t i = 0; i < args_.size(); ++i) {
    const ir::Value &param = program_.values[callee.params[i].value];
    cross(id, i, param.declared, callee);
    if (!stated || stated->form != ir::AttrForm::List)
      continue;
    llvm::ArrayRef<ir::AttrValue> claims = program_.lists[stated->as<ir::AttrListId>()].items;
    if (i < claims.size() && claims[i].form == ir::AttrForm::Claim)
      cross(id, i, program_.claims[claims[i].as<ir::ClaimId>()].type, callee);
  }
}

void Walk::cross(InstId id, size_t i, ir::TypeId declared, const ir::Function &callee) {
  if (!declared.valid())
    return;
  Type claimed = erased(declared), found = program_.types[args_[i].type];
  if (claimed.mesh() != found.mesh())
    return;
  rules::ClaimCheck check = rules::check_claim(found, claimed, found.gradient_free());
  if (AxisSet wrong = check.mismatched | check.unowned)
    report(Place::inst(id), rules::BoundaryMismatch{{static_cast<uint16_t>(i)},
                                                    program_.strings[callee.name].str(),
                                                    args_[i].type,
                                                    declared,
                                                    wrong});
  args_[i].type = intern(check.type);
}

void Walk::opaque(const ir::Function &function, rules::Outcome &outcome) {
  bool free = llvm::all_of(
      args_, [&](const rules::Arg &arg) { return program_.types[arg.type].gradient_free(); });
  AxisSet silent;
  for (const rules::Arg &arg : args_)
    silent |= program_.types[arg.type].unknown;
  for (size_t i = 0; i < function.outs.size() && i < outcome.types.size(); ++i) {
    const ir::Claim &claim = program_.claims[function.outs[i]];
    if (!claim.type.valid())
      continue;
    Type type = erased(claim.type);
    type.set_gradient_free(free);
    type.set_unknown(silent);
    outcome.types[i] = intern(type);
    outcome.shapes[i] = claim.shape;
  }
}

void Walk::body(ir::FunctionId id, rules::Outcome &outcome) {
  std::vector<uint32_t> key{id.index};
  for (const rules::Arg &arg : args_)
    key.push_back(arg.type.index), key.push_back(arg.shape.index);
  uint64_t hash = ir::hash_bytes(key.data(), key.size() * sizeof(uint32_t));
  uint32_t known = instance_table_.find(hash, [&](uint32_t i) { return instances_[i].key == key; });
  if (known == ir::IndexTable::kEmpty) {
    Instance made{std::move(key), {}, {}};
    type_body(id, made);
    known = static_cast<uint32_t>(instances_.size());
    // Typing the body may have grown the table: the slot is looked up again.
    uint32_t &slot =
        instance_table_.find(hash, [&](uint32_t i) { return instances_[i].key == made.key; });
    slot = known;
    instances_.push_back(std::move(made));
    instance_table_.inserted();
  }
  const Instance &instance = instances_[known];
  for (size_t i = 0; i < outcome.types.size() && i < instance.types.size(); ++i) {
    outcome.types[i] = instance.types[i];
    outcome.shapes[i] = instance.shapes[i];
  }
}

void Walk::type_body(ir::FunctionId id, Instance &instance) {
  const ir::Function &function = program_.functions[id];
  for (size_t i = 0; i < function.params.size(); ++i) {
    ValueId param = function.params[i].value;
    result_.types[param.index] = args_[i].type;
    result_.shapes[param.index] =
        program_.values[param].shape.valid() ? program_.values[param].shape : args_[i].shape;
    if (!edit_)
      storage_.define(param);
  }
  active_.push_back(id);
  ir::Body body = function.body;
  ir::BlockId results = function.results;
  OperandList kept = operands_;
  instructions(body);
  operands_ = std::move(kept);
  active_.pop_back();
  for (const ir::Operand &operand : program_.blocks[results]) {
    bool value = operand.is_value();
    instance.types.push_back(value ? result_.types[operand.index] : ir::TypeId());
    instance.shapes.push_back(value ? result_.shapes[operand.index] : ir::ShapeId());
  }
}

// What a region states of its results is trusted as far as the kinds agree; `claim` compares them.
void Walk::state_results(InstId id, const ir::Inst &inst, rules::Outcome &outcome) {
  const ir::AttrValue *stated = program_.find(inst.attrs, "out_types");
  for (size_t i = 0; i < outcome.types.size(); ++i)
    if (!outcome.types[i].valid())
      outcome.types[i] = intern(unknown_on(program_, program_.contexts[inst.context].mesh));
  if (!stated || stated->form != ir::AttrForm::List)
    return;
  llvm::ArrayRef<ir::AttrValue> claims = program_.lists[stated->as<ir::AttrListId>()].items;
  for (size_t i = 0; i < outcome.types.size() && i < claims.size(); ++i) {
    ir::TypeId declared = claims[i].form == ir::AttrForm::Claim
                              ? program_.claims[claims[i].as<ir::ClaimId>()].type
                              : ir::TypeId();
    if (!declared.valid())
      continue;
    Type type = program_.types[outcome.types[i]];
    ValueId value = inst.result(static_cast<uint32_t>(i));
    claim(id, value, type, declared);
    outcome.types[i] = intern(type);
  }
}

} // namespace spmd::checker
