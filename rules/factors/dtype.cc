// Element types of results: promotion as frameworks do it, tensors before tensors without
// dimensions before plain numbers.
#include "rules/factors/shape_rule.h"
#include "rules/shapes/attrs.h"

namespace spmd::rules {

using ir::DType;
using ir::DTypeClass;

namespace {

DType wider_integer(DType a, DType b) {
  const ir::DTypeInfo &x = ir::info(a), &y = ir::info(b);
  if (x.bytes != y.bytes)
    return x.bytes > y.bytes ? a : b;
  // Of one width, signed and unsigned: the next signed one holds both.
  return x.bytes == 1 ? DType::I16 : x.bytes == 2 ? DType::I32 : DType::I64;
}

DType wider_float(DType a, DType b) {
  const ir::DTypeInfo &x = ir::info(a), &y = ir::info(b);
  if (x.bytes != y.bytes)
    return x.bytes > y.bytes ? a : b;
  return x.bytes == 2 ? DType::F32 : DType::Unknown;
}

DType promote(DType a, DType b) {
  DTypeClass x = ir::info(a).form, y = ir::info(b).form;
  if (a == b || y == DTypeClass::Unknown || x == DTypeClass::Unknown)
    return a == b ? a : DType::Unknown;
  if (x != y) {
    DType wide = x > y ? a : b, narrow = x > y ? b : a;
    return wide == DType::C64 && narrow == DType::F64 ? DType::C128 : wide;
  }
  if (x == DTypeClass::Integer)
    return wider_integer(a, b);
  return x == DTypeClass::Float ? wider_float(a, b) : DType::C128;
}

// One tier of operands: those of a later tier count only if they are of a wider class.
struct Tier {
  bool any = false;
  DType dtype = DType::Unknown;
  void add(DType more) {
    dtype = any ? promote(dtype, more) : more;
    any = true;
  }
};

DType number_dtype(ir::AttrForm form) {
  switch (form) {
  case ir::AttrForm::Bool:
    return DType::Bool;
  case ir::AttrForm::Integer:
  case ir::AttrForm::Expr:
    return DType::I64;
  case ir::AttrForm::Float:
    return DType::F32;
  default:
    return DType::Unknown;
  }
}

class Promotion {
public:
  Promotion(const Application &app, const Equation &equation, const Binding &binding) : app_(app) {
    for (unsigned r = 0; r < equation.ref_count; ++r) {
      const Ref &ref = equation.refs[r];
      if (ref.operand != kGenerator && ref.role == RefRole::Value && binding[ref.operand])
        add(*binding[ref.operand], tensors_);
    }
    if (!tensors_.any)
      add_shape_only(equation, binding);
  }

  DType result() const {
    DType found = tensors_.any ? tensors_.dtype : DType::Unknown;
    bool known = tensors_.any;
    for (const Tier *tier : {&scalars_, &numbers_}) {
      if (!tier->any)
        continue;
      if (!known || ir::info(tier->dtype).form > ir::info(found).form)
        found = known && found == DType::Unknown ? found : tier->dtype;
      known = true;
    }
    return found;
  }

private:
  void add(const Slot &slot, Tier &tensors) {
    if (slot.form == Slot::Form::Literal && slot.literal.form != ir::AttrForm::Null)
      numbers_.add(number_dtype(slot.literal.form));
    for (unsigned i = 0; i < slot.count; ++i) {
      const ir::Shape *shape = app_.shape(app_.args[slot.first + i]);
      bool has_dims = !shape || !shape->ranked || !shape->dims.empty();
      (has_dims ? tensors : scalars_).add(shape ? shape->dtype : DType::Unknown);
    }
  }
  // What only lends its extents lends its element type too.
  void add_shape_only(const Equation &equation, const Binding &binding) {
    for (unsigned r = 0; r < equation.ref_count; ++r) {
      const Ref &ref = equation.refs[r];
      if (ref.operand != kGenerator && ref.role == RefRole::ShapeOnly && binding[ref.operand])
        add(*binding[ref.operand], tensors_);
    }
  }

  const Application &app_;
  Tier tensors_, scalars_, numbers_;
};

DType first_dtype(const Application &app, const Slot *slot) {
  if (!slot || slot->count == 0)
    return DType::Unknown;
  const ir::Shape *shape = app.shape(app.args[slot->first]);
  return shape ? shape->dtype : DType::Unknown;
}

DType complex_of(DType dtype) {
  return dtype == DType::F32 ? DType::C64 : dtype == DType::F64 ? DType::C128 : DType::Unknown;
}

DType real_of(DType dtype) {
  return dtype == DType::C64 ? DType::F32 : dtype == DType::C128 ? DType::F64 : dtype;
}

DType by_rule(DTypeRule rule, DType promoted, DType first, DType stated) {
  DTypeClass form = ir::info(promoted).form;
  bool exact = form == DTypeClass::Integer || form == DTypeClass::Boolean;
  switch (rule) {
  case DTypeRule::Promote:
    return promoted;
  case DTypeRule::Boolean:
    return DType::Bool;
  case DTypeRule::Index:
    return stated != DType::Unknown ? stated : DType::I64;
  case DTypeRule::First:
    return first;
  case DTypeRule::Attribute:
    return stated != DType::Unknown ? stated : promoted;
  case DTypeRule::Float:
    return exact ? DType::F32 : promoted;
  case DTypeRule::Accumulate:
    return stated != DType::Unknown ? stated : exact ? DType::I64 : promoted;
  case DTypeRule::Complex:
    return form == DTypeClass::Complex ? promoted : complex_of(promoted);
  case DTypeRule::Real:
    return real_of(promoted);
  }
  return promoted;
}

// Of a created tensor: that of the tensor whose method it is, else the usual one.
DType created_dtype(const Application &app, const Binding &binding) {
  bool is_method = !app.slots.empty() && &app.slots.front() != binding.generator;
  return is_method && app.slots.front().count ? first_dtype(app, &app.slots.front()) : DType::F32;
}

} // namespace

DType result_dtype(const Application &app, const OpDef *row, const Equation &equation,
                   const Binding &binding, unsigned declared) {
  if (!row)
    return Promotion(app, equation, binding).result();
  if (row->derivative_of)
    return first_dtype(
        app, binding[equation.find_operand(
                 row->derivative_of->equation.equation.operands[row->derivative_at].name)]);
  if (app.op.in_place && !row->mut.empty())
    return first_dtype(app, binding[equation.find_operand(row->mut)]);
  DType stated = dtype_attr(app);
  if (stated == DType::Unknown && app.op.alias)
    stated = app.op.alias->dtype;
  DType promoted = Promotion(app, equation, binding).result();
  if (equation.operand_count == 0)
    promoted = created_dtype(app, binding);
  // `type_as`, or a conversion whose target is not stated.
  bool converts = row->dtype == DTypeRule::Attribute && stated == DType::Unknown &&
                  app.args.size() == 2 && equation.operand_count == 1;
  if (converts)
    stated = first_dtype(app, &app.slots.back());
  DType first = equation.operand_count ? first_dtype(app, binding[0]) : DType::Unknown;
  return by_rule(declared == 0 ? row->dtype : row->later_dtype, promoted, first, stated);
}

} // namespace spmd::rules
