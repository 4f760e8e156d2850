// Bodies of `local_map` that need no name.
#include "ir/text/print/inlined.h"

#include "ir/boundary_ops.h"
#include "ir/input/input.h"
#include "ir/text/print/contexts.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace spmd::ir {

// Deeper ones become functions with a name: blocks may not nest without end.
static constexpr unsigned kMaxInlined = kMaxNesting / 4;

InlinedBodies::InlinedBodies(const Program &program, const TextTypes &types)
    : program_(program), types_(types) {
  count_uses();
  std::vector<bool> met(program_.functions.size());
  find(program_.main, met);
  for (uint32_t i = 0; i < program_.functions.size(); ++i) {
    FunctionId id{i};
    if (met[i])
      continue;
    met[i] = true;
    named_.push_back(id);
    find(program_.functions[id].body, met);
  }
}

bool InlinedBodies::contains(const Inst &inst) const {
  const AttrValue *body = program_.find(inst.attrs, "body");
  return body && body->form == AttrForm::Function && inlined_[body->as<FunctionId>().index];
}

void InlinedBodies::count_uses() {
  uses_.assign(program_.functions.size(), 0);
  inlined_.assign(program_.functions.size(), false);
  for (const Inst &inst : program_.insts)
    for (const Attr &attr : program_.attrs[inst.attrs].attrs)
      if (attr.value.form == AttrForm::Function)
        ++uses_[attr.value.as<FunctionId>().index];
}

// Functions that are printed on their own, in order of first use; a stack holds where each walk
// goes on.
void InlinedBodies::find(Body root, std::vector<bool> &met) {
  struct Walk {
    uint32_t at, end;
    unsigned inlined; // bodies of local_map around
  };
  std::vector<Walk> rest;
  auto enter = [&](Body body, unsigned inlined) {
    if (body.first.valid())
      rest.push_back({body.first.index, body.last.index, inlined});
  };
  enter(root, 0);
  while (!rest.empty()) {
    Walk &walk = rest.back();
    if (walk.at == walk.end) {
      rest.pop_back();
      continue;
    }
    InstId id{walk.at++};
    unsigned inlined = walk.inlined;
    for (const Attr &attr : program_.attrs[program_.insts[id].attrs].attrs) {
      if (attr.value.form != AttrForm::Function || met[attr.value.as<FunctionId>().index])
        continue;
      FunctionId callee = attr.value.as<FunctionId>();
      met[callee.index] = true;
      inlined_[callee.index] = inlined < kMaxInlined && has_form(program_.insts[id]);
      if (!inlined_[callee.index])
        named_.push_back(callee);
      enter(program_.functions[callee].body, inlined_[callee.index] ? inlined + 1 : 0);
    }
  }
}

// The function of a `local_map` that nobody else uses, and whose name says that it had none.
const Function *InlinedBodies::own_body(const Inst &inst) const {
  const AttrValue *body = program_.find(inst.attrs, "body");
  if (!is_boundary(program_.op_name(inst.op), Boundary::LocalMap) || !body ||
      body->form != AttrForm::Function)
    return nullptr;
  const Function &function = program_.functions[body->as<FunctionId>()];
  llvm::StringRef name = program_.strings[function.name];
  bool unnamed =
      name.consume_front("@local_map_") && !name.empty() && llvm::all_of(name, llvm::isDigit);
  bool shared = uses_[body->as<FunctionId>().index] != 1;
  return unnamed && !shared && !function.opaque ? &function : nullptr;
}

// True if the inline form says all there is to the op and its body.
bool InlinedBodies::has_form(const Inst &inst) const {
  const Function *function = own_body(inst);
  if (!function || inst.result_count == 0 || inst.phase != Phase::Unstated || inst.bwd_of.valid())
    return false;
  llvm::ArrayRef<Operand> operands = program_.operand_lists[inst.operands];
  auto plain = [&](Operand operand) { return operand.is_value() && !operand.mut; };
  auto bare = [&](const FunctionParam &param) {
    const Value &value = program_.values[param.value];
    bool stated = value.declared.valid() || value.shape.valid() || value.global_shape.valid() ||
                  value.mesh.valid();
    bool tied = value.alias_of.valid() || value.grad_of.valid() ||
                value.requires_grad != Tristate::Unstated;
    return !stated && !tied && !param.grad.valid();
  };
  std::optional<Context> inner = context_of_body(inst);
  return !operands.empty() && operands.size() == function->params.size() &&
         llvm::all_of(operands, plain) && llvm::all_of(function->params, bare) && inner &&
         function->context.valid() && context_of(program_, function->context) == *inner &&
         has_attrs(inst);
}

// What `over` makes of the context of the op; none if it names axes in another way.
std::optional<Context> InlinedBodies::context_of_body(const Inst &inst) const {
  const AttrValue *axis = program_.find(inst.attrs, "axis");
  if (!axis || axis->form != AttrForm::Axes)
    return std::nullopt;
  Context inner = context_of(program_, inst.context);
  const Mesh &mesh = program_.meshes[inner.mesh];
  for (AxisRef ref : program_.axis_refs[axis->as<AxisRefsId>()].refs) {
    std::optional<AxisId> found = mesh.find(ref.axis);
    if (ref.mesh.valid() || !found)
      return std::nullopt;
    inner.local |= mesh.pieces_of(*found);
  }
  return inner;
}

bool InlinedBodies::has_attrs(const Inst &inst) const {
  MeshId mesh = context_of(program_, inst.context).mesh;
  for (const Attr &attr : program_.attrs[inst.attrs].attrs) {
    llvm::StringRef key = program_.strings[attr.key];
    if (key == "axis" || key == "body")
      continue;
    bool types = (key == "in_types" || key == "out_types") && attr.value.form == AttrForm::List;
    if (!types)
      return false;
    llvm::ArrayRef<AttrValue> items = program_.lists[attr.value.as<AttrListId>()].items;
    auto says = [&](AttrValue item) { return types_.claim(item.as<ClaimId>(), mesh) != kNull; };
    auto whole = [&](AttrValue item) {
      return item.form == AttrForm::Claim && item.as<ClaimId>().valid();
    };
    size_t count =
        key == "in_types" ? program_.operand_lists[inst.operands].size() : inst.result_count;
    if (items.size() != count || !llvm::all_of(items, whole) || llvm::none_of(items, says))
      return false;
    for (uint32_t i = 0; key == "out_types" && i < count; ++i)
      if (!states_boundary(inst.result(i), program_.claims[items[i].as<ClaimId>()], mesh))
        return false;
  }
  for (uint32_t i = 0; i < inst.result_count; ++i)
    if (program_.values[inst.result(i)].declared.valid())
      return false;
  return true;
}

// True if the claim can stand where the type of the result does.
bool InlinedBodies::states_boundary(ValueId result, const Claim &claim, MeshId mesh) const {
  const Value &value = program_.values[result];
  MeshId on = value.mesh.valid() ? value.mesh : mesh;
  bool shaped = claim.shape.valid() || claim.global_shape.valid();
  return !shaped && (!claim.type.valid() || program_.types[claim.type].mesh() == on);
}

} // namespace spmd::ir
