// Candidates of all axes in question are combined; what the rules accept is priced by its plans.
#include "rules/redistribute/placement.h"

#include "rules/boundary/claims.h"
#include "rules/redistribute/candidates.h"
#include "rules/redistribute/verify.h"
#include "rules/shards/sizes.h"
#include "rules/transitions/axes.h"
#include "rules/violations/local.h"
#include "rules/violations/shards.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"

#include "llvm/ADT/STLExtras.h"

#include <set>

namespace spmd::rules::redistribute {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::TypeId;

namespace {

constexpr size_t kMostCombinations = 2048;
constexpr size_t kMostLeaders = 8; // operands whose types are tried for all

bool is_error(const Violation &violation) { return info(violation).severity == Severity::Error; }

// What a combination costs, and which operands it moves: the earlier ones stay where costs are
// equal, and as little as can be is decided.
struct Choice {
  Placement placement;
  llvm::SmallVector<bool, 4> moved;
  int decided = 0; // axes that become R, where R|I might do
  std::string words;

  bool operator<(const Choice &other) const {
    return std::tie(placement.price, placement.collectives, moved, decided, words) <
           std::tie(other.placement.price, other.placement.collectives, other.moved, other.decided,
                    other.words);
  }
};

} // namespace

TensorInfo moved_to(ir::Program &program, const TensorInfo &value, TypeId target) {
  if (value.type == target)
    return value;
  ir::ShapeId whole = global_shape(program, program.types[value.type], value);
  return whole.valid() ? arg_of(program, target, whole) : TensorInfo{target, {}, {}};
}

// One application.
class Placing {
public:
  Placing(Placer &placer, const Application &app, llvm::ArrayRef<ir::ValueId> values,
          llvm::ArrayRef<bool> fixed)
      : program_(placer.program_), rules_(placer.rules_), planner_(placer.planner_), app_(app),
        values_(values), fixed_(fixed) {
    for (const TensorInfo &arg : app.args) {
      types_.push_back(app.type(arg));
      wholes_.push_back(global_shape(program_, types_.back(), arg));
    }
  }

  std::optional<Placement> run(const Outcome &refused) {
    // Perhaps the sums over ranks only need to be stated.
    Choice stay;
    for (const TensorInfo &arg : app_.args)
      stay.placement.types.push_back(arg.type);
    if (std::optional<ir::AttrsId> attrs = accepted(stay.placement.types)) {
      stay.placement.attrs = *attrs;
      return stay.placement;
    }
    candidates_.emplace(app_, types_, wholes_);
    // One mistake is reported on some of its axes only.
    AxisSet named = axes_named(refused), any = named;
    for (const ir::Type &type : types_)
      any |= type.sharded() | type.of(Kind::Partial);
    for (AxisSet axes : {named, any})
      if (!best_)
        try_axes(movable(axes));
    if (!best_)
      return std::nullopt;
    return std::move(best_->placement);
  }

private:
  // --- candidates ---

  // Those that the findings, or the types declared of results, speak of.
  AxisSet axes_named(const Outcome &refused) const {
    AxisSet axes;
    for (const Violation &violation : refused.violations)
      if (is_error(violation))
        axes |= axes_of(violation);
    for (size_t r = 0; r < app_.results.size() && r < refused.types.size(); ++r)
      axes |= contradicted(r, refused.types[r]);
    return axes;
  }
  // Without those of which something is not known, or a list.
  AxisSet movable(AxisSet axes) const {
    for (const ir::Type &type : types_)
      axes -= type.unknown | (type.of(Kind::Varying) - type.sharded());
    return axes & app_.global_axes();
  }

  void try_axes(AxisSet axes) {
    llvm::SmallVector<std::pair<AxisId, std::vector<Strategy>>, 3> choices;
    for (AxisId axis : axes)
      choices.push_back({axis, candidates_->strategies(axis)});
    prune(choices);
    leading_ = true; // they are tried whatever is left
    try_leaders(choices);
    leading_ = false;
    llvm::SmallVector<size_t, 3> at(choices.size());
    for (size_t i = 0; i < at.size();) {
      llvm::SmallVector<std::pair<AxisId, const Strategy *>, 3> chosen;
      for (size_t k = 0; k < choices.size(); ++k)
        chosen.push_back({choices[k].first, &choices[k].second[at[k]]});
      try_orders(chosen);
      for (i = 0; i < at.size() && ++at[i] == choices[i].second.size(); ++i)
        at[i] = 0;
      if (i < at.size())
        i = 0;
    }
  }

  // As one of the operands is: likely to be cheap, and not to be missed where there are too many
  // others.
  void try_leaders(llvm::ArrayRef<std::pair<AxisId, std::vector<Strategy>>> choices) {
    for (size_t leader = 0; leader < types_.size() && leader < kMostLeaders; ++leader) {
      llvm::SmallVector<std::pair<AxisId, const Strategy *>, 3> chosen;
      for (const auto &[axis, list] : choices) {
        std::optional<unsigned> dim = types_[leader].dim(axis);
        auto fits = llvm::find_if(list, [&](const Strategy &each) {
          const OperandTarget &want = each[leader];
          bool cut = want.form == OperandTarget::Form::Shard;
          return dim ? cut && want.dim == *dim : !cut;
        });
        if (fits != list.end())
          chosen.push_back({axis, &*fits});
      }
      if (chosen.size() == choices.size())
        try_orders(chosen);
    }
  }

  AxisSet contradicted(size_t result, TypeId found) const {
    TypeId declared = app_.results[result].declared;
    if (!declared.valid())
      return {};
    const ir::Type type = program_.types[found], claimed = program_.types[declared];
    if (type.mesh() != claimed.mesh())
      return {};
    return check_claim(type, claimed, type.gradient_free()).mismatched;
  }

  // Too many combinations: per axis those that cost least where nothing is cut on the others.
  void prune(llvm::MutableArrayRef<std::pair<AxisId, std::vector<Strategy>>> choices) {
    auto combinations = [&](size_t most) {
      size_t count = 1;
      for (auto &[axis, list] : choices)
        count = std::min(count * std::min(most, list.size()), kMostCombinations + 1);
      return count;
    };
    size_t most = 64;
    while (most > 2 && combinations(most) > kMostCombinations)
      --most;
    if (combinations(64) <= kMostCombinations)
      return;
    for (auto &[axis, list] : choices) {
      std::vector<std::pair<uint64_t, size_t>> priced;
      for (size_t i = 0; i < list.size(); ++i)
        priced.push_back({price_alone(axis, list[i]), i});
      llvm::sort(priced);
      std::vector<Strategy> kept;
      for (size_t i = 0; i < priced.size() && i < most; ++i)
        kept.push_back(list[priced[i].second]);
      list = std::move(kept);
    }
  }
  uint64_t price_alone(AxisId axis, const Strategy &strategy) {
    std::optional<Choice> choice = price(types_of({{axis, &strategy}}, std::nullopt));
    return choice ? choice->placement.price : ~uint64_t(0);
  }

  // --- types ---

  using Chosen = llvm::ArrayRef<std::pair<AxisId, const Strategy *>>;

  // Where several axes cut a dimension they stand in one order: that of any operand.
  void try_orders(Chosen chosen) {
    try_types(types_of(chosen, std::nullopt));
    for (size_t leader = 0; leader < types_.size(); ++leader)
      try_types(types_of(chosen, leader));
  }
  llvm::SmallVector<TypeId, 4> types_of(Chosen chosen, std::optional<size_t> leader) {
    llvm::SmallVector<TypeId, 4> made;
    for (size_t arg = 0; arg < types_.size(); ++arg) {
      ir::Type type = types_[arg];
      for (const auto &[axis, strategy] : chosen)
        set(type, axis, (*strategy)[arg]);
      if (leader)
        reorder(type, arg, *leader);
      type.renumber_shard_orders();
      made.push_back(program_.types.add(type));
    }
    return made;
  }
  // Inside of all axes that cut the dimension.
  static void place_last(ir::Type &type, AxisId axis, unsigned dim) {
    type.set_kind(axis, Kind::Varying);
    unsigned place = 0;
    for (AxisId other : ir::shards_of(type, dim))
      place = std::max(place, type.order(other) + 1);
    type.set_shard(axis, dim, place);
  }
  static void set(ir::Type &type, AxisId axis, const OperandTarget &want) {
    switch (want.form) {
    case OperandTarget::Form::Stay:
      return;
    case OperandTarget::Form::Shard:
      if (type.dim(axis) == want.dim)
        return;
      place_last(type, axis, want.dim);
      return;
    case OperandTarget::Form::Same:
      return type.set_either(axis);
    case OperandTarget::Form::Replicate:
      return type.set_kind(axis, Kind::Replicate);
    case OperandTarget::Form::Partial:
      if (type.kind(axis) != Kind::Partial) {
        type.set_kind(axis, Kind::Partial);
        type.set_combiner(axis, want.combiner);
      }
      return;
    }
  }
  // The axes of each dimension as the leader has those of the same factor now, others behind them.
  void reorder(ir::Type &type, size_t arg, size_t leader) const {
    const TensorFactors *dims = candidates_->factors(arg);
    for (unsigned dim = 0; dims && dim < dims->size(); ++dim) {
      const DimFactors &factors = (*dims)[dim];
      llvm::SmallVector<AxisId, 2> axes = ir::shards_of(type, dim);
      std::optional<unsigned> theirs;
      if (axes.size() > 1 && !factors.empty())
        theirs = candidates_->dim_of(leader, factors.front());
      if (!theirs || theirs == kNoDim)
        continue;
      llvm::SmallVector<AxisId, 2> order = ir::shards_of(types_[leader], *theirs);
      auto place = [&](AxisId axis) { return llvm::find(order, axis) - order.begin(); };
      llvm::stable_sort(axes, [&](AxisId a, AxisId b) { return place(a) < place(b); });
      for (unsigned i = 0; i < axes.size(); ++i)
        type.set_shard(axes[i], dim, i);
    }
  }

  // --- what is accepted, and its price ---

  void try_types(const llvm::SmallVector<TypeId, 4> &types) {
    // What one combination takes beside its plans, in moves.
    constexpr uint64_t kCombination = 50;
    if (!seen_.insert({types.begin(), types.end()}).second ||
        (planner_.effort() && !planner_.effort()->spend(kCombination) && !leading_))
      return;
    std::optional<Choice> choice = price(types);
    if (!choice || (best_ && !(*choice < *best_)))
      return;
    std::optional<ir::AttrsId> attrs = accepted(types);
    if (!attrs)
      return;
    choice->placement.attrs = *attrs;
    best_ = std::move(choice);
  }

  // None if an operand cannot be brought there.
  std::optional<Choice> price(const llvm::SmallVector<TypeId, 4> &types) {
    Choice choice;
    choice.placement.types = types;
    for (size_t arg = 0; arg < types.size(); ++arg) {
      bool moves = types[arg] != app_.args[arg].type;
      choice.moved.push_back(moves);
      choice.words += ir::print_kinds(program_, program_.types[types[arg]]) + ";";
      if (!moves)
        continue;
      const ir::Type &to = program_.types[types[arg]];
      choice.decided += ((to.replicated() - to.either()) - types_[arg].replicated()).size();
      Request request{app_.args[arg].type, types[arg], wholes_[arg]};
      if (fixed_[arg] || !can_move(arg, request))
        return std::nullopt;
      bool again = false;
      for (size_t other = 0; other < arg; ++other)
        again |= values_[other] == values_[arg] && types[other] == types[arg];
      if (again)
        continue;
      const Plan &plan = planner_.plan(request);
      uint64_t sum = choice.placement.price + plan.price;
      choice.placement.price = sum < plan.price ? ~uint64_t(0) : sum;
      choice.placement.collectives += plan.collectives;
    }
    return choice;
  }
  bool can_move(size_t arg, const Request &request) {
    if (!request.shape.valid() || !can_be_planned(program_, request))
      return false;
    return !refuse(program_, request) && !refuse_blocks(program_, app_.args[arg]);
  }

  // The attributes under which the op accepts operands of these types.
  std::optional<ir::AttrsId> accepted(llvm::ArrayRef<TypeId> types) {
    llvm::SmallVector<TensorInfo, 8> args;
    for (size_t i = 0; i < types.size(); ++i)
      args.push_back(moved_to(program_, app_.args[i], types[i]));
    ir::AttrsId attrs = app_.attrs;
    for (unsigned turn = 0; turn < 3; ++turn) {
      Application app{program_,   app_.op, attrs,        app_.context,
                      app_.slots, args,    app_.results, app_.infer_partial};
      const Outcome &outcome = rules_.apply(app);
      AxisSet unstated, needless;
      bool wrong = false;
      for (const Violation &violation : outcome.violations) {
        if (const auto *sum = violation.as<UnstatedPartial>())
          unstated |= sum->axes;
        else if (const auto *stated = violation.as<NeedlessPartial>())
          needless |= stated->axes;
        else
          wrong |= is_error(violation);
      }
      if (wrong)
        return std::nullopt;
      if (!unstated && !needless) {
        for (size_t r = 0; r < app_.results.size(); ++r)
          if (contradicted(r, outcome.types[r]))
            return std::nullopt;
        return attrs;
      }
      attrs = with_partial(attrs, unstated, needless);
    }
    return std::nullopt;
  }
  ir::AttrsId with_partial(ir::AttrsId attrs, AxisSet more, AxisSet less) {
    const ir::Mesh &mesh = app_.mesh();
    AxisSet stated = more;
    if (const ir::AttrValue *partial = program_.find(attrs, "partial");
        partial && partial->form == ir::AttrForm::Axes)
      for (const ir::AxisRef &ref : program_.axis_refs[partial->as<ir::AxisRefsId>()].refs)
        if (std::optional<AxisId> axis = mesh.find(ref.axis))
          stated |= *axis;
    stated -= less;
    ir::AttrDict dict = attrs.valid() ? program_.attrs[attrs] : ir::AttrDict();
    ir::StringId key = program_.strings.add("partial");
    llvm::erase_if(dict.attrs, [&](const ir::Attr &attr) { return attr.key == key; });
    if (stated) {
      ir::AxisRefs refs;
      for (AxisId axis : stated)
        refs.refs.push_back({{}, mesh[axis].name});
      dict.attrs.push_back({key, ir::AttrValue::axes(program_.axis_refs.add(std::move(refs)))});
    }
    ir::sort_canonically(dict, program_.strings);
    return program_.attrs.add(std::move(dict));
  }

  ir::Program &program_;
  Rules &rules_;
  Planner &planner_;
  const Application &app_;
  llvm::ArrayRef<ir::ValueId> values_;
  llvm::ArrayRef<bool> fixed_;
  llvm::SmallVector<ir::Type, 4> types_; // copies: interning moves types
  llvm::SmallVector<ir::ShapeId, 4> wholes_;
  std::optional<Candidates> candidates_; // of the two
  std::set<std::vector<TypeId>, bool (*)(const std::vector<TypeId> &, const std::vector<TypeId> &)>
      seen_{[](const std::vector<TypeId> &a, const std::vector<TypeId> &b) {
        return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                            [](TypeId x, TypeId y) { return x.index < y.index; });
      }};
  std::optional<Choice> best_;
  bool leading_ = false;
};

bool Placer::refuses(const Application &app, const Outcome &outcome) const {
  if (app.op.form != OpForm::Equation)
    return false;
  if (llvm::any_of(outcome.violations, is_error))
    return true;
  for (size_t r = 0; r < app.results.size() && r < outcome.types.size(); ++r) {
    TypeId declared = app.results[r].declared;
    if (!declared.valid())
      continue;
    const ir::Type type = program_.types[outcome.types[r]], claimed = program_.types[declared];
    if (type.mesh() == claimed.mesh() &&
        check_claim(type, claimed, type.gradient_free()).mismatched)
      return true;
  }
  return false;
}

std::optional<Placement> Placer::place(const Application &app, const Outcome &refused,
                                       llvm::ArrayRef<ir::ValueId> values,
                                       llvm::ArrayRef<bool> fixed) {
  return Placing(*this, app, values, fixed).run(refused);
}

} // namespace spmd::rules::redistribute
