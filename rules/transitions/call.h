// What one call of a transition states, and what its words come to for one operand: shared by the
// judgment of kinds and by shapes.
#pragma once

#include "rules/transitions/axes.h"
#include "rules/transitions/blocks.h"
#include "rules/transitions/transition.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::rules {

// The words of a call on one axis as written; none where they are unstated.
struct StatedKinds {
  std::optional<ir::WrittenKind> src, dst;
};

struct TransitionCall {
  TransitionOp op = TransitionOp::None;
  const DefaultKinds *unstated = nullptr; // what absent words mean
  CallAxes axes;
  llvm::SmallVector<StatedKinds, 2> words; // per axis as written
  std::optional<ir::Combiner> combiner;    // attribute `op`
  bool marked = false;                     // `expert`, or a spelling that names the row

  // One step over all axes together: joint_transitions().
  bool joint() const { return op == TransitionOp::Reorder; }

  // How the addends are joined, where the operand is to be partial; an average is a sum.
  ir::Combiner asked(const ir::WrittenKind &src) const {
    bool pending = src.kind == ir::Kind::Partial;
    ir::Combiner asked = combiner.value_or(pending ? src.combiner : ir::Combiner::Sum);
    return asked == ir::Combiner::Avg ? ir::Combiner::Sum : asked;
  }
};

// What attribute `op` of a call names; none if it is no combiner.
std::optional<ir::Combiner> combiner_of(const ir::Program &program, const ir::AttrValue &op);

// A rule for the results of a transition along named axes, whose attributes are known to be right;
// results are forgotten already. `is_refused`: what more is held against a call that can be
// understood, and added to `out`.
void apply_transition(const Application &app, Outcome &out,
                      llvm::function_ref<bool(const TransitionCall &)> is_refused);

// None if the call cannot be understood at all; the violations say why.
std::optional<TransitionCall> read_call(const Application &app, Outcome &out);

// The positional operands that are tensors: indices into Application::args.
llvm::SmallVector<uint32_t, 2> operands_of(const Application &app);

// What the call does on one axis as written. Neither a row nor the identity: there is no such
// transition, or the operand does not tell which one is meant.
struct AxisEffect {
  const Transition *row = nullptr;
  bool identity = false;
  ir::WrittenKind src, dst;
  bool src_stated = false, dst_stated = false;
  // Partition specs are judged here: S(i) is in the words wherever a shard is meant.
  bool global = false;
  friend bool operator==(const AxisEffect &, const AxisEffect &) = default;
};

// An operand of a call, and where its partition spec is judged.
struct TransitionOperand {
  const Application &app;
  const TransitionCall &call;
  const ir::Type &type;
  const ir::Shape *shape = nullptr;    // null if not known
  const ir::Shape *declared = nullptr; // of the result; null if not stated
  ir::AxisSet global;                  // no list stands for the axis

  std::optional<unsigned> dim(std::optional<ir::AxisId> axis) const {
    return axis && global.contains(*axis) ? type.dim(*axis) : std::nullopt;
  }
  // An axis of size 1 is what the others of the call are.
  bool is_global(std::optional<ir::AxisId> axis) const {
    return axis ? global.contains(*axis) : !(call.axes.all() & global).empty();
  }
  // Recorded calls tell a stack from a concatenation by the rank of the result.
  bool result_has(int more) const {
    return shape && declared && shape->ranked && declared->ranked &&
           declared->dims.size() == shape->dims.size() + static_cast<size_t>(more);
  }
};

// The words on one axis, unstated ones filled in, and the row that they name. `axis`: a piece of
// the axis as written; none if that has size 1.
AxisEffect effect_of(const TransitionOperand &operand, size_t written,
                     std::optional<ir::AxisId> axis);

// `S(i)`, i from an attribute; recorded calls mean 0 where there is none.
ir::WrittenKind shard_word(const TransitionOperand &operand, llvm::StringRef key);

// One operand of a call, and what its kinds came to.
struct LayoutInput {
  const Application &app;
  const TransitionCall &call;
  llvm::ArrayRef<AxisEffect> effects; // per axis as written
  uint32_t operand;                   // into Application::args
  const ir::Type &type;               // of the operand
  ir::AxisSet fine;                   // axes of the call whose kinds are right
  ResultClaim declared;
};

// One thing that a call does to an operand, along some of its axes: data are moved as extents are.
struct TransitionMove {
  // No dimension changes; a new one along which the ranks stand; blocks joined; a dimension with
  // one entry per rank goes; a dimension is cut into blocks.
  enum class Form : uint8_t { Keep, Stack, Join, Unbind, Cut };
  Form form = Form::Keep;
  const Transition *row = nullptr;
  ir::Combiner combiner = ir::Combiner::Sum; // Avg where the call says so
  unsigned step = 0;                         // moves of one step are one exchange
  size_t dim = 0;                            // in the dimensions of that moment; not of Keep
  llvm::SmallVector<ir::AxisId, 4> axes;     // outermost first; none: an axis of size 1
  llvm::SmallVector<int64_t, 8> lengths;     // of the blocks, as stated; empty if they are not
  // Join and Cut, where the axes shard the dimension: what it is then.
  std::optional<BlockDim> after;
  // Of a reorder: per rank of the group, from which it receives.
  llvm::SmallVector<int64_t, 8> sources;
};

// Axes that shard each dimension, outermost first.
using ShardLists = llvm::ArrayRef<llvm::SmallVector<ir::AxisId, 2>>;
// A permutation of the ranks along the axes that brings each block of `before` to where `after`
// wants it: for each rank of a group (counted with the first of the axes outermost) the one that it
// receives from. Axes that shard nothing count copies, which are matched in mesh order. As many
// ranks leave each dimension as enter it.
llvm::SmallVector<int64_t, 8> reorder_sources(const ir::Mesh &mesh, llvm::ArrayRef<ir::AxisId> axes,
                                              ShardLists before, ShardLists after);

// What a call makes of the dimensions of an operand.
struct TransitionLayout {
  ir::ShapeId shape; // local; none where it cannot be determined
  ir::ShardSizesId sizes;
  using Axes = llvm::SmallVector<ir::AxisId, 2>;
  llvm::SmallVector<Axes, 6> shards; // of the result, per dimension, outermost axis first
  ir::AxisSet bad; // what the result is there was reported, or cannot be determined
  llvm::SmallVector<TransitionMove, 2> moves; // in order
};

// Shapes are checked against what is declared; `shapes` takes these findings, `specs` those about
// where shards lie.
TransitionLayout transition_layout(const LayoutInput &input, Outcome &specs, Outcome &shapes);

using TransitionMoves = llvm::SmallVector<TransitionMove, 2>;
// How the data of each operand move, in order, for a call that was judged to be right.
llvm::SmallVector<TransitionMoves, 1> transition_moves(const Application &app);

} // namespace spmd::rules
