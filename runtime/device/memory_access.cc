// Ranges from the first byte to the last one: what lies between and is not met counts as met.
#include "runtime/device/memory_access.h"

#include "runtime/commands/scalar.h"

namespace spmd::runtime {

Bytes span_of(SpmdAddress data, uint32_t bytes, llvm::ArrayRef<int64_t> extents,
              llvm::ArrayRef<int64_t> strides) {
  int64_t low = 0, high = 0;
  for (size_t l = 0; l < extents.size(); ++l) {
    if (extents[l] == 0)
      return {};
    (strides[l] < 0 ? low : high) += strides[l] * (extents[l] - 1);
  }
  return {data + static_cast<uint64_t>(low * int64_t(bytes)),
          data + static_cast<uint64_t>((high + 1) * int64_t(bytes))};
}

namespace {

Bytes span_of_array(const SpmdArray &array, const SpmdLoopNest &nest, uint32_t loops) {
  llvm::SmallVector<int64_t, 9> extents(nest.extents, nest.extents + loops),
      strides(array.strides, array.strides + loops);
  if (array.index != ~0u)
    extents.push_back(array.extent), strides.push_back(array.stride);
  return span_of(array.data, device::bytes_of(array.element), extents, strides);
}

struct MatrixSpans {
  Bytes a, b, out;
};
MatrixSpans spans_of(const SpmdMatrices &of) {
  const uint32_t bytes = device::bytes_of(of.element);
  return {
      span_of(of.a, bytes, {of.batch, of.rows, of.inner}, {of.a_batch, of.a_row, of.a_inner}),
      span_of(of.b, bytes, {of.batch, of.inner, of.columns}, {of.b_batch, of.b_inner, of.b_column}),
      span_of(of.out, device::bytes_of(of.out_element), {of.batch, of.rows, of.columns},
              {of.out_batch, of.out_row, of.out_column})};
}

} // namespace

bool accesses_listed_by_step(const Command &command) {
  return std::holds_alternative<SpmdSort>(command) || std::holds_alternative<SpmdScatter>(command);
}

llvm::SmallVector<Bytes, 8> bytes_read(const Command &command) {
  llvm::SmallVector<Bytes, 8> made;
  if (const auto *move = std::get_if<SpmdMove>(&command))
    made.push_back(span_of(move->from, move->bytes, {move->extents, move->loops},
                           {move->from_strides, move->loops}));
  if (const auto *nest = std::get_if<SpmdLoopNest>(&command)) {
    for (uint32_t i = 0; i < nest->arrays; ++i)
      if (nest->in[i].element != kSpmdNoElement) // which is no memory
        made.push_back(span_of_array(nest->in[i], *nest, nest->loops));
    if (nest->adds)
      made.push_back(bytes_written(command));
  }
  if (const auto *matrices = std::get_if<SpmdMatrices>(&command)) {
    const MatrixSpans spans = spans_of(*matrices);
    made.append({spans.a, spans.b});
    if (matrices->adds)
      made.push_back(spans.out);
  }
  return made;
}

Bytes bytes_written(const Command &command) {
  if (const auto *move = std::get_if<SpmdMove>(&command))
    return span_of(move->to, move->bytes, {move->extents, move->loops},
                   {move->to_strides, move->loops});
  if (const auto *nest = std::get_if<SpmdLoopNest>(&command))
    return span_of_array(nest->out, *nest, nest->loops - nest->inner);
  return spans_of(std::get<SpmdMatrices>(command)).out;
}

int64_t iterations(const Command &command) {
  if (const auto *matrices = std::get_if<SpmdMatrices>(&command))
    return matrices->batch * matrices->rows * matrices->columns * matrices->inner;
  if (const auto *move = std::get_if<SpmdMove>(&command))
    return device::iterations(move->extents, 0, move->loops);
  const auto &nest = std::get<SpmdLoopNest>(command);
  return device::iterations(nest.extents, 0, nest.loops);
}

int64_t results(const Command &command) {
  if (const auto *nest = std::get_if<SpmdLoopNest>(&command))
    return device::iterations(nest->extents, 0, nest->loops - nest->inner);
  if (const auto *matrices = std::get_if<SpmdMatrices>(&command))
    return matrices->batch * matrices->rows * matrices->columns;
  return iterations(command);
}

uint64_t traffic(const Command &command) {
  if (const auto *of = std::get_if<SpmdMatrices>(&command))
    return static_cast<uint64_t>(of->batch) *
           (static_cast<uint64_t>(of->inner * (of->rows + of->columns)) *
                device::bytes_of(of->element) +
            static_cast<uint64_t>(of->rows * of->columns) * (of->adds ? 2 : 1) *
                device::bytes_of(of->out_element));
  if (const auto *sort = std::get_if<SpmdSort>(&command))
    return static_cast<uint64_t>(sort->rows * sort->length) *
           (device::bytes_of(sort->element) + sizeof(uint32_t));
  if (const auto *scatter = std::get_if<SpmdScatter>(&command))
    return static_cast<uint64_t>(scatter->entries) *
           (device::bytes_of(scatter->row_element) +
            static_cast<uint64_t>(scatter->width) *
                (device::bytes_of(scatter->from_element) + device::bytes_of(scatter->to_element)));
  if (const auto *move = std::get_if<SpmdMove>(&command))
    return 2 * static_cast<uint64_t>(iterations(command)) * move->bytes;
  const auto &nest = std::get<SpmdLoopNest>(command);
  auto bytes = [&](const SpmdArray &array, uint32_t loops) {
    uint64_t met = device::bytes_of(array.element);
    for (uint32_t l = 0; l < loops; ++l)
      if (array.strides[l] != 0 || nest.extents[l] == 0)
        met *= static_cast<uint64_t>(nest.extents[l]);
    return met;
  };
  uint64_t all = bytes(nest.out, nest.loops - nest.inner) * (nest.adds ? 2 : 1);
  for (uint32_t i = 0; i < nest.arrays; ++i)
    if (nest.in[i].element != kSpmdNoElement)
      all += bytes(nest.in[i], nest.loops);
  return all;
}

bool may_be_in_place(const Command &command) {
  const Bytes out = bytes_written(command);
  if (std::holds_alternative<SpmdMove>(command))
    return !bytes_read(command)[0].meets(out);
  const auto *nest = std::get_if<SpmdLoopNest>(&command);
  if (!nest)
    return false;
  for (uint32_t i = 0; i < nest->arrays; ++i) {
    const SpmdArray &array = nest->in[i];
    if (array.element == kSpmdNoElement || !span_of_array(array, *nest, nest->loops).meets(out))
      continue;
    if (nest->inner || array.index != ~0u || array.data != nest->out.data ||
        device::bytes_of(array.element) != device::bytes_of(nest->out.element) ||
        !std::equal(array.strides, array.strides + nest->loops, nest->out.strides))
      return false;
  }
  return true;
}

} // namespace spmd::runtime
