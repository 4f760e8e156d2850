// What ranks do in a call, read off the row: communicate by its collective, then do its local step.
// Backward is the dual row, carried out in the same way.
#include "tests/soundness/call.h"

#include "rules/transitions/transition.h"

#include <fmt/format.h>

namespace spmd::soundness {

using rules::Collective;
using rules::LocalStep;
using rules::Transition;

namespace {

// How V looks at both ends, and where pieces are cut or joined.
struct Ends {
  bool shard = false;    // S(i): blocks of a dimension; else a stack on a new one
  bool in_place = false; // an exchange of blocks of one dimension
  size_t dim = 0, split = 0, join = 0;
  Dims cut_lengths, join_lengths;      // of pieces that are cut off, of those that are joined
  llvm::SmallVector<int64_t, 2> sizes; // of the axes, outermost first
  size_t root = 0;
  llvm::SmallVector<std::pair<size_t, size_t>, 4> sends;
};

Array join(const Ends &ends, const Arrays &pieces, size_t dim) {
  return ends.shard ? concat(pieces, dim) : stack(pieces, dim);
}
// Equal blocks; of what cannot be cut so each axis, outermost first, cuts what the outer ones left:
// the first blocks are full, the last ones short or empty.
Dims lengths_of(const Dims &stated, int64_t extent, llvm::ArrayRef<int64_t> sizes) {
  if (!stated.empty())
    return stated;
  Dims lengths = {extent};
  for (int64_t n : sizes) {
    Dims outer = std::exchange(lengths, {});
    for (int64_t length : outer)
      for (int64_t left = length, i = 0; i < n; ++i, left -= lengths.back())
        lengths.push_back(std::min(left, (length + n - 1) / n));
  }
  return lengths;
}
Arrays cut(const Ends &ends, const Array &whole, size_t pieces, size_t dim) {
  int64_t extent = dim < whole.dims.size() ? whole.dims[dim] : 0;
  Arrays made = ends.shard ? split(whole, lengths_of(ends.cut_lengths, extent, ends.sizes), dim)
                           : unbind(whole, dim);
  if (made.size() != pieces)
    note_misfit("another number of pieces than ranks");
  made.resize(pieces, whole);
  return made;
}

Array sum(const Arrays &all) {
  Array total = all[0];
  for (size_t i = 1; i < all.size(); ++i)
    add_to(total, all[i]);
  return total;
}

Arrays communicate(Collective collective, const Ends &ends, const Arrays &x) {
  size_t n = x.size();
  switch (collective) {
  case Collective::None:
    return x;
  case Collective::AllReduce:
    return Arrays(n, sum(x));
  case Collective::AllGather:
    return Arrays(n, join(ends, x, ends.dim));
  case Collective::ReduceScatter:
    return cut(ends, sum(x), n, ends.dim);
  case Collective::Broadcast:
    return Arrays(n, x[ends.root]);
  case Collective::Permute: {
    Arrays result(n, Array::zeros(x[0].dims));
    for (auto [from, to] : ends.sends)
      if (from < n && to < n)
        result[to] = x[from];
    return result;
  }
  case Collective::AllToAll: {
    std::vector<Arrays> sent;
    for (const Array &from : x)
      sent.push_back(cut(ends, from, n, ends.split));
    Arrays result;
    for (size_t to = 0; to < n; ++to) {
      Arrays received;
      for (size_t from = 0; from < n; ++from)
        received.push_back(sent[from][to]);
      result.push_back(join(ends, received, ends.join));
    }
    return result;
  }
  }
  return x;
}

Array local_step_on(LocalStep local, const Ends &ends, const Array &own, size_t rank,
                    size_t ranks) {
  switch (local) {
  case LocalStep::None:
    return own;
  case LocalStep::TakeOwnSlice:
    return cut(ends, own, ranks, ends.dim)[rank];
  case LocalStep::KeepOnFirst:
    return rank == 0 ? own : Array::zeros(own.dims);
  case LocalStep::KeepOnRoot:
    return rank == ends.root ? own : Array::zeros(own.dims);
  case LocalStep::PlaceOwn: {
    Arrays blocks;
    for (size_t r = 0; r < ranks; ++r) {
      Dims dims = own.dims;
      if (ends.shard && ends.dim >= dims.size())
        note_misfit("no such dimension to place blocks along");
      else if (ends.shard && !ends.join_lengths.empty())
        dims[ends.dim] = ends.join_lengths[r];
      blocks.push_back(r == rank ? own : Array::zeros(dims));
    }
    return join(ends, blocks, ends.dim);
  }
  }
  return own;
}

Arrays execute(const Transition &row, const Ends &ends, const Arrays &x, bool average) {
  Arrays result = communicate(row.collective, ends, x);
  Residue share = average ? Residue(static_cast<int64_t>(x.size())).inverse() : Residue(1);
  for (size_t r = 0; r < x.size(); ++r)
    result[r] = times(local_step_on(row.local_step, ends, result[r], r, x.size()), share);
  return result;
}

Arrays execute_backward(const Transition &row, const Ends &ends, const Arrays &gradient,
                        bool average) {
  if (const Transition *dual = rules::dual_of(row))
    return execute(*dual, ends, gradient, average);
  auto parts = rules::parts_of(row);
  return execute_backward(*parts.first, ends,
                          execute_backward(*parts.second, ends, gradient, false), average);
}
// A composed row goes by way of R.
Arrays execute_forward(const Transition &row, const Ends &ends, const Arrays &x, bool average) {
  if (!row.composed)
    return execute(row, ends, x, average);
  auto parts = rules::parts_of(row);
  return execute_forward(*parts.second, ends, execute_forward(*parts.first, ends, x, average),
                         false);
}

size_t dim_of(const ir::WrittenKind &word, size_t rank) {
  return static_cast<size_t>(word.dim < 0 ? word.dim + static_cast<int>(rank) : word.dim);
}
Dims extents_along(const Arrays &all, size_t dim) {
  Dims lengths;
  for (const Array &each : all)
    lengths.push_back(dim < each.dims.size() ? each.dims[dim] : 0);
  return lengths;
}

Ends ends_of(const Call &call, const Step &step, const Arrays &held) {
  using Form = ir::WrittenKind::Form;
  Ends ends;
  size_t rank = held[0].dims.size();
  bool from = step.src.form == Form::Shard, to = step.dst.form == Form::Shard;
  ends.shard = from || to;
  ends.in_place = from && to && dim_of(step.src, rank) == dim_of(step.dst, rank);
  ends.dim = from ? dim_of(step.src, rank) : to ? dim_of(step.dst, rank) : call.dim;
  ends.split = to ? dim_of(step.dst, rank) : call.split_dim;
  ends.join = from ? dim_of(step.src, rank) : call.concat_dim;
  ends.cut_lengths = from && to ? call.in_splits : call.splits;
  if (from && to && call.in_splits.empty())
    ends.cut_lengths = call.splits;
  if (from)
    ends.join_lengths = extents_along(held, ends.join = dim_of(step.src, rank));
  ends.sizes = step.sizes;
  ends.root = call.root < held.size() ? call.root : 0;
  ends.sends = call.sends;
  return ends;
}

// The same call read backwards: what was joined is cut into what it was made of.
Ends inverse(const Ends &ends, const Arrays &held) {
  Ends back = ends;
  std::swap(back.split, back.join);
  // Blocks of one dimension that change places are equal.
  back.cut_lengths = ends.in_place ? Dims() : ends.join_lengths;
  back.join_lengths.clear();
  if (ends.shard && back.cut_lengths.empty() && ends.dim < held[0].dims.size())
    back.join_lengths = lengths_of(ends.cut_lengths, held[0].dims[ends.dim], ends.sizes);
  for (auto &send : back.sends)
    std::swap(send.first, send.second);
  return back;
}

const Transition *row_of(std::string_view name, ir::Kind src, ir::Kind dst) {
  return rules::find_transition(rules::find_transition_op(name), src, dst);
}

} // namespace

std::optional<RankStep> RankStep::make(const Call &call, const Step &step, std::string &why) {
  RankStep made;
  made.call_ = &call;
  made.step_ = &step;
  made.name_ = call.name;
  using Form = ir::WrittenKind::Form;
  auto kind = [](const ir::WrittenKind &word) {
    return word.form == Form::Shard ? ir::Kind::Varying : word.kind;
  };
  made.src_ = kind(step.src);
  made.dst_ = kind(step.dst);
  // Whose gradient's sum has an owner is no matter to data.
  auto whole = [](ir::Kind kind) {
    return kind == ir::Kind::Replicate || kind == ir::Kind::Reduced;
  };
  bool same = made.src_ == made.dst_ || (whole(made.src_) && whole(made.dst_));
  if (!row_of(made.name_, made.src_, made.dst_) && !same)
    return why = fmt::format("no transition {} from {} to {}", made.name_, ir::info(made.src_).word,
                             ir::info(made.dst_).word),
           std::nullopt;
  return made;
}

Arrays RankStep::forward(const Arrays &held) const {
  const Transition *row = row_of(name_, src_, dst_);
  return row ? execute_forward(*row, ends_of(*call_, *step_, held), held, call_->average) : held;
}

Arrays RankStep::backward(const Arrays &gradients, const Arrays &held) const {
  const Transition *row = row_of(name_, src_, dst_);
  if (!row)
    return gradients;
  Ends ends = ends_of(*call_, *step_, held);
  return execute_backward(*row, inverse(ends, held), gradients, call_->average);
}

} // namespace spmd::soundness
