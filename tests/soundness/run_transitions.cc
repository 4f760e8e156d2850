// Transitions, and what moves whole tensors between lists and their joins. Each is taped with its
// adjoint.
#include "tests/soundness/run.h"

#include "checker/check.h"
#include "checker/operand_list.h"

#include "llvm/ADT/STLExtras.h"

#include <map>
#include <set>

namespace spmd::soundness {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::ValueId;

bool Run::transition(const ir::Inst &inst, llvm::StringRef name) {
  if (name == "redistribute" && program_.find(inst.attrs, "type"))
    return redistribution(inst);
  if (name == "reorder")
    return reorder(inst);
  std::string problem;
  std::optional<Call> call =
      read_call(program_, name, inst.attrs, program_.contexts[inst.context].mesh, problem);
  if (!call)
    return fail(problem);
  checker::OperandList operands;
  operands.read(program_, inst.operands);
  if (operands.values.size() != inst.result_count)
    return fail("a call with operands that are no tensors");
  for (uint32_t r = 0; r < inst.result_count; ++r)
    if (!transition_of(*call, inst, operands.values[r], r))
      return false;
  return true;
}

namespace {

// `entered`: the dimension that the axis sharded where the region was entered.
bool rejoins_entry(const Step &step, std::optional<unsigned> entered) {
  using Form = ir::WrittenKind::Form;
  bool exchanges = step.dst.form == Form::Shard && step.dst.dim != step.src.dim;
  bool joins = step.dst.form == Form::Plain && !(step.dst.kind == Kind::Varying);
  return step.src.form == Form::Shard && (joins || exchanges) &&
         entered == static_cast<unsigned>(step.src.dim);
}

} // namespace

bool Run::transition_of(const Call &call, const ir::Inst &inst, ValueId from, uint32_t result) {
  ValueId to = inst.result(result);
  NodeId at = seen(from, inst.context);
  bool gradient = carries_gradient(to) && carries_gradient(from);
  // Where the operand is a list, so is what S(i) cuts and joins.
  const ir::Type &type = program_.types[typed(from).type];
  AxisSet local = program_.local_axes(program_.contexts[inst.context]) |
                  (type.of(Kind::Varying) - type.sharded());
  // Blocks that a region's entry made a list, and that are joined where they were cut, or exchanged
  // for those of another dimension: as if the region were not there, then a list again.
  bool rejoins = side_ == Side::Whole && !call.steps.empty();
  for (const Step &step : call.steps)
    for (AxisId axis : step.axes)
      rejoins &= rejoins_entry(step, type.dim(axis));
  const AxisSet listed = local;
  if (rejoins) {
    at = node(from);
    for (const Step &step : call.steps)
      local = local - step.axes;
    if (AxisSet others = local & type.sharded())
      at = relisted(at, typed(from), {}, typed(from), others);
  }
  // Steps are kept alive by the tape.
  auto kept = std::make_shared<Call>(call), cuts = std::make_shared<Call>(call);
  tape_.push_back([kept, cuts] {});
  cuts->name = "convert";
  cuts->splits = call.in_splits;
  // Blocks are joined from the innermost axis on.
  bool joins = call.name == "all_gather";
  for (size_t k = 0; k < kept->steps.size(); ++k) {
    size_t s = joins ? kept->steps.size() - 1 - k : k;
    const Step &step = kept->steps[s];
    // From a dimension of a tensor to the same one: nothing moves.
    bool stays = kept->name == "all_to_all" && !local.contains(step.axes) && step.src == step.dst &&
                 step.src.form == ir::WrittenKind::Form::Shard && kept->in_splits.empty();
    if (stays) {
      at = multiplied(at, 1);
      continue;
    }
    at = side_ == Side::Ranks ? rank_step(*kept, step, at, gradient)
                              : whole_step(*kept, step, local, at, gradient);
    if (rejoins && listed.contains(step.axes) && step.dst.form == ir::WrittenKind::Form::Shard) {
      cuts->steps[s].src = {.kind = Kind::Replicate};
      at = whole_step(*cuts, cuts->steps[s], listed, at, gradient);
    }
    if (!why.empty())
      return false;
  }
  if (kept->steps.empty()) // only axes of size 1
    at = multiplied(at, 1);
  define(inst, result, at);
  return true;
}

Run::NodeId Run::rank_step(const Call &call, const Step &step, NodeId from, bool gradient) {
  std::optional<RankStep> rank_step = RankStep::make(call, step, why);
  if (!rank_step)
    return from;
  std::vector<RankList> groups = world_.groups(call.mesh, step.layout);
  NodeId to = add({nodes_[from]->value.rep, Arrays(world_.size())});
  auto held_by = [](const Arrays &all, const RankList &group) {
    Arrays held;
    for (uint8_t rank : group)
      held.push_back(all[rank]);
    return held;
  };
  for (const RankList &group : groups) {
    Arrays made = rank_step->forward(held_by(nodes_[from]->value.at, group));
    for (size_t k = 0; k < group.size(); ++k)
      nodes_[to]->value.at[group[k]] = std::move(made[k]);
  }
  if (gradient)
    tape_.push_back([this, rank_step, groups, from, to, held_by] {
      if (nodes_[to]->gradient.empty())
        return;
      for (const RankList &group : groups) {
        Arrays made = rank_step->backward(held_by(nodes_[to]->gradient, group),
                                          held_by(nodes_[from]->value.at, group));
        for (size_t k = 0; k < group.size(); ++k)
          add_to(gradient_of(from)[group[k]], made[k]);
      }
    });
  return to;
}

Run::NodeId Run::whole_step(const Call &call, const Step &step, AxisSet local, NodeId from,
                            bool gradient) {
  AxisSet nowhere = program_.local_axes(call.mesh);
  std::optional<WholeStep> whole =
      WholeStep::make(call, step, local.contains(step.axes), nowhere.contains(step.axes), why);
  if (!whole)
    return from;
  if (whole->takes_list() == whole->gives_list() && !whole->takes_list() && step.size >= 1) {
    // One tensor before and after.
    NodeId to = add({nodes_[from]->value.rep, Arrays(world_.size())});
    for (unsigned r = 0; r < world_.size(); ++r)
      if (nodes_[from]->value.rep[r] == r)
        nodes_[to]->value.at[r] = whole->forward({nodes_[from]->value.at[r]})[0];
    if (gradient)
      tape_.push_back([this, whole, from, to] {
        for (unsigned r = 0; !nodes_[to]->gradient.empty() && r < world_.size(); ++r)
          if (nodes_[to]->value.rep[r] == r)
            add_to(gradient_of(from)[r], whole->backward({nodes_[to]->gradient[r]}, {})[0]);
      });
    return to;
  }
  // Per group of representatives: the members of the list on either side.
  std::vector<RankList> groups = world_.groups(call.mesh, step.layout);
  const Held &held = nodes_[from]->value;
  std::map<uint8_t, const RankList *> group_of;
  for (const RankList &group : groups)
    for (uint8_t rank : group)
      group_of[rank] = &group;
  struct Pair {
    RankList from, to;
  };
  std::map<uint8_t, Pair> pairs; // by the representative of the first rank
  Held result{RankList(world_.size(), 0), Arrays(world_.size())};
  for (const RankList &group : groups) {
    uint8_t lead = held.rep[group[0]];
    const RankList &leaders = *group_of[lead];
    Pair &pair = pairs[lead];
    pair = {};
    for (size_t k = 0; k < group.size(); ++k) {
      result.rep[group[k]] = whole->gives_list() ? leaders[k] : leaders[0];
      if (whole->takes_list() || k == 0)
        pair.from.push_back(held.rep[leaders[k]]);
      if (whole->gives_list() || k == 0)
        pair.to.push_back(leaders[k]);
    }
    llvm::SmallVector<uint8_t, 8> distinct(pair.from.begin(), pair.from.end());
    llvm::sort(distinct);
    if (std::unique(distinct.begin(), distinct.end()) != distinct.end())
      return why = "a list whose members are one tensor", from;
  }
  auto members = [](const Arrays &all, const RankList &ranks) {
    Arrays found;
    for (uint8_t rank : ranks)
      found.push_back(all[rank]);
    return found;
  };
  for (auto &[lead, pair] : pairs) {
    Arrays made = whole->forward(members(held.at, pair.from));
    for (size_t k = 0; k < pair.to.size(); ++k)
      result.at[pair.to[k]] = std::move(made[k]);
  }
  NodeId to = add(std::move(result));
  if (gradient)
    tape_.push_back([this, whole, pairs, from, to, members] {
      if (nodes_[to]->gradient.empty())
        return;
      for (const auto &entry : pairs) {
        const Pair &pair = entry.second;
        Arrays made = whole->backward(members(nodes_[to]->gradient, pair.to),
                                      members(nodes_[from]->value.at, pair.from));
        for (size_t k = 0; k < pair.from.size(); ++k)
          add_to(gradient_of(from)[pair.from[k]], made[k]);
      }
    });
  return to;
}

Run::NodeId Run::relisted(NodeId from, const Typed &from_type, AxisSet from_listed,
                          const Typed &to_type, AxisSet to_listed) {
  Placement before(program_, world_, from_type, from_listed);
  Placement after(program_, world_, to_type, to_listed);
  ir::MeshId mesh = program_.types[to_type.type].mesh();
  const Held &held = nodes_[from]->value;
  AxisSet parted = before.cut() - after.cut(), joined = after.cut() - before.cut();
  struct Move {
    uint8_t from, to;
    Block source, target;
  };
  std::vector<Move> moves; // each element once
  std::set<unsigned> made;
  Held result{{}, Arrays(world_.size())};
  for (unsigned r = 0; r < world_.size(); ++r) {
    unsigned lead = world_.moved(mesh, parted, held.rep[world_.moved(mesh, joined, r, 0)], r);
    result.rep.push_back(static_cast<uint8_t>(lead));
    if (made.insert(lead).second)
      result.at[lead] = Array::zeros(after.whole(r));
    Move move{held.rep[r], static_cast<uint8_t>(lead), before.block(r), after.block(r)};
    bool known = llvm::any_of(moves, [&](const Move &other) {
      return other.to == move.to && other.target.first == move.target.first;
    });
    if (!known && count(move.target.dims) > 0) // an empty block begins where the next one does
      moves.push_back(std::move(move));
  }
  for (const Move &move : moves)
    put(result.at[move.to], move.target, take(held.at[move.from], move.source), false);
  NodeId to = add(std::move(result));
  tape_.push_back([this, moves, from, to] {
    if (nodes_[to]->gradient.empty())
      return;
    for (const Move &move : moves)
      put(gradient_of(from)[move.from], move.source,
          take(nodes_[to]->gradient[move.to], move.target), true);
  });
  return to;
}

Run::NodeId Run::summed(NodeId from, ir::MeshId mesh, AxisSet axes) {
  const Held &held = nodes_[from]->value;
  RankList members; // the representatives that are added up, per rank of `lead`
  RankList lead;
  Held result{{}, Arrays(world_.size())};
  for (unsigned r = 0; r < world_.size(); ++r) {
    uint8_t to = held.rep[world_.moved(mesh, axes, r, 0)];
    result.rep.push_back(to);
    if (held.rep[r] != r)
      continue;
    members.push_back(static_cast<uint8_t>(r));
    lead.push_back(to);
    if (result.at[to].data.empty())
      result.at[to] = held.at[r];
    else
      add_to(result.at[to], held.at[r]);
  }
  NodeId to = add(std::move(result));
  tape_.push_back([this, from, to, members, lead] {
    for (size_t i = 0; !nodes_[to]->gradient.empty() && i < members.size(); ++i)
      add_to(gradient_of(from)[members[i]], nodes_[to]->gradient[lead[i]]);
  });
  return to;
}

Run::NodeId Run::first_of_zeros(NodeId from, ir::MeshId mesh, AxisSet axes) {
  const Held &held = nodes_[from]->value;
  Held result{{}, Arrays(world_.size())};
  for (unsigned r = 0; r < world_.size(); ++r) {
    auto to = static_cast<uint8_t>(world_.moved(mesh, axes, held.rep[r], r));
    result.rep.push_back(to);
    bool first = world_.moved(mesh, axes, r, 0) == r;
    if (first || result.at[to].data.empty())
      result.at[to] = first ? held.at[held.rep[r]] : Array::zeros(held.at[held.rep[r]].dims);
  }
  NodeId to = add(std::move(result));
  tape_.push_back([this, from, to, mesh, axes] {
    for (unsigned r = 0; !nodes_[to]->gradient.empty() && r < world_.size(); ++r)
      if (nodes_[to]->value.rep[r] == r && world_.moved(mesh, axes, r, 0) == r)
        add_to(gradient_of(from)[nodes_[from]->value.rep[r]], nodes_[to]->gradient[r]);
  });
  return to;
}

Run::NodeId Run::multiplied(NodeId from, Residue factor) {
  NodeId to = add(nodes_[from]->value);
  for (Array &each : nodes_[to]->value.at)
    each = times(std::move(each), factor);
  tape_.push_back([this, from, to, factor] {
    for (unsigned r = 0; !nodes_[to]->gradient.empty() && r < world_.size(); ++r)
      if (nodes_[to]->value.rep[r] == r)
        add_to(gradient_of(from)[r], times(nodes_[to]->gradient[r], factor));
  });
  return to;
}

} // namespace spmd::soundness
