// The effect of one call on the dimensions of its operand, step by step (shape.cc: of a
// list along the axes of the call; shards.cc: of shards).
#pragma once

#include "ir/support/arrays.h"
#include "rules/transitions/blocks.h"
#include "rules/transitions/call.h"

#include <numeric>

namespace spmd::rules {

enum class Reshape : uint8_t { Keep, Join, Cut, Exchange };
Reshape reshape_of(const Transition &row);

// Block lengths that the call states, `splits` and the like; not known if a part is no number.
struct Splits {
  llvm::SmallVector<int64_t, 8> lengths;
  bool known = true;

  int64_t sum() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t(0)); }
  std::optional<llvm::ArrayRef<int64_t>> numbers() const {
    return known ? std::optional(ir::as_array(lengths)) : std::nullopt;
  }
};

// Dimensions keep together what is known of them: the extent on one rank, the axes that shard it,
// how the blocks are cut.
class LayoutEffect {
public:
  LayoutEffect(const LayoutInput &input, Outcome &specs, Outcome &shapes);

  TransitionLayout run();

private:
  using Dim = std::optional<size_t>;
  // One call over the ranks of these axes, outermost first.
  struct Step {
    const AxisEffect *effect;
    llvm::SmallVector<ir::AxisId, 4> axes;
    int64_t size;
    unsigned index = 0;
  };

  // Axes with the same words are one step.
  llvm::SmallVector<Step, 2> steps() const;
  // Here and below false: nothing can be said of the result.
  bool run_global(llvm::ArrayRef<Step> steps);
  bool run_local(llvm::ArrayRef<Step> steps);
  bool run_joint(bool global);
  void begin(const Step &step);
  void move(TransitionMove::Form form, size_t dim, llvm::StringRef key = {});

  // Shards move.
  bool take_source(const AxisEffect &effect);
  bool put_target(const AxisEffect &effect);
  void join_innermost(size_t dim, llvm::StringRef key);
  void cut_innermost(size_t dim, llvm::StringRef key);
  void report(const BlockMoves::Problem &problem, size_t dim, llvm::StringRef key);
  void not_innermost(size_t dim, ir::AxisSet axes);
  // Always false, for the caller to return.
  bool unplaced() {
    bad_ |= axes_ & input_.fine;
    return false;
  }

  // The axes of the call stand for a list.
  bool apply(const AxisEffect &effect);
  bool join(const AxisEffect &effect);
  bool cut(const AxisEffect &effect);
  bool exchange(const AxisEffect &effect);
  bool exchange_unstated();
  bool exchange_stated(size_t split, size_t join);
  void exchange_in_place(size_t dim);
  bool states_lengths() const { return app_.attr("in_splits") || app_.attr("out_splits"); }
  void lengthen(size_t dim, llvm::StringRef key);
  void shorten(size_t dim, llvm::StringRef key);
  void divide(size_t dim);
  void insert(size_t dim);
  void unbind(size_t dim);
  void touch(size_t dim, bool joins, bool removes = false);
  void release(ir::AxisSet axes);

  // The dimension that an attribute names among `rank`; reported if it is none.
  Dim named(llvm::StringRef key, size_t rank);
  Dim shard(const ir::WrittenKind &word);
  Dim place(int64_t dim, size_t rank, llvm::StringRef key);
  std::optional<Splits> splits(llvm::StringRef key);
  void need_equal(std::string what, ir::Extent expected, ir::Extent found);
  void compare();
  ir::ShapeId shape();
  ir::ShardSizesId sizes();

  // Whether an unstated end is a stack: only the declared rank can say so.
  bool is_declared_rank(size_t rank) const {
    return ranked_ && declared_ && declared_->dims.size() == rank;
  }
  bool stacks(const AxisEffect &effect) const {
    if (effect.src_stated)
      return effect.src.form != ir::WrittenKind::Form::Shard;
    return declared_ ? is_declared_rank(dims_.size() + 1)
                     : effect.row->collective == Collective::None;
  }
  bool unbinds(const AxisEffect &effect) const {
    if (effect.dst_stated)
      return effect.dst.form != ir::WrittenKind::Form::Shard;
    return declared_ && !dims_.empty() && is_declared_rank(dims_.size() - 1);
  }
  std::string print(ir::Extent extent) const {
    return ir::print(extent, app_.program.exprs, app_.program.strings);
  }
  ir::AxisSet shard_axes() const {
    ir::AxisSet axes;
    for (const BlockDim &dim : dims_)
      for (ir::AxisId axis : dim.axes)
        axes |= axis;
    return axes;
  }

  const LayoutInput &input_;
  const Application &app_;
  Outcome &specs_, &shapes_;
  BlockMoves blocks_;
  ir::DType dtype_ = ir::DType::Unknown;
  std::optional<ir::Shape> declared_; // a copy: interning moves shapes
  bool ranked_ = false;
  ir::AxisSet bad_;
  // Of the step at hand: its axes outermost first, as a set, those whose kinds are right; ranks.
  llvm::SmallVector<ir::AxisId, 4> order_;
  ir::AxisSet axes_;
  llvm::SmallVector<ir::AxisId, 4> fine_;
  int64_t size_ = 1;
  const AxisEffect *effect_ = nullptr;
  unsigned step_ = 0;
  llvm::SmallVector<TransitionMove, 2> moves_;
  // As many as a tensor can have where the rank is not known.
  llvm::SmallVector<BlockDim, 6> dims_;
};

} // namespace spmd::rules
