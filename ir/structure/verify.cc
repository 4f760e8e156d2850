// Every id of a program is in range of its table, and every table upholds what its entries rely on.
// Each phase relies on the ones before it, so the first one that finds errors is the last one run.
#include "ir/structure/verify.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::ir {

namespace {

class IdVerifier {
public:
  IdVerifier(const Program &program, Findings &findings) : program_(program), findings_(findings) {}

  void run() {
    using Phase = void (IdVerifier::*)();
    constexpr Phase kPhases[] = {&IdVerifier::check_types,     &IdVerifier::check_attributes,
                                 &IdVerifier::check_blocks,    &IdVerifier::check_meshes,
                                 &IdVerifier::check_locations, &IdVerifier::check_document,
                                 &IdVerifier::check_values,    &IdVerifier::check_insts};
    for (Phase phase : kPhases)
      if (findings_.empty())
        (this->*phase)();
  }

private:
  // Phases.
  void check_types();
  void check_attributes();
  void check_blocks();
  void check_meshes();
  void check_locations();
  void check_document();
  void check_values();
  void check_insts();

  // Their parts.
  void check_type(const Type &type);
  void check_extent(Extent extent, size_t limit);
  void check_attr_value(const AttrValue &value);
  void check_block(OperandsId id, std::vector<uint8_t> &depths);
  void check_mesh(const Mesh &mesh, MeshId id);
  void check_function(const Function &function);
  void check_param(const Param &param);

  template <class IdT, class Table> bool need(IdT id, const Table &table, const char *what) {
    bool inside = id.index < table.size();
    if (!inside)
      fail(std::string(what) + " " + std::to_string(id.index) + " does not exist");
    return inside;
  }
  template <class IdT, class Table> void may(IdT id, const Table &table, const char *what) {
    if (id.valid())
      need(id, table, what);
  }
  void need_string(StringId id) { need(id, program_.strings, "string"); }
  void may_string(StringId id) { may(id, program_.strings, "string"); }
  void may_claim(ClaimId id) { may(id, program_.claims, "claim"); }
  void at(const char *table, size_t index, uint64_t offset = 0) {
    findings_.at(table, index, offset);
  }
  void fail(std::string message, std::string_view name = "trace-reference") {
    findings_.fail(std::move(message), name);
  }

  const Program &program_;
  Findings &findings_;
};

void IdVerifier::check_extent(Extent extent, size_t limit) {
  if (!extent.is_number() && extent.expr().index >= limit)
    fail("extent expression " + std::to_string(extent.expr().index) + " does not exist");
}

void IdVerifier::check_type(const Type &type) {
  need(type.scale, program_.scales, "scale");
  if (!need(type.mesh(), program_.meshes, "mesh"))
    return;
  if (!program_.meshes[type.mesh()].typed_axes().contains(type.claimed()))
    fail("a type claims something on an axis that is flattened, of size 1 or not in its mesh",
         "trace-type");
  for (AxisId axis : type.of(Kind::Partial))
    if (static_cast<size_t>(type.combiner(axis)) >= kCombinerWords.size())
      fail("a type has a combiner that does not exist", "trace-type");
}

void IdVerifier::check_types() {
  for_each<ExprId>(program_.exprs, [&](ExprId id) {
    at("exprs", id.index);
    const Expr &expr = program_.exprs[id];
    if (expr.form == Expr::Form::Symbol)
      return need_string(expr.symbol);
    check_extent(expr.left, id.index);
    check_extent(expr.right, id.index);
  });
  for_each<ShapeId>(program_.shapes, [&](ShapeId id) {
    at("shapes", id.index);
    const Shape &shape = program_.shapes[id];
    if (shape.dims.size() > kMaxDims)
      fail("a shape has " + std::to_string(shape.dims.size()) + " dimensions, and the limit is " +
               std::to_string(kMaxDims),
           "trace-limit");
    for (Extent extent : shape.dims)
      check_extent(extent, program_.exprs.size());
  });
  for_each<ScaleId>(program_.scales, [&](ScaleId id) {
    at("scales", id.index);
    for (const ScaleFactor &factor : program_.scales[id].factors)
      need_string(factor.base);
  });
  for_each<TypeId>(program_.types, [&](TypeId id) {
    at("types", id.index);
    check_type(program_.types[id]);
  });
}

void IdVerifier::check_attr_value(const AttrValue &value) {
  constexpr size_t kNoId = ~size_t(0);
  const Program &p = program_;
  const size_t counts[] = {
      kNoId,              // Null
      kNoId,              // Bool
      kNoId,              // Integer
      kNoId,              // Float
      p.strings.size(),   // String
      p.exprs.size(),     // Expr
      p.lists.size(),     // List
      p.attrs.size(),     // Dict
      kNoId,              // Kind
      p.axis_refs.size(), // Axes
      p.scales.size(),    // Scale
      p.claims.size(),    // Claim
      p.functions.size(), // Function
      p.values.size(),    // Value
  };
  static_assert(std::size(counts) == static_cast<size_t>(AttrForm::Value) + 1);
  size_t form = static_cast<size_t>(value.form);
  if (form >= std::size(counts) || (counts[form] != kNoId && value.bits >= counts[form]))
    fail("an attribute holds an id that does not exist");
}

void IdVerifier::check_block(OperandsId id, std::vector<uint8_t> &depths) {
  bool named = false;
  for (Operand operand : program_.operand_lists[id]) {
    bool is_name = operand.form == Operand::Form::Name;
    if (named && is_name)
      fail("a name in an operand list has no operand");
    named = is_name;
    if (is_name)
      need_string(operand.as_name());
    else if (operand.is_value())
      need(operand.as_value(), program_.values, "value");
    else if (operand.form == Operand::Form::Literal)
      need(Id<AttrValue>{operand.index}, program_.literals, "literal");
    else if (operand.form != Operand::Form::List || operand.index >= id.index)
      fail("operand list " + std::to_string(operand.index) + " does not exist");
    else
      depths[id.index] = std::max<uint8_t>(depths[id.index], 1 + depths[operand.index]);
  }
  if (named)
    fail("a name in an operand list has no operand");
  if (depths[id.index] > kMaxNesting)
    fail("operand lists are nested deeper than " + std::to_string(kMaxNesting), "trace-limit");
}

void IdVerifier::check_attributes() {
  for_each<AttrsId>(program_.attrs, [&](AttrsId id) {
    at("attrs", id.index);
    for (const Attr &attr : program_.attrs[id].attrs) {
      need_string(attr.key);
      check_attr_value(attr.value);
    }
  });
  for_each<AttrListId>(program_.lists, [&](AttrListId id) {
    at("lists", id.index);
    for (const AttrValue &value : program_.lists[id].items)
      check_attr_value(value);
  });
  for_each<AxisRefsId>(program_.axis_refs, [&](AxisRefsId id) {
    at("axis_refs", id.index);
    for (AxisRef ref : program_.axis_refs[id].refs) {
      may_string(ref.mesh);
      need_string(ref.axis);
    }
  });
  for_each<ClaimId>(program_.claims, [&](ClaimId id) {
    at("claims", id.index);
    const Claim &claim = program_.claims[id];
    may(claim.type, program_.types, "type");
    may(claim.shape, program_.shapes, "shape");
    may(claim.global_shape, program_.shapes, "shape");
  });
  for (const AttrValue &value : program_.literals) {
    at("literals", &value - program_.literals.data());
    check_attr_value(value);
  }
}

void IdVerifier::check_blocks() {
  std::vector<uint8_t> depths(program_.operand_lists.size());
  for_each<OperandsId>(program_.operand_lists, [&](OperandsId id) {
    at("blocks", id.index);
    if (findings_.empty())
      check_block(id, depths);
  });
}

void IdVerifier::check_mesh(const Mesh &mesh, MeshId id) {
  need_string(mesh.name);
  for (const Axis &axis : mesh.axes) {
    need_string(axis.name);
    may_string(axis.role);
  }
  if (mesh.within && mesh.within->parent.index >= id.index)
    fail("the parent of a mesh is not declared before it", "trace-mesh");
  if (!findings_.empty())
    return;
  if (mesh.within) {
    const Mesh &parent = program_.meshes[mesh.within->parent];
    for (auto [axis, coordinate] : mesh.within->at)
      if (axis.index >= parent.axes.size() || coordinate < 0 || coordinate >= parent[axis].size())
        fail("a sub-mesh is at a coordinate that its parent lacks", "trace-mesh");
  }
  Mesh finished = mesh;
  if (std::string wrong = finish(finished, program_.strings); !wrong.empty())
    fail(wrong, "trace-mesh");
  else if (!(finished.typed == mesh.typed))
    fail("a mesh was not finished", "trace-mesh");
}

void IdVerifier::check_meshes() {
  for_each<MeshId>(program_.meshes, [&](MeshId id) {
    at("meshes", id.index);
    check_mesh(program_.meshes[id], id);
  });
  for (const Group &group : program_.groups) {
    at("groups", &group - program_.groups.data());
    need_string(group.key);
    if (group.form != Group::Form::Axes || !need(group.mesh, program_.meshes, "mesh"))
      continue;
    for (AxisId axis : group.axes)
      need(axis, program_.meshes[group.mesh].axes, "axis");
  }
  for_each<ContextId>(program_.contexts, [&](ContextId id) {
    at("contexts", id.index);
    const Context &context = program_.contexts[id];
    if (!context.mesh.valid() || !need(context.mesh, program_.meshes, "mesh"))
      return;
    size_t axes = program_.meshes[context.mesh].axes.size();
    if (axes < kMaxAxes && context.local.bits() >> axes)
      fail("a local axis is not in the mesh of its context");
  });
}

void IdVerifier::check_locations() {
  for_each<FileId>(program_.files, [&](FileId id) {
    at("files", id.index);
    need_string(program_.files[id].path);
    may_string(program_.files[id].sha256);
  });
  for_each<FrameId>(program_.frames, [&](FrameId id) {
    at("locs", id.index);
    const Frame &frame = program_.frames[id];
    need(frame.file, program_.files, "file");
    may_string(frame.function);
    if (frame.caller.valid() && frame.caller.index >= id.index)
      fail("the calling frame is not before its own");
  });
  for_each<LocId>(program_.locs, [&](LocId id) {
    at("scopes", id.index);
    may(program_.locs[id].frame, program_.frames, "frame");
    may_string(program_.locs[id].scope);
  });
}

void IdVerifier::check_param(const Param &param) {
  need(param.value, program_.values, "value");
  may_string(param.name);
  may(param.loc, program_.locs, "location");
  may_claim(param.grad.grad);
  may_claim(param.grad.step);
  may(param.drifted, program_.axis_refs, "axis list");
  may(param.drifts_later, program_.axis_refs, "axis list");
  may(param.observed, program_.axis_refs, "axis list");
  may(param.separate, program_.axis_refs, "axis list");
  may(param.taken, program_.axis_refs, "axis list");
  for (const Sync &sync : param.grad.sync)
    need(sync.axes, program_.axis_refs, "axis list");
  for (const SyncHint &hint : param.grad.hints) {
    need(hint.axes, program_.axis_refs, "axis list");
    need_string(hint.text);
  }
}

void IdVerifier::check_function(const Function &function) {
  need_string(function.name);
  may(function.context, program_.contexts, "context");
  for (const FunctionParam &param : function.params) {
    need(param.value, program_.values, "value");
    may_claim(param.grad);
  }
  for (ClaimId out : function.outs)
    need(out, program_.claims, "claim");
  if (function.opaque)
    return;
  if (!function.body.first.valid() || !function.results.valid())
    fail("function `" + program_.strings[function.name].str() + "` is not defined");
  else
    need(function.results, program_.operand_lists, "operand list");
}

void IdVerifier::check_document() {
  const Producer &by = program_.producer;
  for (StringId id : {by.name, by.version, by.framework, by.frontend, program_.dialect})
    may_string(id);
  llvm::for_each(program_.requires_features, [&](StringId id) { need_string(id); });
  for (const SymbolInfo &symbol : program_.symbols)
    need_string(symbol.name);
  for (const UserRule &rule : program_.rules) {
    at("rules", &rule - program_.rules.data(), rule.origin);
    need_string(rule.op);
    need_string(rule.equation.valid() ? rule.equation : rule.like);
  }
  for (const Suppression &entry : program_.suppressions) {
    at("suppress", &entry - program_.suppressions.data(), entry.origin);
    need_string(entry.finding);
    may(entry.loc, program_.frames, "frame");
    for (StringId id : {entry.scope, entry.reason, entry.until})
      may_string(id);
  }
  for (auto [inst, finding] : program_.ignores) {
    need(inst, program_.insts, "op");
    need_string(finding);
  }
  for (const Expectation &expected : program_.expectations) {
    at("expectations", &expected - program_.expectations.data());
    need(expected.inst, program_.insts, "op");
    may_string(expected.finding);
    llvm::for_each(expected.axes, [&](StringId id) { need_string(id); });
    may(expected.value, program_.values, "value");
    may(expected.type, program_.types, "type");
  }
  for (auto [key, json] : program_.extras) {
    need_string(key);
    need_string(json);
  }
  if (!llvm::is_sorted(program_.ignores, llvm::less_first()))
    fail("ignored findings are not in the order of the ops");
}

void IdVerifier::check_values() {
  for_each<ValueId>(program_.values, [&](ValueId id) {
    at("values", id.index);
    const Value &value = program_.values[id];
    if (!value.name.is_number())
      need_string(StringId{value.name.bits});
    may(value.declared, program_.types, "type");
    may(value.shape, program_.shapes, "shape");
    may(value.global_shape, program_.shapes, "shape");
    may(value.mesh, program_.meshes, "mesh");
    may(value.alias_of, program_.values, "value");
    may(value.grad_of, program_.values, "value");
  });
  if (!llvm::is_sorted(program_.params, [](const Param &a, const Param &b) {
        return a.value.index < b.value.index;
      }))
    fail("declarations are not in the order of their values");
  bool origins = program_.param_origins.size() == program_.params.size();
  for (const Param &param : program_.params) {
    size_t index = &param - program_.params.data();
    at("params", index, origins ? program_.param_origins[index] : 0);
    check_param(param);
  }
  for (const Output &output : program_.outputs) {
    at("outputs", &output - program_.outputs.data(), output.origin);
    need(output.value, program_.values, "value");
    may(output.of, program_.values, "value");
    may_string(output.name);
    may(output.declared, program_.types, "type");
  }
  for_each<FunctionId>(program_.functions, [&](FunctionId id) {
    at("functions", id.index);
    check_function(program_.functions[id]);
  });
}

void IdVerifier::check_insts() {
  if (program_.origins.size() != program_.insts.size())
    return fail("ops and their offsets are not of equal number");
  for_each<InstId>(program_.insts, [&](InstId id) {
    const Inst &inst = program_.insts[id];
    at("ops", id.index, program_.origins[id.index]);
    need(inst.op, program_.strings, "op name");
    need(inst.attrs, program_.attrs, "dictionary");
    need(inst.operands, program_.operand_lists, "operand list");
    may(inst.loc, program_.locs, "location");
    may(inst.bwd_of, program_.values, "value");
    need(inst.context, program_.contexts, "context");
    uint64_t end = uint64_t(inst.first_result.index) + inst.result_count;
    if (inst.result_count != 0 && end > program_.values.size())
      fail("a result does not exist");
  });
}

} // namespace

void Findings::fail(std::string message, std::string_view name) {
  if (errors_.size() == kMaxInputErrors)
    return;
  std::string function =
      function_.valid() ? "functions[" + std::to_string(function_.index) + "]." : "";
  std::string path = function + table_ + "[" + std::to_string(index_) + "]";
  errors_.push_back({name, std::move(message), offset_, 0, 0, std::move(path)});
}

void verify_ids(const Program &program, Findings &findings) { IdVerifier(program, findings).run(); }

std::vector<InputError> verify(const Program &program) {
  Findings findings;
  verify_ids(program, findings);
  if (findings.empty())
    verify_order(program, findings);
  return findings.take();
}

} // namespace spmd::ir
