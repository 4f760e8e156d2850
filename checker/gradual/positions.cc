// One pass over the instructions collects the factors that dimensions share; then every position
// goes along them until nothing is new.
#include "checker/gradual/positions.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/operand_list.h"
#include "checker/program_queries.h"

#include "ir/support/product.h"
#include "rules/apply.h"
#include "rules/factors/shape_rule.h"
#include "rules/transitions/axes.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

#include <utility>

namespace spmd::checker {

using ir::ValueId;

bool stretches(const rules::OpDef *row) {
  return row &&
         (row->factors == rules::expand_factors || row->factors == rules::expand_as_factors ||
          row->factors == rules::broadcast_in_dim_factors);
}

CutPositions::CutPositions(ir::Program &program, const CheckResult &checked)
    : program_(program), checked_(checked), nodes_of_(program.values.size()),
      links_of_(program.values.size()) {
  rules::Rules rules(program);
  auto instructions = [&](ir::Body body) {
    for (uint32_t i = body.first.index; i < body.last.index; ++i)
      instruction(ir::InstId{i}, rules);
  };
  instructions(program.main);
  for (const ir::Function &function : program.functions)
    if (!function.opaque)
      instructions(function.body);
  for (auto [operand, result] : exchanges_)
    if (!stacks_.is_joined(result))
      equate(operand, result);
  for (uint32_t i = 0; i < program.values.size(); ++i)
    if (const BlockLists::Joined *joined = stacks_.joined(ValueId{i}))
      for (auto [of, to] : stacks_.kept(ValueId{i}))
        add_link({*extent(joined->of, of), {{joined->of, of, 1}, {ValueId{i}, to, 1}}});
  for (uint32_t i = 0; i < program.values.size(); ++i)
    if (ValueId of = program.values[ValueId{i}].grad_of; of.valid())
      equate(of, ValueId{i});
  for (uint32_t i = 0; i < program.values.size(); ++i) {
    ir::ShapeId shape = checked_.shapes[i];
    for (unsigned d = 0; shape.valid() && d < program.shapes[shape].dims.size(); ++d)
      node_at({ValueId{i}, d, 1});
  }
  spread_all();
  settle_unit_views();
}

void CutPositions::spread_all() {
  while (!open_.empty()) {
    uint32_t node = open_.back();
    open_.pop_back();
    spread(node);
  }
}

bool CutPositions::is_unit_view(const Link &link, UnitView &view) const {
  if (link.ends.size() != 2 || link.extent <= 1)
    return false;
  auto behind_unit = [&](const End &end) {
    return end.outer == 1 && end.dim > 0 && extent(end.value, end.dim) == link.extent &&
           extent(end.value, end.dim - 1) == 1;
  };
  const End &a = link.ends[0], &b = link.ends[1];
  const bool a_splits = behind_unit(a);
  if (a_splits == behind_unit(b))
    return false;
  view = a_splits ? UnitView{b, a, link.extent} : UnitView{a, b, link.extent};
  auto rank = [&](const End &end) {
    return program_.shapes[checked_.shapes[end.value.index]].dims.size();
  };
  return rank(view.merged) < rank(view.split);
}

llvm::DenseSet<CutPositions::Class> CutPositions::classes_of(llvm::ArrayRef<End> ends) const {
  llvm::DenseSet<Class> classes;
  for (const End &end : ends)
    if (std::optional<Class> front = in_front(end.value, end.dim))
      classes.insert(*front);
  return classes;
}

// Dimensions of parameters of which every rank has all, or of those of which it has a part.
std::vector<CutPositions::End> CutPositions::of_parameters(bool are_whole) const {
  std::vector<End> ends;
  for (const ir::Param &param : program_.params) {
    const ir::TypeId id = checked_.types[param.value.index];
    const ir::ShapeId shape = checked_.shapes[param.value.index];
    if (param.role != ir::Role::Param || !id.valid() || !shape.valid())
      continue;
    const ir::Type &type = program_.types[id];
    if (are_whole == type.same_on_all_ranks().contains(program_.meshes[type.mesh()].typed_axes()))
      for (unsigned d = 0; d < program_.shapes[shape].dims.size(); ++d)
        ends.push_back({param.value, d, 1});
  }
  return ends;
}

// The classes of what lies inside of a parameter that was cut, and nowhere in front of one: the
// elements of several heads.
llvm::DenseSet<CutPositions::Class> CutPositions::only_inside(llvm::ArrayRef<End> of_cut) const {
  llvm::DenseSet<Class> inside;
  for (const End &end : of_cut)
    for (uint32_t node : nodes_of_[end.value.index])
      if (nodes_[node].at.dim == end.dim && nodes_[node].at.outer > 1)
        inside.insert(find(node));
  for (Class front : classes_of(of_cut))
    inside.erase(front);
  return inside;
}

// The classes that no axis cuts. What is taken apart there is cut in neither of its dimensions.
llvm::DenseSet<CutPositions::Class> CutPositions::never_cut(llvm::ArrayRef<End> of_uncut) const {
  llvm::DenseSet<Class> never = classes_of(of_uncut);
  for (bool found = true; std::exchange(found, false);)
    for (const UnitView &view : unit_views_)
      if (std::optional<Class> merged = in_front(view.merged.value, view.merged.dim),
          unit = in_front(view.split.value, view.split.dim - 1);
          merged && unit && never.contains(*merged))
        found |= never.insert(*unit).second;
  return never;
}

// Attention needs the elements of a head whole: what was cut is which heads there are. All that
// meets its heads, such as values and results, has its blocks there, too; what one pass unites the
// next one sees. A dimension that no axis cuts has no heads: a sample of its own, as it stands
// ahead of its positions, may stand ahead of it by chance. What a rank stretches, as the one head
// of keys to its queries, it has all of, and so it has the elements of a head of keys if it has
// those of several heads of queries: blocks are of what stands ahead.
void CutPositions::settle_unit_views() {
  std::vector<End> heads;
  std::vector<End> of_uncut, of_cut;
  if (!unit_views_.empty())
    of_uncut = of_parameters(true), of_cut = of_parameters(false);
  auto take = [&](const UnitView &view, const End &end, int64_t length) {
    add_link({length, {view.merged, end}});
    for (ValueId value : {view.merged.value, end.value})
      llvm::append_range(open_, nodes_of_[value.index]);
    spread_all();
  };
  for (bool found = true; std::exchange(found, false);) {
    const llvm::DenseSet<Class> whole = classes_of(whole_), of_heads = classes_of(heads),
                                stretched = classes_of(stretched_), never = never_cut(of_uncut),
                                inside = only_inside(of_cut);
    std::vector<UnitView> open;
    for (const UnitView &view : std::exchange(unit_views_, {})) {
      const std::optional<Class> beside = in_front(view.split.value, view.split.dim);
      const std::optional<Class> unit = in_front(view.split.value, view.split.dim - 1);
      const bool may_be_cut = unit && beside && !never.contains(*unit);
      const bool in_one = may_be_cut && (stretched.contains(*beside) || inside.contains(*beside));
      const bool meets = may_be_cut && of_heads.contains(*unit) && !never.contains(*beside);
      if ((beside && whole.contains(*beside)) || meets || in_one) {
        heads.push_back(view.unit());
        take(view, view.unit(), 1);
        found = true;
      } else {
        open.push_back(view);
      }
    }
    unit_views_ = std::move(open);
  }
  for (const UnitView &view : unit_views_)
    take(view, view.split, view.extent);
}

std::optional<int64_t> CutPositions::extent(ValueId value, unsigned dim) const {
  return extent_of(program_, checked_.shapes[value.index], dim);
}

AllToAllViews::Extents CutPositions::extents(ValueId value) const {
  llvm::SmallVector<int64_t, 6> found;
  const ir::ShapeId id = checked_.shapes[value.index];
  if (!id.valid() || !program_.shapes[id].ranked)
    return std::nullopt;
  for (ir::Extent extent : program_.shapes[id].dims) {
    if (!extent.is_number())
      return std::nullopt;
    found.push_back(extent.number());
  }
  return found;
}

void CutPositions::instruction(ir::InstId id, rules::Rules &rules) {
  const ir::Inst inst = program_.insts[id];
  OperandList operands;
  operands.read(program_, inst.operands);
  llvm::SmallVector<ValueId, 2> results;
  for (uint32_t i = 0; i < inst.result_count; ++i)
    results.push_back(inst.result(i));
  const rules::ResolvedOp &op = rules.resolve(inst.op);
  if (op.form == rules::OpForm::Equation) {
    const auto args = operands.args(checked_.types, checked_.shapes);
    llvm::SmallVector<rules::ResultClaim, 2> claims;
    for (ValueId value : results)
      claims.push_back({checked_.shapes[value.index], {}, {}});
    rules::Application app{program_, op, inst.attrs, inst.context, operands.slots, args, claims};
    for (const rules::RowUse &use : rules::row_uses(app))
      row(use, app.bound_to(use), operands.values, results);
    return;
  }
  if (op.form == rules::OpForm::Call)
    return body(id, op);
  if (op.form == rules::OpForm::Transition && !operands.values.empty() && !results.empty()) {
    rules::Application app{program_, op, inst.attrs, inst.context, operands.slots, {}, {}};
    stacks_.exchange(app, operands.values[0], extents(operands.values[0]), results[0],
                     extents(results[0]));
    if (op.transition == rules::TransitionOp::AllToAll) {
      exchanges_.push_back({operands.values[0], results[0]});
      return;
    }
  }
  if (rules::passes_data(op.boundary) && !operands.values.empty() && !results.empty())
    stacks_.copy(operands.values[0], results[0]);
  // A storage that was written through another name lies where it did.
  if (op.boundary == rules::Boundary::Alias && operands.values.size() == 2 && results.size() == 1)
    equate(operands.values[1], results[0]);
  // Collectives and casts move elements along the dimensions whose extents they change, and no
  // others.
  bool same = op.form == rules::OpForm::Transition || rules::passes_data(op.boundary);
  for (size_t i = 0; same && i < results.size() && i < operands.values.size(); ++i)
    equate(operands.values[i], results[i]);
}

// What enters a body is what its parameters are, and what it returns is what leaves it; a loop
// hands its carries to itself, and takes what it scans apart.
void CutPositions::body(ir::InstId id, const rules::ResolvedOp &op) {
  const ir::Inst inst = program_.insts[id];
  OperandList operands;
  operands.read(program_, inst.operands);
  auto count = [&](llvm::StringRef name) {
    const ir::AttrValue *attr = program_.find(inst.attrs, name);
    return attr && attr->form == ir::AttrForm::Integer ? size_t(attr->as_integer()) : 0;
  };
  const bool scans = op.boundary == rules::Boundary::Scan;
  const bool loops = scans || op.boundary == rules::Boundary::While;
  const size_t given = op.boundary == rules::Boundary::Cond ? 1 : 0, consts = count("consts");
  const size_t carried = scans ? count("carry") : inst.result_count;
  for (const ir::Attr &attr : program_.attrs[inst.attrs].attrs) {
    if (attr.value.form != ir::AttrForm::Function)
      continue;
    const ir::Function &function = program_.functions[attr.value.as<ir::FunctionId>()];
    if (function.opaque) // nothing is known of what it does
      continue;
    auto link = [&](ValueId outside, ValueId inside, bool stacked) {
      if (stacked)
        entries(outside, inside);
      else
        equate(outside, inside);
    };
    for (size_t i = 0; i < function.params.size() && i + given < operands.values.size(); ++i) {
      link(operands.values[i + given], function.params[i].value, scans && i >= consts + carried);
      const ValueId outside = operands.values[i + given];
      if (loops && i >= consts)
        continue;
      // Of several calls that hand in other values it is none of these.
      if (const auto [at, is_new] =
              taken_from_.try_emplace(function.params[i].value.index, outside);
          !is_new && at->second != outside)
        at->second = ValueId();
    }
    llvm::ArrayRef<ir::Operand> returned = program_.operand_lists[function.results];
    for (uint32_t r = 0; r < inst.result_count && returned.size() == inst.result_count; ++r) {
      if (returned[r].is_value())
        link(inst.result(r), returned[r].as_value(), scans && r >= carried);
      if (loops && r < carried && consts + r < operands.values.size())
        equate(operands.values[consts + r], inst.result(r));
    }
  }
}

// One entry of what is stacked along dimension 0.
void CutPositions::entries(ValueId stacked, ValueId entry) {
  ir::ShapeId one = checked_.shapes[entry.index];
  if (!one.valid())
    return;
  for (unsigned d = 0; d < program_.shapes[one].dims.size(); ++d)
    if (std::optional<int64_t> length = extent(entry, d);
        length && length == extent(stacked, d + 1))
      add_link({*length, {{stacked, d + 1, 1}, {entry, d, 1}}});
}

void CutPositions::row(const rules::RowUse &use, const rules::Application &app,
                       llvm::ArrayRef<ValueId> operands, llvm::ArrayRef<ValueId> results) {
  const rules::Equation &equation = use.row->equation.equation;
  rules::OperandMismatch problem;
  std::optional<rules::Binding> binding = rules::bind_operands(app, equation, problem);
  if (!binding)
    return;
  rules::Outcome ignored;
  rules::FactorMap map = rules::map_factors(app, equation, *binding, ignored);
  if (operands.size() == 1 && results.size() == 1 && moves_elements(app.op))
    stacks_.move(operands[0], extents(operands[0]), results[0], extents(results[0]), map);
  llvm::SmallVector<Link, 8> links(map.factors.size());
  for (size_t f = 0; f < links.size(); ++f)
    links[f].extent = map.factors[f].extent && map.factors[f].extent->is_number()
                          ? map.factors[f].extent->number()
                          : -1;
  auto add = [&](ValueId value, const std::optional<rules::TensorFactors> &dims) {
    for (unsigned d = 0; dims && d < dims->size(); ++d) {
      int64_t outer = 1;
      std::optional<int64_t> whole = extent(value, d);
      for (uint8_t f : (*dims)[d]) {
        if (links[f].extent < 0 && (*dims)[d].size() == 1 && whole)
          links[f].extent = *whole;
        const bool stretched = whole == 1 && links[f].extent != 1;
        if (links[f].extent > 0 && !stretched)
          links[f].ends.push_back({value, d, outer});
        outer = ir::saturating_product(outer, std::max<int64_t>(links[f].extent, 1));
      }
    }
  };
  for (size_t i = 0; i < operands.size() && i < map.args.size(); ++i)
    add(operands[i], map.args[i]);
  for (size_t r = 0; r < use.results.size() && r < map.results.size(); ++r)
    add(results[use.results[r]], map.results[r]);
  if (stretches(use.row))
    for (const Link &link : links)
      if (link.ends.size() == 1 && link.ends[0].value == results[0] && link.extent > 1)
        stretched_.push_back(link.ends[0]);
  const bool splits =
      use.row->factors == rules::split_factors || use.row->factors == rules::chunk_factors;
  if (splits && !operands.empty())
    parts(operands[0], results);
  else if (use.row->factors == rules::cat_factors && results.size() == 1)
    parts(results[0], operands);
  const bool has_whole =
      llvm::any_of(map.factors, [](const rules::FactorInfo &factor) { return factor.whole; });
  for (size_t f = 0; f < links.size() && !use.row->factors; ++f)
    if (map.factors[f].whole && links[f].extent > 1)
      llvm::append_range(whole_, links[f].ends);
  // A dimension of one element may be another one that is stretched: only views and functions of
  // one tensor say that it is the same, and rows that name their dimensions, as attention does.
  // What states a shape may split a dimension, what states a place makes a new one.
  const bool reshapes = use.row->factors && !app.attr("dim");
  const bool has_units = use.row->factors || has_whole || operands.size() == 1;
  for (Link &link : links) {
    UnitView view;
    if (reshapes && is_unit_view(link, view))
      unit_views_.push_back(view);
    else if (link.ends.size() > 1 && (link.extent > 1 || has_units))
      add_link(std::move(link));
  }
}

// Equal parts of a dimension, side by side in the whole: each lies inside of it, behind as many
// others. Not what ranks have in common, and not one part for each rank in front of other
// dimensions: these are blocks on their way from rank to rank.
void CutPositions::parts(ValueId whole, llvm::ArrayRef<ValueId> parts) {
  const ir::TypeId id = checked_.types[whole.index];
  const ir::ShapeId shape = checked_.shapes[whole.index];
  if (parts.size() < 2 || !id.valid() || !shape.valid() || program_.shapes[shape].dims.empty())
    return;
  const ir::Type &type = program_.types[id];
  const ir::Mesh &mesh = program_.meshes[type.mesh()];
  const unsigned last = unsigned(program_.shapes[shape].dims.size()) - 1;
  bool each_rank = false;
  for (ir::AxisId axis : mesh.typed_axes()) {
    if (type.kind(axis) != ir::Kind::Varying)
      return;
    each_rank |= rules::size_of(mesh, axis) == int64_t(parts.size());
  }
  for (unsigned d = 0; std::optional<int64_t> length = extent(whole, d); ++d) {
    const std::optional<int64_t> part = extent(parts[0], d);
    const bool equal = llvm::all_of(parts, [&](ValueId one) { return extent(one, d) == part; });
    if (!part || !equal || *part < 2 || (each_rank && d != last) ||
        *length != ir::saturating_product(*part, int64_t(parts.size())))
      continue;
    Link link{*part, {{whole, d, int64_t(parts.size())}}};
    for (ValueId one : parts)
      link.ends.push_back({one, d, 1});
    add_link(std::move(link));
  }
}

void CutPositions::equate(ValueId a, ValueId b) {
  ir::ShapeId one = checked_.shapes[a.index], other = checked_.shapes[b.index];
  if (!one.valid() || !other.valid() ||
      program_.shapes[one].dims.size() != program_.shapes[other].dims.size())
    return;
  for (unsigned d = 0; d < program_.shapes[one].dims.size(); ++d)
    if (std::optional<int64_t> length = extent(a, d); length && length == extent(b, d))
      add_link({*length, {{a, d, 1}, {b, d, 1}}});
}

void CutPositions::add_link(Link link) {
  for (const End &end : link.ends)
    if (auto &known = links_of_[end.value.index]; known.empty() || known.back() != links_.size())
      known.push_back(static_cast<uint32_t>(links_.size()));
  links_.push_back(std::move(link));
}

uint32_t CutPositions::node_at(Position at) {
  for (uint32_t node : nodes_of_[at.value.index])
    if (nodes_[node].at.dim == at.dim && nodes_[node].at.outer == at.outer)
      return node;
  uint32_t made = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({at, made});
  nodes_of_[at.value.index].push_back(made);
  open_.push_back(made);
  return made;
}

// What lies at or inside of a factor lies there in all dimensions that have it.
void CutPositions::spread(uint32_t node) {
  const Position at = nodes_[node].at;
  for (uint32_t l = 0; l < links_of_[at.value.index].size(); ++l) {
    const Link &link = links_[links_of_[at.value.index][l]];
    for (const End &from : link.ends) {
      if (from.value != at.value || from.dim != at.dim || at.outer % from.outer != 0)
        continue;
      int64_t inside = at.outer / from.outer;
      if (inside > 1 && (inside >= link.extent || link.extent % inside != 0))
        continue;
      for (const End &to : link.ends)
        unite(node, node_at({to.value, to.dim, ir::saturating_product(to.outer, inside)}));
    }
  }
}

uint32_t CutPositions::find(uint32_t node) const {
  while (nodes_[node].parent != node)
    node = nodes_[node].parent = nodes_[nodes_[node].parent].parent;
  return node;
}

void CutPositions::unite(uint32_t a, uint32_t b) {
  a = find(a), b = find(b);
  nodes_[std::max(a, b)].parent = std::min(a, b);
}

llvm::SmallVector<CutPositions::Found, 4> CutPositions::of(ValueId value) const {
  llvm::SmallVector<Found, 4> found;
  const ir::ShapeId shape = checked_.shapes[value.index];
  const size_t rank = shape.valid() ? program_.shapes[shape].dims.size() : 0;
  for (uint32_t node : nodes_of_[value.index])
    if (nodes_[node].at.dim < rank) // a row may ask for more than an operand has
      found.push_back({nodes_[node].at, find(node)});
  llvm::sort(found, [](const Found &a, const Found &b) {
    return std::pair(a.at.dim, a.at.outer) < std::pair(b.at.dim, b.at.outer);
  });
  return found;
}

bool CutPositions::has(ValueId value, Class cls) const {
  return llvm::any_of(of(value), [&](const Found &each) { return each.cls == cls; });
}

std::optional<CutPositions::Class> CutPositions::in_front(ValueId value, unsigned dim) const {
  for (uint32_t node : nodes_of_[value.index])
    if (nodes_[node].at.dim == dim && nodes_[node].at.outer == 1)
      return find(node);
  return std::nullopt;
}

} // namespace spmd::checker
