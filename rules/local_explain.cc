// The slow path of the local judgment: which operands clash on one axis, and how. Runs only after
// local.cc found a violation there, so it may look at one axis at a time.
#include "rules/local.h"

#include <optional>

namespace spmd::rules {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;

namespace {

// The first operand of each kind that one term brings to the axis.
struct TermOperands {
  const OperandKinds *partial = nullptr, *varying = nullptr, *invariant = nullptr,
                     *replicate = nullptr;
  const OperandKinds *any = nullptr; // the first tensor, zeros included
  bool number = false, vanishes = true, zero = true, unknown = false;
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
    if (term.varying && !term.partial && on(in_.stated)) {
      term.partial = term.varying;
      term.varying = nullptr;
    }
    if (!term.vanishes)
      terms_.push_back(term);
  }

  void visit_ref(TermOperands &term, const Ref &ref, bool inside_function) {
    if (ref.role == RefRole::Donor || ref.operand == kGenerator)
      return;
    bool summed = eq_.operands[ref.operand].list == ListForm::Summed;
    const TermOperands before = term;
    TermOperands members;
    for (const OperandKinds &operand : in_.operands[ref.operand]) {
      if (operand.form != OperandKinds::Form::Tensor) {
        term.number |= operand.form == OperandKinds::Form::Number || !in_.zero_drops_term;
        term.vanishes &= operand.form == OperandKinds::Form::Zero && in_.zero_drops_term;
        continue;
      }
      term.vanishes = false;
      if (on(operand.combining))
        return report(PartialCombiner{index(operand), operand.combiner, here_});
      if (on(operand.p) && (inside_function || ref.role == RefRole::Condition))
        return report(PartialIntoNonlinear{index(operand), here_});
      clash_in_product(summed ? before : term, operand);
      if (summed) {
        clash_in_sum(members, operand);
        note(members, operand, inside_function);
      }
      note(term, operand, inside_function);
    }
  }

  // Inside f a zero is a value like any other.
  void note(TermOperands &term, const OperandKinds &operand, bool inside_function) {
    const OperandKinds *&place = on(operand.p)          ? term.partial
                                 : on(operand.v)        ? term.varying
                                 : on(operand.strict_i) ? term.invariant
                                 : on(operand.strict_r) ? term.replicate
                                                        : term.any;
    if (!place)
      place = &operand;
    if (!term.any)
      term.any = &operand;
    term.zero &= on(operand.zero) && !inside_function;
    term.unknown |= on(operand.unknown);
  }

  void clash_in_product(const TermOperands &term, const OperandKinds &operand) {
    clash_with_invariant(term, operand);
    if (on(operand.p) && term.partial)
      report(PartialTimesPartial{index(*term.partial), index(operand), here_});
    else if (on(operand.p) && term.varying)
      report(PartialWithVarying{index(operand), index(*term.varying), here_});
    else if (on(operand.v) && term.partial)
      report(PartialWithVarying{index(*term.partial), index(operand), here_});
  }

  // Members of a list that are summed: all P or none.
  void clash_in_sum(const TermOperands &term, const OperandKinds &operand) {
    clash_with_invariant(term, operand);
    if (on(operand.p) && term.varying)
      report(PartialWithVarying{index(operand), index(*term.varying), here_});
    else if (on(operand.v) && term.partial)
      report(PartialWithVarying{index(*term.partial), index(operand), here_});
    else if (on(operand.p) && term.any && !term.partial && !term.zero)
      report(
          PartialPlusReplicate{{Addend::Form::Operand, index(*term.any)}, index(operand), here_});
    else if (term.partial && !on(operand.p | operand.zero | operand.unknown))
      report(PartialPlusReplicate{
          {Addend::Form::Operand, index(operand)}, index(*term.partial), here_});
  }

  void clash_with_invariant(const TermOperands &term, const OperandKinds &operand) {
    if (on(operand.strict_i)) {
      if (const OperandKinds *other = other_than_invariant(term))
        report(InvariantMixed{index(operand), index(*other), kind_of(*other), here_});
    } else if (term.invariant && on(operand.strict_r | operand.v | operand.p)) {
      report(InvariantMixed{index(*term.invariant), index(operand), kind_of(operand), here_});
    }
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

  void visit_sum() {
    const TermOperands *partial = nullptr, *invariant = nullptr;
    for (const TermOperands &term : terms_) {
      if (term.partial && !partial)
        partial = &term;
      if (term.invariant && !invariant)
        invariant = &term;
    }
    for (const TermOperands &term : terms_)
      if (const OperandKinds *other =
              invariant && !term.invariant ? other_than_invariant(term) : nullptr)
        report(InvariantMixed{index(*invariant->invariant), index(*other), kind_of(*other), here_});
    for (const TermOperands &term : terms_)
      if (partial && !term.partial && !term.unknown)
        visit_addend(*partial->partial, term);
  }
  void visit_addend(const OperandKinds &partial, const TermOperands &term) {
    if (term.varying)
      report(PartialWithVarying{index(partial), index(*term.varying), here_});
    else if (!term.any)
      report(PartialPlusReplicate{{Addend::Form::Number, {}}, index(partial), here_});
    else if (!term.zero)
      report(
          PartialPlusReplicate{{Addend::Form::Operand, index(*term.any)}, index(partial), here_});
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
