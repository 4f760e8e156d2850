// Follows the roots of squares of blocks to where they are squared, added up, or used.
#include "checker/gradual/norms.h"

#include "rules/ops/registry.h"
#include "rules/transitions/transition.h"

#include "ir/mesh/mesh.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::Kind;
using ir::ValueId;
using rules::Computes;

namespace {

std::optional<double> number_of(const ir::AttrValue &value) {
  if (value.form == ir::AttrForm::Integer)
    return double(int64_t(value.bits));
  if (value.form == ir::AttrForm::Float)
    return std::bit_cast<double>(value.bits);
  return std::nullopt;
}

// The number at a position, or in an attribute; none: it is not stated.
std::optional<double> stated(const rules::Application &app, unsigned position,
                             std::initializer_list<llvm::StringRef> names) {
  if (position < app.slots.size() && app.slots[position].form == rules::Slot::Form::Literal)
    if (std::optional<double> number = number_of(app.slots[position].literal))
      return number;
  for (llvm::StringRef name : names)
    if (const ir::AttrValue *value = app.attr(name))
      return number_of(*value);
  return std::nullopt;
}

// Each element of the result is one of an operand, scaled by a number at most.
bool keeps(const rules::Application &app) {
  const Computes computes = app.op.row->computes;
  if ((computes == Computes::Product || computes == Computes::Quotient) && app.slots.size() == 2)
    return app.slots[1].form == rules::Slot::Form::Literal;
  const rules::Equation &row = app.op.row->equation.equation;
  for (unsigned a = 0; a < row.atom_count; ++a)
    if (row.atoms[a].form != rules::Atom::Form::Ref)
      return false;
  return row.sum_count > 0 && row.terms[0].atom_count == 1 && row.terms[0].divisors == 0 &&
         (row.term_count == 1 || app.op.row->factors) && computes != Computes::Total;
}

} // namespace

Norms::Made Norms::made(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                        unsigned result) const {
  Made made;
  if (operands.empty())
    return made;
  // Of zipped lists the members in the same place.
  bool each = app.results.size() > 1 && operands.size() >= app.results.size();
  size_t first = each ? result : 0, last = each ? result + 1 : operands.size();
  AxisSet all = ~AxisSet(), some, whole, mixed;
  for (size_t i = first; i < last; ++i) {
    Root root = this->root(operands[i]);
    if (root.axes)
      made.operand = static_cast<uint32_t>(i);
    all &= root.axes, some |= root.axes, mixed |= root.mixed;
    const ir::Type &type = app.type(app.args[i]);
    whole |= type.replicated() | type.of(Kind::Invariant);
  }
  mixed |= some & whole;
  Root joined{some & (all | whole), mixed & some};
  if (app.op.form == rules::OpForm::Transition) {
    if (rules::unstated_words(app.op.transition).reduces)
      made.counted = squares_.lookup(operands[0].index).mixed;
    return made;
  }
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return made;
  const Computes computes = app.op.row->computes;
  if (computes == Computes::Norm) {
    // Along some dimensions alone it is a norm for each of the others.
    const ir::Shape *shape = app.results[result].shape.valid()
                                 ? &app.program.shapes[app.results[result].shape]
                                 : nullptr;
    bool whole = shape ? shape->dims.empty() : !app.attr("dim");
    if (!whole || stated(app, 1, {"ord", "p"}).value_or(2) != 2)
      return made;
    for (size_t i = first; i < last; ++i)
      joined.axes |= app.type(app.args[i]).sharded();
    made.root = joined;
    return made;
  }
  if (!some)
    return made;
  bool twice = computes == Computes::Product && operands.size() == 2 && operands[0] == operands[1];
  if (computes == Computes::Square || twice ||
      (computes == Computes::Power && stated(app, 1, {"exponent"}).value_or(0) == 2))
    made.square = joined;
  else if (keeps(app))
    made.root = joined;
  else if (app.op.row->dtype != rules::DTypeRule::Boolean)
    made.left_out = some;
  return made;
}

void Norms::learn(ValueId value, const Made &made) {
  if (made.root.axes)
    roots_[value.index] = made.root;
  if (made.square.axes)
    squares_[value.index] = made.square;
}

} // namespace spmd::checker
