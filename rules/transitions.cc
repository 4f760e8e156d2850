// The table of transitions, and the words that their names imply; spellings: transition_words.cc.
// A row is read by the judgment of kinds, by shapes, by the backward and by every backend.
#include "rules/transition.h"

#include "ir/check.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {
namespace {

constexpr ir::Kind R = ir::Kind::Replicate, Reduced = ir::Kind::Reduced, I = ir::Kind::Invariant,
                   V = ir::Kind::Varying, P = ir::Kind::Partial;
constexpr Layouts kBoth = Layouts::StackOrShard;

// clang-format off
constexpr Transition kTransitions[] = {
    {.name = "all_gather", .src = V, .dst = R, .wire = Wire::AllGather, .layouts = kBoth,
     .dual = {"reduce_scatter", P, V}},
    {.name = "all_gather", .src = V, .dst = Reduced, .wire = Wire::AllGather, .layouts = kBoth,
     .dual = {"reduce_scatter", P, V}},
    {.name = "all_gather", .src = V, .dst = I, .wire = Wire::AllGather, .layouts = kBoth,
     .dual = {"convert", I, V}},
    {.name = "all_gather", .src = V, .dst = V, .wire = Wire::AllGather, .layouts = kBoth,
     .composed = true},

    {.name = "all_reduce", .src = P, .dst = R, .wire = Wire::AllReduce,
     .dual = {"all_reduce", P, R}},
    {.name = "all_reduce", .src = P, .dst = Reduced, .wire = Wire::AllReduce,
     .dual = {"all_reduce", P, R}},
    {.name = "all_reduce", .src = P, .dst = I, .wire = Wire::AllReduce,
     .dual = {"reinterpret", I, R}},

    {.name = "reduce_scatter", .src = P, .dst = V, .wire = Wire::ReduceScatter, .layouts = kBoth,
     .dual = {"all_gather", V, R}},

    {.name = "all_to_all", .src = V, .dst = V, .wire = Wire::AllToAll, .layouts = kBoth,
     .dual = {"all_to_all", V, V}},

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
    {.name = "reinterpret", .src = V, .dst = P, .dual = {"reinterpret", R, V}},

    {.name = "convert", .src = R, .dst = I, .dual = {"convert", I, P}, .expert = true},
    {.name = "convert", .src = Reduced, .dst = I, .dual = {"convert", I, P}, .expert = true},
    {.name = "convert", .src = R, .dst = V, .act = Act::TakeOwnSlice, .layouts = kBoth,
     .dual = {"convert", V, P}},
    {.name = "convert", .src = Reduced, .dst = V, .act = Act::TakeOwnSlice, .layouts = kBoth,
     .dual = {"convert", V, P}},
    {.name = "convert", .src = R, .dst = P, .act = Act::KeepOnFirst, .dual = {"convert", R, P}},
    {.name = "convert", .src = Reduced, .dst = P, .act = Act::KeepOnFirst,
     .dual = {"convert", R, P}},
    {.name = "convert", .src = I, .dst = R, .dual = {"all_reduce", P, I}},
    {.name = "convert", .src = I, .dst = Reduced, .dual = {"all_reduce", P, I}},
    {.name = "convert", .src = I, .dst = V, .act = Act::TakeOwnSlice, .layouts = kBoth,
     .dual = {"all_gather", V, I}},
    {.name = "convert", .src = I, .dst = P, .act = Act::KeepOnFirst,
     .dual = {"reinterpret", R, I}, .expert = true},
    {.name = "convert", .src = V, .dst = P, .act = Act::PlaceOwn, .layouts = kBoth,
     .dual = {"convert", R, V}},

    {.name = "broadcast", .src = V, .dst = R, .wire = Wire::Broadcast, .dual = {"reduce", P, V}},
    {.name = "broadcast", .src = V, .dst = I, .wire = Wire::Broadcast, .dual = {"reduce", I, V}},

    {.name = "reduce", .src = P, .dst = V, .wire = Wire::AllReduce, .act = Act::KeepOnRoot,
     .dual = {"broadcast", V, R}},
    {.name = "reduce", .src = I, .dst = V, .act = Act::KeepOnRoot, .dual = {"broadcast", V, I}},

    {.name = "collective_permute", .src = V, .dst = V, .wire = Wire::Permute,
     .dual = {"collective_permute", V, V}},
};
// clang-format on

// What is replicated gives way to what was sharded and the other way round; R with R each copy
// returns its own addend, I with I the whole gradient.
// clang-format off
constexpr Transition kJointTransitions[] = {
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

// `redistribute` names by its ends the row that keeps the meaning, whatever it costs.
struct Route {
  ir::Kind src, dst;
  std::string_view name;
};
constexpr Route kRoutes[] = {
    {V, R, "all_gather"},       {V, Reduced, "all_gather"}, {V, I, "all_gather"},
    {V, V, "all_to_all"},       {V, P, "convert"},          {P, R, "all_reduce"},
    {P, Reduced, "all_reduce"}, {P, I, "all_reduce"},       {P, V, "reduce_scatter"},
    {R, V, "convert"},          {R, P, "convert"},          {R, I, "convert"},
    {Reduced, V, "convert"},    {Reduced, P, "convert"},    {I, R, "convert"},
    {I, Reduced, "convert"},    {I, V, "convert"},          {I, P, "convert"},
};

constexpr ErasedWords kErasedWords[] = {
    {.name = "all_gather", .src = V, .dst = R},
    {.name = "all_reduce", .src = P, .dst = R, .reduces = true},
    {.name = "reduce_scatter", .src = P, .dst = V, .reduces = true},
    {.name = "all_to_all", .src = V, .dst = V},
    {.name = "reinterpret", .src = std::nullopt, .dst = std::nullopt},
    {.name = "convert", .src = std::nullopt, .dst = std::nullopt},
    {.name = "redistribute", .src = std::nullopt, .dst = std::nullopt},
    {.name = "broadcast", .src = V, .dst = R},
    {.name = "reduce", .src = P, .dst = V, .reduces = true},
    {.name = "collective_permute", .src = V, .dst = V},
    {.name = "reorder", .src = std::nullopt, .dst = std::nullopt},
};

} // namespace

llvm::ArrayRef<Transition> transitions() { return kTransitions; }
llvm::ArrayRef<Transition> joint_transitions() { return kJointTransitions; }

const Transition *find_transition(std::string_view name, ir::Kind src, ir::Kind dst) {
  if (name == "redistribute") {
    const Route *route = llvm::find_if(
        kRoutes, [&](const Route &each) { return each.src == src && each.dst == dst; });
    return route == std::end(kRoutes) ? nullptr : find_transition(route->name, src, dst);
  }
  auto is_it = [&](const Transition &row) {
    return row.src == src && row.dst == dst && row.name == name;
  };
  llvm::ArrayRef<Transition> rows = name == "reorder" ? joint_transitions() : transitions();
  const Transition *row = llvm::find_if(rows, is_it);
  return row == rows.end() ? nullptr : row;
}

bool is_transition(std::string_view name) {
  return llvm::any_of(kErasedWords, [&](const ErasedWords &row) { return row.name == name; });
}

const Transition *dual_of(const Transition &row) {
  return row.composed ? nullptr : find_transition(row.dual.name, row.dual.src, row.dual.dst);
}

TransitionParts parts_of(const Transition &row) {
  SPMD_CHECK(row.composed, "only a composed row has parts");
  return {find_transition(row.name, row.src, R), find_transition("reinterpret", R, row.dst)};
}

const ErasedWords &erased_words(std::string_view name) {
  for (const ErasedWords &row : kErasedWords)
    if (row.name == name)
      return row;
  report_bug(__FILE__, __LINE__, "no transition of that name");
}

} // namespace spmd::rules
