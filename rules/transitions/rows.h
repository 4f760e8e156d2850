// The rows of the table of transitions, and what must hold of them. A row is read by the judgment
// of kinds, by shapes, by the backward and by every backend; included by the files that look rows
// up.
#pragma once

#include "rules/transitions/transition.h"

#include <algorithm>

namespace spmd::rules::rows {

inline constexpr ir::Kind R = ir::Kind::Replicate, Reduced = ir::Kind::Reduced,
                          I = ir::Kind::Invariant, V = ir::Kind::Varying, P = ir::Kind::Partial;
using Op = TransitionOp;
inline constexpr Layouts kBoth = Layouts::StackOrShard;

// clang-format off
inline constexpr Transition kTransitions[] = {
    {.op = Op::AllGather, .src = V, .dst = R, .collective = Collective::AllGather, .layouts = kBoth,
     .dual = {Op::ReduceScatter, P, V},
     .unstated = true, .redistributes = true, .fixes = true},
    {.op = Op::AllGather, .src = V, .dst = Reduced, .collective = Collective::AllGather,
     .layouts = kBoth,
     .dual = {Op::ReduceScatter, P, V},
     .redistributes = true},
    {.op = Op::AllGather, .src = V, .dst = I, .collective = Collective::AllGather, .layouts = kBoth,
     .dual = {Op::Convert, I, V},
     .redistributes = true, .fixes = true},
    {.op = Op::AllGather, .src = V, .dst = V, .collective = Collective::AllGather, .layouts = kBoth,
     .composed = true},

    {.op = Op::AllReduce, .src = P, .dst = R, .collective = Collective::AllReduce,
     .dual = {Op::AllReduce, P, R},
     .unstated = true, .redistributes = true, .fixes = true},
    {.op = Op::AllReduce, .src = P, .dst = Reduced, .collective = Collective::AllReduce,
     .dual = {Op::AllReduce, P, R},
     .redistributes = true},
    {.op = Op::AllReduce, .src = P, .dst = I, .collective = Collective::AllReduce,
     .dual = {Op::Reinterpret, I, R},
     .redistributes = true, .fixes = true},

    {.op = Op::ReduceScatter, .src = P, .dst = V, .collective = Collective::ReduceScatter,
     .layouts = kBoth,
     .dual = {Op::AllGather, V, R},
     .unstated = true, .redistributes = true, .fixes = true},

    {.op = Op::AllToAll, .src = V, .dst = V, .collective = Collective::AllToAll, .layouts = kBoth,
     .dual = {Op::AllToAll, V, V},
     .unstated = true, .redistributes = true},

    {.op = Op::Reinterpret, .src = R, .dst = I, .dual = {Op::Convert, I, P}, .expert = true},
    {.op = Op::Reinterpret, .src = Reduced, .dst = I, .dual = {Op::Convert, I, P}, .expert = true},
    {.op = Op::Reinterpret, .src = R, .dst = V, .dual = {Op::Reinterpret, V, P}, .expert = true},
    {.op = Op::Reinterpret, .src = Reduced, .dst = V,
     .dual = {Op::Reinterpret, V, P}, .expert = true},
    {.op = Op::Reinterpret, .src = R, .dst = P, .dual = {Op::Reinterpret, R, P}, .expert = true},
    {.op = Op::Reinterpret, .src = Reduced, .dst = P,
     .dual = {Op::Reinterpret, R, P}, .expert = true},
    {.op = Op::Reinterpret, .src = I, .dst = R, .dual = {Op::AllReduce, P, I}},
    {.op = Op::Reinterpret, .src = I, .dst = V, .composed = true},
    {.op = Op::Reinterpret, .src = I, .dst = P, .expert = true, .composed = true},
    {.op = Op::Reinterpret, .src = V, .dst = P, .dual = {Op::Reinterpret, R, V},
     .fixes = true},

    {.op = Op::Convert, .src = R, .dst = I, .dual = {Op::Convert, I, P}, .expert = true,
     .redistributes = true},
    {.op = Op::Convert, .src = Reduced, .dst = I, .dual = {Op::Convert, I, P}, .expert = true},
    {.op = Op::Convert, .src = R, .dst = V, .local_step = LocalStep::TakeOwnSlice, .layouts = kBoth,
     .dual = {Op::Convert, V, P},
     .redistributes = true, .fixes = true},
    {.op = Op::Convert, .src = Reduced, .dst = V, .local_step = LocalStep::TakeOwnSlice,
     .layouts = kBoth,
     .dual = {Op::Convert, V, P},
     .redistributes = true, .fixes = true},
    {.op = Op::Convert, .src = R, .dst = P, .local_step = LocalStep::KeepOnFirst,
     .dual = {Op::Convert, R, P},
     .redistributes = true, .fixes = true},
    {.op = Op::Convert, .src = Reduced, .dst = P, .local_step = LocalStep::KeepOnFirst,
     .dual = {Op::Convert, R, P},
     .redistributes = true, .fixes = true},
    {.op = Op::Convert, .src = I, .dst = R, .dual = {Op::AllReduce, P, I},
     .redistributes = true, .fixes = true},
    {.op = Op::Convert, .src = I, .dst = Reduced, .dual = {Op::AllReduce, P, I},
     .redistributes = true},
    {.op = Op::Convert, .src = I, .dst = V, .local_step = LocalStep::TakeOwnSlice, .layouts = kBoth,
     .dual = {Op::AllGather, V, I},
     .redistributes = true, .fixes = true},
    {.op = Op::Convert, .src = I, .dst = P, .local_step = LocalStep::KeepOnFirst,
     .dual = {Op::Reinterpret, R, I}, .expert = true,
     .redistributes = true},
    {.op = Op::Convert, .src = V, .dst = P, .local_step = LocalStep::PlaceOwn, .layouts = kBoth,
     .dual = {Op::Convert, R, V},
     .redistributes = true},

    {.op = Op::Broadcast, .src = V, .dst = R, .collective = Collective::Broadcast,
     .dual = {Op::Reduce, P, V},
     .unstated = true},
    {.op = Op::Broadcast, .src = V, .dst = I, .collective = Collective::Broadcast,
     .dual = {Op::Reduce, I, V}},

    {.op = Op::Reduce, .src = P, .dst = V, .collective = Collective::AllReduce,
     .local_step = LocalStep::KeepOnRoot,
     .dual = {Op::Broadcast, V, R},
     .unstated = true},
    {.op = Op::Reduce, .src = I, .dst = V, .local_step = LocalStep::KeepOnRoot,
     .dual = {Op::Broadcast, V, I}},

    {.op = Op::CollectivePermute, .src = V, .dst = V, .collective = Collective::Permute,
     .dual = {Op::CollectivePermute, V, V},
     .unstated = true},
};
// clang-format on

// What is replicated gives way to what was sharded and the other way round; R with R each copy
// returns its own addend, I with I the whole gradient.
// clang-format off
inline constexpr Transition kJointTransitions[] = {
    {.op = Op::Reorder, .src = V, .dst = V, .collective = Collective::Permute, .layouts = kBoth,
     .dual = {Op::Reorder, V, V}},
    {.op = Op::Reorder, .src = R, .dst = V, .collective = Collective::Permute, .layouts = kBoth,
     .dual = {Op::Reorder, V, P}},
    {.op = Op::Reorder, .src = Reduced, .dst = V, .collective = Collective::Permute,
     .layouts = kBoth,
     .dual = {Op::Reorder, V, P}},
    {.op = Op::Reorder, .src = I, .dst = V, .collective = Collective::Permute, .layouts = kBoth,
     .dual = {Op::Reorder, V, I}},
    {.op = Op::Reorder, .src = P, .dst = V, .collective = Collective::Permute, .layouts = kBoth,
     .dual = {Op::Reorder, V, R}},
    {.op = Op::Reorder, .src = V, .dst = R, .collective = Collective::Permute, .layouts = kBoth,
     .dual = {Op::Reorder, P, V}},
    {.op = Op::Reorder, .src = V, .dst = Reduced, .collective = Collective::Permute,
     .layouts = kBoth,
     .dual = {Op::Reorder, P, V}},
    {.op = Op::Reorder, .src = V, .dst = I, .collective = Collective::Permute, .layouts = kBoth,
     .dual = {Op::Reorder, I, V}},
    {.op = Op::Reorder, .src = V, .dst = P, .collective = Collective::Permute, .layouts = kBoth,
     .dual = {Op::Reorder, R, V}},
};
// clang-format on

// The row of these words; null if there is none.
template <class Rows>
constexpr const Transition *row_of(const Rows &rows, TransitionOp op, ir::Kind src, ir::Kind dst) {
  for (const Transition &row : rows)
    if (row.op == op && row.src == src && row.dst == dst)
      return &row;
  return nullptr;
}

// Each row is what its words lead to, its backward is a row, and what stands for words that are
// left out is one row: a row that nothing reaches does not compile.
template <class Rows> constexpr bool is_sound(const Rows &rows) {
  for (const Transition &row : rows) {
    if (row_of(rows, row.op, row.src, row.dst) != &row)
      return false;
    if (row.composed == (row.dual.op != Op::None))
      return false;
    if (!row.composed && !row_of(rows, row.dual.op, row.dual.src, row.dual.dst))
      return false;
    for (const Transition &other : rows) {
      bool same_ends = row.src == other.src && row.dst == other.dst;
      if (&row != &other && ((row.unstated && other.unstated && row.op == other.op) ||
                             (row.redistributes && other.redistributes && same_ends)))
        return false;
    }
    // A person writes neither detours, nor what needs an expert, to repair an operand.
    if (row.fixes && (row.expert || row.composed))
      return false;
  }
  return true;
}
static_assert(is_sound(kTransitions));
static_assert(is_sound(kJointTransitions));

// Every op has rows, in one of the two.
constexpr bool has_rows(Op op) {
  auto means = [&](const Transition &row) { return row.op == op; };
  return op == Op::Redistribute ||
         std::any_of(std::begin(kTransitions), std::end(kTransitions), means) ||
         std::any_of(std::begin(kJointTransitions), std::end(kJointTransitions), means);
}
constexpr bool all_have_rows() {
  for (size_t i = 1; i < kTransitionOps; ++i)
    if (!has_rows(static_cast<Op>(i)))
      return false;
  return true;
}
static_assert(all_have_rows());

} // namespace spmd::rules::rows
