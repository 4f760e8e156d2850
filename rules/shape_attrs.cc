// Reading attributes for shapes. Forms differ between readers (a list of one, a symbol as text), so
// that everything is read leniently here and nowhere else.
#include "rules/shape_attrs.h"

namespace spmd::rules {

using ir::AttrForm;
using ir::AttrValue;

const AttrValue *any_attr(const Application &app, std::initializer_list<llvm::StringRef> names) {
  for (llvm::StringRef name : names)
    if (const AttrValue *value = app.attr(name); value && value->form != AttrForm::Null)
      return value;
  return nullptr;
}

static std::optional<int64_t> number_of(const AttrValue &value) {
  if (value.form == AttrForm::Integer)
    return value.as_integer();
  if (value.form == AttrForm::Float &&
      value.as_number() == static_cast<double>(int64_t(value.as_number())))
    return static_cast<int64_t>(value.as_number());
  return std::nullopt;
}

std::optional<int64_t> number_attr(const Application &app,
                                   std::initializer_list<llvm::StringRef> names) {
  std::optional<Numbers> list = numbers_attr(app, names);
  return list && list->size() == 1 ? std::optional(list->front()) : std::nullopt;
}

bool flag_attr(const Application &app, llvm::StringRef name) {
  const AttrValue *value = app.attr(name);
  return value && (value->form == AttrForm::Bool || value->form == AttrForm::Integer) &&
         value->bits;
}

std::optional<Numbers> numbers_attr(const Application &app,
                                    std::initializer_list<llvm::StringRef> names) {
  const AttrValue *value = any_attr(app, names);
  if (!value)
    return std::nullopt;
  Numbers numbers;
  if (value->form != AttrForm::List) {
    std::optional<int64_t> number = number_of(*value);
    if (!number)
      return std::nullopt;
    numbers.push_back(*number);
    return numbers;
  }
  for (const AttrValue &item : app.program.lists[value->as<ir::AttrListId>()].items) {
    std::optional<int64_t> number = number_of(item);
    if (!number)
      return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

llvm::StringRef word_attr(const Application &app, std::initializer_list<llvm::StringRef> names) {
  const AttrValue *value = any_attr(app, names);
  return value && value->form == AttrForm::String ? app.program.strings[value->as<ir::StringId>()]
                                                  : llvm::StringRef();
}

ir::DType dtype_attr(const Application &app) {
  llvm::StringRef word = word_attr(app, {"dtype", "new_dtype", "output_dtype"});
  return ir::parse_dtype({word.data(), word.size()});
}

static WantedExtent wanted(const AttrValue &value) {
  if (value.form == AttrForm::Expr)
    return {ir::Extent::symbolic(value.as<ir::ExprId>())};
  std::optional<int64_t> number = number_of(value);
  if (!number)
    return {};
  return *number < 0 ? WantedExtent{std::nullopt, true} : WantedExtent{ir::Extent(*number)};
}

std::optional<WantedExtents> extents_attr(const Application &app,
                                          std::initializer_list<llvm::StringRef> names) {
  const AttrValue *value = any_attr(app, names);
  if (!value)
    return std::nullopt;
  WantedExtents extents;
  if (value->form != AttrForm::List)
    extents.push_back(wanted(*value));
  else
    for (const AttrValue &item : app.program.lists[value->as<ir::AttrListId>()].items)
      extents.push_back(wanted(item));
  return extents;
}

std::optional<unsigned> place_of(int64_t dim, size_t rank) {
  int64_t place = dim < 0 ? dim + static_cast<int64_t>(rank) : dim;
  if (place < 0 || place >= static_cast<int64_t>(rank))
    return std::nullopt;
  return static_cast<unsigned>(place);
}

} // namespace spmd::rules
