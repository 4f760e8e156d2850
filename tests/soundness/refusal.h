// Why a program is refused whose data are right.
#pragma once

#include "tests/soundness/mutate.h"

namespace spmd::soundness {

enum class Reason : uint8_t {
  Matters,   // wrong as soon as what it got wrong is looked at
  FalseWord, // a word of it is false of the data
  Unsaid,    // what it leaves unsaid is owed: once it is said, it checks
  Nothing,   // a statement that means nothing: what was run is another one
  Needless,  // none of these
};
inline constexpr std::string_view kReasons[] = {"wrong once it matters", "a false word",
                                                "left unsaid", "means nothing", "needless"};

// `mutant`: refused, and upheld when it is run as `forced` says; `checked`: what was found in it.
Reason why_refused(const Mutant &mutant, const Checked &checked, const Draft &original,
                   uint64_t seed, std::string &what);

} // namespace spmd::soundness
