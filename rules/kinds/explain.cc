// The slow path of the local judgment: which operands clash on one axis, and how, by the cells of
// the tables that local.cc evaluates. Runs only after that found a violation there, so it may look
// at one axis at a time.
#include "rules/kinds/local.h"
#include "rules/kinds/tables.h"
#include "rules/violations/local.h"

#include <optional>
#include <utility>

namespace spmd::rules {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;

namespace {

// What one term, or one operand, brings to the axis: its kind, and the first operand of each kind.
struct TermOperands {
  TermKind kind = TermKind::Number;
  const OperandKinds *partial = nullptr, *varying = nullptr, *invariant = nullptr,
                     *replicate = nullptr;
  const OperandKinds *any = nullptr; // the first tensor, zeros included
  bool vanishes = true, zero = true, unknown = false;
  bool dropped = false; // a zero stands in it that drops the term

  // Changes nothing in a sum.
  bool silent() const { return unknown || (any && zero); }
};

class Explainer {
public:
  Explainer(const LocalInput &input, const Sum &sum, AxisId axis)
      : in_(input), eq_(input.equation), sum_(sum), axis_(axis), here_(axis) {}

  std::optional<Violation> run() {
    for (unsigned t = 0; t < sum_.term_count && !found_; ++t)
      visit_term(eq_.terms[sum_.first_term + t]);
    if (!found_)
      visit_sum();
    const GeneratorKinds &random = in_.generator;
    if (!found_ && random.given && on(random.kinds.p) && draws(eq_, sum_))
      report(PartialIntoNonlinear{index(random.kinds), here_});
    return found_;
  }

private:
  bool on(AxisSet set) const { return set.contains(axis_); }
  void report(Violation violation) {
    if (!found_)
      found_ = std::move(violation);
  }
  static OperandIndex index(const OperandKinds &kinds) { return {kinds.index}; }

  void visit_term(const Term &row) {
    TermOperands term;
    for (unsigned a = 0; a < row.atom_count; ++a) {
      const Atom &atom = eq_.atoms[row.first_atom + a];
      for (unsigned r = 0; atom.form != Atom::Form::Integer && r < atom.count; ++r)
        visit_ref(term, eq_.refs[atom.first + r], atom.form == Atom::Form::Function);
    }
    if (term.kind == TermKind::V && on(in_.stated)) {
      term.kind = TermKind::P;
      term.partial = term.varying;
      term.varying = nullptr;
    }
    if (!term.vanishes && !term.dropped)
      terms_.push_back(term);
  }

  void visit_ref(TermOperands &term, const Ref &ref, bool inside_function) {
    if (ref.role == RefRole::ShapeOnly || ref.operand == kGenerator)
      return;
    bool summed = eq_.operands[ref.operand].list == ListForm::Summed;
    const TermOperands before = term;
    TermOperands members;
    for (const OperandKinds &operand : in_.operands[ref.operand]) {
      if (operand.form != OperandKinds::Form::Tensor) {
        term.vanishes &= operand.form == OperandKinds::Form::Zero && in_.zero_drops_term;
        continue;
      }
      term.vanishes = false;
      if (on(operand.combining))
        return report(PartialCombiner{index(operand), operand.combiner, here_});
      TermOperands factor = alone(operand, inside_function);
      if (inside_function || ref.role == RefRole::Condition)
        factor.kind = made(cell(kFunction, factor.kind), factor, factor);
      if (summed) {
        product_of(before, factor);
        add(members, factor);
      }
      term.kind = product_of(summed ? before : term, summed ? members : factor);
      note(term, factor);
      term.dropped |= in_.zero_drops_term && ref.role == RefRole::Value && factor.zero;
    }
  }

  // Inside f a zero is a value like any other.
  TermOperands alone(const OperandKinds &operand, bool inside_function) const {
    TermOperands one{.any = &operand,
                     .zero = on(operand.zero) && !inside_function,
                     .unknown = on(operand.unknown)};
    if (on(operand.p))
      one.kind = TermKind::P, one.partial = &operand;
    else if (on(operand.v))
      one.kind = TermKind::V, one.varying = &operand;
    else if (on(operand.strict_i))
      one.kind = TermKind::I, one.invariant = &operand;
    else if (on(operand.strict_r))
      one.kind = TermKind::R, one.replicate = &operand;
    return one;
  }
  static void note(TermOperands &all, const TermOperands &one) {
    for (const OperandKinds *TermOperands::*first :
         {&TermOperands::partial, &TermOperands::varying, &TermOperands::invariant,
          &TermOperands::replicate, &TermOperands::any})
      if (!(all.*first))
        all.*first = one.*first;
    all.zero &= one.zero;
    all.unknown |= one.unknown;
  }

  // What the cell makes of two; where it is nothing, that is reported.
  TermKind made(const Cell &cell, const TermOperands &a, const TermOperands &b) {
    if (cell.kind == TermKind::None)
      clash(cell.clash, a, b);
    return cell.kind;
  }
  TermKind product_of(const TermOperands &a, const TermOperands &b) {
    bool none = a.kind == TermKind::None || b.kind == TermKind::None;
    return none ? TermKind::None : made(cell(kProduct, a.kind, b.kind), a, b);
  }
  void add(TermOperands &sum, const TermOperands &addend) {
    bool none = sum.kind == TermKind::None || addend.kind == TermKind::None;
    if (none)
      sum.kind = TermKind::None;
    else if (sum.silent() || !sum.any)
      sum.kind = addend.kind;
    else if (!addend.silent())
      sum.kind = made(cell(kSum, sum.kind, addend.kind), sum, addend);
    note(sum, addend);
  }

  void clash(Clash reason, const TermOperands &a, const TermOperands &b) {
    const auto &[invariant, mixed] = in_order(a, b, TermKind::I);
    const auto &[partial, other] = in_order(a, b, TermKind::P);
    switch (reason) {
    case Clash::No:
      break;
    case Clash::InvariantMixed: {
      const OperandKinds &beside = *other_than_invariant(mixed);
      return report(
          InvariantMixed{index(*invariant.invariant), index(beside), kind_of(beside), here_});
    }
    case Clash::PartialTimesPartial:
      return report(PartialTimesPartial{index(*partial.partial), index(*other.partial), here_});
    case Clash::PartialWithVarying:
      return report(PartialWithVarying{index(*partial.partial), index(*other.varying), here_});
    case Clash::PartialPlusReplicate: {
      Addend beside{Addend::Form::Number, {}};
      if (other.any)
        beside = {Addend::Form::Operand, index(*other.any)};
      return report(PartialPlusReplicate{beside, index(*partial.partial), here_});
    }
    case Clash::PartialIntoNonlinear:
      return report(PartialIntoNonlinear{index(*partial.partial), here_});
    }
  }
  // The one of that kind first.
  static std::pair<const TermOperands &, const TermOperands &>
  in_order(const TermOperands &a, const TermOperands &b, TermKind kind) {
    return a.kind == kind ? std::pair<const TermOperands &, const TermOperands &>(a, b)
                          : std::pair<const TermOperands &, const TermOperands &>(b, a);
  }
  static const OperandKinds *other_than_invariant(const TermOperands &term) {
    return term.replicate ? term.replicate : term.varying ? term.varying : term.partial;
  }
  Kind kind_of(const OperandKinds &operand) const {
    if (on(operand.p))
      return Kind::Partial;
    if (on(operand.v))
      return Kind::Varying;
    return on(operand.reduced) ? Kind::Reduced : Kind::Replicate;
  }

  // The first term of each kind against all of them. What is invariant comes first: beside it all
  // else is wrong.
  void visit_sum() {
    for (TermKind kind : {TermKind::I, TermKind::P, TermKind::R, TermKind::V, TermKind::Number}) {
      const TermOperands *first = nullptr;
      for (const TermOperands &term : terms_)
        if (!first && term.kind == kind && !term.silent())
          first = &term;
      for (const TermOperands &term : terms_)
        if (first && &term != first && term.kind != TermKind::None && !term.silent())
          made(cell(kSum, kind, term.kind), *first, term);
    }
  }

  const LocalInput &in_;
  const Equation &eq_;
  const Sum &sum_;
  AxisId axis_;
  AxisSet here_;
  llvm::SmallVector<TermOperands, 4> terms_;
  std::optional<Violation> found_;
};

} // namespace

void explain_local(const LocalInput &input, const Sum &sum, AxisSet bad,
                   llvm::SmallVectorImpl<Violation> &out) {
  size_t first = out.size();
  for (AxisId axis : bad) {
    std::optional<Violation> violation = Explainer(input, sum, axis).run();
    SPMD_CHECK(violation, "a violation without an explanation");
    add_merged(out, first, std::move(*violation));
  }
}

} // namespace spmd::rules
