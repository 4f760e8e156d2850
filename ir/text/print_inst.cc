// One instruction as text: results, operands, attributes, and what may follow them.
// Relies on attributes standing in canonical order.
#include "ir/text/print.h"

#include "ir/boundary_ops.h"
#include "ir/input/input.h"
#include "ir/text/lexer.h"

#include <fmt/core.h>

#include <cmath>

namespace spmd::ir {

std::string joined(llvm::ArrayRef<std::string> parts, std::string_view separator) {
  std::string out;
  for (const std::string &part : parts) {
    out += out.empty() ? "" : separator;
    out += part;
  }
  return out;
}

std::string print_number(double number) {
  if (std::isnan(number))
    return "nan";
  std::string text = fmt::format("{}", number);
  bool integer = std::isfinite(number) && text.find_first_of(".e") == std::string::npos;
  return integer ? text + ".0" : text;
}

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

std::string print_inst(const Program &program, InstId id) {
  return TextPrinter(program).print_bare(id);
}

std::string TextPrinter::print_bare(InstId id) {
  mesh_ = context(program_.insts[id].context).mesh;
  return results(program_.insts[id], false) + operation(id);
}

std::string TextPrinter::quoted(StringId id) const { return quote(program_.strings[id]); }

std::string TextPrinter::name(StringId id) const { return name(program_.strings[id]); }

std::string TextPrinter::name(llvm::StringRef text) const {
  return is_name(text) && !is_reserved(text) ? text.str() : quote(text);
}

std::string TextPrinter::function_name(const Function &function) const {
  return "@" + name(program_.strings[function.name].drop_front());
}

std::string TextPrinter::op_name(llvm::StringRef name) const {
  llvm::SmallVector<llvm::StringRef, 4> parts;
  name.split(parts, '.');
  bool plain = llvm::all_of(parts, [](llvm::StringRef part) { return is_name(part); });
  return plain && !is_keyword(parts.front()) ? name.str() : quote(name);
}

// Keys of the statement itself are bare, so an attribute of that name is not.
std::string TextPrinter::key(llvm::StringRef key) const {
  return is_name(key) && !is_op_key(key) ? key.str() : quote(key);
}

std::string TextPrinter::finding(StringId id) const {
  llvm::SmallVector<llvm::StringRef, 4> parts;
  program_.strings[id].split(parts, '-');
  bool plain = llvm::all_of(parts, [](llvm::StringRef part) { return is_name(part); });
  return plain ? program_.strings[id].str() : quoted(id);
}

std::string TextPrinter::axes(const AxisRefs &refs) const {
  llvm::SmallVector<std::string, 4> parts;
  for (AxisRef ref : refs.refs)
    parts.push_back((ref.mesh.valid() ? name(ref.mesh) + "." : "") + name(ref.axis));
  return parts.size() == 1 ? parts[0] : "(" + joined(parts) + ")";
}

std::string TextPrinter::axes(MeshId mesh, AxisSet set) const {
  std::string list = print_axes(program_, mesh, set);
  return set.size() == 1 ? list : "(" + list + ")";
}

std::string TextPrinter::claim_type(TypeId id, ShapeId shape, ShapeId global_shape, MeshId stated,
                                    MeshId around) const {
  Type type;
  type.set_mesh(around);
  if (id.valid())
    type = program_.types[id];
  Dialect words = in_place_ ? dialect_of(program_) : Dialect::Spmd;
  std::string text = print_type_in(program_, type, shape, global_shape, words);
  MeshId on = stated.valid() ? stated : type.mesh();
  if (stated.valid() || (id.valid() && on != around))
    text += fmt::format("{}on {}", text.empty() ? "" : " ", name(program_.meshes[on].name));
  return text;
}

std::string TextPrinter::claim(ClaimId id, MeshId around) const {
  if (!id.valid())
    return "null";
  const Claim &claim = program_.claims[id];
  std::string text = claim_type(claim.type, claim.shape, claim.global_shape, {}, around);
  return text.empty() ? "null" : text;
}

std::string TextPrinter::value_type(ValueId id) const {
  const Value &value = program_.values[id];
  return claim_type(value.declared, value.shape, value.global_shape, value.mesh, mesh_);
}

// `gradient`: whether requires_grad is said here.
std::string TextPrinter::result(ValueId id, std::string type, bool gradient) const {
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

std::string TextPrinter::results(const Inst &inst, bool types) const {
  llvm::SmallVector<std::string, 2> parts;
  for (uint32_t i = 0; i < inst.result_count; ++i)
    parts.push_back(types ? result(inst.result(i), value_type(inst.result(i)), true)
                          : print_value(program_, inst.result(i)));
  return parts.empty() ? "" : joined(parts) + " = ";
}

std::string TextPrinter::operands(llvm::ArrayRef<Operand> operands) const {
  llvm::SmallVector<std::string, 4> parts;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].form == Operand::Form::Name)
      ++i;
    else
      parts.push_back(operand(operands[i]));
  }
  return joined(parts);
}

std::string TextPrinter::operand(Operand operand) const {
  std::string mut = operand.mut ? "mut " : "";
  if (operand.is_value())
    return mut + print_value(program_, operand.as_value());
  if (operand.form == Operand::Form::List)
    return fmt::format("{}[{}]", mut, operands(program_.blocks[operand.as_list()]));
  return value_text(program_.literals[operand.index], mesh_);
}

std::string TextPrinter::operation(InstId id) const {
  const Inst &inst = program_.insts[id];
  const AttrDict &dict = program_.attrs[inst.attrs];
  std::string text = op_name(program_.op_name(inst.op));
  llvm::ArrayRef<Operand> list = program_.blocks[inst.operands];
  bool is_rng = is_boundary(text, Boundary::Rng) && list.empty() && dict.attrs.size() == 1 &&
                attr_of(inst, "type");
  std::string stated = attrs(id);
  if (is_rng && inst.phase == Phase::Unstated && !stated.empty())
    if (std::string type = value_text(dict.attrs[0].value, mesh_);
        type != "null" && stated == "type = " + type) // `rng null` has an operand
      return "rng " + type;
  if (std::string positional = operands(list); !positional.empty())
    text += " " + positional;
  return stated.empty() ? text : fmt::format("{} {{ {} }}", text, stated);
}

// Attributes, named operands, and what concerns the op itself.
std::string TextPrinter::attrs(InstId id) const {
  const Inst &inst = program_.insts[id];
  llvm::SmallVector<std::string, 8> parts;
  MeshId target = mesh_;
  if (const AttrValue *mesh = attr_of(inst, "mesh"); mesh && mesh->form == AttrForm::String)
    if (MeshId found = find_mesh(program_, program_.strings[mesh->as<StringId>()]); found.valid())
      target = found;
  for (const Attr &row : program_.attrs[inst.attrs].attrs)
    parts.push_back(attr(inst, row, target));
  llvm::ArrayRef<Operand> list = program_.blocks[inst.operands];
  for (size_t i = 0; i + 1 < list.size(); ++i)
    if (list[i].form == Operand::Form::Name)
      parts.push_back(
          fmt::format("{} = {}", key(program_.strings[list[i].as_name()]), operand(list[i + 1])));
  if (inst.bwd_of.valid())
    parts.push_back("bwd_of = " + print_value(program_, inst.bwd_of));
  if (inst.phase != Phase::Unstated)
    parts.push_back(fmt::format("phase = {}", kPhaseWords[static_cast<unsigned>(inst.phase)]));
  llvm::SmallVector<std::string, 2> ignored;
  auto at = llvm::lower_bound(program_.ignores, id,
                              [](const auto &row, InstId id) { return row.first < id; });
  for (; at != program_.ignores.end() && at->first == id; ++at)
    ignored.push_back(finding(at->second));
  if (!ignored.empty())
    parts.push_back("ignore = " + (ignored.size() == 1 ? ignored[0] : "[" + joined(ignored) + "]"));
  return joined(parts);
}

std::string TextPrinter::attr(const Inst &inst, const Attr &row, MeshId target) const {
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
    return fmt::format("{} = {}", key(text), no_mesh ? quote(said) : word(row.value));
  }
  std::string value = value_text(row.value, form == KeyForm::Type ? target : mesh_);
  // `to = null` would be an attribute `to`.
  return fmt::format("{} = {}", whole && value != "null" ? "to" : key(text), value);
}

std::string TextPrinter::word(const AttrValue &value) const { return name(value.as<StringId>()); }

std::string TextPrinter::value_text(const AttrValue &value, MeshId mesh) const {
  switch (value.form) {
  case AttrForm::Null:
    return "null";
  case AttrForm::Bool:
    return value.as_bool() ? "true" : "false";
  case AttrForm::Integer:
    return std::to_string(value.as_integer());
  case AttrForm::Float:
    return print_number(value.as_number());
  case AttrForm::String:
    return quoted(value.as<StringId>());
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
    return axes(program_.axis_refs[value.as<AxisRefsId>()]);
  case AttrForm::Scale:
    return print(program_.scales[value.as<ScaleId>()], program_.strings);
  case AttrForm::Claim:
    return claim(value.as<ClaimId>(), mesh);
  case AttrForm::Function:
    return function_name(program_.functions[value.as<FunctionId>()]);
  case AttrForm::Value:
    return print_value(program_, value.as<ValueId>());
  }
  return "";
}

std::string TextPrinter::list(const AttrList &list, MeshId mesh) const {
  llvm::SmallVector<std::string, 4> parts;
  for (const AttrValue &item : list.items)
    parts.push_back(value_text(item, mesh));
  return "[" + joined(parts) + "]";
}

std::string TextPrinter::dict(const AttrDict &dict, MeshId mesh) const {
  llvm::SmallVector<std::string, 4> parts;
  for (const Attr &row : dict.attrs)
    parts.push_back(
        fmt::format("{} = {}", key(program_.strings[row.key]), value_text(row.value, mesh)));
  return parts.empty() ? "{}" : fmt::format("{{ {} }}", joined(parts));
}

std::string TextPrinter::where(LocId id) const {
  if (!id.valid())
    return "";
  const Location &loc = program_.locs[id];
  std::string text = loc.frame.valid() ? " at " + frames(loc.frame) : "";
  return loc.scope.valid() ? text + " in " + quoted(loc.scope) : text;
}

std::string TextPrinter::frames(FrameId id) const {
  std::string text;
  for (; id.valid(); id = program_.frames[id].caller) {
    const Frame &frame = program_.frames[id];
    text += text.empty() ? "" : " from ";
    text += fmt::format("{}:{}", quoted(program_.files[frame.file].path), frame.line);
    if (frame.col)
      text += fmt::format(":{}", frame.col);
    if (frame.end_line)
      text += fmt::format("-{}:{}", frame.end_line, frame.end_col);
    if (frame.function.valid())
      text += " fn " + quoted(frame.function);
  }
  return text;
}

std::string TextPrinter::tail(InstId id) const {
  std::string text = where(program_.insts[id].loc);
  auto at = llvm::lower_bound(program_.expectations, id,
                              [](const Expectation &row, InstId id) { return row.inst < id; });
  for (; at != program_.expectations.end() && at->inst == id; ++at)
    text += " expect " + expectation(*at);
  return text;
}

std::string TextPrinter::expectation(const Expectation &row) const {
  if (!row.finding.valid()) {
    std::string type = claim_type(row.type, {}, {}, {}, mesh_of(program_, row.value, mesh_));
    return fmt::format("{}: {}", print_value(program_, row.value), type.empty() ? "?[...]" : type);
  }
  std::string text = fmt::format("{} {}", row.warning ? "warning" : "error", finding(row.finding));
  llvm::SmallVector<std::string, 2> axes;
  for (StringId axis : row.axes)
    axes.push_back(name(axis));
  if (axes.empty())
    return text;
  return text + " " + (axes.size() == 1 ? axes[0] : "(" + joined(axes) + ")");
}

void TextPrinter::inst(InstId id) {
  if (is_inline(program_.insts[id]))
    return local_map(id);
  const Inst &row = program_.insts[id];
  line(results(row, true) + operation(id) + tail(id) +
       in_words(row.first_result, row.result_count));
}

// A comment; empty where nothing is known or asked for.
std::string TextPrinter::in_words(ValueId first, uint32_t count) const {
  llvm::SmallVector<std::string, 2> parts;
  for (uint32_t i = 0; words_ && i < count; ++i) {
    TypeId type = program_.values[ValueId{first.index + i}].declared;
    if (type.valid())
      parts.push_back(print_words(program_, program_.types[type], *words_));
  }
  return parts.empty() ? "" : "  // " + joined(parts);
}

// The claims of the boundary stand with the operands and the results that they are about.
void TextPrinter::local_map(InstId id) {
  const Inst &inst = program_.insts[id];
  const Function &function = program_.functions[attr_of(inst, "body")->as<FunctionId>()];
  const AttrValue *in_types = attr_of(inst, "in_types");
  llvm::SmallVector<std::string, 2> outs, bindings;
  for (uint32_t i = 0; i < inst.result_count; ++i)
    outs.push_back(local_map_result(inst, i));
  llvm::ArrayRef<Operand> operands = program_.blocks[inst.operands];
  for (size_t i = 0; i < operands.size(); ++i) {
    std::string type = "null";
    if (in_types)
      type = value_text(program_.lists[in_types->as<AttrListId>()].items[i], mesh_);
    bindings.push_back(fmt::format("{} = {}{}", print_value(program_, function.params[i].value),
                                   operand(operands[i]), type == "null" ? "" : " " + type));
  }
  line(fmt::format("{} = local_map over {} ({}) {{", joined(outs),
                   value_text(*attr_of(inst, "axis"), mesh_), joined(bindings)));
  ++indent_;
  body(function.body, context(function.context));
  std::string yielded = this->operands(program_.blocks[function.results]);
  line(yielded.empty() ? "yield" : "yield " + yielded);
  --indent_;
  line("}" + tail(id) + in_words(inst.first_result, inst.result_count));
}

std::string TextPrinter::local_map_result(const Inst &inst, unsigned i) const {
  ValueId id = inst.result(i);
  const Value &value = program_.values[id];
  TypeId stated;
  if (const AttrValue *out_types = attr_of(inst, "out_types"))
    stated =
        program_.claims[program_.lists[out_types->as<AttrListId>()].items[i].as<ClaimId>()].type;
  return result(id, claim_type(stated, value.shape, value.global_shape, value.mesh, mesh_), true);
}

} // namespace spmd::ir
