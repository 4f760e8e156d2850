// Follows shards through the factors of one application. Per axis: every operand that has the
// sharded factor must be cut the same way, and what the result does with that factor says whether
// the axis stays, is summed, or cannot be written.
#include "rules/shards/shards.h"

#include "rules/factors/shape_rule.h"
#include "rules/shards/sizes.h"
#include "rules/transitions/axes.h"
#include "rules/violations/meshes.h"
#include "rules/violations/operands.h"
#include "rules/violations/shards.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {
namespace {

using ir::AxisId;
using ir::AxisSet;
using ir::Extent;
using ir::Kind;
using ir::set_of;

// One tensor that takes part in the sum.
struct Operand {
  uint32_t arg;
  bool shape_only; // it gives extents only
  bool aside;      // it takes part in another result of the row only
  ir::Type type;
  const TensorFactors *factors; // null: they cannot be determined
  const ir::Shape *shape;       // null: not known
};

// The axes of one factor, as one operand has them.
struct FactorShards {
  llvm::SmallVector<AxisId, 2> axes; // outermost first
  const Operand *from = nullptr;
  unsigned dim = 0; // of that operand
};

class Judge {
public:
  Judge(const ShardInput &in, const Sum &sum, unsigned result,
        llvm::SmallVectorImpl<Violation> &out)
      : in_(in), app_(in.app), sum_(sum), result_index_(result), out_(out) {}

  // Each axis by itself first: only those that cut the same factor in all operands can be compared
  // in their order, and the order decides where they stand in the result.
  ShardResult run() {
    collect();
    for (AxisId axis : in_.axes)
      axis_alone(axis);
    if (AxisSet left = result_.sharded - result_.bad) {
      gather_factors(left);
      compare_orders();
      settle();
    }
    return std::move(result_);
  }

private:
  // --- what takes part ---

  // Operands of other sums of the row are held against the same factors, since they share extents;
  // they neither cut this result nor are summed in it.
  void collect() {
    collect(sum_, false);
    for (unsigned s = 0; s < in_.equation.sum_count; ++s)
      if (&in_.equation.sums[s] != &sum_)
        collect(in_.equation.sums[s], true);
  }
  void collect(const Sum &sum, bool aside) {
    const Equation &eq = in_.equation;
    for (unsigned t = 0; t < sum.term_count; ++t) {
      const Term &term = eq.terms[sum.first_term + t];
      for (unsigned a = 0; a < term.atom_count; ++a) {
        const Atom &atom = eq.atoms[term.first_atom + a];
        for (unsigned r = 0; atom.form != Atom::Form::Integer && r < atom.count; ++r)
          add(eq.refs[atom.first + r], aside);
      }
    }
    for (unsigned e = 0; e < sum.extra_count; ++e)
      add(eq.refs[sum.first_extra + e], aside);
  }
  void add(const Ref &ref, bool aside) {
    if (ref.operand == kGenerator || !in_.binding[ref.operand])
      return;
    const Slot &slot = *in_.binding[ref.operand];
    bool shape_only = ref.role == RefRole::ShapeOnly;
    for (unsigned i = 0; i < slot.count; ++i) {
      uint32_t arg = static_cast<uint32_t>(slot.first + i);
      auto *known = llvm::find_if(operands_, [&](const Operand &each) { return each.arg == arg; });
      if (known != operands_.end()) {
        known->shape_only &= shape_only || aside;
        continue;
      }
      const ir::Shape *shape = app_.shape(app_.args[arg]);
      const auto &factors = in_.map.args[arg];
      operands_.push_back({arg, shape_only, aside, app_.type(app_.args[arg]),
                           factors ? &*factors : nullptr,
                           shape && shape->ranked ? shape : nullptr});
    }
  }

  // --- one axis ---

  static OperandIndex index(const Operand &operand) { return {operand.arg}; }
  void report(AxisId axis, Violation violation) {
    result_.bad |= axis;
    add_merged(out_, 0, std::move(violation));
  }

  void axis_alone(AxisId axis) {
    const Operand *first = nullptr, *loose = nullptr;
    bool unknown = false, shape_only = true;
    for (const Operand &operand : operands_) {
      if (operand.aside)
        continue;
      unknown |= operand.type.unknown.contains(axis);
      if (operand.type.dim(axis)) {
        first = first ? first : &operand;
        shape_only &= operand.shape_only;
      } else if (operand.type.of(Kind::Varying).contains(axis) && !operand.shape_only && !loose) {
        loose = &operand;
      }
    }
    if (!first)
      return;
    result_.sharded |= axis;
    if (shape_only)
      result_.from_shape_only |= axis;
    if (unknown)
      result_.bad |= axis;
    else if (loose)
      report(axis, NoSpec{index(*loose), {}, axis});
    else
      compare(axis, *first);
  }

  // The factor that the axis cuts in this operand; none, and reported, if it may not be cut.
  std::optional<uint8_t> factor_of(const Operand &operand, AxisId axis) {
    unsigned dim = *operand.type.dim(axis);
    if (!operand.factors || dim >= operand.factors->size()) {
      if (in_.map.mismatched) // which is reported
        result_.bad |= axis;
      else
        report(axis, NoShardRule{index(operand), axis});
      return std::nullopt;
    }
    const DimFactors &factors = (*operand.factors)[dim];
    // A dimension that stands for none is stretched: it must be one element, not one on each rank.
    bool whole = factors.empty();
    uint8_t factor = whole ? 0 : factors[part_of(operand, dim, axis)];
    // A factor in two dimensions of one operand is its diagonal: a rank with some rows has only
    // those columns of them that its own number gives.
    if (!whole)
      whole = in_.map.factors[factor].whole || count_of(operand, factor) > 1;
    if (whole) {
      report(axis, UnwholeDimension{index(operand), dim, axis});
      return std::nullopt;
    }
    return factor;
  }
  static unsigned count_of(const Operand &operand, uint8_t factor) {
    unsigned count = 0;
    for (const DimFactors &dim : *operand.factors)
      count += static_cast<unsigned>(llvm::count(dim, factor));
    return count;
  }
  static std::optional<unsigned> dim_with(const Operand &operand, uint8_t factor) {
    for (unsigned d = 0; operand.factors && d < operand.factors->size(); ++d)
      if (llvm::is_contained((*operand.factors)[d], factor))
        return d;
    return std::nullopt;
  }

  bool is_one(uint8_t factor) const { return in_.map.factors[factor].extent == Extent(1); }

  // Which part of a merged dimension an axis cuts: the leading one, since a block is contiguous and
  // a cut of an inner part would take a stride of the whole. Of several axes a tail may cut
  // the next part, where the leading one is a single element on each rank and the result's type
  // says so.
  unsigned part_of(const Operand &operand, unsigned dim, AxisId axis) const {
    const DimFactors &factors = (*operand.factors)[dim];
    unsigned part = 0;
    while (part + 1 < factors.size() && is_one(factors[part]) &&
           claimed_on(operand, dim, axis, factors[part + 1], factors[part]))
      ++part;
    return part;
  }
  // True if the declared type of the result puts this axis, and those inside it, on the dimension
  // of `next` and not on that of `here`.
  bool claimed_on(const Operand &operand, unsigned dim, AxisId axis, uint8_t next,
                  uint8_t here) const {
    ir::TypeId declared = app_.results[result_index_].declared;
    if (!declared.valid() || !result_factors())
      return false;
    const ir::Type &claim = app_.program.types[declared];
    auto place = [&](uint8_t factor) -> std::optional<unsigned> {
      for (unsigned d = 0; d < result_factors()->size(); ++d)
        if (llvm::is_contained((*result_factors())[d], factor))
          return d;
      return std::nullopt;
    };
    if (!place(next) || place(next) == place(here))
      return false;
    for (AxisId inner : ir::shards_of(operand.type, dim))
      if (operand.type.order(inner) >= operand.type.order(axis) && claim.dim(inner) != place(next))
        return false;
    return true;
  }

  void compare(AxisId axis, const Operand &first) {
    std::optional<uint8_t> factor = factor_of(first, axis);
    if (!factor)
      return;
    unsigned first_dim = *first.type.dim(axis);
    for (const Operand &other : operands_) {
      if (&other == &first || (other.aside && other.type.unknown.contains(axis)))
        continue;
      std::optional<unsigned> dim = other.type.dim(axis);
      if (!dim && !other.factors && !other.aside && has_dims(other))
        return report(axis, NoShardRule{index(other), axis});
      std::optional<unsigned> same = dim_with(other, *factor);
      if (!dim && same && !stretches(other, *same, *factor))
        return mismatch(axis, first, first_dim, other, *same);
      if (!dim || other.aside)
        continue;
      std::optional<uint8_t> theirs = factor_of(other, axis);
      if (!theirs)
        return;
      if (theirs == factor)
        continue;
      std::optional<unsigned> mine = dim_with(first, *theirs);
      if (same)
        return report(axis, SpecMismatch{index(first), first_dim, index(other), *same, axis});
      if (mine)
        return report(axis, SpecMismatch{index(other), *dim, index(first), *mine, axis});
      return report(axis, AxisUsedTwice{index(first), first_dim, index(other), *dim, axis});
    }
  }
  // Cut over another axis is another mistake than not cut at all; the axis of the operand that
  // comes first is named.
  void mismatch(AxisId axis, const Operand &first, unsigned dim, const Operand &other,
                unsigned other_dim) {
    AxisSet others;
    for (AxisId each : ir::shards_of(other.type, other_dim))
      if (in_.axes.contains(each) && first.type.dim(each) != dim)
        others |= each;
    if (!others)
      return report(axis, SpecMismatch{index(first), dim, index(other), other_dim, axis});
    bool ahead = first.arg < other.arg;
    const Operand &second = ahead ? other : first;
    AxisSet named = ahead ? AxisSet(axis) : others, actual = ahead ? others : AxisSet(axis);
    ir::WrittenKind word{.form = ir::WrittenKind::Form::Shard,
                         .kind = Kind::Varying,
                         .dim = static_cast<int8_t>(ahead ? other_dim : dim)};
    result_.bad |= named | actual;
    result_.sharded |= named | actual;
    WrongAxis wrong{index(second),
                    word,
                    named,
                    actual,
                    print_layout(app_.mesh(), layout_of_set(app_.mesh(), named)),
                    print_layout(app_.mesh(), layout_of_set(app_.mesh(), actual))};
    if (!llvm::is_contained(out_, Violation(wrong)))
      out_.push_back(std::move(wrong));
  }
  static bool has_dims(const Operand &operand) {
    return !operand.shape || !operand.shape->dims.empty();
  }
  // One element, on all ranks together: it meets every block.
  bool stretches(const Operand &operand, unsigned dim, uint8_t factor) const {
    return !in_.map.binds(factor, operand.arg) && operand.shape &&
           dim < operand.shape->dims.size() && operand.shape->dims[dim] == Extent(1) &&
           ir::shards_of(operand.type, dim).empty();
  }

  // --- axes that share a dimension ---

  void gather_factors(AxisSet axes) {
    shards_.resize(in_.map.factors.size());
    for (const Operand &operand : operands_)
      for (unsigned dim = 0; !operand.aside && operand.factors && dim < operand.factors->size();
           ++dim)
        for (AxisId axis : ir::shards_of(operand.type, dim)) {
          if (!axes.contains(axis))
            continue;
          FactorShards &at = shards_[(*operand.factors)[dim][part_of(operand, dim, axis)]];
          if (!at.from)
            at.from = &operand, at.dim = dim;
          if (at.from == &operand)
            at.axes.push_back(axis);
        }
  }
  // The same axes in the same order, and blocks of the same sizes, in every operand.
  void compare_orders() {
    for (uint8_t factor = 0; factor < shards_.size(); ++factor) {
      const FactorShards &known = shards_[factor];
      if (!known.from)
        continue;
      for (const Operand &other : operands_) {
        std::optional<unsigned> dim = dim_with(other, factor);
        if (&other == known.from || !dim || other.aside || stretches(other, *dim, factor))
          continue;
        llvm::SmallVector<AxisId, 2> axes;
        for (AxisId axis : ir::shards_of(other.type, *dim))
          if (!result_.bad.contains(axis) && in_.axes.contains(axis))
            axes.push_back(axis);
        if (axes != known.axes)
          order_differs(known, other, axes);
        else
          compare_sizes(known, factor, other, *dim);
      }
    }
  }
  std::string names(llvm::ArrayRef<AxisId> axes) const {
    std::string text;
    for (AxisId axis : axes)
      text += (text.empty() ? "" : ", ") + app_.program.strings[app_.mesh()[axis].name].str();
    return text;
  }
  void order_differs(const FactorShards &known, const Operand &other, llvm::ArrayRef<AxisId> axes) {
    AxisSet both = set_of(known.axes) & set_of(axes);
    result_.bad |= both;
    add_merged(out_, 0,
               ShardOrderUnknown{index(*known.from), known.dim, names(known.axes), index(other),
                                 names(axes), both});
  }

  // The sizes of the blocks of a factor, seen from one operand; none, and reported, if they are not
  // multiples of what stands inside.
  std::optional<Blocks> blocks(const FactorShards &at, uint8_t factor, const Operand &operand,
                               unsigned dim) {
    ir::ShardSizesId id = app_.args[operand.arg].sizes;
    const ir::UnevenDim *uneven = id.valid() ? app_.program.shard_sizes[id].find(dim) : nullptr;
    if (!uneven)
      return Blocks{};
    const DimFactors &factors = (*operand.factors)[dim];
    AxisSet all = set_of(ir::shards_of(operand.type, dim));
    // Sizes are stated for all axes of the dimension together: they say nothing of a few of them.
    if (!in_.axes.contains(all)) {
      for (AxisId axis : at.axes)
        report(axis, NoShardRule{index(operand), axis});
      return std::nullopt;
    }
    std::optional<Extent> inner(Extent(1));
    for (size_t i = 1; i < factors.size() && inner; ++i)
      inner = times(app_.program, *inner, in_.map.factors[factors[i]].extent);
    std::optional<Blocks> made;
    if (factors.front() == factor && at.axes.size() == static_cast<size_t>(all.size()) && inner)
      made = divided(app_.program, Blocks(*uneven), *inner);
    for (AxisId axis : at.axes)
      if (!made)
        report(axis, StridedUneven{index(operand), dim, axis});
    return made;
  }
  void compare_sizes(const FactorShards &known, uint8_t factor, const Operand &other,
                     unsigned dim) {
    std::optional<Blocks> a = blocks(known, factor, *known.from, known.dim);
    std::optional<Blocks> b = blocks(known, factor, other, dim);
    if (!a || !b || *a == *b)
      return;
    result_.bad |= set_of(known.axes);
    out_.push_back(
        ShapeMismatch{"the shards of dimension " + std::to_string(known.dim) + " of operand " +
                          std::to_string(known.from->arg) + " and of dimension " +
                          std::to_string(dim) + " of operand " + std::to_string(other.arg),
                      print(app_.program, *a), print(app_.program, *b), set_of(known.axes)});
  }

  // --- the result ---

  const TensorFactors *result_factors() const {
    const auto &results = in_.map.results;
    return result_index_ < results.size() && results[result_index_] ? &*results[result_index_]
                                                                    : nullptr;
  }

  void settle() {
    AxisSet left = result_.sharded - result_.bad;
    const TensorFactors *dims = result_factors();
    // The row says nothing of results beyond its own: seeds, pivots, flags.
    if (!dims && row_result(app_, result_index_) >= in_.equation.result_count &&
        !in_.equation.results[in_.equation.result_count - 1].list) {
      result_.bad |= left;
      return;
    }
    if (!dims) {
      for (AxisId axis : left)
        for (const Operand &operand : operands_)
          if (operand.type.dim(axis) && !result_.bad.contains(axis))
            report(axis, NoShardRule{index(operand), axis});
      return;
    }
    ir::ShardSizes sizes;
    AxisSet kept;
    for (unsigned d = 0; d < dims->size(); ++d)
      kept |= dimension((*dims)[d], d, sizes);
    result_.summed = (result_.sharded - result_.bad) - kept;
    // The mean of the means of ranks is the mean only where all of them divide by the same number.
    for (uint8_t factor = 0; factor < shards_.size(); ++factor)
      if (const FactorShards &at = shards_[factor]; at.from && in_.map.factors[factor].divides) {
        // The gradient of a mean divides as the mean did, which was judged.
        if ((result_.summed & set_of(at.axes)) || !app_.op.forward)
          need_even(at, factor);
        result_.divided |= set_of(at.axes);
      }
    result_.divided -= result_.bad;
    llvm::erase_if(result_.axis_shards, [&](const ShardResult::AxisShard &shard) {
      return result_.bad.contains(shard.axis);
    });
    if (!sizes.dims.empty())
      result_.sizes = app_.program.shard_sizes.add(std::move(sizes));
  }
  void need_even(const FactorShards &at, uint8_t factor) {
    std::optional<Blocks> made = blocks(at, factor, *at.from, at.dim);
    for (AxisId axis : at.axes)
      if (made && !made->even())
        report(axis, UnevenShard{index(*at.from), at.dim, axis});
    result_.summed -= result_.bad;
  }

  // One dimension of the result: the axes of its leading parts, as long as what stands before them
  // is one element.
  AxisSet dimension(const DimFactors &factors, unsigned dim, ir::ShardSizes &sizes) {
    AxisSet all;
    bool leading = true;
    uint8_t order = 0;
    std::optional<Blocks> made = Blocks{};
    const FactorShards *first = nullptr;
    for (size_t i = 0; i < factors.size(); ++i) {
      const FactorShards &at = shards_[factors[i]];
      if (at.from) {
        all |= set_of(at.axes);
        if (!leading) {
          for (AxisId axis : at.axes)
            report(axis, StridedShard{index(*at.from), at.dim, axis});
        } else {
          for (AxisId axis : at.axes)
            result_.axis_shards.push_back({axis, static_cast<uint8_t>(dim), order++});
          std::optional<Blocks> own = blocks(at, factors[i], *at.from, at.dim);
          if (first && made && own)
            made = joined(app_.program, *made, rank_count(first->axes), *own, rank_count(at.axes));
          else
            made = own;
          first = &at;
        }
      }
      leading &= is_one(factors[i]);
      if (made && !made->even() && !at.from)
        made = times_inner(*made, factors[i]);
    }
    if (!first)
      return all;
    if (!made) {
      for (AxisId axis : all - result_.bad)
        report(axis, StridedUneven{index(*first->from), first->dim, axis});
    } else if (!made->even()) {
      sizes.dims.push_back(made->as_dim(dim));
    }
    return all;
  }
  std::optional<Blocks> times_inner(const Blocks &blocks, uint8_t factor) const {
    const std::optional<Extent> &extent = in_.map.factors[factor].extent;
    return extent ? multiplied(app_.program, blocks, *extent) : std::nullopt;
  }
  int64_t rank_count(llvm::ArrayRef<AxisId> axes) const {
    return size_of(app_.mesh(), set_of(axes));
  }

  const ShardInput &in_;
  const Application &app_;
  const Sum &sum_;
  unsigned result_index_;
  llvm::SmallVectorImpl<Violation> &out_;
  ShardResult result_;
  llvm::SmallVector<Operand, 6> operands_;
  llvm::SmallVector<FactorShards, 8> shards_; // per factor of the map
};

} // namespace

ShardResult judge_shards(const ShardInput &input, const Sum &sum, unsigned result,
                         llvm::SmallVectorImpl<Violation> &out) {
  AxisSet any;
  for (const TensorInfo &arg : input.app.args)
    any |= input.app.type(arg).sharded();
  if (!(any & input.axes))
    return {};
  return Judge(input, sum, result, out).run();
}

} // namespace spmd::rules
