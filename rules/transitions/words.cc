// How frameworks say transitions: spellings that are read as rows of the table, and the words in which a row
// is printed for users of a framework. Sources: spmd_types, DTensor, Megatron-LM; jaxprs of JAX 0.10.
#include "rules/transitions/rows.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {
namespace {

using ir::Combiner;
using ir::Dialect;
using rows::I;
using rows::P;
using rows::R;
using rows::Reduced;
using rows::V;
constexpr std::nullopt_t kAny = std::nullopt;

// clang-format off
constexpr SpelledWords kSpelledWords[] = {
    {.spelling = "psum", .name = "all_reduce", .src = kAny, .dst = I},
    {.spelling = "psum_invariant", .name = "all_reduce", .src = kAny, .dst = I},
    {.spelling = "unreduced_psum", .name = "all_reduce", .src = P, .dst = I},
    {.spelling = "pmax", .name = "all_reduce", .src = kAny, .dst = kAny, .combiner = Combiner::Max},
    {.spelling = "pmin", .name = "all_reduce", .src = kAny, .dst = kAny, .combiner = Combiner::Min},
    {.spelling = "all_gather_invariant", .name = "all_gather", .src = V, .dst = I},
    {.spelling = "all_gather_reduced", .name = "all_gather", .src = V, .dst = Reduced},
    {.spelling = "unreduced_reduce_scatter", .name = "reduce_scatter", .src = P, .dst = V},
    {.spelling = "unreduced_psum_scatter", .name = "reduce_scatter", .src = P, .dst = V},
    {.spelling = "pvary", .name = "reinterpret", .src = I, .dst = V},
    {.spelling = "preduced", .name = "convert", .src = I, .dst = Reduced},
    {.spelling = "vary_unreduced_cast", .name = "reinterpret", .src = V, .dst = P},
    {.spelling = "reduced_vary_cast", .name = "reinterpret", .src = R, .dst = V},
    {.spelling = "pcast", .name = "reinterpret", .src = kAny, .dst = V, .to = "varying"},
    {.spelling = "pcast", .name = "convert", .src = I, .dst = Reduced, .to = "reduced"},
    {.spelling = "pcast", .name = "reinterpret", .src = V, .dst = P, .to = "unreduced"},
    // LTensor; whatever the operand is.
    {.spelling = "mark_varying", .name = "reinterpret", .src = kAny, .dst = V},
};

constexpr std::string_view kCut = "a cut is axis_index and a slice there, no primitive";
constexpr std::string_view kPad = "JAX has no word for one rank's part in zeros";
constexpr std::string_view kMerge = "JAX does not make an invariant value of a reduced one";
constexpr std::string_view kRoot = "JAX has no collective with a root";
constexpr std::string_view kTwoSets = "LTensor has two sets of axes, and no word for this";
constexpr std::string_view kFunctional =
    "torch's collectives leave out what becomes of the gradient: src and dst are ours";

constexpr DialectTransition kDialectTransitions[] = {
    {Dialect::Jax, "all_gather", V, R, "all_gather_reduced"},
    {Dialect::Jax, "all_gather", V, Reduced, "all_gather_reduced"},
    {Dialect::Jax, "all_gather", V, I, "all_gather_invariant"},
    {Dialect::Jax, "all_gather", V, V, "all_gather_reduced reduced_vary_cast"},
    {Dialect::Jax, "all_reduce", P, I, "unreduced_psum"},
    {Dialect::Jax, "all_reduce", P, R, "unreduced_psum preduced"},
    {Dialect::Jax, "all_reduce", P, Reduced, "unreduced_psum preduced"},
    {Dialect::Jax, "all_reduce", P, I, "pmax", {}, Combiner::Max},
    {Dialect::Jax, "all_reduce", P, I, "pmin", {}, Combiner::Min},
    {Dialect::Jax, "all_reduce", P, R, "pmax preduced", {}, Combiner::Max},
    {Dialect::Jax, "all_reduce", P, R, "pmin preduced", {}, Combiner::Min},
    {Dialect::Jax, "reduce_scatter", P, V, "unreduced_reduce_scatter"},
    {Dialect::Jax, "all_to_all", V, V, "all_to_all"},
    {Dialect::Jax, "collective_permute", V, V, "ppermute"},
    {Dialect::Jax, "reinterpret", R, V, "reduced_vary_cast"},
    {Dialect::Jax, "reinterpret", Reduced, V, "reduced_vary_cast"},
    {Dialect::Jax, "reinterpret", R, P, "reduced_vary_cast vary_unreduced_cast"},
    {Dialect::Jax, "reinterpret", Reduced, P, "reduced_vary_cast vary_unreduced_cast"},
    {Dialect::Jax, "reinterpret", I, R, "preduced"},
    {Dialect::Jax, "reinterpret", I, V, "pvary"},
    {Dialect::Jax, "reinterpret", I, P, "pvary vary_unreduced_cast"},
    {Dialect::Jax, "reinterpret", V, P, "vary_unreduced_cast"},
    {Dialect::Jax, "reinterpret", R, I, "", kMerge},
    {Dialect::Jax, "reinterpret", Reduced, I, "", kMerge},
    {Dialect::Jax, "convert", R, I, "", kMerge},
    {Dialect::Jax, "convert", Reduced, I, "", kMerge},
    {Dialect::Jax, "convert", I, R, "preduced"},
    {Dialect::Jax, "convert", I, Reduced, "preduced"},
    {Dialect::Jax, "convert", R, V, "", kCut},
    {Dialect::Jax, "convert", Reduced, V, "", kCut},
    {Dialect::Jax, "convert", I, V, "", kCut},
    {Dialect::Jax, "convert", R, P, "", kPad},
    {Dialect::Jax, "convert", Reduced, P, "", kPad},
    {Dialect::Jax, "convert", I, P, "", kPad},
    {Dialect::Jax, "convert", V, P, "", kPad},
    {Dialect::Jax, "broadcast", V, R, "", kRoot},
    {Dialect::Jax, "broadcast", V, I, "", kRoot},
    {Dialect::Jax, "reduce", P, V, "", kRoot},
    {Dialect::Jax, "reduce", I, V, "", kRoot},

    // In a local region the tensors of DTensor are torch's.
    {Dialect::DTensor, "all_gather", V, R, "_c10d_functional.all_gather_into_tensor", kFunctional},
    {Dialect::DTensor, "all_gather", V, Reduced, "_c10d_functional.all_gather_into_tensor", kFunctional},
    {Dialect::DTensor, "all_gather", V, I, "_c10d_functional.all_gather_into_tensor", kFunctional},
    {Dialect::DTensor, "all_reduce", P, R, "_c10d_functional.all_reduce", kFunctional},
    {Dialect::DTensor, "all_reduce", P, Reduced, "_c10d_functional.all_reduce", kFunctional},
    {Dialect::DTensor, "all_reduce", P, I, "_c10d_functional.all_reduce", kFunctional},
    {Dialect::DTensor, "reduce_scatter", P, V, "_c10d_functional.reduce_scatter_tensor", kFunctional},
    {Dialect::DTensor, "all_to_all", V, V, "_c10d_functional.all_to_all_single"},
    {Dialect::DTensor, "broadcast", V, R, "_c10d_functional.broadcast", kFunctional},
    {Dialect::DTensor, "broadcast", V, I, "_c10d_functional.broadcast", kFunctional},

    {Dialect::LTensor, "all_gather", V, R, "_c10d_functional.all_gather_into_tensor"},
    {Dialect::LTensor, "all_gather", V, Reduced, "_c10d_functional.all_gather_into_tensor"},
    {Dialect::LTensor, "all_reduce", P, I, "_c10d_functional.all_reduce"},
    {Dialect::LTensor, "reduce_scatter", P, V, "_c10d_functional.reduce_scatter_tensor"},
    {Dialect::LTensor, "all_to_all", V, V, "_c10d_functional.all_to_all_single"},
    {Dialect::LTensor, "reinterpret", I, V, "mark_varying"},
    {Dialect::LTensor, "reinterpret", R, V, "mark_varying"},
    {Dialect::LTensor, "reinterpret", Reduced, V, "mark_varying"},
    {Dialect::LTensor, "all_gather", V, I, "", "LTensor's all_gather always adds the axis to reduced"},
    {Dialect::LTensor, "all_gather", V, V, "", "LTensor's all_gather always adds the axis to reduced"},
    {Dialect::LTensor, "all_reduce", P, R, "", "LTensor's all_reduce takes the axis out of both sets"},
    {Dialect::LTensor, "all_reduce", P, Reduced, "", "LTensor's all_reduce takes the axis out of both sets"},
    {Dialect::LTensor, "convert", I, R, "", kTwoSets},
    {Dialect::LTensor, "convert", I, Reduced, "", kTwoSets},
    {Dialect::LTensor, "reinterpret", I, R, "", kTwoSets},
    {Dialect::LTensor, "reinterpret", V, P, "", "a variant value is a sum wherever it is used as one: there is no cast before"},
};
// clang-format on

// Each row of the two tables above can be reached: it is the first with what it is looked up by, and
// stands for a transition that there is.
constexpr bool spelled_words_are_sound() {
  for (const SpelledWords &row : kSpelledWords) {
    bool known = false;
    for (const Transition &transition : rows::kTransitions)
      known |= transition.name == row.name && (!row.src || transition.src == *row.src) &&
               (!row.dst || transition.dst == *row.dst);
    for (const SpelledWords *other = kSpelledWords; other != &row; ++other)
      known &= other->spelling != row.spelling || (!other->to.empty() && other->to != row.to);
    if (!known)
      return false;
  }
  return true;
}
constexpr bool told_transitions_are_sound() {
  for (const DialectTransition &row : kDialectTransitions) {
    if (!rows::row_of(rows::kTransitions, row.name, row.src, row.dst))
      return false;
    for (const DialectTransition *other = kDialectTransitions; other != &row; ++other)
      if (other->dialect == row.dialect && other->name == row.name && other->src == row.src &&
          other->dst == row.dst && other->combiner == row.combiner)
        return false;
  }
  return true;
}
static_assert(spelled_words_are_sound());
static_assert(told_transitions_are_sound());

} // namespace

llvm::ArrayRef<SpelledWords> all_spelled_words() { return kSpelledWords; }

const SpelledWords *spelled_words(std::string_view spelling, std::string_view to) {
  if (size_t dot = spelling.rfind('.'); dot != std::string_view::npos)
    spelling.remove_prefix(dot + 1);
  for (const SpelledWords &row : kSpelledWords)
    if (row.spelling == spelling && (row.to.empty() || row.to == to))
      return &row;
  return nullptr;
}

const DialectTransition *dialect_transition(Dialect dialect, const Transition &row,
                                            Combiner combiner) {
  const DialectTransition *found =
      llvm::find_if(kDialectTransitions, [&](const DialectTransition &told) {
        return told.dialect == dialect && told.name == row.name && told.src == row.src &&
               told.dst == row.dst && told.combiner == combiner;
      });
  return found == std::end(kDialectTransitions) ? nullptr : found;
}

std::string_view whole_words(Dialect dialect) {
  switch (dialect) {
  case Dialect::Jax:
    return "reshard";
  case Dialect::DTensor:
    return "redistribute";
  case Dialect::Spmd:
  case Dialect::LTensor:
    break;
  }
  return {};
}

} // namespace spmd::rules
