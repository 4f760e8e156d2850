// Operations and functions as JSON, parameters with their gradient contracts, and outputs.
#include "ir/json/print.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <cmath>

namespace spmd::ir {

void JsonPrinter::function(const Function &function) {
  text(p_.strings[function.name]);
  out_ += ": {";
  if (function.context.valid())
    number("ctx", contexts_[function.context]);
  ContextId outer = function.context.valid() ? function.context : ContextId{0};
  key("params");
  lines(
      function.params,
      [&](const FunctionParam &param) {
        const Value &made = p_.values[param.value];
        out_ += '{';
        value_name("id", param.value);
        value(param.value, mesh_of(outer));
        if (param.grad.valid()) {
          key("grad");
          claim(param.grad, value_meshes_[param.value.index], rank_of(made.shape));
        }
        out_ += '}';
      },
      "      ", '[');
  if (function.opaque) {
    key("out");
    lines(
        function.outs, [&](ClaimId out) { claim(out, mesh_of(outer), {}); }, "      ", '[');
  } else {
    key("ops");
    lines(
        insts_of(function.body), [&](uint32_t i) { op(InstId{i}, outer); }, "      ", '[');
    key("results");
    operands(function.results);
  }
  out_ += '}';
}

void JsonPrinter::param(const Param &param) {
  const Value &made = p_.values[param.value];
  out_ += '{';
  value_name("id", param.value);
  key("role");
  text(kRoleWords[unsigned(param.role)]);
  text("name", param.name);
  value(param.value, mesh_of(ContextId{0}));
  if (param.grad.stated)
    gradient(param.grad, made, value_meshes_[param.value.index]);
  const std::pair<const char *, AxisRefsId> seen[] = {{"drifted", param.drifted},
                                                      {"drifts_later", param.drifts_later},
                                                      {"observed", param.observed},
                                                      {"separate", param.separate},
                                                      {"taken", param.taken}};
  for (const auto &[name, refs] : seen)
    if (refs.valid()) {
      key(name);
      axes(p_.axis_refs[refs].refs);
    }
  if (param.drifts_later.valid())
    number("drift_step", param.drift_step);
  if (param.taken.valid()) {
    number("taken_dim", param.taken_dim);
    number("taken_blocks", param.taken_blocks);
  }
  if (param.gradient_ratio) {
    key("gradient_ratio");
    real(*param.gradient_ratio);
  }
  location(param.loc);
  out_ += '}';
}

void JsonPrinter::location(LocId id) {
  if (!id.valid())
    return;
  if (p_.locs[id].frame.valid())
    number("loc", frames_[p_.locs[id].frame]);
  if (p_.locs[id].scope.valid())
    number("scope", scopes_[p_.locs[id].scope]);
}

void JsonPrinter::gradient(const GradContract &contract, const Value &value, MeshId mesh) {
  key("grad");
  out_ += '{';
  if (contract.grad.valid())
    claim_members(p_.claims[contract.grad], mesh, rank_of(value.shape));
  if (contract.step.valid()) {
    key("step");
    claim(contract.step, mesh, rank_of(value.shape));
  }
  if (!contract.sync.empty()) {
    key("sync");
    out_ += '[';
    for (const Sync &sync : contract.sync) {
      separate();
      out_ += '{';
      key("axis");
      axes(p_.axis_refs[sync.axes].refs);
      if (sync.op != Combiner::Sum) {
        key("op");
        text(word(sync.op));
      }
      out_ += '}';
    }
    out_ += ']';
  }
  if (!contract.hints.empty()) {
    key("hints");
    out_ += '[';
    for (const SyncHint &hint : contract.hints) {
      separate();
      out_ += '{';
      key("axis");
      axes(p_.axis_refs[hint.axes].refs);
      text("text", hint.text);
      out_ += '}';
    }
    out_ += ']';
  }
  out_ += '}';
}

void JsonPrinter::output(const Output &output) {
  const Value &made = p_.values[output.value];
  out_ += '{';
  value_name("value", output.value);
  if (output.role != OutputRole::Output) {
    key("role");
    text(kOutputRoleWords[unsigned(output.role)]);
  }
  value_name("of", output.of);
  text("name", output.name);
  MeshId mesh = value_meshes_[output.value.index];
  if (output.declared.valid() && p_.types[output.declared].mesh() != mesh)
    text("mesh", p_.meshes[p_.types[output.declared].mesh()].name);
  type(output.declared, rank_of(made.shape), made.shape.valid());
  out_ += '}';
}

void JsonPrinter::op(InstId id, ContextId outer) {
  const Inst &inst = p_.insts[id];
  MeshId mesh = mesh_of(inst.context);
  out_ += '{';
  key("op");
  text(p_.op_name(inst.op));
  operand_members(inst.operands);
  attrs(inst, mesh);
  if (inst.result_count != 0) {
    key("out");
    out_ += '[';
    for (uint32_t i = 0; i < inst.result_count; ++i) {
      separate();
      out_ += '{';
      value_name("id", inst.result(i));
      value(inst.result(i), mesh);
      out_ += '}';
    }
    out_ += ']';
  }
  regions(inst.attrs);
  mutated(inst.operands);
  if (inst.phase != Phase::Unstated) {
    key("phase");
    text(kPhaseWords[unsigned(inst.phase)]);
  }
  value_name("bwd_of", inst.bwd_of);
  if (inst.context != outer)
    number("ctx", contexts_[inst.context]);
  location(inst.loc);
  assertions(id);
  out_ += '}';
}

// Operands by position, and then those by name.
void JsonPrinter::operand_members(OperandsId id) {
  llvm::ArrayRef<Operand> all = p_.operand_lists[id];
  auto is_name = [](const Operand &operand) { return operand.form == Operand::Form::Name; };
  llvm::ArrayRef<Operand> named = all.drop_front(llvm::find_if(all, is_name) - all.begin());
  if (named.size() != all.size()) {
    key("in");
    operand_list(all.drop_back(named.size()));
  }
  if (named.empty())
    return;
  key("kw");
  out_ += '{';
  for (; named.size() >= 2; named = named.drop_front(2)) {
    key(p_.strings[named[0].as_name()]);
    operand(named[1]);
  }
  out_ += '}';
}

void JsonPrinter::operand_list(llvm::ArrayRef<Operand> list) {
  out_ += '[';
  for (const Operand &each : list) {
    separate();
    operand(each);
  }
  out_ += ']';
}

void JsonPrinter::operand(const Operand &operand) {
  if (operand.is_value())
    return value_name(operand.as_value());
  if (operand.form == Operand::Form::List)
    return operand_list(p_.operand_lists[operand.as_list()]);
  const AttrValue &value = p_.literals[operand.index];
  if (value.form != AttrForm::String)
    return attr_value(value, {}, {});
  out_ += "{\"str\": ";
  text(p_.strings[value.as<StringId>()]);
  out_ += '}';
}

void JsonPrinter::mutated(OperandsId id) {
  std::string positions;
  unsigned place = 0;
  for (const Operand &operand : p_.operand_lists[id]) {
    if (operand.form == Operand::Form::Name)
      continue;
    if (operand.mut)
      positions += fmt::format("{}{}", positions.empty() ? "" : ", ", place);
    ++place;
  }
  if (positions.empty())
    return;
  key("mut");
  out_ += fmt::format("[{}]", positions);
}

void JsonPrinter::attrs(const Inst &inst, MeshId mesh) {
  bool open = false;
  for (const Attr &attr : p_.attrs[inst.attrs].attrs) {
    if (attr.value.form == AttrForm::Function)
      continue;
    if (!open)
      key("attrs"), out_ += '{';
    open = true;
    llvm::StringRef name = p_.strings[attr.key];
    if (name == "type" && attr.value.form == AttrForm::Claim) {
      whole_type(p_.claims[attr.value.as<ClaimId>()], inst, mesh);
      continue;
    }
    key(name);
    if (attr.value.form == AttrForm::List && (name == "in_types" || name == "out_types"))
      claim_list(p_.lists[attr.value.as<AttrListId>()], inst, name == "out_types", mesh);
    else
      attr_value(attr.value, mesh, rank_of_operand(inst, 0));
  }
  if (open)
    out_ += '}';
}

void JsonPrinter::regions(AttrsId id) {
  bool open = false;
  for (const Attr &attr : p_.attrs[id].attrs) {
    if (attr.value.form != AttrForm::Function)
      continue;
    if (!open)
      key("regions"), out_ += '{';
    open = true;
    text(p_.strings[attr.key], p_.functions[attr.value.as<FunctionId>()].name);
  }
  if (open)
    out_ += '}';
}

// A type whose mesh is not the one that its place says stands in an object of its own.
void JsonPrinter::whole_type(const Claim &claim, const Inst &inst, MeshId mesh) {
  if (const AttrValue *stated = p_.find(inst.attrs, "mesh");
      stated && stated->form == AttrForm::String)
    if (MeshId found = find_mesh(p_, p_.strings[stated->as<StringId>()]); found.valid())
      mesh = found;
  bool elsewhere = claim.type.valid() && p_.types[claim.type].mesh() != mesh;
  bool silent = !claim.type.valid() || p_.types[claim.type].claimed().empty();
  if (elsewhere || silent) {
    key("type");
    out_ += '{';
    if (elsewhere)
      claim_members(claim, mesh, {});
    out_ += '}';
  }
  if (!elsewhere)
    claim_members(claim, mesh, rank_of_operand(inst, 0));
}

void JsonPrinter::claim_list(const AttrList &list, const Inst &inst, bool results, MeshId mesh) {
  out_ += '[';
  for (size_t i = 0; i < list.items.size(); ++i) {
    separate();
    std::optional<unsigned> rank;
    if (!results)
      rank = rank_of_operand(inst, i);
    else if (i < inst.result_count)
      rank = rank_of(p_.values[inst.result(static_cast<uint32_t>(i))].shape);
    attr_value(list.items[i], mesh, rank);
  }
  out_ += ']';
}

std::optional<unsigned> JsonPrinter::rank_of_operand(const Inst &inst, size_t i) const {
  llvm::ArrayRef<Operand> operands = p_.operand_lists[inst.operands];
  if (i >= operands.size() || !operands[i].is_value())
    return std::nullopt;
  return rank_of(p_.values[operands[i].as_value()].shape);
}

void JsonPrinter::attr_value(const AttrValue &value, MeshId mesh, std::optional<unsigned> rank) {
  switch (value.form) {
  case AttrForm::Null:
    out_ += "null";
    return;
  case AttrForm::Bool:
    out_ += value.as_bool() ? "true" : "false";
    return;
  case AttrForm::Integer:
    out_ += std::to_string(value.as_integer());
    return;
  case AttrForm::Float:
    return real(value.as_number());
  case AttrForm::String:
    return text(p_.strings[value.as<StringId>()]);
  case AttrForm::Expr:
    out_ += "{\"sym\": ";
    text(ir::print(Extent::symbolic(value.as<ExprId>()), p_.exprs, p_.strings));
    out_ += '}';
    return;
  case AttrForm::List:
    out_ += '[';
    for (const AttrValue &item : p_.lists[value.as<AttrListId>()].items) {
      separate();
      attr_value(item, mesh, rank);
    }
    out_ += ']';
    return;
  case AttrForm::Dict:
    out_ += '{';
    for (const Attr &attr : p_.attrs[value.as<AttrsId>()].attrs) {
      key(p_.strings[attr.key]);
      attr_value(attr.value, mesh, rank);
    }
    out_ += '}';
    return;
  case AttrForm::Kind:
    return text(ir::print(value.as_kind()));
  case AttrForm::Axes:
    return axes(p_.axis_refs[value.as<AxisRefsId>()].refs);
  case AttrForm::Scale:
    return text(ir::print(p_.scales[value.as<ScaleId>()], p_.strings));
  case AttrForm::Claim:
    return claim(value.as<ClaimId>(), mesh, rank);
  case AttrForm::Function:
    return text(p_.strings[p_.functions[value.as<FunctionId>()].name]);
  case AttrForm::Value:
    return value_name(value.as<ValueId>());
  }
}

void JsonPrinter::real(double value) {
  if (!std::isfinite(value)) {
    out_ += fmt::format("{{\"num\": \"{}\"}}", std::isnan(value) ? "nan"
                                               : value > 0       ? "inf"
                                                                 : "-inf");
    return;
  }
  std::string text = fmt::format("{}", value);
  out_ += text;
  if (text.find_first_of(".e") == std::string::npos)
    out_ += ".0";
}

void JsonPrinter::axes(llvm::ArrayRef<AxisRef> refs) {
  auto one = [&](AxisRef ref) {
    std::string mesh = ref.mesh.valid() ? p_.strings[ref.mesh].str() + "." : "";
    text(mesh + p_.strings[ref.axis].str());
  };
  if (refs.size() == 1)
    return one(refs[0]);
  out_ += '[';
  for (AxisRef ref : refs) {
    separate();
    one(ref);
  }
  out_ += ']';
}

void JsonPrinter::assertions(InstId id) {
  auto ignored = llvm::lower_bound(p_.ignores, id,
                                   [](const auto &row, InstId inst) { return row.first < inst; });
  if (ignored != p_.ignores.end() && ignored->first == id) {
    key("ignore");
    out_ += '[';
    for (; ignored != p_.ignores.end() && ignored->first == id; ++ignored) {
      separate();
      text(p_.strings[ignored->second]);
    }
    out_ += ']';
  }
  auto expected = llvm::lower_bound(
      p_.expectations, id, [](const Expectation &row, InstId inst) { return row.inst < inst; });
  if (expected == p_.expectations.end() || expected->inst != id)
    return;
  key("expect");
  out_ += '[';
  for (; expected != p_.expectations.end() && expected->inst == id; ++expected) {
    separate();
    expectation(*expected);
  }
  out_ += ']';
}

void JsonPrinter::expectation(const Expectation &expected) {
  out_ += '{';
  text(expected.warning ? "warning" : "error", expected.finding);
  if (!expected.axes.empty()) {
    key("axes");
    out_ += '[';
    for (StringId axis : expected.axes) {
      separate();
      text(p_.strings[axis]);
    }
    out_ += ']';
  }
  value_name("value", expected.value);
  if (expected.value.valid() && expected.type.valid()) {
    const Value &of = p_.values[expected.value];
    if (p_.types[expected.type].mesh() != value_meshes_[expected.value.index])
      text("mesh", p_.meshes[p_.types[expected.type].mesh()].name);
    type(expected.type, rank_of(of.shape), of.shape.valid());
  }
  out_ += '}';
}

} // namespace spmd::ir
