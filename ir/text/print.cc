// The text form of a program: tables, functions in order of first use, declarations, statements,
// outputs, each on one line; instructions in another context than the one around them stand in
// `with` or `local` blocks.
//
// Beyond ir/README.md, the text form spells what only JSON had:
// - `mesh m` alone makes a declared mesh the current one again; `dp = 4 local "role"` in a mesh
//   gives an axis its policy and role; `group "k" = [4:1] offset 2`;
// - `file "path" { sha256 = "..." }`; `rule f like g`; `trace { x_key = "JSON" }`;
// - `with { global = a }` takes axes out of the local ones, `local` adds to those around;
// - `at "f.py":3:5-3:9 fn "g" from "h.py":7` has ends, functions and callers, innermost first, and
//   may follow `suppress` too;
// - `%y grad_of %x requires_grad = op` (or `no_grad`) beside `aliases`; `{ bwd_of = %x }`;
// - `f32[...]` is a shape of unknown rank, `?[8]` one of unknown dtype, `?[...]` neither;
// - `null` is a claim that says nothing; `in_types` and `out_types` are lists of types;
// - `sync = { (a, b) = avg }` is one reduction over two axes;
// - `func @f(%x) { mesh = m } {` has a context, `func @f(%x) -> ()` no results;
// - `expect error name axes`, `expect warning name axes` and `expect %x: T` end a statement;
// - `"odd name" %x` is an op, `{ "odd key" = 1 }` a key, `%"a//b"` a value whose name needs quotes.
#include "ir/text/print.h"

#include "ir/boundary_ops.h"
#include "ir/input/input.h"
#include "ir/text/lexer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/core.h>

namespace spmd::ir {

// Deeper ones become functions with a name: blocks may not nest without end.
static constexpr unsigned kMaxInlined = kMaxNesting / 4;

std::string print_text(const Program &program) { return TextPrinter(program).print_program(); }

std::string print_text(const Program &program, Dialect words) {
  return TextPrinter(program, words).print_program();
}

std::string print_text_in_words(const Program &program) {
  TextPrinter printer(program);
  printer.tell_in_words();
  return printer.print_program();
}

TextPrinter::TextPrinter(const Program &program, std::optional<Dialect> words)
    : program_(program), words_(words), mesh_(top().mesh) {}

std::string TextPrinter::print_program() {
  count_uses();
  tables();
  functions();
  for (const Param &row : program_.params)
    param(row);
  body(program_.main, top());
  for (const Output &row : program_.outputs)
    output(row);
  return std::move(out_);
}

void TextPrinter::line(std::string_view text) {
  out_.append(indent_ * 2, ' ');
  out_ += text;
  out_ += '\n';
}

Context TextPrinter::context(ContextId id) const {
  Context context;
  if (id.valid() && id.index < program_.contexts.size())
    context = program_.contexts[id];
  if (!context.mesh.valid())
    context.mesh = MeshId{0};
  return context;
}

// What holds where no block says otherwise.
Context TextPrinter::top() const {
  Context plain;
  plain.mesh = context(ContextId{0}).mesh;
  return plain;
}

void TextPrinter::count_uses() {
  uses_.assign(program_.functions.size(), 0);
  inline_.assign(program_.functions.size(), false);
  for (const Inst &inst : program_.insts)
    for (const Attr &attr : program_.attrs[inst.attrs].attrs)
      if (attr.value.form == AttrForm::Function)
        ++uses_[attr.value.as<FunctionId>().index];
}

void TextPrinter::functions() {
  std::vector<bool> met(program_.functions.size());
  std::vector<FunctionId> order;
  find_functions(program_.main, met, order);
  for (uint32_t i = 0; i < program_.functions.size(); ++i) {
    FunctionId id{i};
    if (met[i])
      continue;
    met[i] = true;
    order.push_back(id);
    find_functions(program_.functions[id].body, met, order);
  }
  for (FunctionId id : order)
    function(program_.functions[id]);
}

// Functions that are printed on their own, in order of first use; a stack holds where each walk
// goes on.
void TextPrinter::find_functions(Body root, std::vector<bool> &met,
                                 std::vector<FunctionId> &order) {
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
      inline_[callee.index] = inlined < kMaxInlined && has_inline_form(program_.insts[id]);
      if (!inline_[callee.index])
        order.push_back(callee);
      enter(program_.functions[callee].body, inline_[callee.index] ? inlined + 1 : 0);
    }
  }
}

bool TextPrinter::is_inline(const Inst &inst) const {
  const AttrValue *body = attr_of(inst, "body");
  return body && body->form == AttrForm::Function && !inline_.empty() &&
         inline_[body->as<FunctionId>().index];
}

void TextPrinter::function(const Function &function) {
  Context inside = function.context.valid() ? context(function.context) : top();
  MeshId outer = std::exchange(mesh_, inside.mesh);
  llvm::SmallVector<std::string, 4> params;
  for (const FunctionParam &param : function.params)
    params.push_back(parameter(param));
  std::string head = fmt::format("func {}({})", function_name(function), joined(params));
  if (function.context.valid())
    head += " " + context_attrs(top(), inside);
  if (function.opaque) {
    llvm::SmallVector<std::string, 4> outs;
    for (ClaimId out : function.outs)
      outs.push_back(claim(out, mesh_));
    line(fmt::format("{} -> {}", head, outs.empty() ? "()" : joined(outs)));
  } else {
    line(head + " {");
    ++indent_;
    body(function.body, inside);
    std::string results = operands(program_.blocks[function.results]);
    line(results.empty() ? "return" : "return " + results);
    --indent_;
    line("}");
  }
  mesh_ = outer;
}

std::string TextPrinter::parameter(const FunctionParam &param) {
  std::string text = result(param.value, value_type(param.value), true);
  if (param.grad.valid())
    text += " grad " + claim(param.grad, mesh_of(program_, param.value, mesh_));
  return text;
}

// Runs of instructions in one context.
void TextPrinter::body(Body body, const Context &around) {
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

void TextPrinter::run(InstId first, InstId last, const Context &around) {
  Context inside = context(program_.insts[first].context);
  bool nested = !(inside == around);
  MeshId mesh = std::exchange(mesh_, inside.mesh);
  if (nested) {
    bool only_local = false;
    std::string words = context_words(around, inside, only_local);
    std::string added = axes(inside.mesh, inside.local - around.local);
    line(only_local ? fmt::format("local {} {{", added) : fmt::format("with {{ {} }} {{", words));
    ++indent_;
  }
  for (InstId id = first; id < last; ++id.index)
    inst(id);
  if (nested) {
    --indent_;
    line("}");
  }
  mesh_ = mesh;
}

std::string TextPrinter::context_attrs(const Context &from, const Context &to) const {
  bool only_local = false;
  std::string words = context_words(from, to, only_local);
  return words.empty() ? "{}" : "{ " + words + " }";
}

// What changes from one context to the other; `only_local`: some axes become local and that is all.
std::string TextPrinter::context_words(const Context &from, const Context &to,
                                       bool &only_local) const {
  llvm::SmallVector<std::string, 4> words;
  bool same_mesh = from.mesh == to.mesh;
  if (!same_mesh)
    words.push_back("mesh = " + name(program_.meshes[to.mesh].name));
  AxisSet before = same_mesh ? from.local : AxisSet();
  if (AxisSet added = to.local - before)
    words.push_back("local = " + axes(to.mesh, added));
  only_local = words.size() == 1 && same_mesh;
  if (AxisSet removed = before - to.local)
    words.push_back("global = " + axes(to.mesh, removed));
  auto flag = [&](std::string_view word, bool a, bool b) {
    if (a != b)
      words.push_back(fmt::format("{} = {}", word, b));
  };
  flag("check", from.check, to.check);
  flag("grad", from.grad, to.grad);
  flag("implicit", from.implicit, to.implicit);
  only_local &= words.size() == 1;
  return joined(words);
}

// The function of a `local_map` that nobody else uses, and whose name says that it had none.
const Function *TextPrinter::own_body(const Inst &inst) const {
  const AttrValue *body = attr_of(inst, "body");
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
bool TextPrinter::has_inline_form(const Inst &inst) const {
  const Function *function = own_body(inst);
  if (!function || inst.result_count == 0 || inst.phase != Phase::Unstated || inst.bwd_of.valid())
    return false;
  llvm::ArrayRef<Operand> operands = program_.blocks[inst.operands];
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
         function->context.valid() && context(function->context) == *inner &&
         has_inline_attrs(inst);
}

// What `over` makes of the context of the op; none if it names axes in another way.
std::optional<Context> TextPrinter::context_of_body(const Inst &inst) const {
  const AttrValue *axis = attr_of(inst, "axis");
  if (!axis || axis->form != AttrForm::Axes)
    return std::nullopt;
  Context inner = context(inst.context);
  const Mesh &mesh = program_.meshes[inner.mesh];
  for (AxisRef ref : program_.axis_refs[axis->as<AxisRefsId>()].refs) {
    std::optional<AxisId> found = mesh.find(ref.axis);
    if (ref.mesh.valid() || !found)
      return std::nullopt;
    inner.local |= mesh.pieces_of(*found);
  }
  return inner;
}

bool TextPrinter::has_inline_attrs(const Inst &inst) const {
  MeshId mesh = context(inst.context).mesh;
  for (const Attr &attr : program_.attrs[inst.attrs].attrs) {
    llvm::StringRef key = program_.strings[attr.key];
    if (key == "axis" || key == "body")
      continue;
    bool types = (key == "in_types" || key == "out_types") && attr.value.form == AttrForm::List;
    if (!types)
      return false;
    llvm::ArrayRef<AttrValue> items = program_.lists[attr.value.as<AttrListId>()].items;
    auto says = [&](AttrValue item) { return claim(item.as<ClaimId>(), mesh) != "null"; };
    auto whole = [&](AttrValue item) {
      return item.form == AttrForm::Claim && item.as<ClaimId>().valid();
    };
    size_t count = key == "in_types" ? program_.blocks[inst.operands].size() : inst.result_count;
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
bool TextPrinter::states_boundary(ValueId result, const Claim &claim, MeshId mesh) const {
  const Value &value = program_.values[result];
  MeshId on = value.mesh.valid() ? value.mesh : mesh;
  bool shaped = claim.shape.valid() || claim.global_shape.valid();
  return !shaped && (!claim.type.valid() || program_.types[claim.type].mesh() == on);
}

} // namespace spmd::ir
