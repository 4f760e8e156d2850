// One row per transition: a collective, convert or reinterpret between two kinds on one axis, with
// what a backend communicates (collective), what a rank does by itself (local step), and the
// backward (dual). Source: rules/README.md; DESIGN.md of spmd_types
// (github.com/meta-pytorch/spmd_types), "Comms by state transition" and "by forwards-backwards".
#pragma once

#include "rules/transitions/op.h"

#include "ir/dialect/words.h"
#include "ir/kind.h"

#include "llvm/ADT/ArrayRef.h"

#include <optional>
#include <string_view>

namespace spmd::rules {

enum class Collective : uint8_t {
  None,
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  Permute
};
// Called like the transition that is nothing else; of a permutation there are several.
inline constexpr std::string_view kCollectiveWords[] = {"none",
                                                        name_of(TransitionOp::AllReduce),
                                                        name_of(TransitionOp::AllGather),
                                                        name_of(TransitionOp::ReduceScatter),
                                                        name_of(TransitionOp::AllToAll),
                                                        name_of(TransitionOp::Broadcast),
                                                        "permute"};
// Bytes that one rank sends around a ring of that many ranks, for `bytes` of the larger side.
int64_t ring_bytes(Collective collective, int64_t bytes, int64_t ranks);
// What a rank does after the collective; before it, and as the whole of it, where the collective is
// None.
enum class LocalStep : uint8_t {
  None,
  TakeOwnSlice, // keep this rank's block of a dimension (V: unbind, S(i): chunk)
  KeepOnFirst,  // zero elsewhere
  KeepOnRoot,   // zero elsewhere
  PlaceOwn,     // own block in zeros
};
// Which forms V takes at each end: no change of shape, or both a stack on a new dimension (V) and a
// concatenation (S(i)).
enum class Layouts : uint8_t { Plain, StackOrShard };

struct Transition {
  TransitionOp op;
  ir::Kind src, dst;
  Collective collective = Collective::None;
  LocalStep local_step = LocalStep::None;
  Layouts layouts = Layouts::Plain;
  // The backward, as a row of this table: its op and kinds. None where the row is composed.
  struct Dual {
    TransitionOp op = TransitionOp::None;
    ir::Kind src = {}, dst = {};
    std::string_view name() const { return name_of(op); }
  } dual = {};
  bool expert = false; // value or gradient changes: needs `{ expert = true }`
  // Made of two: by way of R, to be followed by reinterpret(R, dst).
  // Its backward is that of its parts, the last one first.
  bool composed = false;
  bool unstated = false;      // what the name means where a call states no words
  bool redistributes = false; // what `redistribute` means by these ends, whatever it costs
  bool fixes = false;         // what a person would write to repair an operand

  std::string_view name() const { return name_of(op); }
};

llvm::ArrayRef<Transition> transitions();
// Rows of `reorder`, which permutes the blocks that ranks hold: what one axis of such a call goes
// through. It means something only with the other axes of the call, which frees and takes as many
// ranks of each dimension, so that local shapes stay. The axes stand in the order of the result.
llvm::ArrayRef<Transition> joint_transitions();
// Null if the table has no such row. Reduced is matched exactly. Redistribute stands for the row
// of another name that leads from src to dst and keeps the meaning (DESIGN.md of spmd_types,
// "Per-mesh-dim redistribute").
const Transition *find_transition(TransitionOp op, ir::Kind src, ir::Kind dst);
// Whether what goes into a call of that name and what comes out of it mean one tensor: it has rows
// by which one redistributes. `expert` may ask for its others.
bool redistributes(TransitionOp op);
// The row of the backward; null where the row is composed.
const Transition *dual_of(const Transition &row);

struct TransitionParts {
  const Transition *first, *second;
};
// What a composed row stands for, in order.
TransitionParts parts_of(const Transition &row);

// What a call that states no words means, by the row that is marked `unstated`: the kind that its
// operand should have (none: whatever the operand is), and the kind of its result (R stands for
// `R|I`; none: it must be stated).
struct DefaultKinds {
  std::optional<ir::Kind> src, dst;
  bool reduces = false;
};
// Of None: no words.
const DefaultKinds &unstated_words(TransitionOp op);

// Spellings of frameworks whose name states words. Those that name a whole row count as marked
// `expert`.
struct SpellingKinds {
  std::string_view spelling; // without its dialect
  TransitionOp op;           // the transition that it means
  std::optional<ir::Kind> src, dst;
  std::optional<ir::Combiner> combiner = std::nullopt;
  std::string_view to = {}; // attribute `to`, where it decides which row is meant
};
llvm::ArrayRef<SpellingKinds> all_spelled_words();
// Null if the spelling states nothing. A dialect in front is ignored.
const SpellingKinds *spelled_words(std::string_view spelling, std::string_view to = {});

// How a framework says one row of the table on an axis that is judged locally, where each rank has
// a tensor of its own. What it says on whole tensors is
// ir::redistribute_word().
struct DialectTransition {
  ir::Dialect dialect;
  TransitionOp op;
  ir::Kind src, dst;
  std::string_view words;    // spellings in order, separated by blanks; empty: it has none
  std::string_view why = {}; // it has none, or what its words leave out
  ir::Combiner combiner = ir::Combiner::Sum;
};
// Null if the dialect has no word for the row, and nothing is known of the reason.
const DialectTransition *dialect_transition(ir::Dialect dialect, const Transition &row,
                                            ir::Combiner combiner);
} // namespace spmd::rules
