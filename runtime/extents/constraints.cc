// One pass over the instructions that relates the dimensions of operands and results.
#include "runtime/extents/constraints.h"

#include "rules/violations/operands.h"

#include "runtime/reference/storage.h"

#include "ir/claims.h"
#include "ir/support/arrays.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::ValueId;
using rules::AttributeExtents;

ExtentConstraints::ExtentConstraints(ir::Program &program, const checker::CheckResult &checked,
                                     const MeshResize &meshes)
    : program_(program), checked_(checked), meshes_(meshes), rules_(program) {
  vars_.resize(program.values.size());
  open_ = classes_.add(1);
  classes_.fix(open_);
  for (uint32_t i = 0; i < program.values.size(); ++i) {
    ir::ShapeId id = i < checked.shapes.size() ? checked.shapes[i] : ir::ShapeId();
    id = id.valid() ? id : program.values[ValueId{i}].shape;
    if (!id.valid() || !program.shapes[id].ranked)
      continue;
    for (ir::Extent extent : program.shapes[id].dims)
      vars_[i].push_back(extent.is_number() ? classes_.add(extent.number()) : open_);
  }
  fix_functions();
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
    instruction(ir::InstId{i});
  for (uint32_t i = 0; i < program.values.size(); ++i)
    shards(ValueId{i});
  tie_gradients();
}

bool ExtentConstraints::resize(bool scale_down) {
  if (uneven_ || !classes_.solve())
    return false;
  if (scale_down)
    classes_.shrink();
  return true;
}

std::vector<std::string> ExtentConstraints::notes() const {
  std::vector<std::string> notes;
  for (const auto &[text, var] : kept_)
    if (classes_.now(var) == classes_.before(var) && !llvm::is_contained(notes, text))
      notes.push_back(text);
  return notes;
}

ExtentConstraints::Site ExtentConstraints::site_of(ir::InstId id) {
  const ir::Inst &inst = program_.insts[id];
  Site site{.id = id};
  checker::OperandList operands;
  operands.read(program_, inst.operands);
  site.args.append(operands.values.begin(), operands.values.end());
  for (uint32_t i = 0; i < inst.result_count; ++i)
    site.results.push_back(inst.result(i));
  site.op = &rules_.resolve(inst.op);
  return site;
}

void ExtentConstraints::instruction(ir::InstId id) {
  Site site = site_of(id);
  checker::OperandList operands;
  operands.read(program_, program_.insts[id].operands);
  switch (site.op->form) {
  case rules::OpForm::Equation:
    equation(site, operands);
    break;
  case rules::OpForm::Transition:
    transition(site);
    break;
  case rules::OpForm::Boundary:
    if (site.op->boundary == rules::Boundary::Send || site.op->boundary == rules::Boundary::Recv) {
      const ir::AttrValue *tag = program_.find(program_.insts[id].attrs, "tag");
      std::string key = tag ? fmt::format("{}", tag->bits) : "";
      if (site.op->boundary == rules::Boundary::Send && !site.args.empty())
        sent_[key] = site.args[0];
      else if (auto sent = sent_.find(key); sent != sent_.end() && !site.results.empty())
        equate(sent->second, site.results[0]);
    }
    if (site.args.size() == 2 &&
        site.op->boundary == rules::Boundary::Alias) { // the view again, not its base
      equate(site.args[1], site.results[0]);
      break;
    }
    for (ValueId result : site.results)
      if (!site.args.empty())
        equate(site.args[0], result);
    if (site.args.size() == 2) // step, store: the content is like what it replaces
      equate(site.args[0], site.args[1]);
    break;
  default:
    fix_all(site);
    break;
  }
  for (ValueId result : site.results) // what is written in place fits
    if (is_write(program_, program_.insts[id], result))
      equate(program_.values[result].alias_of, result);
  numbers(site);
}

void ExtentConstraints::equate(ValueId a, ValueId b) {
  if (vars(a).size() != vars(b).size())
    return;
  for (size_t i = 0; i < vars(a).size(); ++i)
    if (is_open(a, i) || is_open(b, i))
      continue;
    else if (before(a, i) == before(b, i))
      classes_.unite(vars(a)[i], vars(b)[i]);
    else
      proportional(vars(a)[i], vars(b)[i]);
}

void ExtentConstraints::proportional(Var a, Var b) {
  if (classes_.before(a) == classes_.before(b))
    return classes_.unite(a, b);
  if (classes_.before(a) == 0 || classes_.before(b) == 0) {
    classes_.fix(a);
    return classes_.fix(b);
  }
  classes_.relate(a, {b}, classes_.before(b), classes_.before(a));
}

void ExtentConstraints::fix(ValueId value) {
  for (Var var : vars(value))
    classes_.fix(var);
}
void ExtentConstraints::fix_all(const Site &site) {
  for (ValueId value : site.args)
    fix(value);
  for (ValueId value : site.results)
    fix(value);
}

void ExtentConstraints::fix_functions() {
  for (const ir::Function &function : program_.functions) {
    for (const ir::FunctionParam &param : function.params)
      fix(param.value);
    if (!function.opaque)
      for (uint32_t i = function.body.first.index; i < function.body.last.index; ++i)
        fix_all(site_of(ir::InstId{i}));
  }
}

// --- ordinary ops --------------------------------------------------------------------------------

void ExtentConstraints::equation(const Site &site, const checker::OperandList &operands) {
  const ir::Inst inst = program_.insts[site.id];
  llvm::SmallVector<rules::TensorInfo, 6> args;
  for (ValueId value : site.args)
    args.push_back(
        {checked_.types[value.index], checked_.shapes[value.index],
         value.index < checked_.sizes.size() ? checked_.sizes[value.index] : ir::ShardSizesId()});
  llvm::SmallVector<rules::ResultClaim, 2> claims;
  for (ValueId value : site.results)
    claims.push_back({checked_.shapes[value.index], {}, {}});
  rules::Application app{program_,       *site.op, inst.attrs, inst.context,
                         operands.slots, args,     claims};
  bound_indices(site, app);
  note_counted(site, app);
  for (const rules::RowUse &use : rules::row_uses(app))
    row(site, use, app.bound_to(use));
}

void ExtentConstraints::row(const Site &site, const rules::RowUse &use,
                            const rules::Application &app) {
  const rules::Equation &equation = use.row->equation.equation;
  rules::OperandMismatch problem;
  std::optional<rules::Binding> binding = rules::bind_operands(app, equation, problem);
  if (!binding)
    return fix_all(site);
  rules::Outcome ignored;
  rules::FactorMap map = rules::map_factors(app, equation, *binding, ignored);
  std::vector<std::optional<Var>> factors(map.factors.size());
  std::vector<bool> of_operand(map.factors.size());
  auto factor = [&](uint8_t f, int64_t extent) {
    if (!factors[f]) {
      const std::optional<ir::Extent> &known = map.factors[f].extent;
      factors[f] = classes_.add(known && known->is_number() ? known->number() : extent);
    }
    return *factors[f];
  };
  // A dimension is the product of its factors; one of a single element may be stretched over them.
  auto relate = [&](ValueId value, const std::optional<rules::TensorFactors> &dims, bool operand) {
    if (!dims || dims->size() != vars(value).size())
      return fix(value);
    for (size_t d = 0; d < dims->size(); ++d) {
      const rules::DimFactors &own = (*dims)[d];
      if (is_open(value, d)) {
        for (uint8_t f : own)
          of_operand[f] = of_operand[f] || operand;
        continue;
      }
      Vars product;
      int64_t extent = 1;
      for (uint8_t f : own) {
        product.push_back(factor(f, own.size() == 1 ? before(value, d) : 1));
        extent *= classes_.before(product.back());
        of_operand[f] = of_operand[f] || operand;
      }
      if (own.empty() || extent != before(value, d))
        classes_.fix(vars(value)[d]);
      else if (own.size() == 1)
        classes_.unite(product[0], vars(value)[d]);
      else
        classes_.relate(vars(value)[d], product);
    }
  };
  for (size_t i = 0; i < site.args.size(); ++i)
    relate(site.args[i], i < map.args.size() ? map.args[i] : std::nullopt, true);
  llvm::ArrayRef<unsigned> results = use.results;
  for (size_t r = 0; r < results.size(); ++r)
    relate(site.results[results[r]], r < map.results.size() ? map.results[r] : std::nullopt, false);
  if (use.row->own_dims == rules::OpDef::OwnDims::Attribute)
    return; // which follows (ExtentConstraints::followed)
  for (size_t r = 0; r < results.size() && r < map.results.size(); ++r) {
    ValueId result = site.results[results[r]];
    if (!map.results[r] || map.results[r]->size() != vars(result).size())
      continue;
    for (size_t d = 0; d < vars(result).size(); ++d) {
      const rules::DimFactors &own = (*map.results[r])[d];
      if (own.size() == 1 && !of_operand[own[0]] && !is_open(result, d))
        own_dim(site, *use.row, !map.of_row.empty(), result, d);
    }
  }
}

// A dimension that a result alone has. made: the row's map says what it is made of.
void ExtentConstraints::own_dim(const Site &site, const rules::OpDef &row, bool made,
                                ValueId result, size_t d) {
  using OwnDims = rules::OpDef::OwnDims;
  bool proportional_row = row.own_dims == OwnDims::Proportional;
  const rules::Equation &equation = row.equation.equation;
  bool placed =
      proportional_row && site.args.size() > 1 &&
      llvm::any_of(ir::as_array(equation.refs.data(), equation.ref_count),
                   [](const rules::Ref &ref) { return ref.role == rules::RefRole::Condition; });
  if ((row.own_dims == OwnDims::Part || placed) && vars(site.args[0]).size() > d) {
    classes_.fix(vars(result)[d]);
    classes_.at_least(vars(site.args[0])[d], before(result, d));
  } else if (proportional_row) {
    for (ValueId arg : site.args)
      if (vars(arg).size() == vars(result).size() && !is_open(arg, d))
        proportional(vars(arg)[d], vars(result)[d]);
  } else if (!row.factors || !made) {
    classes_.fix(vars(result)[d]);
    for (ValueId arg : site.args) {
      if (row.factors) // what it is made of is not known dimension by dimension
        fix(arg);
      else if (vars(arg).size() > d && row.extents)
        classes_.fix(vars(arg)[d]);
    }
  }
}

// --- transitions ---------------------------------------------------------------------------------

std::pair<int64_t, int64_t> ExtentConstraints::ranks_of(const ir::Inst &inst) const {
  std::pair<int64_t, int64_t> ranks(1, 1);
  auto count = [&](const ir::Axis &axis) {
    ranks.first *= meshes_.old_size(axis);
    ranks.second *= meshes_.new_size(axis);
  };
  ir::MeshId here = program_.contexts[inst.context].mesh;
  if (const ir::AttrValue *attr = program_.find(inst.attrs, "axis");
      attr && attr->form == ir::AttrForm::Axes) {
    for (const ir::AxisRef &ref : program_.axis_refs[attr->as<ir::AxisRefsId>()].refs)
      for (uint16_t m = 0; m < program_.meshes.size(); ++m) {
        const ir::Mesh &mesh = program_.meshes[ir::MeshId{m}];
        if (ref.mesh.valid() ? mesh.name != ref.mesh : m != here.index)
          continue;
        if (std::optional<ir::AxisId> axis = mesh.find(ref.axis))
          count(mesh[*axis]);
      }
    return ranks;
  }
  const ir::AttrValue *key = program_.find(inst.attrs, "group");
  for (const ir::Group &group : program_.groups) {
    if (!key || key->form != ir::AttrForm::String || key->as<ir::StringId>() != group.key)
      continue;
    if (group.form == ir::Group::Form::Axes) {
      for (ir::AxisId axis : group.axes)
        count(program_.meshes[group.mesh][axis]);
      return ranks;
    }
    ir::Axis axis;
    axis.layout = group.form == ir::Group::Form::Layout
                      ? group.layout
                      : ir::layout_of(group.ranks).value_or(ir::Layout{{1, 1}});
    count(axis);
    return ranks;
  }
  return ranks;
}

void ExtentConstraints::counts(Var var, int64_t ranks) {
  Var one = classes_.add(1);
  classes_.fix(one);
  classes_.relate(var, {one}, 1, ranks);
}

void ExtentConstraints::transition(const Site &site) {
  // Tensors that say how much is moved have a number for each rank.
  auto [old_ranks, new_ranks] = ranks_of(program_.insts[site.id]);
  for (size_t i = site.results.size(); i < site.args.size(); ++i)
    if (vars(site.args[i]).size() == 1 && before(site.args[i], 0) == old_ranks)
      counts(vars(site.args[i])[0], new_ranks);
  for (size_t i = 0; i < site.results.size(); ++i)
    if (i < site.args.size())
      tie_transition(site, site.args[i], site.results[i]);
}

void ExtentConstraints::tie_transition(const Site &site, ValueId operand, ValueId result) {
  auto [old_ranks, new_ranks] = ranks_of(program_.insts[site.id]);
  size_t from = vars(operand).size(), to = vars(result).size();
  if (from != to) { // a dimension of the ranks comes or goes
    ValueId more = from > to ? operand : result, less = from > to ? result : operand;
    size_t at = 0;
    if (const ir::AttrValue *dim = program_.find(program_.insts[site.id].attrs, "dim");
        dim && dim->form == ir::AttrForm::Integer && dim->as_integer() >= 0)
      at = std::min<size_t>(static_cast<size_t>(dim->as_integer()), vars(more).size() - 1);
    if (vars(more).size() != vars(less).size() + 1 || before(more, at) != old_ranks)
      return fix_all(site);
    counts(vars(more)[at], new_ranks);
    for (size_t i = 0; i < vars(less).size(); ++i)
      if (size_t j = i < at ? i : i + 1; !is_open(less, i) && !is_open(more, j))
        classes_.unite(vars(less)[i], vars(more)[j]);
    return;
  }
  for (size_t i = 0; i < from; ++i) {
    if (is_open(operand, i) || is_open(result, i))
      continue;
    int64_t a = before(operand, i), b = before(result, i);
    Var left = vars(operand)[i], right = vars(result)[i];
    auto [old_from, new_from] = cut_of(operand, static_cast<unsigned>(i));
    auto [old_to, new_to] = cut_of(result, static_cast<unsigned>(i));
    if (old_ranks == 1 && new_from != new_to && a * old_from == b * old_to)
      classes_.relate(left, {right}, new_from, new_to); // over the axes of both types
    else if (a == b)
      classes_.unite(left, right);
    else if (a == b * old_ranks)
      classes_.relate(left, {right}, 1, new_ranks);
    else if (b == a * old_ranks)
      classes_.relate(right, {left}, 1, new_ranks);
    else
      proportional(left, right);
  }
}

// --- types and gradients -------------------------------------------------------------------------

std::pair<int64_t, int64_t> ExtentConstraints::cut_of(ValueId value, unsigned dim) const {
  std::pair<int64_t, int64_t> ranks(1, 1);
  if (value.index >= checked_.types.size() || !checked_.types[value.index].valid())
    return ranks;
  const ir::Type &type = program_.types[checked_.types[value.index]];
  const ir::Mesh &mesh = program_.meshes[type.mesh()];
  for (ir::AxisId axis : ir::shards_of(type, dim)) {
    ranks.first *= meshes_.old_size(mesh[axis]);
    ranks.second *= meshes_.new_size(mesh[axis]);
  }
  return ranks;
}

// What all blocks make up keeps its extent if it can: the blocks follow the axes.
void ExtentConstraints::shards(ValueId value) {
  bool uneven = value.index < checked_.sizes.size() && checked_.sizes[value.index].valid();
  for (unsigned d = 0; d < vars(value).size(); ++d) {
    auto [old_ranks, new_ranks] = cut_of(value, d);
    if (is_open(value, d))
      continue;
    uneven_ |= uneven && old_ranks != new_ranks;
    if (uneven && old_ranks > 1)
      classes_.fix(vars(value)[d]);
    else if (old_ranks != new_ranks)
      classes_.relate(classes_.add(before(value, d) * old_ranks), {vars(value)[d]}, 1, new_ranks);
  }
}

void ExtentConstraints::tie_gradients() {
  for (uint32_t i = 0; i < program_.values.size(); ++i)
    if (ValueId of = program_.values[ValueId{i}].grad_of; of.valid())
      equate(ValueId{i}, of);
  for (const ir::Output &output : program_.outputs)
    if (output.of.valid())
      equate(output.value, output.of);
}

// --- numbers -------------------------------------------------------------------------------------

void ExtentConstraints::number_of_unknown_role(const Site &site, llvm::StringRef key,
                                               int64_t number) {
  if (number < 2)
    return;
  std::string text =
      fmt::format("extents of {} stay: the role of this number{} in `{}` is not known", number,
                  key.empty() ? "" : " at `" + key.str() + "`",
                  program_.op_name(program_.insts[site.id].op).str());
  auto hold = [&](ValueId value) {
    for (size_t d = 0; d < vars(value).size(); ++d)
      if (before(value, d) == number) {
        classes_.fix(vars(value)[d]);
        kept_.push_back({text, vars(value)[d]});
      }
  };
  if (!key.empty()) {
    for (ValueId value : site.args)
      hold(value);
    for (ValueId value : site.results)
      hold(value);
    return;
  }
  for (uint32_t i = 0; i < vars_.size(); ++i) // a plain operand may speak of any value
    hold(ValueId{i});
}

void ExtentConstraints::has_place(const Site &site, int64_t index) {
  Var dim = stated_dim(site);
  if (!site.args.empty() && dim < vars(site.args[0]).size() && !is_open(site.args[0], dim))
    classes_.at_least(vars(site.args[0])[dim], index < 0 ? -index : index + 1);
}

AttributeExtents ExtentConstraints::extents_of(const Site &site, llvm::StringRef key) const {
  AttributeExtents extents = rules::extents_of_attribute({key.data(), key.size()});
  const rules::ResolvedOp &op = *site.op;
  const bool of_storage = op.row && (op.variant() == rules::Variant::Strided ||
                                     op.row->constant != rules::OpDef::Constant::No);
  if (extents.list == AttributeExtents::List::Strides && !of_storage)
    return {};
  if (extents.list == AttributeExtents::List::Strides)
    extents.number = AttributeExtents::Number::None;
  return extents;
}

void ExtentConstraints::numbers(const Site &site) {
  const ir::Inst &inst = program_.insts[site.id];
  if (site.op->computes(rules::Computes::Power))
    return; // an exponent is no extent
  for (const ir::Operand &operand : program_.operand_lists[inst.operands])
    if (operand.form == ir::Operand::Form::Literal)
      if (const ir::AttrValue &literal = program_.literals[operand.index];
          literal.form == ir::AttrForm::Integer)
        number_of_unknown_role(site, "", literal.as_integer());
  for (const ir::Attr &attr : program_.attrs[inst.attrs].attrs) {
    llvm::StringRef key = program_.strings[attr.key];
    const AttributeExtents extents = extents_of(site, key);
    if (attr.value.form == ir::AttrForm::Integer) {
      if (extents.number == AttributeExtents::Number::Place)
        has_place(site, attr.value.as_integer());
      else if (extents.number == AttributeExtents::Number::Unknown)
        number_of_unknown_role(site, key, attr.value.as_integer());
    }
    if (attr.value.form == ir::AttrForm::List && extents.list == AttributeExtents::List::Unknown)
      for (const ir::AttrValue &item : program_.lists[attr.value.as<ir::AttrListId>()].items)
        if (item.form == ir::AttrForm::Integer)
          number_of_unknown_role(site, key, item.as_integer());
  }
}

} // namespace spmd::runtime
