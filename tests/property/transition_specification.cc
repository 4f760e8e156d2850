// The specification functions of spmd_types (its DESIGN.md, "Comms by API"), one per row, on
// explicit lists of tensors. A partial operand arrives summed. Broadcast, reduce and permute:
// rules/README.md.
#include "tests/property/transition_meaning.h"

#include <functional>
#include <map>
#include <tuple>

namespace spmd::property {
namespace {

using ir::Kind;

struct Call {
  const Form &form;
  size_t ranks;
  const Meaning &x;

  const Tensor &whole() const { return x.pieces[0]; }
  const Ranks &list() const { return x.pieces; }
};

Meaning one(Tensor tensor) { return {false, {std::move(tensor)}}; }
Meaning many(Ranks list) { return {true, std::move(list)}; }

Meaning same(const Call &call) { return call.x; }
Meaning copies(const Call &call) { return many(Ranks(call.ranks, call.whole())); }
Meaning scaled(const Call &call) {
  return one(times(call.whole(), static_cast<int64_t>(call.ranks)));
}
Meaning summed(const Call &call) { return one(sum_of(call.list())); }
Meaning joined(const Call &call) {
  return one(call.form.shard ? concat(call.list(), call.form.dim)
                             : stack(call.list(), call.form.dim));
}
Meaning joined_copies(const Call &call) { return many(Ranks(call.ranks, joined(call).pieces[0])); }
Meaning pieces(const Call &call) {
  return many(call.form.shard ? chunk(call.whole(), call.ranks, call.form.dim)
                              : unbind(call.whole(), call.form.dim));
}

// The mesh axis changes places with a dimension; of shards, one is undone and the other made.
Meaning exchanged(const Call &call) {
  if (call.form.shard)
    return many(chunk(concat(call.list(), call.form.join), call.ranks, call.form.split));
  Ranks transposed = unbind(stack(call.list(), 0), call.form.split + 1);
  for (Tensor &each : transposed)
    each = stack(unbind(each, 0), call.form.join);
  return many(transposed);
}

Meaning of_root(const Call &call) { return one(call.list()[call.form.root]); }
Meaning at_root(const Call &call) {
  Ranks list(call.ranks, zeros(call.whole().shape));
  list[call.form.root] = call.whole();
  return many(list);
}
Meaning permuted(const Call &call) {
  Ranks list(call.ranks, zeros(call.list()[0].shape));
  for (size_t from = 0; from < call.ranks; ++from)
    if (call.form.sends_to[from])
      list[*call.form.sends_to[from]] = call.list()[from];
  return many(list);
}

using Specification = Meaning (*)(const Call &);
using Key = std::tuple<std::string_view, Kind, Kind>;

const std::map<Key, Specification> &specifications() {
  constexpr Kind R = Kind::Replicate, I = Kind::Invariant, V = Kind::Varying, P = Kind::Partial;
  static const std::map<Key, Specification> kSpecifications = {
      {{"all_gather", V, R}, joined},
      {{"all_gather", V, I}, joined},
      {{"all_gather", V, V}, joined_copies},
      {{"all_reduce", P, R}, same},
      {{"all_reduce", P, I}, same},
      {{"reduce_scatter", P, V}, pieces},
      {{"all_to_all", V, V}, exchanged},
      {{"reinterpret", R, I}, same},
      {{"reinterpret", R, V}, copies},
      {{"reinterpret", R, P}, scaled},
      {{"reinterpret", I, R}, same},
      {{"reinterpret", I, V}, copies},
      {{"reinterpret", I, P}, scaled},
      {{"reinterpret", V, P}, summed},
      {{"convert", R, I}, same},
      {{"convert", R, V}, pieces},
      {{"convert", R, P}, same},
      {{"convert", I, R}, same},
      {{"convert", I, V}, pieces},
      {{"convert", I, P}, same},
      {{"convert", V, P}, joined},
      {{"broadcast", V, R}, of_root},
      {{"broadcast", V, I}, of_root},
      {{"reduce", P, V}, at_root},
      {{"reduce", I, V}, at_root},
      {{"collective_permute", V, V}, permuted},
  };
  return kSpecifications;
}

// Reduced is R with an owner for its gradient: the same values.
Kind plain(Kind kind) { return kind == Kind::Reduced ? Kind::Replicate : kind; }

} // namespace

Meaning denote(Kind kind, const Ranks &ranks) {
  switch (ir::info(kind).denotes) {
  case ir::Denotation::Same:
    return one(ranks[0]);
  case ir::Denotation::Sum:
    return one(sum_of(ranks));
  case ir::Denotation::List:
    break;
  }
  return many(ranks);
}

Meaning specify(const rules::Transition &row, const Form &form, size_t ranks, const Meaning &x) {
  auto found = specifications().find({row.name(), plain(row.src), plain(row.dst)});
  if (found == specifications().end())
    return {};
  return found->second({form, ranks, x});
}

} // namespace spmd::property
