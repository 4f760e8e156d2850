// What `spmdrun` says of a program that states its backward. It has no part in what is right: that
// is what the tape of the original program has.
#pragma once

#include "tests/soundness/draft.h"

namespace spmd::soundness {

// Left: nothing is refuted, and it says of each of these gradients that it was not compared.
enum class RunSays : uint8_t { Refuted, Left, Upheld, NotRun };

struct RunAnswer {
  RunSays says = RunSays::NotRun;
  std::string why; // Left, NotRun
};

// `wrong`: numbers of values that are stated as gradients and are none.
RunAnswer judge_run(const Draft &draft, llvm::ArrayRef<unsigned> wrong, uint64_t seed);

} // namespace spmd::soundness
