// Evaluates an equation over kinds, all axes at once, by the tables of tables.h
// (rules/README.md). Relies on the binding of operands being done.
#include "rules/kinds/local.h"

#include "rules/kinds/tables.h"

namespace spmd::rules {

using ir::AxisSet;
using ir::Kind;

OperandKinds OperandKinds::tensor(const ir::Type &type, uint32_t index, bool adopts) {
  OperandKinds kinds{.form = Form::Tensor, .index = index};
  bool is_free = adopts || type.gradient_free();
  AxisSet r = type.replicated(), i = type.of(Kind::Invariant);
  AxisSet undecided = r & i;
  kinds.zero = type.zero();
  kinds.unknown = type.unknown;
  kinds.v = type.of(Kind::Varying);
  kinds.p = type.of(Kind::Partial) - kinds.zero;
  kinds.reduced = type.of(Kind::Reduced);
  kinds.combining = type.combining();
  if (kinds.combining)
    kinds.combiner = type.combiner(kinds.combining.first());
  (is_free ? kinds.free_r : kinds.strict_r) = r - undecided;
  (is_free ? kinds.free_i : kinds.strict_i) = i - undecided;
  kinds.free = kinds.free_r | kinds.free_i | undecided;
  if (!is_free)
    kinds.open = undecided - kinds.zero;
  return kinds;
}

namespace {

// What was met so far and the tables do not speak of: unions, in one term or in the whole sum.
struct Met {
  AxisSet free_r, free_i, open, reduced, unowned, unknown;

  void add(const Met &other) {
    free_r |= other.free_r;
    free_i |= other.free_i;
    open |= other.open;
    reduced |= other.reduced;
    unowned |= other.unowned;
    unknown |= other.unknown;
  }
};

// An operand, or a list of them under `+`.
struct Factor {
  KindPlanes kinds;
  Met met;
  AxisSet zero;

  explicit Factor(const OperandKinds &operand)
      : met{operand.free_r,
            operand.free_i,
            operand.open,
            operand.reduced,
            operand.strict_r - operand.reduced,
            operand.unknown},
        zero(operand.zero) {
    kinds[TermKind::R] = operand.strict_r;
    kinds[TermKind::I] = operand.strict_i;
    kinds[TermKind::V] = operand.v;
    kinds[TermKind::P] = operand.p - operand.combining;
    kinds[TermKind::None] = operand.combining;
  }
};

struct TermKinds {
  KindPlanes kinds;
  Met met;
  AxisSet zero;         // every operand is a zero there
  AxisSet dropped;      // a tensor of zeros drops the term there, as the number 0 does
  bool vanishes = true; // no operand left: the term is absent
  bool only_numbers = true;
};

// A sum by the table: an addend that is zero or unknown on an axis changes nothing there.
struct Total {
  KindPlanes kinds;
  AxisSet absent = ~AxisSet(); // no addend yet

  void add(const KindPlanes &addend, AxisSet silent) {
    KindPlanes both = combine<kSum>(kinds, addend);
    both.take(addend, absent);
    kinds.take(both, ~silent);
    absent &= silent;
  }
};

class Evaluator {
public:
  Evaluator(const LocalInput &input, const Sum &sum) : in_(input), eq_(input.equation), sum_(sum) {}

  LocalResult run() {
    for (unsigned t = 0; t < sum_.term_count; ++t) {
      TermKinds made = term(eq_.terms[sum_.first_term + t]);
      if (!in_.reads.empty())
        read_as_addends(made, in_.reads[t]);
      add_term(made);
    }
    return finish();
  }

  TermKindSets kinds_of(const Term &row) {
    TermKinds made = term(row);
    return {made.kinds[TermKind::P], made.kinds[TermKind::V], made.kinds[TermKind::I], made.zero,
            made.met.unknown};
  }

private:
  static void read_as_addends(TermKinds &made, AxisSet axes) {
    KindPlanes partial;
    partial[TermKind::P] = axes;
    made.kinds.take(partial, axes - made.kinds[TermKind::None]);
    for (AxisSet Met::*set : {&Met::free_r, &Met::free_i, &Met::open, &Met::reduced, &Met::unowned})
      made.met.*set -= axes;
  }

  void multiply(TermKinds &term, const Factor &factor, bool inside_function, bool condition) {
    bool nonlinear = inside_function || condition;
    term.kinds =
        combine<kProduct>(term.kinds, nonlinear ? apply<kFunction>(factor.kinds) : factor.kinds);
    term.zero = term.only_numbers ? factor.zero : term.zero & factor.zero;
    if (inside_function)
      term.zero = {};
    if (in_.zero_drops_term && !nonlinear)
      term.dropped |= factor.zero;
    term.only_numbers = false;
    term.met.add(factor.met);
  }

  // A list operand under `+` is the sum of its members; it then local_steps as one operand.
  void multiply(TermKinds &term, const Ref &ref, bool inside_function) {
    if (ref.role == RefRole::ShapeOnly || ref.operand == kGenerator)
      return;
    const OperandGroup &group = in_.operands[ref.operand];
    bool condition = ref.role == RefRole::Condition;
    term.vanishes &= group.empty();
    if (eq_.operands[ref.operand].list == ListForm::Summed && group.size() > 1)
      return multiply(term, sum_of(group), inside_function, condition);
    for (const OperandKinds &member : group)
      if (member.form == OperandKinds::Form::Tensor)
        multiply(term, Factor(member), inside_function, condition);
  }

  static Factor sum_of(const OperandGroup &group) {
    Total total;
    Factor all{OperandKinds()};
    all.zero = ~AxisSet();
    for (const OperandKinds &operand : group) {
      Factor member(operand);
      total.add(member.kinds, member.zero | member.met.unknown);
      all.met.add(member.met);
      all.zero &= member.zero;
    }
    all.kinds = total.kinds;
    return all;
  }

  TermKinds term(const Term &row) {
    TermKinds made;
    bool missing = false;
    for (unsigned a = 0; a < row.atom_count; ++a) {
      const Atom &atom = eq_.atoms[row.first_atom + a];
      bool inside_function = atom.form == Atom::Form::Function;
      if (atom.form == Atom::Form::Integer)
        continue;
      for (unsigned r = 0; r < atom.count; ++r) {
        const Ref &ref = eq_.refs[atom.first + r];
        missing |= drops_term(ref);
        multiply(made, ref, inside_function);
      }
    }
    made.vanishes |= missing;
    made.zero |= made.dropped;
    AxisSet stated = made.kinds[TermKind::V] & in_.stated;
    stated_on_ |= stated;
    made.kinds[TermKind::P] |= stated;
    made.kinds[TermKind::V] -= stated;
    return made;
  }

  // The number 0 in the place of an operand removes its term.
  bool drops_term(const Ref &ref) const {
    if (!in_.zero_drops_term || ref.operand == kGenerator || ref.role != RefRole::Value)
      return false;
    const OperandGroup &group = in_.operands[ref.operand];
    return group.size() == 1 && group.front().form == OperandKinds::Form::Zero;
  }

  void add_term(const TermKinds &term) {
    bad_ |= term.kinds[TermKind::None];
    if (term.vanishes)
      return;
    total_.add(term.kinds, term.zero | term.met.unknown);
    met_.add(term.met);
    all_zero_ &= term.zero;
    has_terms_ = true;
  }

  LocalResult finish() {
    LocalResult result;
    const KindPlanes &total = total_.kinds;
    AxisSet known = in_.axes - met_.unknown;
    result.bad = (bad_ | total[TermKind::None]) & known;
    result.needless = ((in_.stated - stated_on_) & known) - result.bad;
    AxisSet good = known - result.bad;
    result.unknown = in_.axes - good;
    result.p = total[TermKind::P] & good;
    result.i = total[TermKind::I] & good;
    result.v = total[TermKind::V] & good;
    AxisSet strict_r = total[TermKind::R] & good;
    AxisSet rest = total.numbers() & good;
    if (has_terms_)
      result.zero = rest & all_zero_;
    rest -= result.zero;
    AxisSet free_r = rest & (met_.free_r - met_.open);
    AxisSet free_i = rest & (met_.free_i - met_.free_r - met_.open);
    AxisSet same = strict_r | free_r;
    result.reduced = same & (met_.reduced - met_.unowned);
    result.r = same - result.reduced;
    result.i |= free_i;
    result.either = rest - free_r - free_i;
    draw(result);
    return result;
  }

  // Random numbers meet data: the state must be V exactly where the data is.
  void draw(LocalResult &result) const {
    if (!draws(eq_, sum_))
      return;
    AxisSet data_v = result.v | (result.p & stated_on_); // before it was read as addends
    bool alone = !has_terms_;
    AxisSet others = in_.axes - data_v - result.unknown;
    if (!in_.generator.given) {
      forget(result, others);
      return;
    }
    const OperandKinds &state = in_.generator.kinds;
    // Bits are a function of the state.
    AxisSet partial = state.p & (in_.axes - result.unknown);
    result.bad |= partial;
    result.needless -= partial;
    forget(result, partial);
    AxisSet known = in_.axes - state.unknown - result.unknown;
    if (alone) {
      forget(result, in_.axes - state.v - state.strict_r - state.strict_i - state.free);
      take(result, state.v & known, &LocalResult::v);
      take(result, known - state.v, &LocalResult::r);
      return;
    }
    result.random_diverges = state.v & others & known;
    result.random_repeats = (state.strict_r | state.strict_i | state.free) & data_v & known;
    forget(result, result.random_diverges | result.random_repeats | (state.unknown & others));
  }

  static void take(LocalResult &result, AxisSet axes, AxisSet LocalResult::*kind) {
    result.r -= axes, result.reduced -= axes, result.i -= axes, result.v -= axes, result.p -= axes;
    result.either -= axes, result.zero -= axes, result.unknown -= axes;
    result.*kind |= axes;
  }
  static void forget(LocalResult &result, AxisSet axes) {
    take(result, axes, &LocalResult::unknown);
  }

  const LocalInput &in_;
  const Equation &eq_;
  Sum sum_;
  Total total_;
  Met met_;
  AxisSet bad_, stated_on_;
  AxisSet all_zero_ = ~AxisSet();
  bool has_terms_ = false;
};

} // namespace

TermKindSets term_kinds(const LocalInput &input, const Term &term) {
  return Evaluator(input, {}).kinds_of(term);
}

bool draws(const Equation &equation, const Sum &sum) {
  if (!equation.has_generator)
    return false;
  auto is_state = [&](unsigned ref) { return equation.refs[ref].operand == kGenerator; };
  for (unsigned t = 0; t < sum.term_count; ++t) {
    const Term &row = equation.terms[sum.first_term + t];
    for (unsigned a = 0; a < row.atom_count; ++a) {
      const Atom &atom = equation.atoms[row.first_atom + a];
      for (unsigned r = 0; atom.form != Atom::Form::Integer && r < atom.count; ++r)
        if (is_state(atom.first + r))
          return true;
    }
  }
  for (unsigned e = 0; e < sum.extra_count; ++e)
    if (is_state(sum.first_extra + e))
      return true;
  return false;
}

LocalResult evaluate_local(const LocalInput &input, const Sum &sum) {
  return Evaluator(input, sum).run();
}

} // namespace spmd::rules
