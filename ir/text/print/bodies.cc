// Functions and bodies in the text.
#include "ir/text/print/bodies.h"

#include "ir/claims.h"
#include "ir/text/print/contexts.h"
#include "ir/text/text.h"

#include <fmt/core.h>

namespace spmd::ir {

void TextBodies::functions() {
  for (FunctionId id : inlined_.named())
    function(program_.functions[id]);
}

void TextBodies::function(const Function &function) {
  Context inside =
      function.context.valid() ? context_of(program_, function.context) : top_context(program_);
  MeshId outer = types_.enter(inside.mesh);
  llvm::SmallVector<std::string, 4> params;
  for (const FunctionParam &param : function.params)
    params.push_back(parameter(param));
  std::string head = fmt::format("func {}({})", words_.function_name(function), joined(params));
  if (function.context.valid())
    head += " " + context_attrs(program_, top_context(program_), inside);
  if (function.opaque) {
    llvm::SmallVector<std::string, 4> outs;
    for (ClaimId out : function.outs)
      outs.push_back(types_.claim(out, types_.mesh()));
    lines_.add(fmt::format("{} -> {}", head, outs.empty() ? "()" : joined(outs)));
  } else {
    lines_.open(head + " {");
    body(function.body, inside);
    std::string results = insts_.operands(program_.operand_lists[function.results]);
    lines_.add(results.empty() ? "return" : "return " + results);
    lines_.close("}");
  }
  types_.enter(outer);
}

std::string TextBodies::parameter(const FunctionParam &param) const {
  std::string text = insts_.result(param.value, types_.value(param.value), true);
  if (param.grad.valid())
    text += " grad " + types_.claim(param.grad, mesh_of(program_, param.value, types_.mesh()));
  return text;
}

// Runs of instructions in one context.
void TextBodies::body(Body body, const Context &around) {
  if (!body.first.valid())
    return;
  for (uint32_t i = body.first.index; i < body.last.index;) {
    ContextId id = program_.insts[InstId{i}].context;
    uint32_t end = i + 1;
    while (end < body.last.index && program_.insts[InstId{end}].context == id)
      ++end;
    run(InstId{i}, InstId{end}, around);
    i = end;
  }
}

void TextBodies::run(InstId first, InstId last, const Context &around) {
  Context inside = context_of(program_, program_.insts[first].context);
  bool nested = !(inside == around);
  MeshId mesh = types_.enter(inside.mesh);
  if (nested)
    lines_.open(open_context(program_, around, inside));
  for (InstId id = first; id < last; ++id.index)
    inst(id);
  if (nested)
    lines_.close("}");
  types_.enter(mesh);
}

void TextBodies::inst(InstId id) {
  if (inlined_.contains(program_.insts[id]))
    return local_map(id);
  const Inst &row = program_.insts[id];
  lines_.add(insts_.results(row, true) + insts_.operation(id) + insts_.tail(id) +
             types_.comment(row.first_result, row.result_count));
}

// The claims of the boundary stand with the operands and the results that they are about.
void TextBodies::local_map(InstId id) {
  const Inst &inst = program_.insts[id];
  const Function &function =
      program_.functions[program_.find(inst.attrs, "body")->as<FunctionId>()];
  const AttrValue *in_types = program_.find(inst.attrs, "in_types");
  llvm::SmallVector<std::string, 2> outs, bindings;
  for (uint32_t i = 0; i < inst.result_count; ++i)
    outs.push_back(local_map_result(inst, i));
  llvm::ArrayRef<Operand> operands = program_.operand_lists[inst.operands];
  for (size_t i = 0; i < operands.size(); ++i) {
    std::string type(kNull);
    if (in_types)
      type = insts_.value(program_.lists[in_types->as<AttrListId>()].items[i], types_.mesh());
    bindings.push_back(fmt::format("{} = {}{}", print_value(program_, function.params[i].value),
                                   insts_.operand(operands[i]), type == kNull ? "" : " " + type));
  }
  lines_.open(fmt::format("{} = local_map over {} ({}) {{", joined(outs),
                          insts_.value(*program_.find(inst.attrs, "axis"), types_.mesh()),
                          joined(bindings)));
  body(function.body, context_of(program_, function.context));
  std::string yielded = insts_.operands(program_.operand_lists[function.results]);
  lines_.add(yielded.empty() ? "yield" : "yield " + yielded);
  lines_.close("}" + insts_.tail(id) + types_.comment(inst.first_result, inst.result_count));
}

std::string TextBodies::local_map_result(const Inst &inst, unsigned i) const {
  ValueId id = inst.result(i);
  const Value &value = program_.values[id];
  TypeId stated;
  if (const AttrValue *out_types = program_.find(inst.attrs, "out_types"))
    stated =
        program_.claims[program_.lists[out_types->as<AttrListId>()].items[i].as<ClaimId>()].type;
  return insts_.result(
      id, types_.claim(stated, value.shape, value.global_shape, value.mesh, types_.mesh()), true);
}

} // namespace spmd::ir
