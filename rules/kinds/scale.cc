// Scale arithmetic over the terms of an equation. Relies on scales of operands being canonical.
#include "rules/kinds/scale.h"

#include "rules/violations/gradients.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace spmd::rules {
namespace {

using ir::AxisSet;
using ir::ScaleId;

// A term, or a list under `+`: what its factors come to.
struct TermScale {
  ScaleId scale;
  bool any = false;  // of every scale: a zero, an infinity
  bool live = true;  // false: no operand stands there
  bool lone = false; // numbers only
  OperandIndex operand;
};

// Where scales are compared; factors of axes that are unknown there are left out.
struct Seen {
  ir::MeshId mesh;
  AxisSet unknown;
};

// The factor that two scales differ by; none if there is none, or it is not known.
std::optional<Violation> left_over(ir::Program &program, const Seen &at, ScaleId found,
                                   ScaleId needed, std::string other, OperandIndex operand,
                                   ir::ValueId value) {
  ScaleId left = ir::without(program, ir::quotient(program, found, needed), at.mesh, at.unknown);
  if (!left.valid() || left == program.one())
    return std::nullopt;
  const AxisSet axes = ir::axes_in(program, left, at.mesh);
  AxisSet below;
  for (ir::AxisId axis : axes)
    if (ir::exponent_of(program, left, at.mesh, axis) < 0)
      below |= axis;
  return ScaleMismatch{operand,
                       value,
                       "",
                       ir::print_scale(program, found, at.mesh),
                       std::move(other),
                       ir::print_scale(program, left, at.mesh),
                       axes,
                       below};
}

class Judge {
public:
  Judge(const ScaleInput &input, const OpDef &row, const Sum &sum)
      : in_(input), app_(input.app), program_(app_.program), eq_(input.kinds.equation), row_(row),
        sum_(sum) {
    for (const TensorInfo &arg : app_.args)
      unknown_ |= app_.type(arg).unknown;
  }

  SumScale run() {
    llvm::SmallVector<TermScale, 4> terms;
    for (unsigned t = 0; t < sum_.term_count; ++t)
      terms.push_back(term(eq_.terms[sum_.first_term + t]));
    out_.reads.resize(terms.size());
    out_.scale = joined(terms);
    return std::move(out_);
  }

private:
  ScaleId one() const { return program_.one(); }
  ScaleId scale_of(const OperandKinds &operand) const {
    return app_.type(app_.args[operand.index]).scale;
  }
  bool is_zero(const OperandKinds &operand) const {
    return operand.form == OperandKinds::Form::Zero ||
           (operand.form == OperandKinds::Form::Tensor && in_.kinds.axes &&
            operand.zero.contains(in_.kinds.axes));
  }
  ScaleId compared(ScaleId scale) const {
    return ir::without(program_, scale, app_.op_context().mesh, unknown_);
  }

  std::string text(ScaleId scale) const {
    return ir::print_scale(program_, scale, app_.op_context().mesh);
  }
  void mismatch(OperandIndex operand, ScaleId found, ScaleId needed, std::string other) {
    if (std::optional<Violation> differs = left_over(program_, {app_.op_context().mesh, unknown_},
                                                     found, needed, std::move(other), operand, {}))
      out_.violations.push_back(std::move(*differs));
  }

  // What enters a nonlinear function must be the thing itself.
  void enter_function(TermScale &made, const OperandKinds &operand) {
    if (operand.form != OperandKinds::Form::Tensor || is_zero(operand))
      return;
    ScaleId scale = scale_of(operand);
    switch (row_.function_scale) {
    case OpDef::FunctionScale::Any:
      return;
    case OpDef::FunctionScale::Inverse:
      made.scale = ir::quotient(program_, made.scale, scale);
      return;
    case OpDef::FunctionScale::One:
      break;
    }
    if (!scale.valid())
      made.scale = scale;
    else if (compared(scale) != one())
      mismatch({operand.index}, scale, one(), "1 is needed");
  }

  TermScale term(const Term &row) {
    TermScale made{.scale = one(), .lone = true};
    bool any_value = false;
    for (unsigned a = 0; a < row.atom_count; ++a) {
      const Atom &atom = eq_.atoms[row.first_atom + a];
      if (atom.form == Atom::Form::Integer) {
        any_value = true;
        continue;
      }
      for (unsigned r = 0; r < atom.count; ++r)
        any_value |= multiply(made, eq_.refs[atom.first + r], atom.form == Atom::Form::Function);
    }
    made.live &= any_value;
    if (row.divisors && in_.divided)
      made.scale = ir::product(program_, made.scale,
                               ir::axes_scale(program_, app_.op_context().mesh, in_.divided));
    return made;
  }

  // True if something stands for the operand.
  bool multiply(TermScale &made, const Ref &ref, bool inside_function) {
    if (ref.operand == kGenerator)
      return true;
    if (ref.role == RefRole::ShapeOnly)
      return false;
    const OperandGroup &group = in_.kinds.operands[ref.operand];
    bool summed = eq_.operands[ref.operand].list == ListForm::Summed && group.size() > 1;
    if (summed && !inside_function) {
      TermScale all = sum_of(group);
      made.scale = ir::product(program_, made.scale, all.scale);
      made.any |= all.any;
      take(made, all.operand);
      return true;
    }
    bool stands = false;
    for (const OperandKinds &operand : group) {
      stands |= operand.form != OperandKinds::Form::Missing;
      if (operand.form == OperandKinds::Form::Zero && in_.kinds.zero_drops_term &&
          ref.role == RefRole::Value)
        made.live = false;
      if (inside_function || ref.role == RefRole::Condition)
        enter_function(made, operand);
      else if (operand.form == OperandKinds::Form::Tensor)
        made.scale = ir::product(program_, made.scale, scale_of(operand));
      made.any |= !inside_function && ref.role == RefRole::Value && is_zero(operand);
      if (operand.form == OperandKinds::Form::Tensor && ref.role == RefRole::Value)
        take(made, {operand.index});
    }
    return stands;
  }
  static void take(TermScale &made, OperandIndex operand) {
    if (made.lone)
      made.operand = operand;
    made.lone = false;
  }

  TermScale sum_of(const OperandGroup &group) {
    llvm::SmallVector<TermScale, 4> members;
    for (const OperandKinds &operand : group)
      if (operand.form == OperandKinds::Form::Tensor)
        members.push_back(
            {.scale = scale_of(operand), .any = is_zero(operand), .operand = {operand.index}});
    TermScale all = members.empty() ? TermScale{.scale = one()} : members.front();
    for (const TermScale &member : members)
      if (!member.any)
        all = all.any ? member : all;
    for (const TermScale &member : members)
      compare(all, member);
    return all;
  }
  void compare(const TermScale &first, const TermScale &other) {
    if (first.any || other.any || first.scale == other.scale || !first.scale.valid() ||
        !other.scale.valid() || compared(first.scale) == compared(other.scale))
      return;
    const TermScale &named = other.lone ? first : other, &against = other.lone ? other : first;
    std::string whose = against.lone ? "the number beside it has "
                                     : "operand " + std::to_string(against.operand.index) + " has ";
    mismatch(named.operand, named.scale, against.scale, whose + text(against.scale));
  }

  // --- the terms of a sum ---

  ScaleId joined(llvm::MutableArrayRef<TermScale> terms) {
    const TermScale *first = nullptr;
    size_t first_index = 0;
    for (size_t t = 0; t < terms.size(); ++t)
      if (terms[t].live && !is_infinite(t) && !terms[t].any &&
          (!first || addends(t).size() > addends(first_index).size()))
        first = &terms[t], first_index = t;
    if (!first)
      return one();
    ScaleId scale = first->scale;
    for (size_t t = 0; t < terms.size(); ++t) {
      TermScale &other = terms[t];
      if (&other == first || !other.live || other.any || is_infinite(t))
        continue;
      if (!other.scale.valid() || !scale.valid()) {
        scale = {};
        continue;
      }
      if (AxisSet spread = spread_over(first_index, t, scale, other.scale)) {
        out_.reads[t] = spread;
        continue;
      }
      size_t before = out_.violations.size();
      compare(*first, other);
      if (out_.violations.size() != before)
        scale = {};
    }
    return scale;
  }

  // A plain infinity in the place of a term: a mask.
  bool is_infinite(size_t t) const {
    const Term &row = eq_.terms[sum_.first_term + t];
    for (unsigned a = 0; a < row.atom_count; ++a) {
      const Atom &atom = eq_.atoms[row.first_atom + a];
      for (unsigned r = 0; atom.form == Atom::Form::Ref && r < atom.count; ++r)
        for (const OperandKinds &operand : operands_of(eq_.refs[atom.first + r]))
          if (operand.infinite)
            return true;
    }
    return false;
  }
  llvm::ArrayRef<OperandKinds> operands_of(const Ref &ref) const {
    if (ref.operand == kGenerator || ref.role != RefRole::Value)
      return {};
    return in_.kinds.operands[ref.operand];
  }

  AxisSet addends(size_t t) const {
    return term_kinds(in_.kinds, eq_.terms[sum_.first_term + t]).p;
  }

  // The axes on which the first term is partial and the other one the same everywhere, if their
  // sizes are what the first term has more: each rank then adds the whole to its own mean.
  AxisSet spread_over(size_t first, size_t other, ScaleId has, ScaleId wants) {
    if (has == wants)
      return {};
    TermKindSets kinds = term_kinds(in_.kinds, eq_.terms[sum_.first_term + other]);
    AxisSet axes = addends(first) - kinds.p - kinds.v - kinds.strict_i - kinds.unknown - kinds.zero;
    bool exact = axes && ir::quotient(program_, has, wants) ==
                             ir::axes_scale(program_, app_.op_context().mesh, axes);
    return exact ? axes : AxisSet();
  }

  const ScaleInput &in_;
  const Application &app_;
  ir::Program &program_;
  const Equation &eq_;
  const OpDef &row_;
  const Sum &sum_;
  AxisSet unknown_;
  SumScale out_;
};

} // namespace

SumScale judge_scale(const ScaleInput &input, const OpDef &row, const Sum &sum) {
  ScaleId one = input.app.program.one();
  bool plain = input.divided.empty();
  for (const TensorInfo &arg : input.app.args)
    plain &= input.app.type(arg).scale == one;
  if (plain)
    return {one, {}, {}};
  return Judge(input, row, sum).run();
}

std::optional<Violation> scale_differs(ir::Program &program, const ir::Type &type, ScaleId needed,
                                       std::string other, OperandIndex operand, ir::ValueId value) {
  if (type.scale == needed || !type.scale.valid() || !needed.valid())
    return std::nullopt;
  return left_over(program, {type.mesh(), type.unknown}, type.scale, needed, std::move(other),
                   operand, value);
}

} // namespace spmd::rules
