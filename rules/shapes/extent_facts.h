// What is known of extents: whether two are equal, by what is declared of their symbols, and what
// stands where a program leaves dimensions open.
#pragma once

#include "rules/violations/symbols.h"

#include "ir/program.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace spmd::rules {

enum class Equality : uint8_t { Equal, Different, Undecided };

// Equal for all values of the symbols, for none, or neither is known. A symbol counts from its
// `min` (default 0) to its `max` (none), in steps of `multiple_of`.
Equality compare(const ir::Program &program, ir::Extent a, ir::Extent b);
// The same for all pairs of extents that are equal for the same values: `s` and `t`, `2 * t` and `s
// * 2`.
uint64_t equality_key(const ir::Program &program, ir::Extent a, ir::Extent b);
// That nothing says whether two extents are equal; `what`: as in a mismatch.
UndecidedExtents undecided(const ir::Program &program, std::string what, ir::Extent a,
                           ir::Extent b);
// False where the extents differ, whatever the symbols are; where that is open, `out` has it.
bool may_be_equal(const ir::Program &program, ir::Extent a, ir::Extent b,
                  llvm::SmallVectorImpl<UndecidedExtents> &out,
                  llvm::function_ref<std::string()> what);
// True where n divides the extent; where that is open, `out` has it.
bool may_divide(ir::Program &program, ir::Extent extent, ir::Extent n,
                llvm::SmallVectorImpl<UndecidedExtents> &out,
                llvm::function_ref<std::string()> what);

// The largest number that is known to divide the extent; 0 of what is 0.
int64_t known_divisor(const ir::Program &program, ir::Extent extent);
// `extent / n` where the facts of the program say that n divides it, else none.
std::optional<ir::Extent> exact_quotient(ir::Program &program, ir::Extent extent, ir::Extent n);
// The same, or a division that rounds down.
std::optional<ir::Extent> quotient(ir::Program &program, ir::Extent extent, ir::Extent n);
// `extent * n`; takes back a division by n that was exact.
std::optional<ir::Extent> product(ir::Program &program, ir::Extent extent, ir::Extent n);

// What the program states of a shape, or what is known where it states nothing, or no dimensions
// (`f32[...]`).
ir::ShapeId stated_shape(const ir::Program &program, ir::ShapeId stated, ir::ShapeId known);

} // namespace spmd::rules
