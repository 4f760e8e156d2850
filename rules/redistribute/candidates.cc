// Strategies from the factors of a row, and from what is pending.
#include "rules/redistribute/candidates.h"

#include "rules/factors/shape_rule.h"
#include "rules/redistribute/ends.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules::redistribute {

using ir::AxisId;
using ir::Combiner;
using ir::Kind;

namespace {

constexpr size_t kMostSubsets = 4; // operands of which each subset is tried as partial

} // namespace

Candidates::Candidates(const Application &app, llvm::ArrayRef<ir::Type> types,
                       llvm::ArrayRef<ir::ShapeId> wholes)
    : app_(app), program_(app.program), types_(types), wholes_(wholes) {
  read_factors();
}

// Factors of dimensions, as the operands have them where nothing is cut: shards that do not fit
// hide what is one factor. Where numbers in attributes are those of one rank, as the operands are.
void Candidates::read_factors() {
  llvm::SmallVector<TensorInfo, 8> whole;
  for (size_t i = 0; i < app_.args.size(); ++i) {
    ir::Type type = types_[i];
    for (AxisId axis : app_.global_axes())
      if (type.dim(axis))
        type.set_kind(axis, Kind::Replicate);
    type.renumber_shard_orders();
    whole.push_back(
        {program_.types.add(type), wholes_[i].valid() ? wholes_[i] : app_.args[i].shape, {}});
  }
  if (!read_factors(whole) && !read_factors(app_.args))
    factors_.clear();
  factors_.resize(app_.args.size());
}
bool Candidates::read_factors(llvm::ArrayRef<TensorInfo> args) {
  llvm::SmallVector<ResultClaim, 2> results(app_.results.size());
  Application app{program_, app_.op, app_.attrs, app_.context, app_.slots, args, results, true};
  llvm::SmallVector<RowUse, 1> uses = row_uses(app);
  if (uses.size() != 1) // zipped lists: no factor is of all members
    return false;
  Application one = app.bound_to(uses[0]);
  OperandMismatch problem;
  const Equation &equation = uses[0].row->equation.equation;
  std::optional<Binding> binding = bind_operands(one, equation, problem);
  if (!binding)
    return false;
  Outcome found;
  FactorMap map = shape_factors(one, equation, *binding, found);
  if (map.mismatched || !found.violations.empty())
    return false;
  factors_.assign(map.args.begin(), map.args.end());
  whole_factors_.clear();
  for (const FactorInfo &factor : map.factors)
    whole_factors_.push_back(factor.whole);
  return true;
}

bool Candidates::one_element(size_t arg, unsigned dim) const {
  if (!wholes_[arg].valid() || !program_.shapes[wholes_[arg]].ranked)
    return false;
  const ir::Shape &shape = program_.shapes[wholes_[arg]];
  return dim < shape.dims.size() && shape.dims[dim] == ir::Extent(1);
}
std::optional<unsigned> Candidates::dim_of(size_t arg, uint8_t factor) const {
  std::optional<unsigned> found;
  for (unsigned d = 0; factors_[arg] && d < factors_[arg]->size(); ++d) {
    const DimFactors &dim = (*factors_[arg])[d];
    if (!llvm::is_contained(dim, factor) || one_element(arg, d))
      continue;
    if (found || dim.front() != factor)
      return kNoDim;
    found = d;
  }
  return found;
}

std::vector<Strategy> Candidates::strategies(AxisId axis) const {
  std::vector<Strategy> all{Strategy(types_.size())};
  auto add = [&](Strategy strategy) {
    if (!llvm::is_contained(all, strategy))
      all.push_back(std::move(strategy));
  };
  // What does not have the factor is the same on all ranks; R where I does not do; an addend of
  // what is summed.
  enum class Missing { Same, Plain, Addend };
  auto lacks = [&](size_t arg, Missing how) {
    std::optional<Kind> kind = types_[arg].kind(axis);
    bool same = types_[arg].either().contains(axis) || (kind && is_replicated(*kind));
    if (same && how == Missing::Addend)
      return OperandTarget{OperandTarget::Form::Partial};
    if (same && !(how == Missing::Plain && kind == Kind::Invariant))
      return OperandTarget{};
    return OperandTarget{how == Missing::Plain ? OperandTarget::Form::Replicate
                                               : OperandTarget::Form::Same};
  };
  for (Missing how : {Missing::Same, Missing::Plain, Missing::Addend}) {
    for (uint8_t factor = 0; factor < whole_factors_.size(); ++factor) {
      Strategy strategy;
      bool any = false, fits = !whole_factors_[factor];
      for (size_t arg = 0; arg < types_.size(); ++arg) {
        std::optional<unsigned> dim = dim_of(arg, factor);
        fits &= dim != kNoDim;
        any |= dim.has_value();
        strategy.push_back(
            dim ? OperandTarget{OperandTarget::Form::Shard, static_cast<uint8_t>(*dim)}
                : lacks(arg, how));
      }
      if (any && fits)
        add(std::move(strategy));
    }
    Strategy strategy;
    for (size_t arg = 0; how != Missing::Addend && arg < types_.size(); ++arg)
      strategy.push_back(lacks(arg, how));
    if (!strategy.empty())
      add(std::move(strategy));
  }
  auto same = [&](size_t arg) { return lacks(arg, Missing::Plain); };
  add_partial(axis, same, add);
  return all;
}

// Where something is pending, it may stay so, and others become so that are the same on all ranks.
// What is cut does not: a sum would only be put off.
template <class Same, class Add>
void Candidates::add_partial(AxisId axis, const Same &same, const Add &add) const {
  llvm::SmallVector<size_t, 4> able;
  std::optional<Combiner> combiner;
  uint64_t pending = 0;
  for (size_t arg = 0; arg < types_.size(); ++arg) {
    std::optional<Kind> kind = types_[arg].kind(axis);
    if (kind == Kind::Partial) {
      combiner = combiner.value_or(types_[arg].combiner(axis));
      pending |= uint64_t(1) << able.size();
    } else if (!types_[arg].either().contains(axis) && (!kind || !is_replicated(*kind))) {
      continue;
    }
    able.push_back(arg);
  }
  if (!combiner || able.size() >= 63)
    return;
  uint64_t all = (uint64_t(1) << able.size()) - 1;
  llvm::SmallVector<uint64_t, 16> sets{pending, all};
  for (uint64_t set = 1; able.size() <= kMostSubsets && set < all; ++set)
    sets.push_back(set);
  for (uint64_t set : sets) {
    Strategy strategy;
    for (size_t arg = 0; arg < types_.size(); ++arg)
      strategy.push_back(same(arg));
    for (size_t i = 0; i < able.size(); ++i)
      if (set >> i & 1)
        strategy[able[i]] = {OperandTarget::Form::Partial, 0, *combiner};
    add(std::move(strategy));
  }
}

} // namespace spmd::rules::redistribute
