// Carries out {collective, local step} of a row on what the ranks hold: the plainest backend there
// could be.
#include "tests/property/transition_meaning.h"

#include <algorithm>
#include <numeric>

namespace spmd::property {
namespace {

using rules::Collective;
using rules::Layouts;
using rules::LocalStep;
using rules::Transition;

Tensor join(const Form &form, const Ranks &pieces, size_t dim) {
  return form.shard ? concat(pieces, dim) : stack(pieces, dim);
}
Ranks cut(const Form &form, const Tensor &whole, size_t ranks, size_t dim) {
  if (form.shard && !form.lengths.empty())
    return split(whole, form.lengths, dim);
  return form.shard ? chunk(whole, ranks, dim) : unbind(whole, dim);
}

Ranks everywhere(const Ranks &x, const Tensor &value) { return Ranks(x.size(), value); }

Ranks exchange(const Form &form, const Ranks &x) {
  Ranks result;
  for (size_t to = 0; to < x.size(); ++to) {
    Ranks received;
    for (const Tensor &from : x)
      received.push_back(cut(form, from, x.size(), form.split)[to]);
    result.push_back(join(form, received, form.join));
  }
  return result;
}

Ranks permute(const Form &form, const Ranks &x) {
  Ranks result = everywhere(x, zeros(x[0].shape));
  for (size_t from = 0; from < x.size(); ++from)
    if (form.sends_to[from])
      result[*form.sends_to[from]] = x[from];
  return result;
}

Ranks communicate(Collective collective, const Form &form, const Ranks &x) {
  switch (collective) {
  case Collective::None:
    return x;
  case Collective::AllReduce:
    return everywhere(x, sum_of(x));
  case Collective::AllGather:
    return everywhere(x, join(form, x, form.dim));
  case Collective::ReduceScatter:
    return cut(form, sum_of(x), x.size(), form.dim);
  case Collective::AllToAll:
    return exchange(form, x);
  case Collective::Broadcast:
    return everywhere(x, x[form.root]);
  case Collective::Permute:
    return permute(form, x);
  }
  return x;
}

Tensor local_step_on(LocalStep local, const Form &form, const Tensor &own, size_t rank,
                     size_t ranks) {
  switch (local) {
  case LocalStep::None:
    return own;
  case LocalStep::TakeOwnSlice:
    return cut(form, own, ranks, form.dim)[rank];
  case LocalStep::KeepOnFirst:
    return rank == 0 ? own : zeros(own.shape);
  case LocalStep::KeepOnRoot:
    return rank == form.root ? own : zeros(own.shape);
  case LocalStep::PlaceOwn: {
    Ranks blocks(ranks, zeros(own.shape));
    blocks[rank] = own;
    return join(form, blocks, form.dim);
  }
  }
  return own;
}

bool is_exchange(const Transition &row) { return row.collective == Collective::AllToAll; }

// The end of the call whose dimension is cut into one piece per rank.
bool cuts(const Transition &row) {
  return row.collective == Collective::ReduceScatter || row.local_step == LocalStep::TakeOwnSlice;
}

std::vector<std::optional<size_t>> random_sends(size_t ranks, bool partial, std::mt19937 &random) {
  std::vector<size_t> to(ranks);
  std::iota(to.begin(), to.end(), size_t(0));
  std::shuffle(to.begin(), to.end(), random);
  std::vector<std::optional<size_t>> sends(to.begin(), to.end());
  if (partial)
    sends[random() % ranks] = std::nullopt;
  return sends;
}

} // namespace

Form inverse(const Form &form) {
  Form result = form;
  std::swap(result.split, result.join);
  result.sends_to.assign(form.sends_to.size(), std::nullopt);
  for (size_t from = 0; from < form.sends_to.size(); ++from)
    if (form.sends_to[from])
      result.sends_to[*form.sends_to[from]] = from;
  return result;
}

Ranks execute(const Transition &row, const Form &form, const Ranks &x, bool average) {
  Ranks result = communicate(row.collective, form, x);
  for (size_t r = 0; r < x.size(); ++r) {
    result[r] = local_step_on(row.local_step, form, result[r], r, x.size());
    if (average)
      result[r] = divided(result[r], static_cast<int64_t>(x.size()));
  }
  return result;
}

Ranks execute_backward(const Transition &row, const Form &form, const Ranks &gradient,
                       bool average) {
  if (const Transition *dual = rules::dual_of(row))
    return execute(*dual, inverse(form), gradient, average);
  auto [first, second] = rules::parts_of(row);
  return execute_backward(*first, form, execute_backward(*second, form, gradient), average);
}

std::vector<Form> forms_of(const Transition &row, size_t ranks, size_t dims, std::mt19937 &random) {
  std::vector<Form> forms;
  if (row.layouts == Layouts::Plain) {
    for (size_t root = 0; root < ranks; ++root) {
      Form form;
      form.root = root;
      form.sends_to = random_sends(ranks, root % 2 == 0, random);
      forms.push_back(form);
    }
    return forms;
  }
  for (bool shard : {false, true}) {
    // A composed row is local: its V ends are stacks.
    if (shard && row.composed)
      continue;
    size_t positions = dims + (!shard && !cuts(row) && !is_exchange(row));
    for (size_t dim = 0; dim < positions; ++dim)
      for (size_t other = 0; other < (is_exchange(row) ? dims : 1); ++other) {
        // Blocks of one dimension that change places are no S(i) any more.
        if (is_exchange(row) && shard && dim == other)
          continue;
        Form form;
        form.shard = shard;
        form.dim = form.split = dim;
        form.join = other;
        forms.push_back(form);
      }
  }
  return forms;
}

std::vector<int> shape_for(const Transition &row, const Form &form, size_t ranks, size_t dims) {
  std::vector<int> shape;
  for (size_t i = 0; i < dims; ++i)
    shape.push_back(static_cast<int>(2 + i));
  size_t dim = is_exchange(row) ? form.split : form.dim;
  if (cuts(row) || is_exchange(row))
    shape[dim] = static_cast<int>(form.shard ? ranks * static_cast<size_t>(shape[dim]) : ranks);
  return shape;
}

std::string print(const Transition &row) {
  std::string text(row.name());
  text.append("(").append(ir::info(row.src).word).append(", ");
  return text.append(ir::info(row.dst).word).append(")");
}

} // namespace spmd::property
