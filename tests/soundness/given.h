// A program whose backward stands in it: as it is derived, and to be altered like any other.
#pragma once

#include "tests/soundness/draft.h"
#include "tests/soundness/judge.h"

namespace spmd::soundness {

// The draft with its gradients as instructions; values that it has keep their numbers. None, and
// why: there is no backward, or it cannot be read again.
struct Given {
  Draft draft;
  size_t first = 0; // the statement that the backward begins with
};
std::optional<Given> give_backward(const Draft &draft, std::string &why);

// Whether each gradient that the program states is the one that a device computes for the original,
// and so is what `step` reads. `wrong`: the numbers of those that are not, all of them; null: the
// first is enough.
Verdict judge_given(const Draft &original, const Draft &given, uint64_t seed,
                    llvm::SmallVectorImpl<unsigned> *wrong = nullptr);

} // namespace spmd::soundness
