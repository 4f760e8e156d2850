// Which op at the edge of the typed world an instruction is, however it is spelled.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string_view>

namespace spmd::rules {

// In the order of the rows of boundary.cc: first those that are typed there, then those with
// bodies, which the checker types.
enum class Boundary : uint8_t {
  None,
  AssertType,
  MutateType,
  ToLocal,
  FromLocal,
  Rng,
  Fork,
  AxisIndex,
  Scale,
  Alias,
  ReinterpretMesh,
  Backward,
  Grad,
  Step,
  TotalNorm,
  ClipNorm,
  Report,
  Store,
  Send,
  Recv,
  Wait,
  Token,
  Diverge,
  Unlike,
  Call,
  Checkpoint,
  LocalMap,
  Scan,
  Cond,
  While,
};

// None: no boundary op, and no op with bodies, has that name.
Boundary find_boundary(llvm::StringRef name);
// Empty for None.
std::string_view boundary_name(Boundary op);
// True if the result holds what the first operand holds, be it scaled or seen otherwise.
bool passes_data(Boundary op);
// True if the result is the first operand: only what is claimed of it changes.
bool is_same_data(Boundary op);
// True if results hold no data: states, tokens.
bool holds_no_data(Boundary op);
// True if the result is the state of a generator of random numbers.
bool is_random_state(Boundary op);
// True if what it computes is a norm of its operands, or has been scaled by that.
bool takes_norm(Boundary op);
// True if it writes its first operand.
bool writes_first(Boundary op);
// True if its results can be read when the program has ended.
bool keeps_results(Boundary op);
// True if it does something where it has no results.
bool acts(Boundary op);

} // namespace spmd::rules
