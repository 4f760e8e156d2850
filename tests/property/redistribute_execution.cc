// One axis at a time, the innermost first where blocks are joined: nested blocks need no more.
#include "tests/property/redistribute_execution.h"

#include "rules/transitions/call.h"

#include "ir/claims.h"

#include <algorithm>
#include <map>

namespace spmd::property {

using ir::AxisId;
using ir::Kind;
using ir::WrittenKind;
using rules::redistribute::Step;

RankGrid::RankGrid(const ir::Program &program, ir::MeshId mesh)
    : program_(program), mesh_(program.meshes[mesh]) {
  for (AxisId axis : mesh_.typed_axes()) {
    strides_[axis.index] = ranks_;
    ranks_ *= static_cast<size_t>(mesh_[axis].size());
  }
}

std::vector<size_t> RankGrid::group(size_t rank, llvm::ArrayRef<AxisId> axes) const {
  for (AxisId axis : axes)
    rank -= at(rank, axis) * strides_[axis.index];
  std::vector<size_t> ranks = {rank};
  for (AxisId axis : axes) {
    std::vector<size_t> more;
    for (size_t first : ranks)
      for (size_t i = 0; i < static_cast<size_t>(mesh_[axis].size()); ++i)
        more.push_back(first + i * strides_[axis.index]);
    ranks = std::move(more);
  }
  return ranks;
}

size_t RankGrid::place(size_t rank, llvm::ArrayRef<AxisId> axes) const {
  std::vector<size_t> ranks = group(rank, axes);
  return static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

Tensor RankGrid::cut(const Tensor &tensor, size_t dim, AxisId axis, size_t rank) const {
  int size = static_cast<int>(mesh_[axis].size());
  int left = tensor.shape[dim], piece = (left + size - 1) / size;
  std::vector<int> lengths;
  for (int i = 0; i < size; ++i) {
    lengths.push_back(std::min(left, piece));
    left -= lengths.back();
  }
  return split(tensor, lengths, dim)[at(rank, axis)];
}

Tensor RankGrid::block(const Tensor &whole, const ir::Type &type, size_t rank) const {
  Tensor block = whole;
  for (unsigned dim = 0; dim < whole.shape.size(); ++dim)
    for (AxisId axis : ir::shards_of(type, dim))
      block = cut(block, dim, axis, rank);
  return block;
}

namespace {

llvm::SmallVector<AxisId, 4> listed(ir::AxisSet set) {
  llvm::SmallVector<AxisId, 4> axes;
  for (AxisId axis : set)
    axes.push_back(axis);
  return axes;
}

} // namespace

std::pair<Ranks, Tensor> RankGrid::random(const ir::Type &type, const std::vector<int> &whole,
                                          std::mt19937 &random) const {
  llvm::SmallVector<AxisId, 4> summed = listed(type.of(Kind::Partial));
  std::vector<Tensor> terms;
  for (size_t i = 0; i < group(0, summed).size(); ++i)
    terms.push_back(random_tensor(whole, random));
  Ranks data;
  for (size_t rank = 0; rank < ranks_; ++rank)
    data.push_back(block(terms[place(rank, summed)], type, rank));
  return {std::move(data), sum_of(terms)};
}

bool RankGrid::denotes(const ir::Type &type, const Ranks &data, const Tensor &whole) const {
  llvm::SmallVector<AxisId, 4> summed = listed(type.of(Kind::Partial));
  for (size_t rank = 0; rank < ranks_; ++rank) {
    Ranks addends;
    for (size_t member : group(rank, summed))
      addends.push_back(data[member]);
    if (sum_of(addends) != block(whole, type, rank))
      return false;
    // Copies are equal, addends among them.
    for (AxisId axis : listed(type.replicated() | type.of(Kind::Invariant)))
      for (size_t member : group(rank, axis))
        if (data[member] != data[rank])
          return false;
  }
  return true;
}

int64_t RankGrid::pairing(const ir::Type &type, const Ranks &x, const Ranks &g) const {
  int64_t sum = 0;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    bool counts = true; // the ranks of an invariant axis are one consumer
    for (AxisId axis : type.of(Kind::Invariant))
      counts &= at(rank, axis) == 0;
    if (counts)
      sum += dot(x[rank], g[rank]);
  }
  return sum;
}

Ranks RankGrid::joined(const Ranks &data, size_t dim, AxisId axis) const {
  Ranks result;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    Ranks pieces;
    for (size_t member : group(rank, axis))
      pieces.push_back(data[member]);
    result.push_back(concat(pieces, dim));
  }
  return result;
}

Ranks RankGrid::run(const Step &step, const Ranks &data) const {
  auto is_shard = [](const WrittenKind &word) { return word.form == WrittenKind::Form::Shard; };
  Ranks now = data;
  if (step.op == rules::TransitionOp::Reorder) {
    llvm::SmallVector<llvm::SmallVector<AxisId, 2>, 6> before, after;
    for (unsigned dim = 0; dim < data[0].rank(); ++dim) {
      before.push_back(ir::shards_of(program_.types[step.before], dim));
      after.push_back(ir::shards_of(program_.types[step.after], dim));
    }
    auto sources = rules::reorder_sources(mesh_, step.axes, before, after);
    for (size_t rank = 0; rank < ranks_; ++rank)
      now[rank] =
          data[group(rank, step.axes)[static_cast<size_t>(sources[place(rank, step.axes)])]];
    return now;
  }
  if (step.op == rules::TransitionOp::AllReduce || step.op == rules::TransitionOp::ReduceScatter)
    for (size_t rank = 0; rank < ranks_; ++rank) {
      Ranks addends;
      for (size_t member : group(rank, step.axes))
        addends.push_back(data[member]);
      now[rank] = sum_of(addends);
    }
  for (size_t i = step.axes.size(); i-- > 0;) {
    AxisId axis = step.axes[i];
    size_t dim = static_cast<size_t>(step.src[i].dim);
    if (!is_shard(step.src[i]))
      continue;
    if (step.op != rules::TransitionOp::Convert) { // all_gather, all_to_all
      now = joined(now, dim, axis);
      continue;
    }
    Ranks filled;
    for (size_t rank = 0; rank < ranks_; ++rank) {
      Ranks pieces;
      for (size_t member : group(rank, axis))
        pieces.push_back(member == rank ? now[rank] : zeros(now[member].shape));
      filled.push_back(concat(pieces, dim));
    }
    now = std::move(filled);
  }
  for (size_t i = 0; i < step.axes.size(); ++i)
    for (size_t rank = 0; rank < ranks_; ++rank) {
      bool kept = step.op == rules::TransitionOp::Convert && step.dst[i].kind == Kind::Partial &&
                  !is_shard(step.src[i]) && step.src[i].kind != Kind::Partial;
      if (is_shard(step.dst[i]))
        now[rank] = cut(now[rank], static_cast<size_t>(step.dst[i].dim), step.axes[i], rank);
      else if (kept && at(rank, step.axes[i]) != 0)
        now[rank] = zeros(now[rank].shape);
    }
  return now;
}

} // namespace spmd::property
