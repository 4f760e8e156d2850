// Orders of elements along a dimension, and what is taken by them.
#include "runtime/kernels/composed/composition.h"
#include "runtime/kernels/composed/compositions.h"

namespace spmd::runtime {

bool composed_sort(Composition &of) {
  const DeviceArray *a = of.operand("a");
  if (of.by || !a || a->is_complex())
    return false;
  const bool positions_alone = of.context.row.dtype == rules::DTypeRule::Index;
  auto is_off = [&](llvm::StringRef name) {
    const ir::AttrValue *value = of.context.app.attr(name);
    return value && !value->as_bool();
  };
  const bool descending = of.context.row.variant == Variant::Descending
                              ? !is_off("largest") && !is_off("is_max_k")
                              : rules::flag_attr(of.context.app, "descending");
  const DeviceArray *values = positions_alone ? nullptr : of.result(0);
  const DeviceArray *indices = of.result(positions_alone ? 0 : 1);
  const Dims from = a->dims->empty() ? Dims{1} : *a->dims;
  const auto named = of.context.dims(static_cast<unsigned>(a->dims->size()));
  const unsigned d = named.empty() ? 0 : named.front();
  Dims taken =
      (values ? values : indices)->dims->empty() ? Dims{1} : *(values ? values : indices)->dims;
  const DimSplit cut(from, d);
  if (taken.size() != from.size() || taken[d] > cut.extent)
    return false;
  const int64_t length = cut.extent, most = taken[d], inner = cut.inner;
  const int64_t rows = cut.outer * inner;
  if (rows * length >= int64_t(1) << 31)
    return false;
  // Rows one after another.
  DeviceArray keys = *a;
  if (inner != 1) {
    keys = of.temporary({rows, length}, a->dtype);
    if (!of.copy({cut.outer, inner, length}, {*a, {length * inner, 1, inner}},
                 {keys, {inner * length, length, 1}}))
      return false;
  }
  const DeviceArray order = of.sorted(keys, rows, length, length, 1, descending);
  const Dims over = {cut.outer, most, inner};
  const Strides dense = strides_of(over);
  const Strided by{order, {inner * length, 1, length}};
  return (!values ||
          of.fetch(over, {*values, dense}, {*a, {length * inner, 0, 1}}, by, inner, length)) &&
         (!indices || of.make_along(over, {*indices, dense}, by,
                                    [](llvm::ArrayRef<TracedNumber> s) { return s[0]; }));
}

} // namespace spmd::runtime
