// What kernels say of a call that they cannot carry out.
#include "runtime/kernels/positions.h"

#include <bit>
#include <fmt/format.h>

namespace spmd::runtime {

unsigned list_position(const rules::Slot &slot, unsigned member) {
  if (slot.form != rules::Slot::Form::List || slot.literal.form != ir::AttrForm::Integer)
    return member;
  uint64_t present = slot.literal.bits;
  for (; member; --member)
    present &= present - 1;
  return static_cast<unsigned>(std::countr_zero(present));
}

std::optional<double> argument(const KernelContext &context,
                               std::initializer_list<llvm::StringRef> names, unsigned position) {
  if (const ir::AttrValue *value = rules::any_attr(context.app, names))
    return number_of(*value);
  for (const rules::Slot &slot : context.app.slots)
    if (!slot.name.valid() && position-- == 0)
      return slot.form == rules::Slot::Form::Literal ? number_of(slot.literal) : std::nullopt;
  return std::nullopt;
}

llvm::Error wrong_number(const KernelContext &context, int64_t found, int64_t expected) {
  return cannot_run(
      context, fmt::format("its data give {} elements where the program has {}", found, expected));
}

llvm::Error no_position(const KernelContext &context, double index, int64_t extent) {
  return cannot_run(context, fmt::format("index {} is not below {}", index, extent));
}

} // namespace spmd::runtime
