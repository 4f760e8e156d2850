// Joins the structs of the variant into one table; everything is derived from the variant's list.
#include "rules/violation.h"

#include <array>

namespace spmd::rules {
namespace {

template <size_t... I> constexpr auto table_of(std::index_sequence<I...>) {
  return std::array<const DiagnosticInfo *, sizeof...(I)>{
      &std::variant_alternative_t<I, ViolationKinds>::info...};
}
constexpr auto kTable = table_of(std::make_index_sequence<std::variant_size_v<ViolationKinds>>());

} // namespace

Violation::Violation(const Violation &) = default;
Violation::Violation(Violation &&) noexcept = default;
Violation &Violation::operator=(const Violation &) = default;
Violation &Violation::operator=(Violation &&) noexcept = default;
Violation::~Violation() = default;

llvm::ArrayRef<const DiagnosticInfo *> all_violations() { return kTable; }

const DiagnosticInfo &info(const Violation &violation) { return *kTable[violation.index()]; }

const DiagnosticInfo *find_violation(std::string_view name) {
  for (const DiagnosticInfo *row : kTable)
    if (row->name == name)
      return row;
  return nullptr;
}

void for_each_field(const Violation &violation,
                    llvm::function_ref<void(std::string_view, const Field &)> visit) {
  std::visit(
      [&](const auto &found) {
        found.fields([&](std::string_view name, const auto &value) { visit(name, Field(value)); });
      },
      violation);
}

ir::AxisSet axes_of(const Violation &violation) {
  ir::AxisSet axes;
  for_each_field(violation, [&](std::string_view name, const Field &field) {
    if (const auto *set = std::get_if<ir::AxisSet>(&field); set && name == "axes")
      axes = *set;
  });
  return axes;
}

// Equal but for their axes: one violation over the union.
static bool merge_into(llvm::SmallVectorImpl<Violation> &out, size_t first,
                       const Violation &violation) {
  for (size_t i = first; i < out.size(); ++i) {
    if (out[i].index() != violation.index())
      continue;
    bool merged = std::visit(
        [&](auto &known) {
          using T = std::remove_reference_t<decltype(known)>;
          if constexpr (requires { requires std::is_same_v<decltype(known.axes), ir::AxisSet>; }) {
            T same = std::get<T>(violation);
            ir::AxisSet axes = known.axes | same.axes;
            same.axes = known.axes;
            if (!(same == known))
              return false;
            known.axes = axes;
            return true;
          } else {
            return known == std::get<T>(violation);
          }
        },
        out[i]);
    if (merged)
      return true;
  }
  return false;
}

void add_merged(llvm::SmallVectorImpl<Violation> &out, size_t first, Violation violation) {
  if (!merge_into(out, first, violation))
    out.push_back(std::move(violation));
}

} // namespace spmd::rules
