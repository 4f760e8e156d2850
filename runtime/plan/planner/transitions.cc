// Transitions become collectives and local steps. What a collective sends is contiguous, piece by
// piece: where pieces are cut along another dimension than the outermost, packing stands before it,
// and the inverse behind it.
#include "runtime/plan/planner/transitions.h"

#include "rules/redistribute/call.h"

#include "ir/support/arrays.h"
#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

// Whether elements of the dtype can be combined so.
static llvm::Error check_combiner(const std::string &name, ir::Combiner combiner, ir::DType dtype) {
  using ir::Combiner;
  const ir::DTypeClass form = ir::info(dtype).form;
  const bool bits =
      combiner == Combiner::And || combiner == Combiner::Or || combiner == Combiner::Xor;
  const bool order = combiner == Combiner::Max || combiner == Combiner::Min;
  if (form == ir::DTypeClass::Complex && (bits || order))
    return make_error(fmt::format("{}: complex numbers have no {}", name, bits ? "bits" : "order"));
  return llvm::Error::success();
}

using ir::AxisId;
using rules::Collective;
using rules::TransitionMove;
using Form = rules::TransitionMove::Form;

// Every rank gets the pieces of all, joined along a dimension.
llvm::Error TransitionPlanner::gather(MovedOperand &at, const TransitionMove &move) {
  CommunicatorId id = builder_.communicator(at.mesh, move.axes);
  const Groups &group = builder_.groups(id);
  const bool same_extents = pieces_.has_same_extents(at);
  Cut lengths(pieces_.entries(same_extents)), counts(pieces_.entries(same_extents));
  const Buffer operand = plan_.buffers[at.at];
  RankDims joined(pieces_.entries(same_extents)), flat(pieces_.entries(same_extents));
  bool packed = false;
  for (RankId rank : pieces_.looked_at(at, same_extents)) {
    const size_t entry = same_extents ? 0 : rank;
    for (RankId member : group[group.group_of(rank)]) {
      const Dims &dims = operand.on(member);
      lengths.lengths[entry].push_back(move.form == Form::Stack ? 1 : dims[move.dim]);
      counts.lengths[entry].push_back(count(dims));
    }
    int64_t length = total(lengths.lengths[entry]);
    if (llvm::ArrayRef<int64_t> said = stated_joined(at, move, rank);
        !said.empty() && said != ir::as_array(lengths.lengths[entry]))
      return make_error(
          fmt::format("{}: its pieces have other lengths than `splits` says", at.name));
    joined[entry] = joined_dims(operand.on(rank), move, length);
    flat[entry] = {total(counts.lengths[entry])};
    packed |= before(operand.on(rank), move.dim) != 1;
  }
  if (group.size() == 1) {
    if (move.form == Form::Stack)
      at.at = builder_.copy(at.at, std::move(joined));
    return llvm::Error::success();
  }
  Communicate made{Collective::AllGather};
  made.group = id;
  made.operand = at.at;
  made.result = builder_.buffer_like(at.at, packed ? flat : joined);
  made.counts = pieces_.uneven_counts(std::move(counts), at.mesh);
  made.dtype = at.wire_dtype;
  at.at = builder_.communicate(made, at.mesh);
  if (packed)
    pieces_.step(LocalStepForm::Join, at, move, std::move(joined), std::move(lengths), id);
  return llvm::Error::success();
}

// A rank keeps its own piece.
llvm::Error TransitionPlanner::take(MovedOperand &at, const TransitionMove &move) {
  CommunicatorId id = builder_.communicator(at.mesh, move.axes);
  llvm::Expected<Cut> lengths = pieces_.lengths(at, move, id);
  if (!lengths)
    return lengths.takeError();
  if (builder_.groups(id).size() == 1 && move.form == Form::Cut)
    return llvm::Error::success();
  RankDims own = pieces_.own_dims(at, move, *lengths, id);
  pieces_.step(LocalStepForm::TakeOwnSlice, at, move, std::move(own), std::move(*lengths), id);
  return llvm::Error::success();
}

// Sums, of which a rank keeps its own piece.
llvm::Error TransitionPlanner::scatter(MovedOperand &at, const TransitionMove &move) {
  CommunicatorId id = builder_.communicator(at.mesh, move.axes);
  if (builder_.groups(id).size() == 1)
    return take(at, move);
  llvm::Expected<Cut> lengths = pieces_.lengths(at, move, id);
  if (!lengths)
    return lengths.takeError();
  RankDims own = pieces_.own_dims(at, move, *lengths, id);
  const bool same_extents = own.size() == 1;
  Cut counts(pieces_.entries(same_extents));
  for (RankId rank : pieces_.looked_at(at, same_extents))
    for (RankId member : builder_.groups(id)[builder_.groups(id).group_of(rank)])
      counts.lengths[same_extents ? 0 : rank].push_back(count(own[same_extents ? 0 : member]));
  pieces_.pack(at, move, *lengths, id);
  Communicate made{Collective::ReduceScatter, move.combiner};
  made.group = id;
  made.operand = at.at;
  made.result = builder_.buffer_like(at.at, std::move(own));
  made.counts = pieces_.uneven_counts(std::move(counts), at.mesh);
  made.dtype = at.wire_dtype;
  if (llvm::Error error = check_combiner(at.name, move.combiner, plan_.buffers[made.operand].dtype))
    return error;
  at.at = builder_.communicate(made, at.mesh);
  return llvm::Error::success();
}

// The own piece in its place among zeros.
llvm::Error TransitionPlanner::place_own(MovedOperand &at, const TransitionMove &move) {
  CommunicatorId id = builder_.communicator(at.mesh, move.axes);
  const Groups &group = builder_.groups(id);
  const Buffer operand = plan_.buffers[at.at];
  const bool same_extents = pieces_.has_same_extents(at);
  Cut lengths(pieces_.entries(same_extents));
  RankDims dims(pieces_.entries(same_extents));
  for (RankId rank : pieces_.looked_at(at, same_extents)) {
    const size_t entry = same_extents ? 0 : rank;
    for (RankId member : group[group.group_of(rank)])
      lengths.lengths[entry].push_back(move.form == Form::Stack ? 1 : operand.on(member)[move.dim]);
    dims[entry] = joined_dims(operand.on(rank), move, total(lengths.lengths[entry]));
  }
  if (group.size() == 1 && move.form == Form::Join)
    return llvm::Error::success();
  pieces_.step(LocalStepForm::PlaceOwn, at, move, std::move(dims), std::move(lengths), id);
  return llvm::Error::success();
}

// Piece k of rank r goes to rank k, which joins what it gets in the order of the ranks.
llvm::Error TransitionPlanner::exchange(MovedOperand &at, const TransitionMove &one,
                                        const TransitionMove &other) {
  const TransitionMove &cut = joins(one) ? other : one, &join = joins(one) ? one : other;
  CommunicatorId id = builder_.communicator(at.mesh, cut.axes);
  const Groups group = builder_.groups(id);
  llvm::Expected<Cut> lengths = pieces_.lengths(at, cut, id);
  if (!lengths)
    return lengths.takeError();
  const Buffer operand = plan_.buffers[at.at];
  const bool same_extents = lengths->lengths.size() == 1 && all_equal(lengths->lengths[0]);
  Cut counts(pieces_.entries(same_extents)), joined(pieces_.entries(same_extents));
  RankDims dims(pieces_.entries(same_extents)), flat(pieces_.entries(same_extents));
  bool packed = false;
  for (RankId rank : pieces_.looked_at(at, same_extents)) {
    const size_t entry = same_extents ? 0 : rank;
    uint32_t position = group.position(rank);
    int64_t received = 0;
    Dims own;
    for (RankId member : group[group.group_of(rank)]) {
      uint32_t to = group.position(member);
      counts.lengths[entry].push_back(
          count(piece_dims(operand.on(rank), cut, lengths->on(rank)[to])));
      own = piece_dims(operand.on(member), cut, lengths->on(member)[position]);
      joined.lengths[entry].push_back(join.form == Form::Stack ? 1 : own[join.dim]);
      received += count(own);
    }
    if (llvm::ArrayRef<int64_t> said = stated_joined(at, join, rank);
        !said.empty() && said != ir::as_array(joined.lengths[entry]))
      return make_error(
          fmt::format("{}: rank {} gets pieces of other lengths than `out_splits` says", at.name,
                      world_.number(rank)));
    dims[entry] = joined_dims(own, join, total(joined.lengths[entry]));
    if (count(dims[entry]) != received)
      return make_error(fmt::format("{}: the pieces that rank {} gets do not fit together", at.name,
                                    world_.number(rank)));
    flat[entry] = {received};
    packed |= before(dims[entry], join.dim) != 1;
  }
  if (group.size() == 1) {
    at.at = builder_.copy(at.at, std::move(dims));
    return llvm::Error::success();
  }
  pieces_.pack(at, cut, *lengths, id);
  Communicate made{Collective::AllToAll};
  made.group = id;
  made.operand = at.at;
  made.result = builder_.buffer_like(at.at, packed ? flat : dims);
  made.counts = pieces_.uneven_counts(std::move(counts), at.mesh);
  made.dtype = at.wire_dtype;
  at.at = builder_.communicate(made, at.mesh);
  if (packed)
    pieces_.step(LocalStepForm::Join, at, join, std::move(dims), std::move(joined), id);
  return llvm::Error::success();
}

llvm::Error TransitionPlanner::permute_pairs(PlanSite &site, const TransitionMove &move,
                                             size_t size, Communicate &made) {
  if (!move.sources.empty()) {
    made.perm.first = static_cast<uint32_t>(plan_.numbers.size());
    for (size_t to = 0; to < size; ++to)
      plan_.numbers.insert(plan_.numbers.end(), {move.sources[to], static_cast<int64_t>(to)});
    made.perm.count = static_cast<uint32_t>(plan_.numbers.size()) - made.perm.first;
    return llvm::Error::success();
  }
  const ir::AttrValue *perm = program_.find(site.inst.attrs, "perm");
  if (!perm || perm->form != ir::AttrForm::List)
    return make_error("`perm` is no list of pairs");
  made.perm.first = static_cast<uint32_t>(plan_.numbers.size());
  std::vector<bool> taken(size, false);
  for (const ir::AttrValue &item : program_.lists[perm->as<ir::AttrListId>()].items) {
    if (item.form != ir::AttrForm::List)
      return make_error("`perm` is no list of pairs");
    const ir::AttrList &pair = program_.lists[item.as<ir::AttrListId>()];
    if (pair.items.size() != 2)
      return make_error("`perm` is no list of pairs");
    for (const ir::AttrValue &each : pair.items) {
      if (each.form != ir::AttrForm::Integer || each.as_integer() < 0 ||
          each.as_integer() >= static_cast<int64_t>(size))
        return make_error(fmt::format("`perm` names none of the {} ranks of a group", size));
      plan_.numbers.push_back(each.as_integer());
    }
    size_t to = static_cast<size_t>(plan_.numbers.back());
    if (taken[to])
      return make_error(fmt::format("`perm` sends twice to {}", to));
    taken[to] = true;
  }
  made.perm.count = static_cast<uint32_t>(plan_.numbers.size()) - made.perm.first;
  return llvm::Error::success();
}

// A collective and a local step that change no extents.
llvm::Error TransitionPlanner::keep(PlanSite &site, MovedOperand &at, const TransitionMove &move,
                                    llvm::ArrayRef<AxisId> axes) {
  const rules::Transition &row = *move.row;
  CommunicatorId id = builder_.communicator(at.mesh, axes);
  size_t size = builder_.groups(id).size();
  bool alone = size == 1 && row.collective != Collective::Permute;
  if (row.collective != Collective::None && !alone) {
    Communicate made{row.collective, move.combiner};
    made.group = id;
    made.operand = at.at;
    made.result = builder_.buffer_like(at.at, builder_.dims_of_buffer(at.at));
    made.dtype = at.wire_dtype;
    if (row.collective == Collective::AllReduce)
      if (llvm::Error error = check_combiner(at.name, move.combiner, plan_.buffers[at.at].dtype))
        return error;
    if (row.collective == Collective::Permute)
      if (llvm::Error error = permute_pairs(site, move, size, made))
        return error;
    if (row.collective == Collective::Broadcast) {
      llvm::Expected<uint32_t> root = root_of(site, size);
      if (!root)
        return root.takeError();
      made.root = *root;
    }
    const Buffer &operand = plan_.buffers[at.at];
    for (RankId rank : pieces_.looked_at(at, operand.dims.size() == 1))
      for (RankId member : builder_.groups(id)[builder_.groups(id).group_of(rank)])
        if (operand.on(member) != operand.on(rank))
          return make_error(fmt::format("{}: ranks {} and {} hold tensors of different extents",
                                        at.name, world_.number(rank), world_.number(member)));
    at.at = builder_.communicate(made, at.mesh);
  }
  bool first = row.local_step == rules::LocalStep::KeepOnFirst,
       root = row.local_step == rules::LocalStep::KeepOnRoot;
  if ((!first && !root) || alone)
    return llvm::Error::success();
  LocalStep made{LocalStepForm::KeepOnRoot};
  if (root) {
    llvm::Expected<uint32_t> position = root_of(site, size);
    if (!position)
      return position.takeError();
    made.root = *position;
  }
  made.operands = builder_.uses_of(at.at);
  made.result = builder_.buffer_like(at.at, builder_.dims_of_buffer(at.at));
  made.group = id;
  at.at = made.result;
  builder_.local_step(std::move(made), at.mesh);
  return llvm::Error::success();
}

// Axes that differ in their words alone, R on one and I on the other, are one call.
static bool same_move(const TransitionMove &a, const TransitionMove &b) {
  return a.form == Form::Keep && b.form == Form::Keep && a.row->collective == b.row->collective &&
         a.row->local_step == b.row->local_step && a.combiner == b.combiner;
}

std::vector<TensorSizes::Lengths>
TransitionPlanner::sizes_by(PlanSite &site, std::initializer_list<llvm::StringRef> names) {
  for (const rules::Slot &slot : site.operands.slots) {
    if (!slot.name.valid() || slot.count == 0 ||
        !llvm::is_contained(names, program_.strings[slot.name]))
      continue;
    const PlannedId says = site.values[slot.first];
    const PlannedValue &value = plan_.values[says];
    const auto *known =
        options_.sizes ? options_.sizes->find(value.value, plan_.calls[value.call].path) : nullptr;
    if (known) {
      std::vector<TensorSizes::Lengths> by_rank(world_.size());
      llvm::ArrayRef<RankId> ranks = world_.ranks(plan_.buffers[value.buffer].mesh);
      for (size_t i = 0; i < ranks.size(); ++i)
        by_rank[ranks[i]] = (*known)[i];
      return by_rank;
    }
    if (!llvm::is_contained(plan_.unknown_sizes, says))
      plan_.unknown_sizes.push_back(says);
  }
  return {};
}

llvm::Expected<BufferId> TransitionPlanner::moved(PlanSite &site, BufferId from,
                                                  llvm::ArrayRef<TransitionMove> moves,
                                                  unsigned result) {
  std::string name = result < site.inst.result_count
                         ? values_.who(site.frame, site.inst.result(result))
                         : std::string("the result");
  MovedOperand at{from, site.mesh(program_), std::move(name), wire_dtype(site, from), {}, {}};
  at.sent = sizes_by(site, {"in_splits", "splits"});
  at.joined = sizes_by(site, {"out_splits", "splits"});
  if (!plan_.unknown_sizes.empty()) {
    std::string text =
        fmt::format("{} has as many elements as {} says, which is known once it runs", at.name,
                    values_.who(site.frame, plan_.values[plan_.unknown_sizes[0]].value));
    if (options_.sizes && !builder_.is_nested())
      return make_error(text);
    plan_.unknown_sizes.clear();
    return make_error(text + (builder_.is_nested()
                                  ? ", and a loop or a branch may say otherwise each time"
                                  : ""));
  }
  bool one_step = llvm::all_of(moves, [&](const auto &each) { return each.step == moves[0].step; });
  for (size_t i = 0; i < moves.size(); ++i) {
    const TransitionMove &move = moves[i];
    bool exchanges = move.row->collective == Collective::AllToAll;
    llvm::Error error = llvm::Error::success();
    if (move.form == Form::Keep) {
      llvm::SmallVector<AxisId, 4> axes(move.axes.begin(), move.axes.end());
      while (i + 1 < moves.size() && same_move(move, moves[i + 1]))
        axes.append(moves[i + 1].axes.begin(), moves[i + 1].axes.end()), ++i;
      error = keep(site, at, move, axes);
    } else if (exchanges && one_step && moves.size() == 2) {
      error = exchange(at, moves[0], moves[1]);
      i = 1;
    } else if (joins(move)) {
      error = move.row->local_step == rules::LocalStep::PlaceOwn ? place_own(at, move)
                                                                 : gather(at, move);
    } else {
      error =
          move.row->collective == Collective::ReduceScatter ? scatter(at, move) : take(at, move);
    }
    if (error)
      return error;
  }
  return at.at;
}

ir::DType TransitionPlanner::wire_dtype(const PlanSite &site, BufferId from) const {
  const ir::AttrValue *attr = program_.find(site.inst.attrs, "op_dtype");
  ir::DType stated = ir::DType::Unknown;
  if (attr && attr->form == ir::AttrForm::String)
    stated = ir::parse_dtype(std::string_view(program_.strings[attr->as<ir::StringId>()]));
  return stated == ir::DType::Unknown ? plan_.buffers[from].dtype : stated;
}

llvm::Error TransitionPlanner::plan(PlanSite &site) {
  rules::Application app = site.application(program_);
  // Redistributions to whole types are lowered to steps before, where both ends are known.
  if (rules::redistribute::states_whole_type(app))
    return make_error("no steps are known: the kind of the operand on some axis is unknown, or a "
                      "whole tensor is larger than any plan");
  llvm::SmallVector<rules::TransitionMoves, 1> moves = rules::transition_moves(app);
  llvm::SmallVector<uint32_t, 2> operands = rules::operands_of(app);
  if (moves.empty() || moves.size() != operands.size())
    return make_error("the call does not say along which axes it runs");
  llvm::SmallVector<AxisId, 4> axes;
  if (site.op.transition == rules::TransitionOp::Reorder) {
    llvm::Expected<llvm::SmallVector<AxisId, 4>> named = call_axes(app);
    if (!named)
      return named.takeError();
    axes = *named;
  }
  for (unsigned i = 0; i < operands.size(); ++i) {
    llvm::Expected<BufferId> made =
        !axes.empty() && i < site.inst.result_count
            ? reordered(site, operands[i], i, axes)
            : moved(site, plan_.values[site.values[operands[i]]].buffer, moves[i], i);
    if (!made)
      return made.takeError();
    if (i >= site.inst.result_count)
      continue;
    // `out_dtype`
    ir::DType dtype = builder_.dtype_of(checked_.known(site.inst.result(i), site.frame.typing));
    if (dtype != ir::DType::Unknown && dtype != plan_.buffers[*made].dtype) {
      BufferId cast =
          builder_.buffer(dtype, plan_.buffers[*made].mesh, builder_.dims_of_buffer(*made));
      builder_.copy_into(*made, cast);
      *made = cast;
    }
    if (llvm::Error error = values_.define_result(site, i, *made))
      return error;
  }
  return llvm::Error::success();
}

} // namespace spmd::runtime
