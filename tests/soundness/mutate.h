// One slip in a correct program, of the kinds that people make: a collective left out or done
// twice, the wrong axis, kind, dimension or operand, an average for a sum.
#pragma once

#include "tests/soundness/draft.h"

namespace spmd::soundness {

struct Mutant {
  Draft draft;
  std::string_view slip; // `drop`, `axis`, ...
  std::string what;      // the statement before and after
  // What was put in, and the value whose place it takes.
  std::optional<std::pair<unsigned, unsigned>> stands_for;
  bool means_nothing = false; // whatever the data are, it must be refused
};

// None if the draft has no place for the slip that was drawn.
// `from`: the first statement that may be altered.
std::optional<Mutant> mutate(const Draft &draft, const Checked &checked, Random &random,
                             size_t from = 0);

// The program with every result claimed to be what it is in `original`, and nothing checked: what
// is refused can be run. None if a value is new, so that nothing is known of it.
std::optional<Draft> forced(const Mutant &mutant, const Checked &original);

} // namespace spmd::soundness
