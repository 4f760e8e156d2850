// Reading attributes for shapes. Forms differ between readers (a list of one, a symbol as text), so
// that everything is read leniently here and nowhere else.
#include "rules/shapes/attrs.h"

#include "ir/input/input.h"

#include <cmath>
#include <numeric>

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
  if (value.form != AttrForm::Float)
    return std::nullopt;
  // What an integer may be in a program; beyond it, and for inf and nan, the conversion has no
  // meaning.
  double real = value.as_number();
  bool whole = std::abs(real) <= static_cast<double>(ir::kMaxInteger) && real == std::trunc(real);
  return whole ? std::optional(static_cast<int64_t>(real)) : std::nullopt;
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
  return value ? numbers_of(app, *value) : std::nullopt;
}

std::optional<Numbers> numbers_of(const Application &app, const AttrValue &value) {
  llvm::ArrayRef<AttrValue> items(value);
  if (value.form == AttrForm::List)
    items = app.program.lists[value.as<ir::AttrListId>()].items;
  Numbers numbers;
  for (const AttrValue &item : items) {
    std::optional<int64_t> number = number_of(item);
    if (!number)
      return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

static const std::initializer_list<llvm::StringRef> kDimNames = {
    "dim", "dims", "axes", "dimension", "dimensions", "reduction_dimension"};

const AttrValue *dim_attr(const Application &app) { return any_attr(app, kDimNames); }
std::optional<int64_t> dim_number(const Application &app) { return number_attr(app, kDimNames); }
std::optional<Numbers> dim_numbers(const Application &app) { return numbers_attr(app, kDimNames); }

static Numbers default_dims(DefaultDim absent, size_t rank) {
  switch (absent) {
  case DefaultDim::Last:
    return {-1};
  case DefaultDim::First:
    return {0};
  case DefaultDim::Second:
    return {1};
  case DefaultDim::LastTwo:
    return {-2, -1};
  case DefaultDim::All:
    break;
  }
  Numbers all(rank);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::optional<llvm::SmallVector<unsigned, 4>> placed_dims(const Application &app, DefaultDim absent,
                                                          size_t rank) {
  std::optional<Numbers> dims = dim_numbers(app);
  if (dim_attr(app) && !dims)
    return std::nullopt;
  llvm::SmallVector<unsigned, 4> positions;
  if (rank == 0)
    return positions;
  // An empty list means all where none does.
  if (!dims || (dims->empty() && absent == DefaultDim::All))
    dims = default_dims(absent, rank);
  for (int64_t dim : *dims) {
    std::optional<unsigned> place = place_of(dim, rank);
    if (!place)
      return std::nullopt;
    positions.push_back(*place);
  }
  llvm::sort(positions);
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

std::optional<AttrValue> attr_part(const Application &app, const AttrValue &value,
                                   llvm::StringRef key, unsigned place) {
  if (value.form == AttrForm::Dict) {
    const AttrValue *found = app.program.find(value.as<ir::AttrsId>(), key);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (value.form != AttrForm::List)
    return std::nullopt;
  llvm::ArrayRef<AttrValue> items = app.program.lists[value.as<ir::AttrListId>()].items;
  return place < items.size() ? std::optional(items[place]) : std::nullopt;
}

llvm::StringRef word_attr(const Application &app, std::initializer_list<llvm::StringRef> names) {
  const AttrValue *value = any_attr(app, names);
  return value && value->form == AttrForm::String ? app.program.strings[value->as<ir::StringId>()]
                                                  : llvm::StringRef();
}

std::optional<LossReduction> reduction_of(const Application &app) {
  if (std::optional<int64_t> number = number_attr(app, {"reduction"});
      number && *number >= 0 && *number <= static_cast<int64_t>(LossReduction::Sum))
    return static_cast<LossReduction>(*number);
  llvm::StringRef word = word_attr(app, {"reduction"});
  if (word.empty())
    return app.op.alias ? app.op.alias->reduction : LossReduction::None;
  const auto *found = llvm::find(kReductionWords, std::string_view(word));
  if (found == std::end(kReductionWords))
    return std::nullopt;
  return static_cast<LossReduction>(found - std::begin(kReductionWords));
}

// What frameworks call the classes of element types; the bits follow.
static ir::DType framework_dtype(llvm::StringRef word) {
  static constexpr std::pair<llvm::StringLiteral, llvm::StringLiteral> kClasses[] = {
      {"bfloat", "bf"}, {"float", "f"}, {"uint", "u"}, {"int", "i"}, {"complex", "c"}};
  word.consume_front("torch.");
  for (auto [theirs, ours] : kClasses)
    if (llvm::StringRef bits = word; bits.consume_front(theirs)) {
      std::string name = ours.str() + bits.str();
      return ir::parse_dtype(name);
    }
  return ir::parse_dtype({word.data(), word.size()});
}

ir::DType dtype_attr(const Application &app) {
  llvm::StringRef word = word_attr(app, {"dtype", "new_dtype", "output_dtype", "index_dtype"});
  return framework_dtype(word);
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
