// How frameworks say transitions: spellings that are read as rows of the table, and the words in
// which a row is printed for users of a framework. Sources: spmd_types, DTensor, Megatron-LM;
// jaxprs of JAX 0.10.
#include "rules/transitions/rows.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {
namespace {

using ir::Combiner;
using ir::Dialect;
using rows::I;
using rows::Op;
using rows::P;
using rows::R;
using rows::Reduced;
using rows::V;
constexpr std::nullopt_t kAny = std::nullopt;

// clang-format off
constexpr SpellingKinds kSpelledWords[] = {
    {.spelling = "psum", .op = Op::AllReduce, .src = kAny, .dst = I},
    {.spelling = "psum_invariant", .op = Op::AllReduce, .src = kAny, .dst = I},
    {.spelling = "unreduced_psum", .op = Op::AllReduce, .src = P, .dst = I},
    {.spelling = "pmax", .op = Op::AllReduce, .src = kAny, .dst = kAny, .combiner = Combiner::Max},
    {.spelling = "pmin", .op = Op::AllReduce, .src = kAny, .dst = kAny, .combiner = Combiner::Min},
    {.spelling = "all_gather_invariant", .op = Op::AllGather, .src = V, .dst = I},
    {.spelling = "all_gather_reduced", .op = Op::AllGather, .src = V, .dst = Reduced},
    {.spelling = "unreduced_reduce_scatter", .op = Op::ReduceScatter, .src = P, .dst = V},
    {.spelling = "unreduced_psum_scatter", .op = Op::ReduceScatter, .src = P, .dst = V},
    {.spelling = "pvary", .op = Op::Reinterpret, .src = I, .dst = V},
    {.spelling = "preduced", .op = Op::Convert, .src = I, .dst = Reduced},
    {.spelling = "vary_unreduced_cast", .op = Op::Reinterpret, .src = V, .dst = P},
    {.spelling = "reduced_vary_cast", .op = Op::Reinterpret, .src = R, .dst = V},
    {.spelling = "pcast", .op = Op::Reinterpret, .src = kAny, .dst = V, .to = "varying"},
    {.spelling = "pcast", .op = Op::Convert, .src = I, .dst = Reduced, .to = "reduced"},
    {.spelling = "pcast", .op = Op::Reinterpret, .src = V, .dst = P, .to = "unreduced"},
    // LTensor; whatever the operand is.
    {.spelling = "mark_varying", .op = Op::Reinterpret, .src = kAny, .dst = V},
};

constexpr std::string_view kCut = "a cut is axis_index and a slice there, no primitive";
constexpr std::string_view kPad = "JAX has no word for one rank's part in zeros";
constexpr std::string_view kMerge = "JAX does not make an invariant value of a reduced one";
constexpr std::string_view kRoot = "JAX has no collective with a root";
constexpr std::string_view kTwoSets = "LTensor has two sets of axes, and no word for this";
constexpr std::string_view kFunctional =
    "torch's collectives leave out what becomes of the gradient: src and dst are ours";

constexpr DialectTransition kDialectTransitions[] = {
    {Dialect::Jax, Op::AllGather, V, R, "all_gather_reduced"},
    {Dialect::Jax, Op::AllGather, V, Reduced, "all_gather_reduced"},
    {Dialect::Jax, Op::AllGather, V, I, "all_gather_invariant"},
    {Dialect::Jax, Op::AllGather, V, V, "all_gather_reduced reduced_vary_cast"},
    {Dialect::Jax, Op::AllReduce, P, I, "unreduced_psum"},
    {Dialect::Jax, Op::AllReduce, P, R, "unreduced_psum preduced"},
    {Dialect::Jax, Op::AllReduce, P, Reduced, "unreduced_psum preduced"},
    {Dialect::Jax, Op::AllReduce, P, I, "pmax", {}, Combiner::Max},
    {Dialect::Jax, Op::AllReduce, P, I, "pmin", {}, Combiner::Min},
    {Dialect::Jax, Op::AllReduce, P, R, "pmax preduced", {}, Combiner::Max},
    {Dialect::Jax, Op::AllReduce, P, R, "pmin preduced", {}, Combiner::Min},
    {Dialect::Jax, Op::ReduceScatter, P, V, "unreduced_reduce_scatter"},
    {Dialect::Jax, Op::AllToAll, V, V, "all_to_all"},
    {Dialect::Jax, Op::CollectivePermute, V, V, "ppermute"},
    {Dialect::Jax, Op::Reinterpret, R, V, "reduced_vary_cast"},
    {Dialect::Jax, Op::Reinterpret, Reduced, V, "reduced_vary_cast"},
    {Dialect::Jax, Op::Reinterpret, R, P, "reduced_vary_cast vary_unreduced_cast"},
    {Dialect::Jax, Op::Reinterpret, Reduced, P, "reduced_vary_cast vary_unreduced_cast"},
    {Dialect::Jax, Op::Reinterpret, I, R, "preduced"},
    {Dialect::Jax, Op::Reinterpret, I, V, "pvary"},
    {Dialect::Jax, Op::Reinterpret, I, P, "pvary vary_unreduced_cast"},
    {Dialect::Jax, Op::Reinterpret, V, P, "vary_unreduced_cast"},
    {Dialect::Jax, Op::Reinterpret, R, I, "", kMerge},
    {Dialect::Jax, Op::Reinterpret, Reduced, I, "", kMerge},
    {Dialect::Jax, Op::Convert, R, I, "", kMerge},
    {Dialect::Jax, Op::Convert, Reduced, I, "", kMerge},
    {Dialect::Jax, Op::Convert, I, R, "preduced"},
    {Dialect::Jax, Op::Convert, I, Reduced, "preduced"},
    {Dialect::Jax, Op::Convert, R, V, "", kCut},
    {Dialect::Jax, Op::Convert, Reduced, V, "", kCut},
    {Dialect::Jax, Op::Convert, I, V, "", kCut},
    {Dialect::Jax, Op::Convert, R, P, "", kPad},
    {Dialect::Jax, Op::Convert, Reduced, P, "", kPad},
    {Dialect::Jax, Op::Convert, I, P, "", kPad},
    {Dialect::Jax, Op::Convert, V, P, "", kPad},
    {Dialect::Jax, Op::Broadcast, V, R, "", kRoot},
    {Dialect::Jax, Op::Broadcast, V, I, "", kRoot},
    {Dialect::Jax, Op::Reduce, P, V, "", kRoot},
    {Dialect::Jax, Op::Reduce, I, V, "", kRoot},

    // In a local region the tensors of DTensor are torch's.
    {Dialect::DTensor, Op::AllGather, V, R, "_c10d_functional.all_gather_into_tensor", kFunctional},
    {Dialect::DTensor, Op::AllGather, V, Reduced, "_c10d_functional.all_gather_into_tensor",
     kFunctional},
    {Dialect::DTensor, Op::AllGather, V, I, "_c10d_functional.all_gather_into_tensor", kFunctional},
    {Dialect::DTensor, Op::AllReduce, P, R, "_c10d_functional.all_reduce", kFunctional},
    {Dialect::DTensor, Op::AllReduce, P, Reduced, "_c10d_functional.all_reduce", kFunctional},
    {Dialect::DTensor, Op::AllReduce, P, I, "_c10d_functional.all_reduce", kFunctional},
    {Dialect::DTensor, Op::ReduceScatter, P, V, "_c10d_functional.reduce_scatter_tensor",
     kFunctional},
    {Dialect::DTensor, Op::AllToAll, V, V, "_c10d_functional.all_to_all_single"},
    {Dialect::DTensor, Op::Broadcast, V, R, "_c10d_functional.broadcast", kFunctional},
    {Dialect::DTensor, Op::Broadcast, V, I, "_c10d_functional.broadcast", kFunctional},

    {Dialect::LTensor, Op::AllGather, V, R, "_c10d_functional.all_gather_into_tensor"},
    {Dialect::LTensor, Op::AllGather, V, Reduced, "_c10d_functional.all_gather_into_tensor"},
    {Dialect::LTensor, Op::AllReduce, P, I, "_c10d_functional.all_reduce"},
    {Dialect::LTensor, Op::ReduceScatter, P, V, "_c10d_functional.reduce_scatter_tensor"},
    {Dialect::LTensor, Op::AllToAll, V, V, "_c10d_functional.all_to_all_single"},
    {Dialect::LTensor, Op::Reinterpret, I, V, "mark_varying"},
    {Dialect::LTensor, Op::Reinterpret, R, V, "mark_varying"},
    {Dialect::LTensor, Op::Reinterpret, Reduced, V, "mark_varying"},
    {Dialect::LTensor, Op::AllGather, V, I, "",
     "LTensor's all_gather always adds the axis to reduced"},
    {Dialect::LTensor, Op::AllGather, V, V, "",
     "LTensor's all_gather always adds the axis to reduced"},
    {Dialect::LTensor, Op::AllReduce, P, R, "",
     "LTensor's all_reduce takes the axis out of both sets"},
    {Dialect::LTensor, Op::AllReduce, P, Reduced, "",
     "LTensor's all_reduce takes the axis out of both sets"},
    {Dialect::LTensor, Op::Convert, I, R, "", kTwoSets},
    {Dialect::LTensor, Op::Convert, I, Reduced, "", kTwoSets},
    {Dialect::LTensor, Op::Reinterpret, I, R, "", kTwoSets},
    {Dialect::LTensor, Op::Reinterpret, V, P, "",
     "a variant value is a sum wherever it is used as one: there is no cast before"},
};
// clang-format on

// Each row of the two tables above can be reached: it is the first with what it is looked up by,
// and stands for a transition that there is.
constexpr bool spelled_words_are_sound() {
  for (const SpellingKinds &row : kSpelledWords) {
    bool known = false;
    for (const Transition &transition : rows::kTransitions)
      known |= transition.op == row.op && (!row.src || transition.src == *row.src) &&
               (!row.dst || transition.dst == *row.dst);
    for (const SpellingKinds *other = kSpelledWords; other != &row; ++other)
      known &= other->spelling != row.spelling || (!other->to.empty() && other->to != row.to);
    if (!known)
      return false;
  }
  return true;
}
constexpr bool dialect_transitions_are_sound() {
  for (const DialectTransition &row : kDialectTransitions) {
    if (!rows::row_of(rows::kTransitions, row.op, row.src, row.dst))
      return false;
    for (const DialectTransition *other = kDialectTransitions; other != &row; ++other)
      if (other->dialect == row.dialect && other->op == row.op && other->src == row.src &&
          other->dst == row.dst && other->combiner == row.combiner)
        return false;
  }
  return true;
}
// JAX has a word for each row, or a reason why not.
constexpr bool jax_is_whole() {
  for (const Transition &row : rows::kTransitions) {
    auto says = [&](const DialectTransition &each) {
      return each.dialect == Dialect::Jax && each.op == row.op && each.src == row.src &&
             each.dst == row.dst;
    };
    if (std::none_of(std::begin(kDialectTransitions), std::end(kDialectTransitions), says))
      return false;
  }
  return true;
}
static_assert(spelled_words_are_sound());
static_assert(dialect_transitions_are_sound());
static_assert(jax_is_whole());

} // namespace

llvm::ArrayRef<SpellingKinds> all_spelled_words() { return kSpelledWords; }

const SpellingKinds *spelled_words(std::string_view spelling, std::string_view to) {
  if (size_t dot = spelling.rfind('.'); dot != std::string_view::npos)
    spelling.remove_prefix(dot + 1);
  for (const SpellingKinds &row : kSpelledWords)
    if (row.spelling == spelling && (row.to.empty() || row.to == to))
      return &row;
  return nullptr;
}

const DialectTransition *dialect_transition(Dialect dialect, const Transition &row,
                                            Combiner combiner) {
  const DialectTransition *found =
      llvm::find_if(kDialectTransitions, [&](const DialectTransition &each) {
        return each.dialect == dialect && each.op == row.op && each.src == row.src &&
               each.dst == row.dst && each.combiner == combiner;
      });
  return found == std::end(kDialectTransitions) ? nullptr : found;
}

} // namespace spmd::rules
