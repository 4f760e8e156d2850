// The pieces that collectives send: how long each is, as stated, as tensors say, or as blocks lie;
// and their packing where they are not contiguous.
#include "runtime/plan/planner/pieces.h"

#include "ir/support/arrays.h"
#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace spmd::runtime {

using rules::TransitionMove;
using Form = rules::TransitionMove::Form;

int64_t before(const Dims &dims, size_t dim) { return count(ir::as_array(dims).take_front(dim)); }

int64_t total(llvm::ArrayRef<int64_t> lengths) {
  int64_t sum = 0;
  for (int64_t length : lengths)
    sum += length;
  return sum;
}

bool all_equal(llvm::ArrayRef<int64_t> lengths) {
  return std::adjacent_find(lengths.begin(), lengths.end(), std::not_equal_to<>()) == lengths.end();
}

Dims piece_dims(Dims dims, const TransitionMove &move, int64_t length) {
  if (move.form == Form::Unbind)
    dims.erase(dims.begin() + static_cast<ptrdiff_t>(move.dim));
  else
    dims[move.dim] = length;
  return dims;
}

Dims joined_dims(Dims dims, const TransitionMove &move, int64_t length) {
  if (move.form == Form::Stack)
    dims.insert(dims.begin() + static_cast<ptrdiff_t>(move.dim), length);
  else
    dims[move.dim] = length;
  return dims;
}

bool joins(const TransitionMove &move) {
  return move.form == Form::Stack || move.form == Form::Join;
}

llvm::ArrayRef<int64_t> stated_joined(const MovedOperand &at, const TransitionMove &move,
                                      RankId rank) {
  return at.joined.empty() ? llvm::ArrayRef<int64_t>(move.lengths)
                           : llvm::ArrayRef<int64_t>(at.joined[rank]);
}

CutId PiecePlanner::add_cut(Cut cut, ir::MeshId mesh) {
  llvm::ArrayRef<RankId> ranks = world_.ranks(mesh);
  if (cut.lengths.size() > 1 &&
      llvm::all_of(ranks, [&](RankId rank) { return cut.lengths[rank] == cut.lengths[ranks[0]]; }))
    cut.lengths = {llvm::SmallVector<int64_t, 8>(cut.lengths[ranks[0]])};
  return plan_.cuts.add(std::move(cut));
}

llvm::Expected<Cut> PiecePlanner::lengths(MovedOperand &at, const TransitionMove &move,
                                          CommunicatorId id) {
  const Groups &group = builder_.groups(id);
  int64_t n = static_cast<int64_t>(group.size());
  const bool same_extents = has_same_extents(at) && !(move.after && move.after->uneven);
  Cut cut(entries(same_extents));
  for (RankId rank : looked_at(at, same_extents)) {
    int64_t extent = plan_.buffers[at.at].on(rank)[move.dim];
    llvm::SmallVector<int64_t, 8> &lengths = cut.lengths[same_extents ? 0 : rank];
    if (move.form == Form::Unbind)
      lengths.assign(static_cast<size_t>(n), 1);
    else if (!move.lengths.empty())
      lengths.assign(move.lengths.begin(), move.lengths.end());
    else if (!at.sent.empty())
      lengths = at.sent[rank];
    else if (move.after && move.after->uneven) {
      for (RankId member : group[group.group_of(rank)]) {
        llvm::Expected<int64_t> length = block_length(*move.after, at.mesh, member);
        if (!length)
          return length.takeError();
        lengths.push_back(*length);
      }
    } else if (extent % n == 0)
      lengths.assign(static_cast<size_t>(n), extent / n);
    bool negative = llvm::any_of(lengths, [](int64_t length) { return length < 0; });
    if (static_cast<int64_t>(lengths.size()) != n || negative || total(lengths) != extent)
      return make_error(fmt::format("{}: dimension {} of its operand has {} elements on rank {}, "
                                    "which {} ranks cannot share {}",
                                    at.name, move.dim, extent, world_.number(rank), n,
                                    lengths.empty()
                                        ? std::string("evenly")
                                        : fmt::format("as [{}]", fmt::join(lengths, ", "))));
  }
  return cut;
}

llvm::Expected<int64_t> PiecePlanner::block_length(const rules::BlockDim &dim, ir::MeshId mesh,
                                                   RankId rank) const {
  llvm::SmallVector<int64_t, 8> lengths =
      block_lengths(program_, *dim.uneven, world_.count(mesh, dim.axes));
  if (lengths.empty())
    return make_error("the sizes of shards are not known");
  return lengths[static_cast<size_t>(world_.index(mesh, dim.axes, rank))];
}

void PiecePlanner::step(LocalStepForm form, MovedOperand &at, const TransitionMove &move,
                        RankDims dims, Cut lengths, CommunicatorId group) {
  LocalStep made{form};
  made.operands = builder_.uses_of(at.at);
  made.result = builder_.buffer_like(at.at, std::move(dims));
  made.group = group;
  made.cut = add_cut(std::move(lengths), at.mesh);
  made.dim = static_cast<uint32_t>(move.dim);
  at.at = made.result;
  builder_.local_step(std::move(made), at.mesh);
}

void PiecePlanner::pack(MovedOperand &at, const TransitionMove &move, const Cut &lengths,
                        CommunicatorId group) {
  const Buffer operand = plan_.buffers[at.at];
  bool contiguous = llvm::all_of(
      world_.ranks(at.mesh), [&](RankId rank) { return before(operand.on(rank), move.dim) == 1; });
  if (contiguous)
    return;
  const bool same_extents = operand.dims.size() == 1;
  RankDims flat(entries(same_extents));
  for (RankId rank : looked_at(at, same_extents))
    flat[same_extents ? 0 : rank] = {count(operand.on(rank))};
  step(LocalStepForm::Split, at, move, std::move(flat), lengths, group);
}

CutId PiecePlanner::uneven_counts(Cut counts, ir::MeshId mesh) {
  llvm::ArrayRef<RankId> ranks = world_.ranks(mesh);
  int64_t one = counts.on(ranks[0]).front();
  bool even =
      llvm::all_of(counts.lengths.size() == 1 ? ranks.take_front() : ranks, [&](RankId rank) {
        return llvm::all_of(counts.on(rank), [&](int64_t each) { return each == one; });
      });
  return even ? CutId() : add_cut(std::move(counts), mesh);
}

RankDims PiecePlanner::own_dims(const MovedOperand &at, const TransitionMove &move,
                                const Cut &lengths, CommunicatorId id) {
  const Buffer &operand = plan_.buffers[at.at];
  const bool same_extents =
      operand.dims.size() == 1 && lengths.lengths.size() == 1 && all_equal(lengths.lengths[0]);
  RankDims dims(entries(same_extents));
  for (RankId rank : looked_at(at, same_extents))
    dims[same_extents ? 0 : rank] =
        piece_dims(operand.on(rank), move, lengths.on(rank)[builder_.groups(id).position(rank)]);
  return dims;
}

} // namespace spmd::runtime
