// Sums, products and comparisons of integers with the position of a rank.
#include "checker/gradual/blocks/offsets.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/program_queries.h"

#include "rules/apply.h"
#include "rules/bind.h"
#include "rules/ops/op.h"
#include "rules/transitions/axes.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

#include <bit>

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;
using rules::Computes;

static bool is_integer(const rules::Application &app, const rules::TensorInfo &arg) {
  const ir::Shape *shape = app.shape(arg);
  return shape && shape->dtype != ir::DType::Unknown && shape->dtype != ir::DType::Bool &&
         !ir::differentiable(shape->dtype);
}

static AxisSet axes_of(const Offsets::Steps &steps) {
  AxisSet axes;
  for (const auto &[axis, step] : steps)
    axes |= axis;
  return axes;
}

// A number that is larger than this, in its parts, is not followed: no index is so large, and sums
// and products of two such numbers do not overflow.
constexpr int64_t kLargest = int64_t{1} << 31;

static bool is_followed(const Offsets::Number &number) {
  auto fits = [](int64_t part) { return part >= -kLargest && part <= kLargest; };
  return fits(number.plus) &&
         llvm::all_of(number.steps, [&](const auto &each) { return fits(each.second); });
}

static void add(Offsets::Steps &to, const Offsets::Steps &steps, int64_t times) {
  for (const auto &[axis, step] : steps)
    if ((to[axis] += times * step) == 0)
      to.erase(axis);
}

// A mask with one bound can be written as what lies inside and as what lies outside.
static Offsets::Mask with_side(Offsets::Mask mask, bool inside) {
  if (mask.inside != inside && mask.low.has_value() != mask.high.has_value()) {
    std::swap(mask.low, mask.high);
    mask.inside = inside;
  }
  return mask;
}

Offsets::Number Offsets::number(ValueId value) const {
  const auto at = numbers_.find(value.index);
  return at != numbers_.end() ? at->second : Number{value, 0, {}, {}};
}

const Offsets::Mask *Offsets::mask(ValueId value) const {
  const auto at = masks_.find(value.index);
  return at != masks_.end() ? &at->second : nullptr;
}

AxisSet Offsets::axes(ValueId value) const {
  if (const Mask *known = mask(value))
    return axes_of(known->steps);
  return axes_of(number(value).steps);
}

// What stands in the place of an operand, if it is an integer.
std::optional<Offsets::Number> Offsets::read(const rules::Application &app,
                                             llvm::ArrayRef<ValueId> operands,
                                             const rules::Slot *slot) const {
  if (!slot)
    return std::nullopt;
  if (slot->form == rules::Slot::Form::Literal && slot->literal.form == ir::AttrForm::Integer) {
    const Number literal{{}, slot->literal.as_integer(), {}, {}};
    return is_followed(literal) ? std::optional(literal) : std::nullopt;
  }
  if (slot->form != rules::Slot::Form::Tensor || slot->first >= operands.size() ||
      !is_integer(app, app.args[slot->first]))
    return std::nullopt;
  return number(operands[slot->first]);
}

// The greater or the lesser of each element and one number, as one end of a range is.
static bool is_bounded(const rules::Application &app) {
  if (!app.op.computes(Computes::Maximum) && !app.op.computes(Computes::Minimum))
    return false;
  const auto is_number = [&](const rules::TensorInfo &arg) {
    return is_scalar(app.program, arg.shape);
  };
  return llvm::count_if(app.args, is_number) + 1 >= static_cast<ptrdiff_t>(app.args.size());
}

// Whether a row only says where elements lie, or keeps them where they are not overwritten: what
// is looked up there is set to zero by the same mask.
static bool keeps_elements(const rules::Application &app, llvm::ArrayRef<ValueId> operands) {
  return (operands.size() == 1 && moves_elements(app.op)) || app.op.computes(Computes::IndexPut) ||
         app.op.computes(Computes::Clamp) || is_bounded(app) || !app.op.row->chooses.empty();
}

std::optional<Offsets::Number> Offsets::computed(ir::InstId id, const rules::Application &app,
                                                 llvm::ArrayRef<ValueId> operands) const {
  const rules::OpDef &row = *app.op.row;
  if (keeps_elements(app, operands)) {
    for (size_t i = 0; i < operands.size() && i < app.args.size(); ++i)
      if (is_integer(app, app.args[i]) && !number(operands[i]).steps.empty())
        return number(operands[i]);
    if (operands.size() == 1 && moves_elements(app.op) && is_integer(app, app.args[0]))
      return number(operands[0]);
    return std::nullopt;
  }
  const bool adds = app.op.computes(Computes::Add), subtracts = app.op.computes(Computes::Sub);
  rules::OperandMismatch ignored;
  const auto binding = rules::bind_operands(app, row.equation.equation, ignored);
  if (!binding || app.attr("alpha") || !(adds || subtracts || app.op.computes(Computes::Mul)))
    return std::nullopt;
  std::optional<Number> a = read(app, operands, (*binding)[0]),
                        b = read(app, operands, (*binding)[1]);
  if (adds || subtracts) {
    if (!a || !b || (b->of.valid() && (a->of.valid() || subtracts)))
      return std::nullopt;
    const int64_t times = subtracts ? -1 : 1;
    const bool grows = !b->steps.empty() || (b->of.valid() && !a->steps.empty());
    a->of = a->of.valid() ? a->of : b->of;
    a->plus += times * b->plus;
    add(a->steps, b->steps, times);
    a->by = grows ? id : a->by;
    return a;
  }
  // A product with a mask keeps what it does not make 0.
  for (size_t i = 0; i < operands.size() && operands.size() == 2; ++i)
    if (mask(operands[i]) && is_integer(app, app.args[1 - i]))
      return number(operands[1 - i]);
  if (!a || !b || a->of.valid() || b->of.valid())
    return std::nullopt;
  if (!a->steps.empty())
    std::swap(a, b);
  if (!a->steps.empty())
    return std::nullopt;
  Number product{{}, a->plus * b->plus, {}, b->by};
  add(product.steps, b->steps, a->plus);
  return product;
}

std::optional<Offsets::Mask> Offsets::compared(ir::InstId id, const rules::Application &app,
                                               llvm::ArrayRef<ValueId> operands) const {
  const bool less = app.op.computes(Computes::Less), at_most = app.op.computes(Computes::LessEqual),
             more = app.op.computes(Computes::Greater),
             at_least = app.op.computes(Computes::GreaterEqual);
  if (!(less || at_most || more || at_least))
    return std::nullopt;
  rules::OperandMismatch ignored;
  const auto binding = rules::bind_operands(app, app.op.row->equation.equation, ignored);
  if (!binding)
    return std::nullopt;
  std::optional<Number> a = read(app, operands, (*binding)[0]),
                        b = read(app, operands, (*binding)[1]);
  if (!a || !b || a->of.valid() == b->of.valid())
    return std::nullopt;
  const bool turned = b->of.valid();
  if (turned)
    std::swap(a, b);
  Mask mask{a->of, a->steps, {}, {}, true, id};
  add(mask.steps, b->steps, -1);
  const int64_t bound = b->plus - a->plus;
  if (turned ? more || at_least : less || at_most)
    mask.high = bound + (at_most || at_least ? 1 : 0);
  else
    mask.low = bound + (turned ? less : more);
  return mask;
}

// A mask of zeros and ones that 1 is taken from, or that is taken from 1; its sign is no matter.
static bool is_beside_one(const rules::Application &app) {
  return app.op.computes(Computes::Sub) && !app.attr("alpha") &&
         llvm::any_of(app.slots, [](const rules::Slot &slot) {
           const ir::AttrValue &one = slot.literal;
           return slot.form == rules::Slot::Form::Literal &&
                  (one.form == ir::AttrForm::Float     ? std::bit_cast<double>(one.bits) == 1.0
                   : one.form == ir::AttrForm::Integer ? one.as_integer() == 1
                                                       : false);
         });
}

static bool negates(const rules::ResolvedOp &op) {
  if (op.form != rules::OpForm::Equation || !op.row)
    return false;
  const rules::Equation &row = op.row->equation.equation;
  return row.term_count == 1 && row.terms[0].negative && row.terms[0].atom_count == 1 &&
         row.atoms[0].form == rules::Atom::Form::Ref;
}

// The intersection or union of two masks, or the complement of one.
std::optional<Offsets::Mask> Offsets::combined(const rules::Application &app,
                                               llvm::ArrayRef<ValueId> operands) const {
  const Mask *first = operands.empty() ? nullptr : mask(operands[0]);
  if (!first)
    return std::nullopt;
  if (operands.size() == 1) {
    Mask result = *first;
    if (app.op.computes(Computes::LogicalNot) || is_beside_one(app))
      result.inside = !result.inside;
    else if (!moves_elements(app.op) && !negates(app.op))
      return std::nullopt;
    return result;
  }
  const Mask *second = operands.size() == 2 ? mask(operands[1]) : nullptr;
  const bool both = app.op.computes(Computes::LogicalAnd) || app.op.computes(Computes::Mul);
  if (!second || !(both || app.op.computes(Computes::LogicalOr)))
    return std::nullopt;
  Mask a = with_side(*first, both), b = with_side(*second, both);
  if (a.inside != both || b.inside != both || a.of != b.of || a.steps != b.steps ||
      (a.low && b.low) || (a.high && b.high))
    return std::nullopt;
  a.low = a.low ? a.low : b.low;
  a.high = a.high ? a.high : b.high;
  return a;
}

void Offsets::learn(ir::InstId id, const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                    ValueId result) {
  if (app.op.boundary == rules::Boundary::AxisIndex) {
    if (const AxisSet axes = rules::named_axes(app); axes.size() == 1)
      numbers_[result.index] = {{}, 0, {{*axes.begin(), 1}}, id};
    return;
  }
  if (app.op.form == rules::OpForm::Boundary && operands.size() == 1 && moves_elements(app.op)) {
    if (is_integer(app, app.args[0]))
      numbers_[result.index] = number(operands[0]);
    return;
  }
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return;
  if (std::optional<Mask> made = compared(id, app, operands))
    masks_[result.index] = *made;
  else if ((made = combined(app, operands)))
    masks_[result.index] = *made;
  else if (std::optional<Number> number = computed(id, app, operands);
           number && is_followed(*number))
    numbers_[result.index] = *number;
}

} // namespace spmd::checker
