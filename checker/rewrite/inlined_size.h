// How long a program is with the bodies of functions in the place of their calls: calls of calls of
// calls double with each level, so whoever writes bodies out asks first.
#pragma once

#include "ir/program.h"

#include <optional>
#include <string>

namespace spmd::checker {

struct TooManyInlined {
  ir::InstId call; // that makes most of them
  std::string message;
};
// None if calls can be written out: what they make is not much more than what is written. Takes
// time and memory of the size of the program.
std::optional<TooManyInlined> too_many_inlined(const ir::Program &program);

} // namespace spmd::checker
