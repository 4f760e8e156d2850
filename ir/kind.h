// The kinds: what the ranks along one mesh axis claim about the values that they hold.
// One table; everything that names, prints or dualises a kind reads it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace spmd::ir {

enum class Kind : uint8_t { Replicate, Reduced, Invariant, Varying, Partial };
inline constexpr unsigned kKindCount = 5;

// What the ranks mean together: the value they share, the sum of what they hold, or nothing
// beyond the list (a shard makes it a concatenation).
enum class Denotation : uint8_t { Same, Sum, List };

struct KindInfo {
  Kind kind;
  std::string_view word; // in programs
  std::string_view name; // in sentences
  Kind dual;             // the kind of the gradient
  Denotation denotes;
};

// rules/README.md. Reduced refines R: the sum of its gradient has an owner.
inline constexpr std::array<KindInfo, kKindCount> kKinds = {{
    {Kind::Replicate, "R", "replicate", Kind::Partial, Denotation::Same},
    {Kind::Reduced, "Reduced", "reduced", Kind::Partial, Denotation::Same},
    {Kind::Invariant, "I", "invariant", Kind::Invariant, Denotation::Same},
    {Kind::Varying, "V", "varying", Kind::Varying, Denotation::List},
    {Kind::Partial, "P", "partial", Kind::Replicate, Denotation::Sum},
}};

constexpr const KindInfo &info(Kind kind) { return kKinds[static_cast<unsigned>(kind)]; }

// How the addends of a partial value are to be joined. Avg exists only as the op of a collective.
enum class Combiner : uint8_t { Sum, Avg, Max, Min, Prod, And, Or, Xor };
inline constexpr std::array<std::string_view, 8> kCombinerWords = {"sum",  "avg", "max", "min",
                                                                   "prod", "and", "or",  "xor"};
constexpr std::string_view word(Combiner combiner) {
  return kCombinerWords[static_cast<unsigned>(combiner)];
}

} // namespace spmd::ir
