// Evidence votes on classes of positions, never on single tensors: what is cut in one is cut in
// all.
#include "checker/gradual/cuts.h"

#include "checker/gradual/blocks/lookups.h"
#include "checker/operand_list.h"
#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/factors/factors.h"
#include "rules/ops/registry.h"
#include "rules/shapes/attrs.h"
#include "rules/shards/remesh.h"
#include "rules/transitions/axes.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

#include <tuple>

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::ValueId;

namespace {

bool is_state(ir::Role role) {
  return role == ir::Role::Param || role == ir::Role::Buffer || role == ir::Role::OptState;
}

} // namespace

void cut(ir::Type &type, AxisId axis, unsigned dim) {
  type.set_kind(axis, Kind::Varying);
  type.set_shard(axis, dim, ir::shards_of(type, dim).size());
}

AxisSet data_axes(const ir::Program &program, ir::MeshId mesh) {
  AxisSet axes;
  for (AxisId axis : program.meshes[mesh].typed_axes())
    if (ir::StringId role = program.meshes[mesh][axis].role;
        role.valid() && program.strings[role] == "data")
      axes |= axis;
  return axes;
}

Cuts::Cuts(ir::Program &program, const CheckResult &checked)
    : program_(program), checked_(checked), positions_(program, checked),
      needed_whole_(positions_.whole()) {
  find_used();
  for (const ir::Param &param : program.params)
    declared(param);
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
    result(InstId{i});
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
    products(InstId{i});
  for (auto &[key, values] : parameters_) {
    choose_parameters(axes_[key], values);
    find_drifted(key, axes_[key]);
  }
  find_state_of_owned();
  if (!inputs_.empty())
    find_stacked();
  for (auto &[key, values] : inputs_)
    choose_inputs(AxisId{key.second}, axes_[key], values);
  if (!inputs_.empty())
    follow_batches();
  follow_exchanges();
  follow_splits();
  find_taken_apart();
  follow_parts();
  for (auto &[key, values] : unknown_)
    for (ValueId value : values)
      for (const CutPositions::Found &each : positions_.of(value))
        if (axes_[key].cut.count(each.cls))
          axes_[key].origins[value.index] = Origin::Inferred;
}

// An optimizer has copies of its own of some parameters, which say nothing of what the model's are.
void Cuts::find_used() {
  OperandList operands;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    if (inst.phase == ir::Phase::Optimizer)
      continue;
    operands.read(program_, inst.operands);
    for (ValueId value : operands.values)
      used_.insert(value.index);
  }
}

// Whole numbers of which the rows of a batch may have the same each, as positions, or masks: that
// they are equal on all ranks is no sign that the ranks have the same rows of other tensors.
bool Cuts::may_repeat(const ir::Param &param, AxisId axis) const {
  const ir::ShapeId id = checked_.shapes[param.value.index];
  if (!(param.role == ir::Role::Input || param.role == ir::Role::Const) || !id.valid())
    return false;
  const ir::Shape &shape = program_.shapes[id];
  const ir::MeshId mesh = program_.types[checked_.types[param.value.index]].mesh();
  return shape.dtype != ir::DType::Unknown && !ir::differentiable(shape.dtype) &&
         shape.dims.size() > 1 && shape.dims[0] != ir::Extent(1) &&
         data_axes(program_, mesh).contains(axis);
}

// What is the same on all ranks has no class that is cut; what is stated to be cut has one.
void Cuts::declared(const ir::Param &param) {
  const ir::Type &type = program_.types[checked_.types[param.value.index]];
  const ir::TypeId stated = program_.values[param.value].declared;
  if (!type.mesh().valid())
    return;
  const AxisSet same = type.same_on_all_ranks();
  for (AxisId id : program_.meshes[type.mesh()].typed_axes()) {
    Key key{static_cast<uint16_t>(type.mesh().index), id.index};
    Axis &axis = axes_[key];
    llvm::SmallVector<CutPositions::Found, 4> found = positions_.of(param.value);
    if (param.role == ir::Role::Param && used_.count(param.value.index)) {
      axis.replicated += type.replicated().contains(id);
      axis.invariant += type.of(Kind::Invariant).contains(id);
    }
    const bool repeats = same.contains(id) && may_repeat(param, id);
    if (repeats)
      axis.repeated.insert(param.value.index);
    if (same.contains(id) && param.role != ir::Role::Const) {
      for (const CutPositions::Found &each : found)
        if (!repeats || each.at.dim != 0) {
          axis.never.insert(each.cls);
          if (param.role == ir::Role::Param && each.at.outer == 1)
            axis.shared.insert(each.cls);
        }
    } else if (type.of(Kind::Varying).contains(id)) {
      std::optional<unsigned> dim = stated.valid() ? program_.types[stated].dim(id) : std::nullopt;
      std::optional<uint32_t> cls = dim ? positions_.in_front(param.value, *dim) : std::nullopt;
      if (cls) {
        axis.cut.insert(*cls);
        axis.stated.insert(*cls);
        axis.origins[param.value.index] = Origin::Stated;
        orders_.try_emplace(*cls, ir::shards_of(program_.types[stated], *dim));
        continue;
      }
      if (param.role == ir::Role::Param)
        for (const CutPositions::Found &each : found)
          ++axis.candidates[each.cls];
      if (is_state(param.role))
        parameters_[key].push_back(param.value);
      else if (param.role == ir::Role::Input)
        inputs_[key].push_back(param.value);
    } else if (type.unknown.contains(id) && is_state(param.role)) {
      unknown_[key].push_back(param.value);
    }
  }
}

// What a rank takes as its block, or gets as one, is cut there.
void Cuts::converted(InstId id, const rules::ResolvedOp &op, const OperandList &operands) {
  const ir::Inst &inst = program_.insts[id];
  rules::Application app{program_, op, inst.attrs, inst.context, operands.slots, {}, {}};
  const AxisSet axes = rules::named_axes(app);
  const ir::AttrValue *to = app.attr("dst");
  if (!to || to->form != ir::AttrForm::Kind || to->as_kind().form != ir::WrittenKind::Form::Shard ||
      to->as_kind().dim < 0)
    return;
  const ir::MeshId mesh = program_.contexts[inst.context].mesh;
  const unsigned dim = to->as_kind().dim;
  for (uint32_t r = 0; r < inst.result_count && r < operands.values.size(); ++r) {
    const std::optional<uint32_t> before = positions_.in_front(operands.values[r], dim),
                                  cls = positions_.in_front(inst.result(r), dim);
    if (!cls)
      continue;
    for (AxisId axis : axes)
      axes_[{static_cast<uint16_t>(mesh.index), axis.index}].cut.insert(*cls);
    for (auto &[key, axis] : axes_) // a block of a block
      if (before && axis.cut.count(*before))
        axis.cut.insert(*cls);
  }
}

// What a collective makes equal on all ranks is whole there, except for the dimension that it
// joined: that one is cut in its operand.
void Cuts::result(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  OperandList operands;
  operands.read(program_, inst.operands);
  const rules::ResolvedOp op = rules::resolve_op(program_, inst.op);
  if (op.form == rules::OpForm::Equation) // makes something new, such as zeros
    return;
  if (op.transition == rules::TransitionOp::Convert ||
      op.transition == rules::TransitionOp::Redistribute)
    converted(id, op, operands);
  for (uint32_t r = 0; r < inst.result_count && r < operands.values.size(); ++r) {
    ValueId from = operands.values[r], to = inst.result(r);
    if (!checked_.types[from.index].valid() || !checked_.types[to.index].valid())
      continue;
    const ir::Type &before = program_.types[checked_.types[from.index]],
                   &after = program_.types[checked_.types[to.index]];
    if (before.mesh() != after.mesh() || !before.mesh().valid())
      continue;
    AxisSet became =
        after.same_on_all_ranks() & (before.of(Kind::Varying) | before.of(Kind::Partial));
    for (AxisId axis : became)
      for (const CutPositions::Found &each : positions_.of(to))
        ++axes_[{static_cast<uint16_t>(after.mesh().index), axis.index}].whole[each.cls];
  }
}

// Rows that ranks pick out of their own rows of a batch are their own, too, whichever they are.
void Cuts::follow_batches() {
  rules::Rules rules(program_);
  OperandList operands;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst inst = program_.insts[InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    if (!op.computes(rules::Computes::Index) || inst.result_count != 1)
      continue;
    operands.read(program_, inst.operands);
    const auto args = operands.args(checked_.types, checked_.shapes);
    const rules::Application app{program_, op, inst.attrs, inst.context, operands.slots, args, {}};
    for (const rules::Pick &pick : rules::picks_of(app)) {
      const ValueId batch = operands.values[pick.table], index = operands.values[pick.index];
      const ir::TypeId type = checked_.types[index.index];
      const std::optional<unsigned> dim = rules::rows_of(app, pick);
      const std::optional<uint32_t> cls =
          dim ? positions_.in_front(inst.first_result, *dim) : std::nullopt;
      if (!cls || !type.valid())
        continue;
      for (AxisId axis : program_.types[type].same_on_all_ranks() & batch_axes(batch))
        if (this->dim(batch, axis) == pick.dim)
          axes_[{static_cast<uint16_t>(program_.types[type].mesh().index), axis.index}].cut.insert(
              *cls);
    }
  }
}

// Of what was exchanged as one tensor, ranks have blocks of the dimension that was split for it.
void Cuts::follow_exchanges() {
  for (uint32_t i = 0; i < program_.values.size(); ++i) {
    const BlockLists::Joined *joined = positions_.stacks().joined(ValueId{i});
    const ir::TypeId type = checked_.types[i];
    if (!joined || !joined->dim || !type.valid())
      continue;
    const std::optional<uint32_t> before = positions_.in_front(joined->of, joined->at),
                                  after = positions_.in_front(ValueId{i}, *joined->dim);
    for (AxisId id : joined->axes) {
      Axis &axis = axes_[{static_cast<uint16_t>(program_.types[type].mesh().index), id.index}];
      if (before && after && axis.cut.count(*before) && !axis.never.count(*after))
        axis.cut.insert(*after);
    }
  }
}

// The dimensions that an exchange joins and splits: one is longer afterwards, the other shorter.
static std::optional<std::pair<unsigned, unsigned>> joined_and_split(const ir::Shape &before,
                                                                     const ir::Shape &after) {
  std::optional<unsigned> join, split;
  if (!before.ranked || !after.ranked || before.dims.size() != after.dims.size())
    return std::nullopt;
  for (unsigned d = 0; d < before.dims.size(); ++d) {
    const ir::Extent was = before.dims[d], is = after.dims[d];
    if (was == is)
      continue;
    if (!was.is_number() || !is.is_number() || (was.number() < is.number() ? join : split))
      return std::nullopt;
    (was.number() < is.number() ? join : split) = d;
  }
  return join && split ? std::optional(std::pair(*join, *split)) : std::nullopt;
}

// An exchange along a dimension that an axis cuts leaves it whole, and cuts the one that it splits:
// what meets its result, such as a mask made on all ranks alike, is cut there, too.
void Cuts::follow_splits() {
  rules::Rules rules(program_);
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    if (op.transition != rules::TransitionOp::AllToAll || inst.result_count != 1)
      continue;
    OperandList operands;
    operands.read(program_, inst.operands);
    const ir::ShapeId from = operands.values.empty() ? ir::ShapeId()
                                                     : checked_.shapes[operands.values[0].index],
                      to = checked_.shapes[inst.first_result.index];
    if (!from.valid() || !to.valid())
      continue;
    const auto dims = joined_and_split(program_.shapes[from], program_.shapes[to]);
    const rules::Application app{program_, op, inst.attrs, inst.context, operands.slots, {}, {}};
    const auto before = dims ? positions_.in_front(operands.values[0], dims->first) : std::nullopt,
               after = dims ? positions_.in_front(inst.first_result, dims->second) : std::nullopt;
    for (AxisId id : rules::named_axes(app)) {
      Axis &axis =
          axes_[{static_cast<uint16_t>(program_.contexts[inst.context].mesh.index), id.index}];
      if (before && after && axis.cut.count(*before) && !axis.never.count(*after))
        axis.cut.insert(*after);
    }
  }
}

// Declarations are in the order of their values.
static bool holds(llvm::ArrayRef<ValueId> parameters, ValueId value) {
  return std::binary_search(parameters.begin(), parameters.end(), value,
                            [](ValueId a, ValueId b) { return a.index < b.index; });
}

// The rows of a batch that a rank takes apart for a loop are its own in each part; in which order
// is all the same.
void Cuts::find_taken_apart() {
  rules::Rules rules(program_);
  auto extent = [&](ValueId value, unsigned dim) -> std::optional<ir::Extent> {
    const ir::ShapeId shape = checked_.shapes[value.index];
    if (!shape.valid() || dim >= program_.shapes[shape].dims.size())
      return std::nullopt;
    return program_.shapes[shape].dims[dim];
  };
  for (uint32_t i = 0; i < program_.insts.size(); ++i) {
    if (rules.resolve(program_.insts[InstId{i}].op).boundary != rules::Boundary::Scan)
      continue;
    OperandList operands;
    operands.read(program_, program_.insts[InstId{i}].operands);
    for (ValueId value : operands.values) {
      const InstId made = defining_inst(program_, value);
      const rules::ResolvedOp *op =
          made.valid() ? &rules.resolve(program_.insts[made].op) : nullptr;
      if (!op || !op->row || op->row->factors != rules::reshape_factors)
        continue;
      OperandList whole;
      whole.read(program_, program_.insts[made].operands);
      if (!whole.values.empty() && positions_.in_front(value, 0) &&
          positions_.in_front(value, 0) == positions_.in_front(whole.values[0], 0) &&
          extent(value, 0) != extent(whole.values[0], 0) && extent(value, 1))
        apart_.insert(value.index);
    }
  }
  for (auto &[key, axis] : axes_)
    for (uint32_t value : apart_)
      if (axis.cut.count(*positions_.in_front(ValueId{value}, 0)))
        if (std::optional<uint32_t> rows = positions_.in_front(ValueId{value}, 1))
          axis.cut.insert(*rows);
}

// Of a part of its rows that a rank takes, such as a micro-batch, it has a block as it has of all
// of them.
void Cuts::follow_parts() {
  rules::Rules rules(program_);
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    if (!op.row || op.row->own_dims != rules::OpDef::OwnDims::Proportional)
      continue;
    OperandList operands;
    operands.read(program_, inst.operands);
    if (operands.values.size() != 1) // else parts are put together, those of other ranks as well
      continue;
    const std::optional<uint32_t> rows = positions_.in_front(operands.values[0], 0);
    auto dims = [&](ValueId value) {
      const ir::ShapeId shape = checked_.shapes[value.index];
      return shape.valid() ? program_.shapes[shape].dims.size() : 0;
    };
    // Of one row there are only its other dimensions.
    if (inst.result_count == 0 || dims(operands.values[0]) != dims(inst.result(0)))
      continue;
    for (auto &[key, axis] : axes_)
      for (uint32_t r = 0; rows && axis.cut.count(*rows) && r < inst.result_count; ++r)
        if (std::optional<uint32_t> part = positions_.in_front(inst.result(r), 0);
            part && !axis.never.count(*part))
          axis.cut.insert(*part);
  }
}

// A weight is a block of columns where all ranks multiply it with the same, and a block of rows
// where they multiply it with a block of what it is contracted with. Where they multiply it with
// something of their own, and it is no block of rows, it is a matrix of their own: an expert, or a
// copy that is trained apart.
void Cuts::products(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  if (!is_forward(inst) || inst.result_count == 0)
    return;
  OperandList operands;
  operands.read(program_, inst.operands);
  const ValueId made = inst.result(0);
  for (auto &[key, parameters] : parameters_)
    for (ValueId weight : operands.values) {
      if (!holds(parameters, storage_of(program_, weight))) // or an entry of it
        continue;
      for (ValueId other : operands.values) {
        const ir::TypeId type = checked_.types[other.index];
        if (other == weight || !type.valid() || program_.find_param(other) ||
            program_.types[type].mesh().index != key.first ||
            !program_.types[type].of(Kind::Varying).contains(AxisId{key.second}))
          continue;
        bool contracted = false;
        for (const CutPositions::Found &each : positions_.of(weight))
          contracted |= positions_.has(other, each.cls) && !positions_.has(made, each.cls);
        for (const CutPositions::Found &each : positions_.of(weight))
          if (contracted && !positions_.has(other, each.cls) && !axes_[key].never.count(each.cls))
            axes_[key].own.insert(each.cls);
      }
    }
}

// It has no dimension that may be cut, and one that would be but for what it is multiplied with.
bool Cuts::is_own(const Axis &axis, ValueId value) const {
  bool own = false;
  const ir::Shape &shape = program_.shapes[checked_.shapes[value.index]];
  for (const CutPositions::Found &each : positions_.of(value)) {
    if (shape.dims[each.at.dim] == ir::Extent(1)) // one expert on each rank
      continue;
    own |= axis.own.count(each.cls) != 0;
    if (!axis.own.count(each.cls) && !axis.never.count(each.cls))
      return false;
  }
  return own;
}

// Of what a parameter of a rank's own is used with, such as its bias, each rank has its own, too.
void Cuts::find_drifted(const Key &key, Axis &axis) {
  llvm::DenseSet<uint32_t> beside;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    OperandList operands;
    operands.read(program_, program_.insts[InstId{i}].operands);
    bool own = llvm::any_of(operands.values, [&](ValueId value) {
      return holds(parameters_[key], value) && is_own(axis, value);
    });
    for (ValueId value : operands.values)
      if (own)
        beside.insert(value.index);
  }
  for (ValueId value : parameters_[key])
    if (!axis.origins.count(value.index) && beside.count(value.index))
      owned_[value.index] |= AxisId{key.second};
  // What a rank has made by itself, and was compared with nothing, another rank does not have.
  auto is_lacked = [&](ValueId value) {
    const ir::Param *param = program_.find_param(value);
    const ir::MeshId mesh = program_.types[checked_.types[value.index]].mesh();
    const AxisId id{key.second};
    return param && rules::axes_of(program_, param->separate, mesh).contains(id) &&
           !rules::axes_of(program_, param->observed, mesh).contains(id);
  };
  for (ValueId value : parameters_[key])
    if (!axis.origins.count(value.index) && !beside.count(value.index) && !is_lacked(value) &&
        llvm::all_of(positions_.of(value), [&](const CutPositions::Found &each) {
          return axis.never.count(each.cls) != 0;
        }))
      axis.drifted.insert(value.index);
}

// What an optimizer keeps for a rank's own parameter is its own: what it writes together with the
// parameter's gradient, of the same extents.
void Cuts::find_state_of_owned() {
  std::vector<ValueId> whose(program_.values.size()); // the parameter, by value
  auto of = [&](ValueId value) -> ValueId & { return whose[storage_of(program_, value).index]; };
  for (const auto &[value, axes] : owned_)
    whose[value] = ValueId{value};
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    for (uint32_t r = 0; r < inst.result_count; ++r)
      if (const ValueId param = program_.values[inst.result(r)].grad_of;
          param.valid() && owned_.count(param.index))
        of(inst.result(r)) = param;
    if (accumulates(program_, InstId{i}))
      for (ValueId operand : tensors_of(program_, InstId{i}))
        if (const ValueId param = of(operand); param.valid())
          of(inst.first_result) = param;
    if (inst.phase != ir::Phase::Optimizer)
      continue;
    const auto operands = tensors_of(program_, InstId{i});
    for (uint32_t r = 0; r < inst.result_count; ++r) {
      // Of lists, the elements in one place belong together.
      llvm::SmallVector<ValueId, 4> same;
      ValueId owner;
      for (size_t k = 0; k < operands.size(); ++k)
        if (k % inst.result_count == r &&
            checked_.shapes[operands[k].index] == checked_.shapes[inst.result(r).index]) {
          same.push_back(operands[k]);
          owner = owner.valid() ? owner : of(operands[k]);
        }
      for (ValueId operand : same)
        if (const ir::Param *param = program_.find_param(storage_of(program_, operand));
            owner.valid() && param && param->role == ir::Role::OptState) {
          of(operand) = owner;
          const ir::Type &type = program_.types[checked_.types[param->value.index]];
          owned_[param->value.index] |= owned_.lookup(owner.index) & type.of(Kind::Varying);
        }
      if (owner.valid())
        of(inst.result(r)) = owner;
    }
  }
}

// Few collectives that leave it whole, many parameters that have it, in front of a dimension rather
// than inside, and none that a row needs whole: the order of the tuple. None where two are as good.
std::optional<uint32_t> Cuts::best(const Axis &axis, ValueId value) const {
  using Rank = std::tuple<unsigned, int64_t, int64_t, bool>;
  std::optional<uint32_t> chosen;
  std::optional<Rank> chosen_rank;
  bool tie = false;
  llvm::SmallVector<CutPositions::Found, 4> found = positions_.of(value);
  for (const CutPositions::Found &each : found) {
    const ir::Shape &shape = program_.shapes[checked_.shapes[value.index]];
    if (axis.never.count(each.cls) || axis.own.count(each.cls) ||
        shape.dims[each.at.dim] == ir::Extent(1))
      continue;
    Rank rank{axis.whole.lookup(each.cls), -int64_t(axis.candidates.lookup(each.cls)),
              each.at.outer, needed_whole_.count(each.cls) != 0};
    if (chosen == each.cls)
      continue;
    if (!chosen_rank || rank < *chosen_rank) {
      chosen = each.cls, chosen_rank = rank, tie = false;
    } else if (rank == *chosen_rank) {
      tie = true;
    }
  }
  return tie ? std::nullopt : chosen;
}

void Cuts::choose_parameters(Axis &axis, llvm::ArrayRef<ValueId> values) {
  for (ValueId value : values) {
    auto has_one_of = [&](const llvm::DenseSet<uint32_t> &classes) {
      return llvm::any_of(positions_.of(value), [&](const CutPositions::Found &each) {
        return classes.count(each.cls) != 0;
      });
    };
    if (has_one_of(axis.cut)) {
      // Such as the state of an optimizer, which is cut as its parameter is.
      axis.origins[value.index] = has_one_of(axis.stated) ? Origin::Stated : Origin::Inferred;
    } else if (std::optional<uint32_t> cls = best(axis, value)) {
      axis.cut.insert(*cls);
      axis.origins[value.index] = Origin::Inferred;
    }
  }
}

// Inputs of which a batch is made, one behind another.
void Cuts::find_stacked() {
  rules::Rules rules(program_);
  OperandList operands;
  llvm::DenseSet<uint32_t> read;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    operands.read(program_, inst.operands);
    std::optional<uint32_t> cls;
    if (op.row && op.row->factors == rules::stack_factors && inst.result_count == 1) {
      const rules::Application app{program_, op, inst.attrs, inst.context, operands.slots, {}, {}};
      const ir::ShapeId shape = checked_.shapes[inst.first_result.index];
      const size_t rank = shape.valid() ? program_.shapes[shape].dims.size() : 0;
      if (const auto dims = rules::placed_dims(app, rules::DefaultDim::First, rank);
          dims && dims->size() == 1)
        cls = positions_.in_front(inst.first_result, dims->front());
    }
    for (ValueId value : operands.values)
      if (!read.insert(value.index).second || !cls)
        stacked_.erase(value.index);
      else
        stacked_[value.index] = *cls;
  }
}

// A batch that differs is cut in its first dimension of more than one element.
void Cuts::choose_inputs(AxisId id, Axis &axis, llvm::ArrayRef<ValueId> values) {
  for (ValueId value : values) {
    if (const auto at = stacked_.find(value.index); at != stacked_.end()) {
      axis.cut.insert(at->second);
      samples_[value.index] |= id;
      continue;
    }
    llvm::SmallVector<CutPositions::Found, 4> found = positions_.of(value);
    bool known = llvm::any_of(found, [&](const CutPositions::Found &each) {
      return each.at.outer == 1 && axis.cut.count(each.cls) != 0;
    });
    const ir::ShapeId shape = checked_.shapes[value.index];
    for (const CutPositions::Found &each : found) {
      if (known || each.at.outer != 1 || axis.never.count(each.cls) ||
          program_.shapes[shape].dims[each.at.dim] == ir::Extent(1))
        continue;
      axis.cut.insert(each.cls);
      known = true;
    }
    if (known)
      axis.origins[value.index] = Origin::Assumed;
  }
}

// What is known of an axis of the mesh of a value; null: nothing.
const Cuts::Axis *Cuts::find(ValueId value, AxisId id) const {
  const ir::TypeId type = checked_.types[value.index];
  if (!type.valid())
    return nullptr;
  auto at = axes_.find({static_cast<uint16_t>(program_.types[type].mesh().index), id.index});
  return at == axes_.end() ? nullptr : &at->second;
}

std::optional<unsigned> Cuts::dim(ValueId value, AxisId id) const {
  const Axis *axis = find(value, id);
  if (!axis)
    return std::nullopt;
  std::optional<unsigned> dim;
  for (const CutPositions::Found &each : positions_.of(value))
    if (axis->cut.count(each.cls) && dim != each.at.dim) {
      if (each.at.dim == 0 && apart_.count(value.index))
        continue;
      if (dim)
        return std::nullopt;
      dim = each.at.dim;
    }
  return dim;
}

bool Cuts::is_whole(ValueId value, unsigned dim, AxisId id) const {
  const Axis *axis = find(value, id);
  const std::optional<uint32_t> cls = positions_.in_front(value, dim);
  return axis && cls && axis->shared.count(*cls) && !axis->cut.count(*cls);
}

llvm::SmallVector<AxisId, 4> Cuts::in_order(ValueId value, AxisSet axes) const {
  llvm::SmallVector<AxisId, 4> ordered;
  for (const CutPositions::Found &each : positions_.of(value))
    if (auto at = orders_.find(each.cls); at != orders_.end())
      for (AxisId axis : at->second)
        if (axes.contains(axis)) {
          ordered.push_back(axis);
          axes -= axis;
        }
  for (AxisId axis : axes)
    ordered.push_back(axis);
  return ordered;
}

int64_t Cuts::blocks(ValueId value, AxisId id) const {
  const Axis *axis = find(value, id);
  int64_t most = 1;
  for (const CutPositions::Found &each : positions_.of(value))
    if (axis && axis->cut.count(each.cls))
      most = std::max(most, each.at.outer);
  return most;
}

bool Cuts::inside(ValueId value, AxisId id) const { return blocks(value, id) != 1; }

std::optional<Kind> Cuts::same(ValueId value, AxisId id) const {
  const Axis *axis = find(value, id);
  if (!axis || axis->replicated + axis->invariant == 0 || dim(value, id))
    return std::nullopt;
  return axis->replicated > axis->invariant ? Kind::Replicate : Kind::Invariant;
}

bool Cuts::has_drifted(ValueId value, AxisId id) const {
  const Axis *axis = find(value, id);
  return axis && axis->drifted.count(value.index) != 0 && !owned(value).contains(id);
}

bool Cuts::repeats(ValueId value, AxisId id) const {
  const Axis *axis = find(value, id);
  return axis && axis->repeated.count(value.index) && dim(value, id) == 0U && !inside(value, id);
}

bool Cuts::is_of_repeated(ValueId value, unsigned dim, AxisId id) const {
  const Axis *axis = find(value, id);
  const auto cls = axis ? positions_.in_front(value, dim) : std::nullopt;
  return cls && llvm::any_of(axis->repeated, [&](uint32_t input) {
           return repeats(ValueId{input}, id) && positions_.in_front(ValueId{input}, 0) == cls;
         });
}

AxisSet Cuts::batch_axes(ValueId value) const {
  const ir::Param *param = program_.find_param(value);
  const ir::TypeId type = checked_.types[value.index];
  AxisSet axes;
  if (!param || param->role != ir::Role::Input || !type.valid())
    return axes;
  for (AxisId axis : program_.meshes[program_.types[type].mesh()].typed_axes())
    if (origin(value, axis) == Origin::Assumed)
      axes |= axis;
  return axes;
}

std::optional<Origin> Cuts::origin(ValueId value, AxisId id) const {
  const Axis *axis = find(value, id);
  if (!axis || !axis->origins.count(value.index))
    return std::nullopt;
  return axis->origins.lookup(value.index);
}

} // namespace spmd::checker
