// Follows the roots of squares of blocks to where they are squared, added up, or used.
#include "checker/gradual/norms.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/operand_list.h"

#include "rules/apply.h"
#include "rules/ops/registry.h"
#include "rules/transitions/axes.h"
#include "rules/transitions/call.h"
#include "rules/transitions/transition.h"

#include "ir/mesh/mesh.h"

#include <cmath>

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;
using rules::Computes;

namespace {

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
  if ((computes == Computes::Mul || computes == Computes::Div) && app.slots.size() == 2)
    return app.slots[1].form == rules::Slot::Form::Literal;
  const rules::Equation &row = app.op.row->equation.equation;
  for (unsigned a = 0; a < row.atom_count; ++a)
    if (row.atoms[a].form != rules::Atom::Form::Ref)
      return false;
  return row.sum_count > 0 && row.terms[0].atom_count == 1 && row.terms[0].divisors == 0 &&
         (row.term_count == 1 || app.op.row->factors) && computes != Computes::ReduceSum;
}

bool is_power(const rules::Application &app, double exponent) {
  return app.op.computes(Computes::Power) && stated(app, 1, {"exponent"}).value_or(0) == exponent;
}

// By the root of how many an instruction divides each of its operands.
double divides_by_root_of(const rules::Application &app) {
  const bool product = app.op.computes(Computes::Mul);
  const double number =
      product || app.op.computes(Computes::Div) ? std::abs(stated(app, 1, {}).value_or(1)) : 1;
  return number == 0 ? 1 : product ? 1 / (number * number) : number * number;
}

bool is_scalar(double value, int64_t expected) {
  return std::abs(value - double(expected)) <= 1e-6 * double(expected);
}

} // namespace

bool squares(const rules::Application &app, llvm::ArrayRef<ValueId> operands) {
  return app.op.computes(Computes::Square) || is_power(app, 2) ||
         (app.op.computes(Computes::Mul) && operands.size() == 2 && operands[0] == operands[1]);
}

bool takes_root(const rules::Application &app) {
  return (app.op.computes(Computes::Root) && app.op.variant() == rules::Variant::Plain) ||
         is_power(app, 0.5);
}

Norms::Norms(ir::Program &program) {
  rules::Rules rules(program);
  llvm::DenseSet<uint32_t> otherwise;
  for (uint32_t i = static_cast<uint32_t>(program.insts.size()); i-- > 0;) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    OperandList operands;
    operands.read(program, inst.operands);
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    bool square =
        squares({program, op, inst.attrs, inst.context, operands.slots, {}, {}}, operands.values);
    // A copy is used as what it is a copy of.
    if (operands.values.size() == 1 && inst.result_count == 1 && moves_elements(op))
      square = only_squared_.contains(inst.first_result.index) &&
               !otherwise.contains(inst.first_result.index);
    for (ValueId value : operands.values)
      (square ? only_squared_ : otherwise).insert(value.index);
  }
  for (uint32_t value : otherwise)
    only_squared_.erase(value);
  for (const ir::Output &output : program.outputs)
    only_squared_.erase(output.value.index);
}

AxisSet Norms::rooted(const rules::Application &app, ValueId operand, ValueId result) const {
  return takes_root(app) && only_squared_.contains(result.index)
             ? squares_.lookup(operand.index).axes | own_squares_.lookup(operand.index)
             : AxisSet();
}

// Squares, what moves them, and what they come to.
bool Norms::adds_squares(const rules::Application &app, llvm::ArrayRef<ValueId> operands) const {
  if (squares(app, operands))
    return true;
  const bool adds = app.op.computes(Computes::Add) || app.op.computes(Computes::ReduceSum);
  return (adds || moves_elements(app.op)) && llvm::all_of(operands, [&](ValueId operand) {
           return own_squares_.count(operand.index) != 0;
         });
}

// The square of a root is an addend for each rank. Over some axes it may be added up before others.
void Norms::reduce(const rules::Application &app, llvm::ArrayRef<ValueId> operands, unsigned result,
                   Facts &facts) const {
  if (!rules::unstated_words(app.op.transition).reduces)
    return;
  facts.operand = std::min<uint32_t>(result, operands.size() - 1);
  const Root square = squares_.lookup(operands[facts.operand].index);
  const AxisSet axes = rules::communicated_axes(app);
  facts.counted = square.mixed & axes;
  facts.square = {square.axes - axes, square.mixed - axes};
}

Norms::Facts Norms::infer(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                          unsigned result, ValueId value) const {
  Facts facts;
  if (operands.empty())
    return facts;
  if (app.op.form == rules::OpForm::Transition) {
    reduce(app, operands, result, facts);
    return facts;
  }
  // Of zipped lists the members in the same place.
  bool each = app.results.size() > 1 && operands.size() >= app.results.size();
  size_t first = each ? result : 0, last = each ? result + 1 : operands.size();
  AxisSet all = ~AxisSet(), some, whole, mixed;
  for (size_t i = first; i < last; ++i) {
    Root root = this->root(operands[i]);
    if (root.axes)
      facts.operand = static_cast<uint32_t>(i);
    all &= root.axes, some |= root.axes, mixed |= root.mixed;
  }
  for (size_t i = first; i < last; ++i) {
    const ir::Type &type = app.type(app.args[i]);
    const AxisSet equal = type.same_on_all_ranks(), counted = equal & some;
    whole |= equal;
    // Divided by the root of the number of ranks, it counts once among them.
    if (counted &&
        !is_scalar(shares(operands[i]), rules::size_of(app.program.meshes[type.mesh()], counted)))
      mixed |= counted;
  }
  Root joined{some & (all | whole), mixed & some};
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return facts;
  const Computes computes = app.op.row->computes;
  if (computes == Computes::Norm) {
    // Along some dimensions alone it is a norm for each of the others.
    const ir::Shape *shape = app.results[result].shape.valid()
                                 ? &app.program.shapes[app.results[result].shape]
                                 : nullptr;
    bool whole = shape ? shape->dims.empty() : !app.attr("dim");
    if (!whole || stated(app, 1, {"ord", "p"}).value_or(2) != 2)
      return facts;
    for (size_t i = first; i < last; ++i)
      joined.axes |= app.type(app.args[i]).sharded();
    facts.root = joined;
    return facts;
  }
  facts.squares = app.results.size() == 1 && adds_squares(app, operands);
  if (keeps(app) && last == first + 1)
    facts.shares = shares(operands[first]) * divides_by_root_of(app);
  if (AxisSet axes = rooted(app, operands[first], value)) {
    facts.root = {axes, squares_.lookup(operands[first].index).mixed};
    return facts;
  }
  if (!some)
    return facts;
  if (squares(app, operands))
    facts.square = joined;
  else if (keeps(app))
    facts.root = joined;
  else if (app.op.row->dtype != rules::DTypeRule::Boolean)
    facts.left_out = some;
  return facts;
}

void Norms::learn(ValueId value, const Facts &facts, AxisSet addends) {
  if (facts.squares)
    own_squares_[value.index] = addends;
  if (facts.root.axes)
    roots_[value.index] = facts.root;
  if (facts.square.axes)
    squares_[value.index] = facts.square;
  if (facts.shares != 1)
    shares_[value.index] = facts.shares;
}

} // namespace spmd::checker
