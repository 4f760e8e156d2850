// Kernels by row, and what all of them ask of the place where they stand.
#include "runtime/kernels/rows.h"

#include "ir/support/error.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

using ir::AttrForm;
using ir::AttrValue;

namespace {

llvm::StringRef ref(std::string_view text) { return {text.data(), text.size()}; }

using Family = llvm::ArrayRef<KernelDef> (*)();
// clang-format off: one a line
const std::initializer_list<Family> kFamilies = {
    attention_kernels,  contraction_kernels, convolution_kernels,   creation_kernels,
    embedding_kernels,  gradient_kernels,    indexing_kernels,      layout_kernels,
    linalg_kernels,     loss_kernels,        normalisation_kernels, optimizer_kernels,
    pointwise_kernels,  pooling_kernels,     random_kernels,        reduction_kernels,
    scattering_kernels, sorting_kernels,
};
// clang-format on

using Table = llvm::DenseMap<llvm::StringRef, const KernelDef *>;
Table all_kernels() {
  Table table;
  table.reserve(512);
  for (Family family : kFamilies)
    for (const KernelDef &kernel : family())
      SPMD_CHECK(table.try_emplace(ref(kernel.row), &kernel).second, "two kernels of one row");
  return table;
}

} // namespace

std::optional<double> number_of(const AttrValue &value) {
  switch (value.form) {
  case AttrForm::Bool:
    return value.as_bool();
  case AttrForm::Integer:
    return static_cast<double>(value.as_integer());
  case AttrForm::Float:
    return value.as_number();
  default:
    return std::nullopt;
  }
}

std::optional<double> KernelContext::number(unsigned operand) const {
  auto [name, key] = ref(row.from_attr).split(' ');
  bool has_key =
      !name.empty() && row.equation.equation.find_operand({name.data(), name.size()}) == operand;
  // What binding puts into the place of an attribute is not the number itself.
  if (const AttrValue *value = has_key ? app.attr(key) : nullptr)
    return number_of(*value);
  const rules::Slot *slot = binding[operand];
  if (!slot || slot->form != rules::Slot::Form::Literal)
    return std::nullopt;
  return number_of(slot->literal);
}

ir::DType KernelContext::dtype(unsigned operand) const {
  const rules::Slot *slot = binding[operand];
  const ir::Shape *shape = slot && slot->count ? app.shape(app.args[slot->first]) : nullptr;
  return shape ? shape->dtype : ir::DType::Unknown;
}

ir::DType KernelContext::result_dtype() const {
  bool known = !app.results.empty() && app.results[0].shape.valid();
  return known ? app.program.shapes[app.results[0].shape].dtype : ir::DType::Unknown;
}

View<double> VjpCall::asked(std::string_view name) const {
  auto is = [&](unsigned place) {
    return call.context.row.equation.equation.operands[place].name == name;
  };
  if (is(operand))
    return result;
  const auto *found = llvm::find_if(more, [&](const VjpResult &each) { return is(each.operand); });
  return found == more.end() ? View<double>() : found->result;
}

llvm::Error cannot_run(const KernelContext &context, const llvm::Twine &why) {
  std::string_view spelling =
      context.app.op.alias ? context.app.op.alias->spelling : context.row.name;
  return make_error(("`" + ref(spelling) + "` cannot be run: " + why).str());
}

double KernelContext::number_attr(llvm::StringRef name, double absent) const {
  const AttrValue *value = app.attr(name);
  return value ? number_of(*value).value_or(absent) : absent;
}

llvm::SmallVector<unsigned, 4> KernelContext::dims(unsigned rank) const {
  return rules::placed_dims(app, row.default_dim, rank).value_or(llvm::SmallVector<unsigned, 4>());
}

const KernelDef *find_kernel(std::string_view row) {
  static const Table table = all_kernels();
  return table.lookup(ref(row));
}

} // namespace spmd::runtime
