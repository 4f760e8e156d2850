// Types one application of an equation; transitions and boundary ops have files of their own.
#include "rules/apply.h"

#include "rules/attributes/attributes.h"
#include "rules/derivative.h"
#include "rules/factors/shape_rule.h"
#include "rules/kinds/local.h"
#include "rules/kinds/scale.h"
#include "rules/ops/registry.h"
#include "rules/shards/remesh.h"
#include "rules/shards/shards.h"
#include "rules/transitions/axes.h"
#include "rules/violations/gradients.h"
#include "rules/violations/local.h"
#include "rules/violations/meshes.h"
#include "rules/violations/operands.h"
#include "rules/violations/shards.h"

#include "ir/support/misspelling.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;

const Slot *Application::named(llvm::StringRef name) const {
  for (const Slot &slot : slots)
    if (slot.name.valid() && program.strings[slot.name] == name)
      return &slot;
  return nullptr;
}

namespace {

OperandGroup group_of(const Application &app, const Slot *slot, bool adopts) {
  OperandGroup group;
  if (!slot)
    return group;
  if (slot->form == Slot::Form::Literal)
    group.push_back(OperandKinds::number(is_zero(*slot), is_infinite(*slot)));
  for (unsigned i = 0; i < slot->count; ++i) {
    uint32_t index = static_cast<uint32_t>(slot->first + i);
    group.push_back(OperandKinds::tensor(app.type(app.args[index]), index, adopts));
  }
  return group;
}

bool is_condition(const Equation &equation, unsigned operand) {
  for (unsigned r = 0; r < equation.ref_count; ++r)
    if (equation.refs[r].operand == operand && equation.refs[r].role == RefRole::Condition)
      return true;
  return false;
}

// True if no operand that enters a term can receive a gradient.
bool operands_gradient_free(const LocalInput &input, const Application &app, const Sum &sum) {
  const Equation &equation = input.equation;
  for (unsigned t = 0; t < sum.term_count; ++t) {
    const Term &term = equation.terms[sum.first_term + t];
    for (unsigned a = 0; a < term.atom_count; ++a) {
      const Atom &atom = equation.atoms[term.first_atom + a];
      for (unsigned r = 0; atom.form != Atom::Form::Integer && r < atom.count; ++r) {
        const Ref &ref = equation.refs[atom.first + r];
        if (ref.role != RefRole::Value || ref.operand == kGenerator)
          continue;
        for (const OperandKinds &operand : input.operands[ref.operand])
          if (operand.form == OperandKinds::Form::Tensor &&
              !app.type(app.args[operand.index]).gradient_free())
            return false;
      }
    }
  }
  return true;
}

// Applies one equation row to one application (one member of zipped lists).
class EquationTyper {
public:
  EquationTyper(const Application &app, const OpDef &row, const Binding &binding,
                const FactorMap &map, Outcome &out)
      : app_(app), row_(row), equation_(row.equation.equation), out_(out),
        axes_(app.mesh().typed_axes()), shard_input_{app, equation_, binding, map,
                                                     app.global_axes()} {
    bool no_gradients = !app.op_context().grad;
    for (unsigned i = 0; i < equation_.operand_count; ++i)
      operands_.push_back(group_of(app, binding[i], no_gradients || is_condition(equation_, i)));
    if (binding.generator && binding.generator->count)
      generator_ = {true, group_of(app, binding.generator, true).front()};
  }

  // Results of the instruction; `output_mask` may have dropped some of the row's.
  void run(AxisSet stated, unsigned result_count) {
    llvm::SmallVector<bool, 4> reported(equation_.sum_count, false);
    for (unsigned result = 0; result < result_count; ++result) {
      unsigned s = sum_of(row_result(app_, result));
      type_result(equation_.sums[s], result, stated, !reported[s]);
      reported[s] = true;
    }
    report_needless_shards(stated);
  }
  // True if operands are cut in ways that do not go together.
  bool shards_clash() const { return clash_; }

private:
  // The sum that defines a result of the row; lists of results belong to the last one.
  unsigned sum_of(unsigned row_result) const {
    unsigned s = 0;
    while (s + 1 < equation_.sum_count && row_result >= equation_.sums[s + 1].first_result)
      ++s;
    return s;
  }

  // Of several results only those claimed P are meant by `partial`. Where shards tell that a
  // dimension is summed the result is P; whether that is stated is another question
  // (rules/README.md).
  AxisSet stated_for(AxisSet stated, unsigned result, const ShardResult &shards) const {
    stated -= shards.sharded;
    if (app_.results.size() > 1 && stated) {
      ir::TypeId declared = app_.results[result].declared;
      stated =
          declared.valid() ? stated & app_.program.types[declared].of(Kind::Partial) : AxisSet();
    }
    return stated | shards.summed;
  }

  void type_result(const Sum &sum, unsigned result, AxisSet stated, bool first) {
    llvm::SmallVector<Violation, 0> found;
    ShardResult shards = judge_shards(shard_input_, sum, result, found);
    LocalInput input{
        equation_,           operands_, generator_, axes_, stated_for(stated, result, shards),
        row_.zero_drops_term};
    SumScale scale = judge_scale({app_, input, shards.divided}, row_, sum);
    input.reads = scale.reads;
    LocalResult kinds = row_.constant != OpDef::Constant::No ? constant()
                        : is_beyond_row(result)              ? anything()
                                                             : evaluate_local(input, sum);
    if (first)
      report(input, sum, kinds, shards);
    // What kinds refuse is reported by kinds; an axis has one finding.
    clash_ |= !found.empty();
    for (Violation &violation : found)
      if (!(axes_of(violation) & (kinds.bad | kinds.unknown)) || axes_of(violation).empty())
        add_merged(out_.violations, 0, std::move(violation));
    // A wrong kind explains a wrong scale.
    bool scale_clash = !scale.violations.empty() && !is_beyond_row(result);
    if (scale_clash && found.empty() && !kinds.bad)
      for (Violation &violation : scale.violations)
        add_merged(out_.violations, 0, std::move(violation));
    AxisSet unstated = shards.summed - stated - kinds.bad - kinds.unknown;
    if (app_.infer_partial)
      unstated = {};
    if (unstated)
      report_unstated(unstated);
    summed_ |= shards.summed;
    sharded_ |= shards.sharded - shards.bad - kinds.bad;
    AxisSet unknown = shards.bad | unstated;
    unknown |= from_shape_only(sum, shards, kinds);
    ir::Type type;
    type.set_mesh(app_.op_context().mesh);
    type.of(Kind::Replicate) = kinds.r | kinds.either | kinds.zero;
    type.of(Kind::Reduced) = kinds.reduced;
    type.of(Kind::Invariant) = kinds.i | kinds.either | kinds.zero;
    type.of(Kind::Varying) = kinds.v;
    type.of(Kind::Partial) = kinds.p | kinds.zero;
    type.unknown = kinds.unknown;
    type.set_unknown(unknown);
    for (const ShardResult::AxisShard &shard : shards.axis_shards)
      if (type.of(Kind::Varying).contains(shard.axis) ||
          shards.from_shape_only.contains(shard.axis))
        if (!type.unknown.contains(shard.axis))
          type.set_shard(shard.axis, shard.dim, shard.order);
    type.renumber_shard_orders();
    type.scale = scale_clash || kinds.bad ? ir::ScaleId() : scale_of(result, scale);
    type.set_gradient_free(!row_.gradient || !app_.op_context().grad ||
                           operands_gradient_free(input, app_, sum));
    out_.types[result] = app_.program.types.add(type);
    out_.sizes[result] = shards.sizes;
  }

  ir::ScaleId scale_of(unsigned result, const SumScale &scale) const {
    ir::ScaleId one = app_.program.one();
    if (row_.constant != OpDef::Constant::No)
      return one;
    if (!is_beyond_row(result))
      return scale.scale;
    bool plain =
        llvm::all_of(app_.args, [&](TensorInfo arg) { return app_.type(arg).scale == one; });
    return plain ? one : ir::ScaleId();
  }

  // Axes on which only an operand that gives extents is sharded, although the value is P or I
  // there, or random numbers are drawn from a state that does not differ. What is R, every rank has
  // its part of.
  AxisSet from_shape_only(const Sum &sum, const ShardResult &shards, const LocalResult &kinds) {
    AxisSet axes = (shards.from_shape_only - shards.bad) & (axes_ - kinds.unknown);
    if (!axes)
      return {};
    bool drawn = draws(equation_, sum) && !has_values(sum);
    auto refuse = [&](AxisSet set, auto make) {
      for (AxisId axis : set)
        add_merged(out_.violations, 0, make(axis));
      return set;
    };
    OperandIndex value = first_operand(), shape_only = shape_only_on(axes.first());
    AxisSet bad = refuse(axes & kinds.p, [&](AxisId axis) {
      return Violation(PartialWithVarying{value, shape_only, axis});
    });
    bad |= refuse(axes & kinds.i, [&](AxisId axis) {
      return Violation(InvariantMixed{value, shape_only, Kind::Varying, axis});
    });
    if (drawn)
      bad |= refuse(axes & (kinds.r | kinds.reduced), [&](AxisId axis) {
        return Violation(ShardedRandomRepeats{shape_only, axis});
      });
    return bad;
  }
  // True if an operand enters the sum: not only extents and random numbers.
  bool has_values(const Sum &sum) const {
    for (unsigned t = 0; t < sum.term_count; ++t) {
      const Term &term = equation_.terms[sum.first_term + t];
      for (unsigned a = 0; a < term.atom_count; ++a) {
        const Atom &atom = equation_.atoms[term.first_atom + a];
        for (unsigned r = 0; atom.form != Atom::Form::Integer && r < atom.count; ++r)
          if (equation_.refs[atom.first + r].operand != kGenerator)
            return true;
      }
    }
    return false;
  }
  OperandIndex shape_only_on(AxisId axis) const {
    for (uint32_t i = 0; i < app_.args.size(); ++i)
      if (app_.type(app_.args[i]).dim(axis))
        return {i};
    return {};
  }

  void report_unstated(AxisSet axes) {
    for (AxisId axis : axes)
      for (uint32_t i = 0; i < app_.args.size(); ++i)
        if (std::optional<unsigned> dim = app_.type(app_.args[i]).dim(axis)) {
          add_merged(out_.violations, 0, UnstatedPartial{{i}, *dim, axis});
          break;
        }
  }

  // Axes that are stated partial in vain: shards tell that nothing is summed there, or, of several
  // results, no operand differs between ranks.
  void report_needless_shards(AxisSet stated) {
    AxisSet needless = stated & (sharded_ - summed_), same = stated & axes_;
    for (ir::TypeId type : out_.types)
      if (type.valid())
        needless -= app_.program.types[type].unknown;
    if (needless)
      out_.violations.push_back(NeedlessPartial{Kind::Varying, needless});
    for (const TensorInfo &arg : app_.args)
      same -= app_.type(arg).of(Kind::Varying) | app_.type(arg).unknown;
    if (app_.results.size() > 1 && !app_.args.empty() && same)
      report_by_kind(same, [&](Kind kind, AxisSet axes) {
        out_.violations.push_back(NeedlessPartial{kind, axes});
      });
  }

  // A result of which the row says nothing: a seed, a statistic, a flag.
  bool is_beyond_row(unsigned result) const {
    return row_result(app_, result) >= equation_.result_count &&
           !equation_.results[equation_.result_count - 1].list;
  }
  // Some function of all operands: the same on all ranks where they are.
  LocalResult anything() const {
    LocalResult kinds;
    AxisSet r = axes_, i = axes_, silent;
    for (const TensorInfo &arg : app_.args) {
      const ir::Type &type = app_.type(arg);
      kinds.v |= type.of(Kind::Varying);
      silent |= type.unknown | (type.of(Kind::Partial) - type.zero());
      if (!type.gradient_free()) {
        r &= type.replicated();
        i &= type.of(Kind::Invariant);
      }
    }
    kinds.v &= axes_ - silent;
    kinds.r = (r - i) - silent - kinds.v;
    kinds.i = (i - r) - silent - kinds.v;
    kinds.either = (r & i) - silent - kinds.v;
    kinds.unknown = axes_ - kinds.v - kinds.r - kinds.i - kinds.either;
    return kinds;
  }

  LocalResult constant() const {
    LocalResult kinds;
    (row_.constant == OpDef::Constant::Zero ? kinds.zero : kinds.either) = axes_;
    return kinds;
  }

  void report(const LocalInput &input, const Sum &sum, const LocalResult &kinds,
              const ShardResult &shards) {
    if (kinds.bad)
      explain_local(input, sum, kinds.bad, out_.violations);
    AxisSet needless = kinds.needless - shards.sharded;
    if (needless && app_.results.size() <= 1)
      report_needless(kinds, needless);
    if (kinds.random_diverges)
      report_by_kind(kinds.random_diverges, [&](Kind kind, AxisSet axes) {
        out_.violations.push_back(RandomDiverges{first_operand(), kind, axes});
      });
    if (kinds.random_repeats)
      out_.violations.push_back(ShardedRandomRepeats{first_operand(), kinds.random_repeats});
  }
  void report_needless(const LocalResult &kinds, AxisSet needless) {
    const std::pair<Kind, AxisSet> sets[] = {{Kind::Replicate, kinds.r | kinds.either | kinds.zero},
                                             {Kind::Reduced, kinds.reduced},
                                             {Kind::Invariant, kinds.i},
                                             {Kind::Partial, kinds.p}};
    for (auto [kind, set] : sets)
      if (needless & set)
        out_.violations.push_back(NeedlessPartial{kind, needless & set});
  }
  OperandIndex first_operand() const {
    for (const OperandGroup &group : operands_)
      for (const OperandKinds &operand : group)
        if (operand.form == OperandKinds::Form::Tensor)
          return {operand.index};
    return {};
  }
  template <class Visit> void report_by_kind(AxisSet axes, Visit visit) {
    const ir::Type &type = app_.type(app_.args[first_operand().index]);
    for (const ir::KindInfo &row : ir::kKinds) {
      AxisSet set = axes & type.of(row.kind);
      axes -= set;
      if (set)
        visit(row.kind, set);
    }
  }

  const Application &app_;
  const OpDef &row_;
  const Equation &equation_;
  Outcome &out_;
  AxisSet axes_;
  ShardInput shard_input_;
  llvm::SmallVector<OperandGroup, 6> operands_;
  GeneratorKinds generator_;
  AxisSet summed_, sharded_; // over all results
  bool clash_ = false;
};

// The axes of attribute `partial`; names that are no axis were reported.
AxisSet stated_axes(const Application &app, Outcome &out) {
  const ir::AttrValue *attr = app.attr("partial");
  AxisSet axes;
  if (!attr || attr->form != ir::AttrForm::Axes)
    return axes;
  const ir::Mesh &mesh = app.mesh();
  for (const ir::AxisRef &ref : app.program.axis_refs[attr->as<ir::AxisRefsId>()].refs) {
    // Of another mesh only what has a counterpart here is an axis.
    std::optional<AxisSet> named = axes_named(app.program, app.op_context().mesh, ref);
    if (!named || (ref.mesh.valid() && (named->empty() || ref.mesh == mesh.name))) {
      llvm::SmallVector<llvm::StringRef, 8> names;
      for (const ir::Axis &known : mesh.axes)
        names.push_back(app.program.strings[known.name]);
      llvm::StringRef name = app.program.strings[ref.axis];
      out.violations.push_back(UnknownAxis{name.str(), app.program.strings[mesh.name].str(),
                                           ir::nearest_name(name, names).str()});
      continue;
    }
    axes |= *named;
  }
  return axes;
}

// True of an operand that only says which elements are meant, or whether: it has no gradient.
bool is_position(const Equation &equation, unsigned operand) {
  for (unsigned r = 0; r < equation.ref_count; ++r)
    if (const Ref &ref = equation.refs[r]; ref.operand == operand)
      return ref.role == RefRole::Condition || ref.index != kNoFactor;
  return false;
}

// Tensors that could be trained and stand where the row has no derivative: as a position, or as
// what it leaves out.
void report_gradients_that_end(const Application &app, const OpDef &row, const Binding &binding,
                               Outcome &out) {
  if (!app.op_context().grad || !row.gradient || row.derivative_of)
    return;
  const Equation &equation = row.equation.equation;
  for (const Slot &slot : app.slots) {
    unsigned operand = 0;
    while (operand < equation.operand_count && binding[operand] != &slot)
      ++operand;
    bool written = app.program.is_out(slot.name);
    if (written || &slot == binding.generator ||
        (operand < equation.operand_count && !is_position(equation, operand)))
      continue;
    for (unsigned i = slot.first; i < unsigned(slot.first) + slot.count; ++i) {
      const ir::Shape *shape = app.shape(app.args[i]);
      bool trainable = shape && shape->dtype != ir::DType::Unknown &&
                       ir::differentiable(shape->dtype) && !app.type(app.args[i]).gradient_free();
      if (trainable)
        out.violations.push_back(MissingVjp{{static_cast<uint32_t>(i)}, {}});
    }
  }
}

// One row on one application whose lists, if zipped, were taken apart.
void apply_row(const Application &app, const OpDef &row, AxisSet stated, unsigned result_count,
               Outcome &out) {
  OperandMismatch problem;
  std::optional<Binding> binding = bind_operands(app, row.equation.equation, problem);
  if (!binding) {
    out.violations.push_back(std::move(problem));
    return;
  }
  if (check_attributes(app, row, *binding, out))
    return;
  report_gradients_that_end(app, row, *binding, out);
  Outcome shapes;
  FactorMap map = shape_factors(app, row.equation.equation, *binding, shapes);
  EquationTyper typer(app, row, *binding, map, out);
  typer.run(stated, result_count);
  // Shapes that do not fit follow from shards that do not: one mistake, one finding.
  if (typer.shards_clash()) {
    shapes.violations.clear();
    shapes.undecided.clear();
  }
  if (result_count == app.results.size())
    apply_shapes(app, row.equation.equation, *binding, map, shapes, out);
}

// Members of zipped lists whose rows are compared; lists may be long, and most of their members
// equal.
constexpr size_t kMembersApart = 64;

// True of two members that a row cannot tell apart: positions among the operands matter to findings
// only.
bool same_member(const Application &app, const RowUse &one, const RowUse &other) {
  if (one.row != other.row || one.slots.size() != other.slots.size())
    return false;
  for (size_t i = 0; i < one.slots.size(); ++i) {
    const Slot &a = one.slots[i], &b = other.slots[i];
    if (a.form != b.form || a.count != b.count || a.name != b.name || a.literal != b.literal ||
        app.args.slice(a.first, a.count) != app.args.slice(b.first, b.count))
      return false;
  }
  return true;
}

} // namespace

void apply_equation(const Application &app, Outcome &out) {
  forget_results(app, out);
  AxisSet stated = stated_axes(app, out);
  llvm::SmallVector<RowUse, 1> uses = row_uses(app);
  if (uses.empty() && app.op.forward)
    out.violations.push_back(OperandMismatch{
        "operand " + app.op.differentiated + " of an op that has a gradient", "it has none"});
  llvm::SmallVector<const RowUse *, 8> fine; // of which nothing was said, apart from one another
  for (const RowUse &use : uses) {
    unsigned count = static_cast<unsigned>(use.results.size());
    const auto *known =
        llvm::find_if(fine, [&](const RowUse *one) { return same_member(app, *one, use); });
    if (known != fine.end()) {
      for (unsigned r = 0; r < count; ++r) {
        out.types[use.results[r]] = out.types[(*known)->results[r]];
        out.sizes[use.results[r]] = out.sizes[(*known)->results[r]];
      }
      continue;
    }
    Application one = app.bound_to(use);
    if (count == app.results.size()) {
      apply_row(one, *use.row, stated, count, out);
      continue;
    }
    Outcome part;
    part.types.assign(app.results.size(), out.types[0]);
    part.shapes.assign(app.results.size(), {});
    part.sizes.assign(app.results.size(), {});
    apply_row(one, *use.row, stated, count, part);
    for (unsigned r = 0; r < count; ++r) {
      out.types[use.results[r]] = part.types[r];
      out.sizes[use.results[r]] = part.sizes[r];
    }
    out.violations.append(part.violations.begin(), part.violations.end());
    out.undecided.append(part.undecided.begin(), part.undecided.end());
    if (part.violations.empty() && fine.size() < kMembersApart)
      fine.push_back(&use);
  }
}

} // namespace spmd::rules
