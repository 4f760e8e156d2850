// From the written dimensions of an equation to those of one application: `...`, a placed factor
// and a span become as many factors as the operands have dimensions there.
#include "rules/factors/shape_rule.h"

#include "rules/derivative.h"
#include "rules/factors/unify.h"
#include "rules/shapes/attrs.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallBitVector.h"

namespace spmd::rules {

uint8_t FactorMap::add(std::optional<ir::Extent> extent, bool whole) {
  // The last one stands for all that there is no number for: whole, and of no known extent.
  if (factors.size() == 255) {
    factors.back() = {std::nullopt, true};
    return 254;
  }
  factors.push_back({extent, whole});
  return static_cast<uint8_t>(factors.size() - 1);
}

namespace {

class Mapper {
public:
  // `map`: empty, to be filled.
  Mapper(const Application &app, const Equation &equation, const Binding &binding, FactorMap &map,
         Outcome &out)
      : app_(app), equation_(equation), row_(row_of(app, equation)), binding_(binding), out_(out),
        map_(map) {
    map_.args.resize(app.args.size());
  }

  void run() {
    if (row_ && row_->derivative_of) {
      map_ = transposed();
      return;
    }
    if (FactorsRule rule = factors_rule()) {
      FactorSink sink(app_, equation_, binding_, map_, out_);
      bool found = rule(app_, sink);
      if (!found)
        map_.results.clear();
      bool as_written = found && map_.results.empty() && !app_.results.empty();
      map_.results.resize(as_written ? 0 : app_.results.size());
      if (!as_written)
        return;
    }
    make_factors();
    for (unsigned r = 0; r < equation_.ref_count; ++r)
      map_ref(equation_.refs[r]);
    unify();
    for (unsigned k = 0; k < app_.results.size(); ++k)
      map_result(k, map_.results.emplace_back());
    map_.of_row.assign(of_row_.begin(), of_row_.end());
  }

private:
  // Of a derived row: the gradient of a result has the dimensions of the result, and what is made
  // those of the operand, apart from what was stretched.
  FactorMap transposed() {
    ForwardCall call = forward_call(app_, *row_);
    Application forward{app_.program, call.op,   app_.attrs,  app_.context,
                        call.slots,   app_.args, call.results};
    const Equation &equation = row_->derivative_of->equation.equation;
    OperandMismatch ignored;
    std::optional<Binding> binding = bind_operands(forward, equation, ignored);
    map_.results.resize(app_.results.size());
    if (!binding)
      return std::move(map_);
    FactorMap map = map_factors(forward, equation, *binding, out_);
    if (out_.violations.empty())
      judge_gradient_shapes(forward, equation, *binding, map, out_);
    size_t result = 0;
    map.gradients.resize(static_cast<unsigned>(map.args.size()));
    for (size_t i = 0; i < app_.slots.size() && i < gradient_count(*row_->derivative_of); ++i)
      for (unsigned k = 0; k < std::max<unsigned>(app_.slots[i].count, 1); ++k, ++result)
        if (k < app_.slots[i].count && result < map.results.size()) {
          map.args[app_.slots[i].first + k] = map.results[result];
          map.gradients.set(app_.slots[i].first + k);
        }
    map.results.assign(app_.results.size(), std::nullopt);
    const Slot *own = (*binding)[row_->derivative_at];
    auto member = static_cast<uint64_t>(number_attr(app_, {"member"}).value_or(0));
    if (!own || own->count == 0 || map.results.empty())
      return map;
    uint64_t arg = own->first + std::min<uint64_t>(member, own->count - 1);
    map.results[0] = map.args[arg];
    if (map.results[0])
      forget_stretched(app_.args[arg], *map.results[0]);
    return map;
  }
  void forget_stretched(const TensorInfo &arg, TensorFactors &factors) const {
    const ir::Shape *shape = app_.shape(arg);
    llvm::SmallBitVector cut(static_cast<unsigned>(factors.size()));
    for (ir::AxisId axis : app_.type(arg).sharded())
      if (std::optional<unsigned> dim = app_.type(arg).dim(axis); dim && *dim < factors.size())
        cut.set(*dim);
    for (unsigned d = 0; shape && d < factors.size(); ++d)
      if (!cut[d] && shape->dims[d] == ir::Extent(1))
        factors[d].clear();
  }

  void unify() {
    ExtentUnifier unifier(app_, equation_, binding_, of_row_, rest_, placed_, map_, out_);
    unifier.single_factors();
    unifier.single_elements();
    if (row_ && row_->extents) {
      ExtentSink sink(equation_, map_, of_row_);
      row_->extents(app_, sink);
    }
    unifier.merged_factors();
  }
  FactorsRule factors_rule() const {
    if (!row_)
      return nullptr;
    if (row_ == app_.op.row && app_.op.alias && app_.op.alias->factors)
      return app_.op.alias->factors;
    return row_->factors;
  }

  // Which factors of the row are several here.

  void make_factors() {
    of_row_.resize(equation_.factor_count);
    placed_ = factors_named(row_ ? row_->placed : std::string_view());
    FactorSet spanned = factors_named(row_ ? row_->spans : std::string_view());
    find_positions();
    spans_ = spanned ? span_count() : 1;
    for (unsigned f = 0; f < equation_.factor_count; ++f) {
      bool whole = equation_.whole >> f & 1;
      size_t count = placed_ >> f & 1 ? positions_.size() : spanned >> f & 1 ? spans_ : 1;
      for (size_t i = 0; i < count; ++i) {
        of_row_[f].push_back(map_.add(std::nullopt, whole));
        map_.factors.back().divides = divides(f);
      }
    }
  }
  bool divides(unsigned factor) const {
    if (row_ && row_->reduces && reduction_of(app_) != LossReduction::Mean)
      return false;
    for (unsigned t = 0; t < equation_.term_count; ++t)
      if (equation_.terms[t].divisors >> factor & 1)
        return true;
    return false;
  }
  FactorSet factors_named(std::string_view names) const {
    FactorSet set = 0;
    while (!names.empty()) {
      size_t end = std::min(names.find(' '), names.size());
      if (uint8_t factor = equation_.find_factor(names.substr(0, end)); factor != kNoFactor)
        set |= FactorSet(1) << factor;
      names.remove_prefix(std::min(end + 1, names.size()));
    }
    return set;
  }
  const ir::Shape *shape_of(unsigned operand) const {
    if (operand == kGenerator || !binding_[operand] || binding_[operand]->count == 0)
      return nullptr;
    const ir::Shape *shape = app_.shape(app_.args[binding_[operand]->first]);
    return shape && shape->ranked ? shape : nullptr;
  }
  // Where attribute `dim` puts the placed factors, seen from the operand that has them among
  // others.
  void find_positions() {
    for (unsigned r = 0; placed_ && r < equation_.ref_count; ++r) {
      const Ref &ref = equation_.refs[r];
      if (!has_rest(ref.first_dim, ref.dim_count) || !has_placed(ref.first_dim, ref.dim_count))
        continue;
      if (const ir::Shape *shape = shape_of(ref.operand)) {
        positions_known_ = read_positions(shape->dims.size());
        return;
      }
    }
  }
  bool read_positions(size_t rank) {
    auto positions = placed_dims(app_, row_->default_dim, rank);
    if (positions)
      positions_ = *positions;
    return positions.has_value();
  }
  size_t span_count() const {
    if (const ir::AttrValue *stated = any_attr(app_, {"normalized_shape"}))
      return stated->form == ir::AttrForm::List
                 ? app_.program.lists[stated->as<ir::AttrListId>()].items.size()
                 : 1;
    for (unsigned r = 0; r < equation_.ref_count; ++r) {
      const Ref &ref = equation_.refs[r];
      const ir::Shape *shape = shape_of(ref.operand);
      if (shape && !has_rest(ref.first_dim, ref.dim_count))
        return shape->dims.size();
    }
    return 1;
  }

  // One written list of dimensions against a number of dimensions.

  bool has_rest(unsigned first, unsigned count) const {
    for (unsigned d = first; d < first + count; ++d)
      if (equation_.dims[d].form == Dim::Form::Rest)
        return true;
    return false;
  }
  bool is_placed(const Dim &dim) const {
    if (dim.form == Dim::Form::Factor)
      return placed_ >> dim.first & 1;
    if (dim.form == Dim::Form::Merged)
      for (unsigned m = dim.first; m < dim.first + dim.count; ++m)
        if (placed_ >> equation_.merged[m] & 1)
          return true;
    return false;
  }
  bool has_placed(unsigned first, unsigned count) const {
    for (unsigned d = first; d < first + count; ++d)
      if (is_placed(equation_.dims[d]))
        return true;
    return false;
  }
  uint8_t rest(unsigned from_right) {
    while (rest_.size() <= from_right) {
      rest_.push_back(map_.add(std::nullopt, equation_.whole >> kRestFactor & 1));
      map_.factors.back().divides = divides(kRestFactor);
    }
    return rest_[from_right];
  }

  void append(const Dim &dim, size_t rest_count, TensorFactors &out) {
    switch (dim.form) {
    case Dim::Form::Rest:
      for (size_t i = rest_count; i-- > 0;)
        out.push_back({rest(static_cast<unsigned>(i))});
      return;
    case Dim::Form::One:
      out.append(spans_, DimFactors());
      return;
    case Dim::Form::Merged:
      out.push_back(merged(dim, 0));
      return;
    case Dim::Form::Counted:
    case Dim::Form::Factor:
      for (uint8_t factor : of_row_[dim.first])
        out.push_back({factor});
    }
  }
  // The i-th of several: `(d r)` where d is placed more than once.
  DimFactors merged(const Dim &dim, size_t i) const {
    DimFactors factors;
    for (unsigned m = dim.first; m < dim.first + dim.count; ++m) {
      const MapFactors &made = of_row_[equation_.merged[m]];
      factors.push_back(made[std::min(i, made.size() - 1)]);
    }
    return factors;
  }
  size_t width(const Dim &dim) const {
    if (dim.form == Dim::Form::One)
      return spans_;
    return dim.form == Dim::Form::Factor || dim.form == Dim::Form::Counted
               ? of_row_[dim.first].size()
           : dim.form == Dim::Form::Rest ? 0
                                         : 1;
  }

  // `rank`: of a tensor that is there; none: of a result, whose `...` is as wide as asked for.
  void expand(unsigned first, unsigned count, std::optional<size_t> rank, size_t rest_count,
              std::optional<TensorFactors> &made) {
    bool by_place = has_rest(first, count) && has_placed(first, count);
    if (by_place && !positions_known_)
      return;
    size_t fixed = 0;
    for (unsigned d = first; d < first + count; ++d)
      fixed +=
          by_place && is_placed(equation_.dims[d]) ? positions_.size() : width(equation_.dims[d]);
    if (rank)
      rest_count = *rank > fixed ? *rank - fixed : 0;
    TensorFactors &out = made.emplace();
    for (unsigned d = first; d < first + count; ++d)
      if (!by_place || !is_placed(equation_.dims[d]))
        append(equation_.dims[d], rest_count, out);
    if (by_place)
      for (unsigned d = first; d < first + count; ++d)
        if (is_placed(equation_.dims[d]))
          insert_placed(equation_.dims[d], out);
  }
  void insert_placed(const Dim &dim, TensorFactors &out) const {
    for (size_t i = 0; i < positions_.size(); ++i) {
      DimFactors factors =
          dim.form == Dim::Form::Merged ? merged(dim, i) : DimFactors{of_row_[dim.first][i]};
      out.insert(out.begin() + std::min<size_t>(positions_[i], out.size()), std::move(factors));
    }
  }

  // Operands.

  void map_ref(const Ref &ref) {
    if (ref.operand == kGenerator || !ref.has_dims || !binding_[ref.operand])
      return;
    const Slot &slot = *binding_[ref.operand];
    for (unsigned i = 0; i < slot.count; ++i) {
      uint32_t arg = static_cast<uint32_t>(slot.first + i);
      const ir::Shape *shape = app_.shape(app_.args[arg]);
      if (shape && shape->ranked && !map_.args[arg])
        map_tensor(ref, *shape, map_.args[arg]);
    }
  }
  void map_tensor(const Ref &ref, const ir::Shape &shape, std::optional<TensorFactors> &factors) {
    size_t rank = shape.dims.size();
    expand(ref.first_dim, ref.dim_count, rank, 0, factors);
    if (!factors)
      return;
    if (factors->size() > rank && may_broadcast(ref))
      factors->erase(factors->begin(), factors->end() - static_cast<ptrdiff_t>(rank));
    if (factors->size() != rank)
      factors.reset();
    else if (row_ && !row_->rest_from.empty())
      separate_rest(ref, shape, *factors);
  }
  // An operand that may lack leading dimensions: an addend, a condition, or what a function of
  // several can do without, such as a mask.
  bool may_broadcast(const Ref &ref) const {
    if (ref.role == RefRole::Condition)
      return true;
    for (unsigned t = 0; t < equation_.term_count; ++t) {
      const Term &term = equation_.terms[t];
      for (unsigned a = 0; a < term.atom_count; ++a) {
        const Atom &atom = equation_.atoms[term.first_atom + a];
        bool alone = atom.form == Atom::Form::Ref && term.atom_count == 1;
        bool spared = atom.form == Atom::Form::Function && atom.count > 1 &&
                      equation_.operands[ref.operand].optional;
        for (unsigned r = 0; (alone || spared) && r < atom.count; ++r)
          if (equation_.refs[atom.first + r].operand == ref.operand)
            return true;
      }
    }
    return false;
  }
  // Where an operand is longer or shorter than the one that leads, neither may be cut.
  void separate_rest(const Ref &ref, const ir::Shape &shape, TensorFactors &factors) {
    unsigned leader = equation_.find_operand(row_->rest_from);
    const ir::Shape *lead = leader < equation_.operand_count ? shape_of(leader) : nullptr;
    if (ref.operand == leader)
      return;
    for (size_t d = 0; d < factors.size(); ++d) {
      if (factors[d].size() != 1 || !llvm::is_contained(rest_, factors[d][0]))
        continue;
      if (lead && lead->dims.size() == shape.dims.size() && lead->dims[d] == shape.dims[d])
        continue;
      map_.factors[factors[d][0]].whole = true;
      factors[d][0] = map_.add(std::nullopt, true);
    }
  }

  // Results.

  void map_result(unsigned declared, std::optional<TensorFactors> &factors) {
    unsigned index = row_result(app_, declared);
    if (index >= equation_.result_count || !equation_.results[index].has_dims)
      return;
    const Result &result = equation_.results[index];
    const Sum &sum = sum_of(index);
    std::optional<size_t> rest_count = rest_width(sum, has_rest(sum));
    if (!rest_count)
      return;
    if (row_ && row_->reduces && result.dim_count == 0 && reduction_of(app_) == LossReduction::None)
      return kept(sum, *rest_count, factors.emplace());
    expand(result.first_dim, result.dim_count, std::nullopt, *rest_count, factors);
    if (factors && placed_ && !has_placed(result.first_dim, result.dim_count))
      keep_dims(*factors);
  }
  const Sum &sum_of(unsigned result) const {
    unsigned s = 0;
    while (result >= unsigned(equation_.sums[s].first_result) + equation_.sums[s].result_count)
      ++s;
    return equation_.sums[s];
  }
  // None if an operand that `...` depends on has no known dimensions.
  std::optional<size_t> rest_width(const Sum &sum, bool of_sum) const {
    size_t width = 0;
    for (unsigned r = 0; r < equation_.ref_count; ++r) {
      const Ref &ref = equation_.refs[r];
      if (ref.operand == kGenerator || !binding_[ref.operand] ||
          !has_rest(ref.first_dim, ref.dim_count) || (of_sum && !mentions(sum, ref)))
        continue;
      const Slot &slot = *binding_[ref.operand];
      for (unsigned i = 0; i < slot.count; ++i) {
        const std::optional<TensorFactors> &factors = map_.args[slot.first + i];
        if (!factors)
          return std::nullopt;
        for (const DimFactors &dim : *factors)
          if (dim.size() == 1)
            if (const auto *at = llvm::find(rest_, dim[0]); at != rest_.end())
              width = std::max<size_t>(width, static_cast<size_t>(at - rest_.begin()) + 1);
      }
    }
    return width;
  }
  // A mask that is drawn alone has the dimensions of the op's other results.
  bool has_rest(const Sum &sum) const {
    for (unsigned r = 0; r < equation_.ref_count; ++r)
      if (mentions(sum, equation_.refs[r]) &&
          has_rest(equation_.refs[r].first_dim, equation_.refs[r].dim_count))
        return true;
    return false;
  }
  bool mentions(const Sum &sum, const Ref &ref) const {
    auto at = static_cast<unsigned>(&ref - equation_.refs.data());
    if (at >= sum.first_extra && at < unsigned(sum.first_extra) + sum.extra_count)
      return true;
    for (unsigned t = sum.first_term; t < unsigned(sum.first_term) + sum.term_count; ++t)
      for (unsigned a = 0; a < equation_.terms[t].atom_count; ++a) {
        const Atom &atom = equation_.atoms[equation_.terms[t].first_atom + a];
        if (atom.form != Atom::Form::Integer && at >= atom.first &&
            at < unsigned(atom.first) + atom.count)
          return true;
      }
    return false;
  }
  void keep_dims(TensorFactors &factors) const {
    if (flag_attr(app_, "keepdim") || flag_attr(app_, "keepdims"))
      for (unsigned place : positions_)
        factors.insert(factors.begin() + std::min<size_t>(place, factors.size()), DimFactors());
  }
  // Without a reduction the result has the factors that the mean divides by.
  void kept(const Sum &sum, size_t rest_count, TensorFactors &factors) {
    FactorSet divisors = equation_.terms[sum.first_term].divisors;
    for (unsigned f = 0; f < equation_.factor_count; ++f)
      if (divisors >> f & 1)
        append({Dim::Form::Factor, static_cast<uint8_t>(f), 1}, 0, factors);
    if (divisors >> kRestFactor & 1)
      append({Dim::Form::Rest, kRestFactor, 1}, rest_count, factors);
  }

  const Application &app_;
  const Equation &equation_;
  const OpDef *row_;
  const Binding &binding_;
  Outcome &out_;
  FactorMap &map_;
  llvm::SmallVector<MapFactors, 8> of_row_;
  MapFactors rest_; // `...`, from the right
  FactorSet placed_ = 0;
  llvm::SmallVector<unsigned, 4> positions_;
  bool positions_known_ = false;
  size_t spans_ = 1;
};

} // namespace

FactorMap map_factors(const Application &app, const Equation &equation, const Binding &binding,
                      Outcome &out) {
  FactorMap map;
  Mapper(app, equation, binding, map, out).run();
  return map;
}

unsigned row_result(const Application &app, unsigned declared) {
  const ir::AttrValue *mask = any_attr(app, {"output_mask"});
  if (!mask || mask->form != ir::AttrForm::List)
    return declared;
  unsigned index = 0;
  for (const ir::AttrValue &item : app.program.lists[mask->as<ir::AttrListId>()].items) {
    bool there = item.bits != 0;
    if (there && declared-- == 0)
      return index;
    ++index;
  }
  return index;
}

} // namespace spmd::rules
