// Instructions in the text. Relies on attributes standing in canonical order.
#include "ir/text/print/instructions.h"

#include "ir/boundary_ops.h"
#include "ir/claims.h"
#include "ir/input/input.h"
#include "ir/text/lexer.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/core.h>

namespace spmd::ir {

std::string print_value(const Program &program, ValueId id) {
  std::string text = print(program.values[id].name, program.strings);
  llvm::StringRef name = llvm::StringRef(text).drop_front();
  return is_plain_id(name) ? text : "%" + quote(name);
}

std::string print_named(const Program &program, ValueId id) {
  std::string text = print_value(program, id);
  const Param *param = program.find_param(id);
  if (!param || !param->name.valid() || program.strings[param->name] == text.substr(1))
    return text;
  return text + " (" + program.strings[param->name].str() + ")";
}

std::string InstText::result(ValueId id, std::string type, bool gradient) const {
  const Value &value = program_.values[id];
  std::string text = print_value(program_, id);
  if (value.alias_of.valid())
    text += " aliases " + print_value(program_, value.alias_of);
  if (value.grad_of.valid())
    text += " grad_of " + print_value(program_, value.grad_of);
  if (gradient && value.requires_grad != Tristate::Unstated)
    text += value.requires_grad == Tristate::True ? " requires_grad" : " no_grad";
  return type.empty() ? text : text + ": " + type;
}

std::string InstText::results(const Inst &inst, bool types) const {
  llvm::SmallVector<std::string, 2> parts;
  for (uint32_t i = 0; i < inst.result_count; ++i)
    parts.push_back(types ? result(inst.result(i), types_.value(inst.result(i)), true)
                          : print_value(program_, inst.result(i)));
  return parts.empty() ? "" : joined(parts) + " = ";
}

std::string InstText::operands(llvm::ArrayRef<Operand> operands) const {
  llvm::SmallVector<std::string, 4> parts;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].form == Operand::Form::Name)
      ++i;
    else
      parts.push_back(operand(operands[i]));
  }
  return joined(parts);
}

std::string InstText::operand(Operand operand) const {
  std::string mut = operand.mut ? "mut " : "";
  if (operand.is_value())
    return mut + print_value(program_, operand.as_value());
  if (operand.form == Operand::Form::List)
    return fmt::format("{}[{}]", mut, operands(program_.operand_lists[operand.as_list()]));
  return value(program_.literals[operand.index], types_.mesh());
}

std::string InstText::operation(InstId id) const {
  const Inst &inst = program_.insts[id];
  const AttrDict &dict = program_.attrs[inst.attrs];
  std::string text = words_.op_name(program_.op_name(inst.op));
  llvm::ArrayRef<Operand> list = program_.operand_lists[inst.operands];
  bool is_rng = is_boundary(text, Boundary::Rng) && list.empty() && dict.attrs.size() == 1 &&
                program_.find(inst.attrs, "type");
  std::string stated = attrs(id);
  if (is_rng && inst.phase == Phase::Unstated && !stated.empty())
    if (std::string type = value(dict.attrs[0].value, types_.mesh());
        type != kNull && stated == "type = " + type) // `rng null` has an operand
      return "rng " + type;
  if (std::string positional = operands(list); !positional.empty())
    text += " " + positional;
  return stated.empty() ? text : fmt::format("{} {{ {} }}", text, stated);
}

// Attributes, named operands, and what concerns the op itself.
std::string InstText::attrs(InstId id) const {
  const Inst &inst = program_.insts[id];
  llvm::SmallVector<std::string, 8> parts;
  MeshId target = types_.mesh();
  if (const AttrValue *mesh = program_.find(inst.attrs, "mesh");
      mesh && mesh->form == AttrForm::String)
    if (MeshId found = find_mesh(program_, program_.strings[mesh->as<StringId>()]); found.valid())
      target = found;
  for (const Attr &row : program_.attrs[inst.attrs].attrs)
    parts.push_back(attr(inst, row, target));
  llvm::ArrayRef<Operand> list = program_.operand_lists[inst.operands];
  for (size_t i = 0; i + 1 < list.size(); ++i)
    if (list[i].form == Operand::Form::Name)
      parts.push_back(fmt::format("{} = {}", words_.key(program_.strings[list[i].as_name()]),
                                  operand(list[i + 1])));
  if (inst.bwd_of.valid())
    parts.push_back("bwd_of = " + print_value(program_, inst.bwd_of));
  if (inst.phase != Phase::Unstated)
    parts.push_back(fmt::format("phase = {}", kPhaseWords[static_cast<unsigned>(inst.phase)]));
  llvm::SmallVector<std::string, 2> ignored;
  auto at = llvm::lower_bound(program_.ignores, id,
                              [](const auto &row, InstId id) { return row.first < id; });
  for (; at != program_.ignores.end() && at->first == id; ++at)
    ignored.push_back(words_.finding(at->second));
  if (!ignored.empty())
    parts.push_back("ignore = " + (ignored.size() == 1 ? ignored[0] : "[" + joined(ignored) + "]"));
  return joined(parts);
}

std::string InstText::attr(const Inst &inst, const Attr &row, MeshId target) const {
  llvm::StringRef text = program_.strings[row.key];
  std::optional<unsigned> known = known_key(text);
  KeyForm form = known ? kKnownKeys[*known].form : KeyForm::Plain;
  llvm::StringRef op = program_.op_name(inst.op);
  llvm::StringRef last = op.contains('.') ? op.rsplit('.').second : op;
  bool whole = form == KeyForm::Type && is_redistribute_word(last);
  if (form == KeyForm::Word && row.value.form == AttrForm::String) {
    llvm::StringRef said = program_.strings[row.value.as<StringId>()];
    // As a bare word it would be looked up among the meshes.
    bool no_mesh = text == "mesh" && !find_mesh(program_, said).valid();
    return fmt::format("{} = {}", words_.key(text),
                       no_mesh ? quote(said) : words_.name(row.value.as<StringId>()));
  }
  std::string stated = value(row.value, form == KeyForm::Type ? target : types_.mesh());
  // `to = null` would be an attribute `to`.
  return fmt::format("{} = {}", whole && stated != kNull ? "to" : words_.key(text), stated);
}

std::string InstText::value(const AttrValue &value, MeshId mesh) const {
  switch (value.form) {
  case AttrForm::Null:
    return std::string(kNull);
  case AttrForm::Bool:
    return value.as_bool() ? "true" : "false";
  case AttrForm::Integer:
    return std::to_string(value.as_integer());
  case AttrForm::Float:
    return print_number(value.as_number());
  case AttrForm::String:
    return words_.quoted(value.as<StringId>());
  case AttrForm::Expr:
    return fmt::format(
        "sym({})", print(Extent::symbolic(value.as<ExprId>()), program_.exprs, program_.strings));
  case AttrForm::List:
    return list(program_.lists[value.as<AttrListId>()], mesh);
  case AttrForm::Dict:
    return dict(program_.attrs[value.as<AttrsId>()], mesh);
  case AttrForm::Kind:
    return print(value.as_kind());
  case AttrForm::Axes:
    return words_.axes(program_.axis_refs[value.as<AxisRefsId>()]);
  case AttrForm::Scale:
    return print(program_.scales[value.as<ScaleId>()], program_.strings);
  case AttrForm::Claim:
    return types_.claim(value.as<ClaimId>(), mesh);
  case AttrForm::Function:
    return words_.function_name(program_.functions[value.as<FunctionId>()]);
  case AttrForm::Value:
    return print_value(program_, value.as<ValueId>());
  }
  return "";
}

std::string InstText::list(const AttrList &list, MeshId mesh) const {
  llvm::SmallVector<std::string, 4> parts;
  for (const AttrValue &item : list.items)
    parts.push_back(value(item, mesh));
  return "[" + joined(parts) + "]";
}

std::string InstText::dict(const AttrDict &dict, MeshId mesh) const {
  llvm::SmallVector<std::string, 4> parts;
  for (const Attr &row : dict.attrs)
    parts.push_back(
        fmt::format("{} = {}", words_.key(program_.strings[row.key]), value(row.value, mesh)));
  return parts.empty() ? "{}" : fmt::format("{{ {} }}", joined(parts));
}

std::string InstText::tail(InstId id) const {
  std::string text = words_.where(program_.insts[id].loc);
  auto at = llvm::lower_bound(program_.expectations, id,
                              [](const Expectation &row, InstId id) { return row.inst < id; });
  for (; at != program_.expectations.end() && at->inst == id; ++at)
    text += " expect " + expectation(*at);
  return text;
}

std::string InstText::expectation(const Expectation &row) const {
  if (!row.finding.valid()) {
    std::string type =
        types_.claim(row.type, {}, {}, {}, mesh_of(program_, row.value, types_.mesh()));
    return fmt::format("{}: {}", print_value(program_, row.value), type.empty() ? "?[...]" : type);
  }
  std::string text =
      fmt::format("{} {}", row.warning ? "warning" : "error", words_.finding(row.finding));
  llvm::SmallVector<std::string, 2> axes;
  for (StringId axis : row.axes)
    axes.push_back(words_.name(axis));
  if (axes.empty())
    return text;
  return text + " " + (axes.size() == 1 ? axes[0] : "(" + joined(axes) + ")");
}

} // namespace spmd::ir
