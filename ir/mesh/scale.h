// Scales: rational monomials in axis sizes and declared symbols, exact (rules/README.md).
// "The data denote `scale` times what is meant." Bases are names: of axes, or of symbols.
#pragma once

#include "ir/ids.h"
#include "ir/support/store.h"

#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <string>

namespace spmd::ir {

inline constexpr int32_t kMaxExponent = 64;

struct ScaleFactor {
  StringId base;
  int32_t exponent = 0; // never 0 in a canonical scale
  friend bool operator==(const ScaleFactor &, const ScaleFactor &) = default;
};

// Canonical: the fraction in lowest terms, denominator positive, factors sorted by the text of the
// base.
struct Scale {
  int64_t numerator = 1;
  int64_t denominator = 1;
  llvm::SmallVector<ScaleFactor, 2> factors;

  bool is_one() const { return numerator == 1 && denominator == 1 && factors.empty(); }
  friend bool operator==(const Scale &, const Scale &) = default;
};
uint64_t hash_of(const Scale &scale);

// None where a number exceeds kMaxInteger, or an exponent kMaxExponent.
std::optional<Scale> multiply(const Scale &a, const Scale &b, const StringTable &names);
std::optional<Scale> inverse(const Scale &a);

// Reads `dp`, `1/(dp*cp)`, `2*steps/dense.dp`: products and quotients of numbers and names.
std::optional<Scale> parse_scale(llvm::StringRef text, StringTable &names);
// The canonical text that parse_scale reads back: `1`, `dp`, `1/(cp*dp)`, `2/dp`.
std::string print(const Scale &scale, const StringTable &names);

} // namespace spmd::ir
