// What the names imply; spellings: words.cc.
#include "rules/transitions/rows.h"

#include "ir/support/check.h"

#include "llvm/ADT/STLExtras.h"

#include <array>

namespace spmd::rules {
namespace {

using rows::kJointTransitions;
using rows::kTransitions;

// By its ends it names the row that keeps the meaning.
constexpr std::string_view kRedistribute = "redistribute";
constexpr std::string_view kReorder = kJointTransitions[0].name;

template <class Rows> constexpr bool is_first_of_name(const Rows &rows, const Transition &row) {
  for (const Transition &other : rows)
    if (other.name == row.name)
      return &other == &row;
  return false;
}
constexpr size_t count_names() {
  size_t count = 2; // kRedistribute, kReorder
  for (const Transition &row : kTransitions)
    count += is_first_of_name(kTransitions, row);
  return count;
}

// By name: the ends of the row that is marked `unstated`, if one is.
constexpr auto kUnstatedWords = [] {
  std::array<UnstatedWords, count_names()> words;
  size_t at = 0;
  for (const Transition &first : kTransitions) {
    if (!is_first_of_name(kTransitions, first))
      continue;
    UnstatedWords &made = words[at++];
    made.name = first.name;
    for (const Transition &row : kTransitions)
      if (row.name == first.name && row.unstated)
        made = {row.name, row.src, row.dst, row.src == ir::Kind::Partial};
  }
  words[at++] = {.name = kRedistribute, .src = std::nullopt, .dst = std::nullopt};
  words[at++] = {.name = kReorder, .src = std::nullopt, .dst = std::nullopt};
  return words;
}();

} // namespace

llvm::ArrayRef<Transition> transitions() { return kTransitions; }
llvm::ArrayRef<Transition> joint_transitions() { return kJointTransitions; }

const Transition *find_transition(std::string_view name, ir::Kind src, ir::Kind dst) {
  if (name == kReorder)
    return rows::row_of(kJointTransitions, name, src, dst);
  if (name != kRedistribute)
    return rows::row_of(kTransitions, name, src, dst);
  const Transition *row = llvm::find_if(kTransitions, [&](const Transition &each) {
    return each.redistributes && each.src == src && each.dst == dst;
  });
  return row == std::end(kTransitions) ? nullptr : row;
}

bool is_transition(std::string_view name) {
  return llvm::any_of(kUnstatedWords, [&](const UnstatedWords &row) { return row.name == name; });
}

const Transition *dual_of(const Transition &row) {
  return row.composed ? nullptr : find_transition(row.dual.name, row.dual.src, row.dual.dst);
}

TransitionParts parts_of(const Transition &row) {
  SPMD_CHECK(row.composed, "only a composed row has parts");
  return {find_transition(row.name, row.src, ir::Kind::Replicate),
          find_transition("reinterpret", ir::Kind::Replicate, row.dst)};
}

const UnstatedWords &unstated_words(std::string_view name) {
  for (const UnstatedWords &row : kUnstatedWords)
    if (row.name == name)
      return row;
  report_bug(__FILE__, __LINE__, "no transition of that name");
}

} // namespace spmd::rules
