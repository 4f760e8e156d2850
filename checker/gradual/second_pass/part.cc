// What is asked of operands, types and attributes everywhere in the second pass.
#include "checker/gradual/second_pass/part.h"

#include "checker/program_queries.h"

#include "rules/shards/remesh.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::Kind;
using ir::Type;
using ir::ValueId;

AxisSet SecondPassPart::unknown_operands() const {
  AxisSet axes;
  for (const rules::TensorInfo &arg : state_.args)
    axes |= program_.types[arg.type].unknown;
  return axes;
}

AxisSet SecondPassPart::axes_in(const ir::Inst &inst, llvm::StringRef key) const {
  AxisSet axes;
  const ir::AttrValue *value = program_.find(inst.attrs, key);
  auto add = [&](const ir::AttrValue &name) {
    if (name.form == ir::AttrForm::String)
      axes |= rules::axes_named(program_, program_.contexts[inst.context].mesh,
                                {{}, name.as<ir::StringId>()})
                  .value_or(AxisSet());
  };
  if (value && value->form == ir::AttrForm::List)
    llvm::for_each(program_.lists[value->as<ir::AttrListId>()].items, add);
  else if (value)
    add(*value);
  return axes;
}

bool SecondPassPart::is_scalar(ir::ShapeId shape) const {
  return checker::is_scalar(program_, shape);
}

bool SecondPassPart::is_float(ValueId value) const {
  const ir::ShapeId stated = program_.values[value].shape;
  const ir::ShapeId shape = stated.valid() ? stated : gradual_.by_kinds().shapes[value.index];
  return !shape.valid() || ir::differentiable(program_.shapes[shape].dtype);
}

llvm::SmallVector<ValueId, 2> SecondPassPart::returned_as(ir::InstId id, ValueId value) const {
  llvm::SmallVector<ValueId, 2> found;
  const ir::Inst &inst = program_.insts[id];
  if (state_.rules.resolve(inst.op).form != rules::OpForm::Call)
    return found;
  for (const ir::Attr &attr : program_.attrs[inst.attrs].attrs) {
    if (attr.value.form != ir::AttrForm::Function)
      continue;
    const ir::Function &function = program_.functions[attr.value.as<ir::FunctionId>()];
    if (function.opaque || program_.operand_lists[function.results].size() != inst.result_count)
      continue;
    const ir::Operand &operand =
        program_.operand_lists[function.results][value.index - inst.first_result.index];
    if (operand.is_value())
      found.push_back(operand.as_value());
  }
  return found;
}

AxisSet SecondPassPart::known_axes(const Type &type) const {
  if (!type.scale.valid())
    return {};
  return program_.meshes[type.mesh()].typed_axes() - type.unknown -
         (type.of(Kind::Varying) - type.sharded());
}

} // namespace spmd::checker
