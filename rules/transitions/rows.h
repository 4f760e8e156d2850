// The rows of the table of transitions, and what must hold of them. A row is read by the judgment of
// kinds, by shapes, by the backward and by every backend; included by the files that look rows up.
#pragma once

#include "rules/transitions/transition.h"

namespace spmd::rules::rows {

inline constexpr ir::Kind R = ir::Kind::Replicate, Reduced = ir::Kind::Reduced,
                          I = ir::Kind::Invariant, V = ir::Kind::Varying, P = ir::Kind::Partial;
inline constexpr Layouts kBoth = Layouts::StackOrShard;

// clang-format off
inline constexpr Transition kTransitions[] = {
    {.name = "all_gather", .src = V, .dst = R, .wire = Wire::AllGather, .layouts = kBoth,
     .dual = {"reduce_scatter", P, V},
     .unstated = true, .redistributes = true, .fixes = true},
    {.name = "all_gather", .src = V, .dst = Reduced, .wire = Wire::AllGather, .layouts = kBoth,
     .dual = {"reduce_scatter", P, V},
     .redistributes = true},
    {.name = "all_gather", .src = V, .dst = I, .wire = Wire::AllGather, .layouts = kBoth,
     .dual = {"convert", I, V},
     .redistributes = true, .fixes = true},
    {.name = "all_gather", .src = V, .dst = V, .wire = Wire::AllGather, .layouts = kBoth,
     .composed = true},

    {.name = "all_reduce", .src = P, .dst = R, .wire = Wire::AllReduce,
     .dual = {"all_reduce", P, R},
     .unstated = true, .redistributes = true, .fixes = true},
    {.name = "all_reduce", .src = P, .dst = Reduced, .wire = Wire::AllReduce,
     .dual = {"all_reduce", P, R},
     .redistributes = true},
    {.name = "all_reduce", .src = P, .dst = I, .wire = Wire::AllReduce,
     .dual = {"reinterpret", I, R},
     .redistributes = true, .fixes = true},

    {.name = "reduce_scatter", .src = P, .dst = V, .wire = Wire::ReduceScatter, .layouts = kBoth,
     .dual = {"all_gather", V, R},
     .unstated = true, .redistributes = true, .fixes = true},

    {.name = "all_to_all", .src = V, .dst = V, .wire = Wire::AllToAll, .layouts = kBoth,
     .dual = {"all_to_all", V, V},
     .unstated = true, .redistributes = true},

    {.name = "reinterpret", .src = R, .dst = I, .dual = {"convert", I, P}, .expert = true},
    {.name = "reinterpret", .src = Reduced, .dst = I, .dual = {"convert", I, P}, .expert = true},
    {.name = "reinterpret", .src = R, .dst = V, .dual = {"reinterpret", V, P}, .expert = true},
    {.name = "reinterpret", .src = Reduced, .dst = V,
     .dual = {"reinterpret", V, P}, .expert = true},
    {.name = "reinterpret", .src = R, .dst = P, .dual = {"reinterpret", R, P}, .expert = true},
    {.name = "reinterpret", .src = Reduced, .dst = P,
     .dual = {"reinterpret", R, P}, .expert = true},
    {.name = "reinterpret", .src = I, .dst = R, .dual = {"all_reduce", P, I}},
    {.name = "reinterpret", .src = I, .dst = V, .composed = true},
    {.name = "reinterpret", .src = I, .dst = P, .expert = true, .composed = true},
    {.name = "reinterpret", .src = V, .dst = P, .dual = {"reinterpret", R, V},
     .fixes = true},

    {.name = "convert", .src = R, .dst = I, .dual = {"convert", I, P}, .expert = true,
     .redistributes = true},
    {.name = "convert", .src = Reduced, .dst = I, .dual = {"convert", I, P}, .expert = true},
    {.name = "convert", .src = R, .dst = V, .act = LocalStep::TakeOwnSlice, .layouts = kBoth,
     .dual = {"convert", V, P},
     .redistributes = true, .fixes = true},
    {.name = "convert", .src = Reduced, .dst = V, .act = LocalStep::TakeOwnSlice, .layouts = kBoth,
     .dual = {"convert", V, P},
     .redistributes = true, .fixes = true},
    {.name = "convert", .src = R, .dst = P, .act = LocalStep::KeepOnFirst, .dual = {"convert", R, P},
     .redistributes = true, .fixes = true},
    {.name = "convert", .src = Reduced, .dst = P, .act = LocalStep::KeepOnFirst,
     .dual = {"convert", R, P},
     .redistributes = true, .fixes = true},
    {.name = "convert", .src = I, .dst = R, .dual = {"all_reduce", P, I},
     .redistributes = true, .fixes = true},
    {.name = "convert", .src = I, .dst = Reduced, .dual = {"all_reduce", P, I},
     .redistributes = true},
    {.name = "convert", .src = I, .dst = V, .act = LocalStep::TakeOwnSlice, .layouts = kBoth,
     .dual = {"all_gather", V, I},
     .redistributes = true, .fixes = true},
    {.name = "convert", .src = I, .dst = P, .act = LocalStep::KeepOnFirst,
     .dual = {"reinterpret", R, I}, .expert = true,
     .redistributes = true},
    {.name = "convert", .src = V, .dst = P, .act = LocalStep::PlaceOwn, .layouts = kBoth,
     .dual = {"convert", R, V},
     .redistributes = true},

    {.name = "broadcast", .src = V, .dst = R, .wire = Wire::Broadcast, .dual = {"reduce", P, V},
     .unstated = true},
    {.name = "broadcast", .src = V, .dst = I, .wire = Wire::Broadcast, .dual = {"reduce", I, V}},

    {.name = "reduce", .src = P, .dst = V, .wire = Wire::AllReduce, .act = LocalStep::KeepOnRoot,
     .dual = {"broadcast", V, R},
     .unstated = true},
    {.name = "reduce", .src = I, .dst = V, .act = LocalStep::KeepOnRoot, .dual = {"broadcast", V, I}},

    {.name = "collective_permute", .src = V, .dst = V, .wire = Wire::Permute,
     .dual = {"collective_permute", V, V},
     .unstated = true},
};
// clang-format on

// What is replicated gives way to what was sharded and the other way round; R with R each copy
// returns its own addend, I with I the whole gradient.
// clang-format off
inline constexpr Transition kJointTransitions[] = {
    {.name = "reorder", .src = V, .dst = V, .wire = Wire::Permute, .layouts = kBoth,
     .dual = {"reorder", V, V}},
    {.name = "reorder", .src = R, .dst = V, .wire = Wire::Permute, .layouts = kBoth,
     .dual = {"reorder", V, P}},
    {.name = "reorder", .src = Reduced, .dst = V, .wire = Wire::Permute, .layouts = kBoth,
     .dual = {"reorder", V, P}},
    {.name = "reorder", .src = I, .dst = V, .wire = Wire::Permute, .layouts = kBoth,
     .dual = {"reorder", V, I}},
    {.name = "reorder", .src = P, .dst = V, .wire = Wire::Permute, .layouts = kBoth,
     .dual = {"reorder", V, R}},
    {.name = "reorder", .src = V, .dst = R, .wire = Wire::Permute, .layouts = kBoth,
     .dual = {"reorder", P, V}},
    {.name = "reorder", .src = V, .dst = Reduced, .wire = Wire::Permute, .layouts = kBoth,
     .dual = {"reorder", P, V}},
    {.name = "reorder", .src = V, .dst = I, .wire = Wire::Permute, .layouts = kBoth,
     .dual = {"reorder", I, V}},
    {.name = "reorder", .src = V, .dst = P, .wire = Wire::Permute, .layouts = kBoth,
     .dual = {"reorder", R, V}},
};
// clang-format on

// The row of these words; null if there is none.
template <class Rows>
constexpr const Transition *row_of(const Rows &rows, std::string_view name, ir::Kind src,
                                   ir::Kind dst) {
  for (const Transition &row : rows)
    if (row.name == name && row.src == src && row.dst == dst)
      return &row;
  return nullptr;
}

// Each row is what its words lead to, its backward is a row, and what stands for words that are left out
// is one row: a row that nothing reaches does not compile.
template <class Rows> constexpr bool is_sound(const Rows &rows) {
  for (const Transition &row : rows) {
    if (row_of(rows, row.name, row.src, row.dst) != &row)
      return false;
    if (row.composed == !row.dual.name.empty())
      return false;
    if (!row.composed && !row_of(rows, row.dual.name, row.dual.src, row.dual.dst))
      return false;
    for (const Transition &other : rows) {
      bool same_ends = row.src == other.src && row.dst == other.dst;
      if (&row != &other && ((row.unstated && other.unstated && row.name == other.name) ||
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

} // namespace spmd::rules::rows
