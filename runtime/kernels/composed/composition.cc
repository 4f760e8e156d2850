// Tensors that are stretched to common extents, as loops.
#include "runtime/kernels/composed/composition.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

bool add_along(const ScalarProgram &program, llvm::ArrayRef<int64_t> extents, const Strided &out,
               llvm::ArrayRef<Strided> inputs, SpmdCombiner combiner, double divisor,
               std::vector<Command> &commands) {
  if (out.at.is_complex() ||
      llvm::any_of(inputs, [](const Strided &each) { return each.at.is_complex(); }))
    return false;
  LoopNestDraft draft;
  // Loops that the result lacks come last.
  llvm::SmallVector<size_t, 8> loops;
  for (bool inner : {false, true})
    for (size_t l = 0; l < extents.size(); ++l)
      if ((out.strides[l] == 0 && extents[l] != 1) == inner) {
        loops.push_back(l);
        draft.inner += inner;
        draft.extents.push_back(extents[l]);
        if (!inner)
          draft.out_strides.push_back(out.strides[l]);
      }
  for (const Strided &from : inputs) {
    LoopNestDraft::Input input{from.at, {}, from.offset};
    for (size_t l : loops)
      input.strides.push_back(from.strides[l]);
    draft.inputs.push_back(std::move(input));
  }
  draft.program = program;
  draft.out = out.at;
  draft.out_offset = out.offset;
  draft.combiner = combiner;
  draft.divisor = divisor;
  return draft.build(commands);
}

bool add_stretched(const ScalarProgram &program, llvm::ArrayRef<int64_t> over,
                   llvm::ArrayRef<DeviceArray> inputs, const DeviceArray &out,
                   SpmdCombiner combiner, double divisor, std::vector<Command> &commands) {
  llvm::SmallVector<Strided, 6> seen;
  for (const DeviceArray &input : inputs)
    seen.push_back(stretched(input, over));
  return add_along(program, over, stretched(out, over), seen, combiner, divisor, commands);
}

// A result that lies where an operand does is made elsewhere: what is made may be read more than
// once.
Composition::Composition(const KernelContext &context, llvm::ArrayRef<DeviceArray> args,
                         llvm::ArrayRef<DeviceArray> results,
                         llvm::ArrayRef<const DeviceArray *> gradients, std::optional<unsigned> by,
                         StepScratch &scratch, std::vector<Command> &commands)
    : context(context), by(by), args_(args), wanted_(results), gradients_(gradients),
      scratch_(scratch), commands_(commands) {
  for (const DeviceArray &result : results) {
    const bool apart = !lies_at_any(result, args);
    results_.push_back(apart ? result : temporary(*result.dims, result.dtype));
  }
}

bool Composition::finish() {
  for (size_t i = 0; i < results_.size(); ++i) {
    const Strides dense = {1};
    if (results_[i].data != wanted_[i].data &&
        !copy({wanted_[i].size()}, {results_[i], dense}, {wanted_[i], dense}))
      return false;
  }
  return true;
}

const DeviceArray &Composition::initialised_with(std::string_view name) {
  const DeviceArray &from = *operand(name), &to = wanted_[0];
  const bool alone = llvm::all_of(args_, [&](const DeviceArray &arg) {
    return &arg == &from || arg.data != to.data || arg.size() == 0;
  });
  if (alone)
    results_[0] = to;
  const Strides dense = {1};
  if (from.data != results_[0].data)
    copy({from.size()}, {from, dense}, {results_[0], dense});
  return results_[0];
}

const DeviceArray *Composition::operand(std::string_view name, unsigned member) const {
  const unsigned place = context.operand(name);
  if (place >= context.row.equation.equation.operand_count || member >= context.members(place))
    return nullptr;
  return &args_[context.binding[place]->first + member];
}

bool Composition::is_by(std::string_view name) const { return by && *by == context.operand(name); }

const DeviceArray *Composition::only_gradient(size_t place) const {
  for (size_t i = 0; i < gradients_.size(); ++i)
    if ((gradients_[i] != nullptr) != (i == place))
      return nullptr;
  return place < gradients_.size() ? gradients_[place] : nullptr;
}

DeviceArray Composition::temporary(llvm::ArrayRef<int64_t> dims, ir::DType dtype) {
  const Dims &kept = dims_.emplace_back(dims.begin(), dims.end());
  DeviceArray made{scratch_.data + used_, dtype, &kept, nullptr};
  used_ += (static_cast<uint64_t>(made.size()) * ir::info(dtype).bytes + 63) / 64 * 64;
  scratch_.bytes = std::max(scratch_.bytes, used_);
  return made;
}

DeviceArray Composition::positions(size_t rank, size_t dim, int64_t extent) {
  Dims &dims = dims_.emplace_back(rank, 1);
  dims[dim] = extent;
  return {0, ir::DType::Unknown, &dims, nullptr};
}

DeviceArray Composition::as(const DeviceArray &tensor, llvm::ArrayRef<int64_t> dims) {
  DeviceArray made = tensor;
  made.dims = &dims_.emplace_back(dims.begin(), dims.end());
  return made;
}

DeviceArray Composition::pairs(const DeviceArray &tensor) {
  DeviceArray made = tensor;
  Dims &dims = dims_.emplace_back(*tensor.dims);
  dims.push_back(2);
  made.dims = &dims, made.first = made.whole = nullptr;
  made.dtype = part_of(tensor.dtype);
  return made;
}

Dims Composition::without(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<unsigned> along) {
  Dims made(dims.begin(), dims.end());
  for (unsigned d : along)
    made[d] = 1;
  return made;
}

namespace {

std::optional<ScalarProgram> recorded(size_t inputs, Composition::Formula formula) {
  return record([&] {
    llvm::SmallVector<TracedNumber, 6> symbols;
    for (unsigned i = 0; i < inputs; ++i)
      symbols.push_back(TracedNumber::input(i));
    return formula(symbols);
  });
}

} // namespace

bool Composition::make(const DeviceArray &out, llvm::ArrayRef<int64_t> over,
                       llvm::ArrayRef<DeviceArray> inputs, Formula formula, SpmdCombiner combiner,
                       double divisor) {
  std::optional<ScalarProgram> program = recorded(inputs.size(), formula);
  return program && add_stretched(*program, over, inputs, out, combiner, divisor, commands_);
}

bool Composition::make_along(llvm::ArrayRef<int64_t> extents, const Strided &out,
                             llvm::ArrayRef<Strided> inputs, Formula formula, SpmdCombiner combiner,
                             double divisor) {
  std::optional<ScalarProgram> program = recorded(inputs.size(), formula);
  return program && add_along(*program, extents, out, inputs, combiner, divisor, commands_);
}

bool Composition::fetch(llvm::ArrayRef<int64_t> extents, const Strided &out, const Strided &from,
                        const Strided &index, int64_t stride, int64_t extent) {
  if (from.at.is_complex() && out.at.dtype == from.at.dtype) { // both parts, one after the other
    auto parts = [](const Strided &of, int64_t scale, int64_t last) {
      Strided made = of;
      for (int64_t &each : made.strides)
        each *= scale;
      made.strides.push_back(last);
      made.offset *= scale;
      return made;
    };
    Strided to = parts(out, 2, 1), source = parts(from, 2, 1);
    to.at = pairs(out.at), source.at = pairs(from.at);
    Dims over(extents.begin(), extents.end());
    over.push_back(2);
    return fetch(over, to, source, parts(index, 1, 0), 2 * stride, extent);
  }
  if (out.at.is_complex() || from.at.is_complex())
    return false;
  LoopNestDraft draft;
  draft.extents.assign(extents.begin(), extents.end());
  LoopNestDraft::Input input{from.at, from.strides, from.offset};
  input.index = 1, input.stride = stride, input.extent = extent;
  draft.inputs = {std::move(input), {index.at, index.strides, index.offset}};
  draft.program = product_program(1);
  draft.out = out.at, draft.out_strides = out.strides, draft.out_offset = out.offset;
  return draft.build(commands_);
}

bool Composition::fill(const DeviceArray &out, double number) {
  if (out.is_complex())
    return false;
  add_fill(out, number, commands_);
  return true;
}

bool Composition::copy(llvm::ArrayRef<int64_t> extents, const Strided &from, const Strided &to) {
  if (from.at.dtype != to.at.dtype && (from.at.is_complex() || to.at.is_complex()))
    return false;
  return add_box(from.at, to.at, {extents, from.strides, to.strides, from.offset, to.offset}, false,
                 commands_);
}

DeviceArray Composition::sorted(const DeviceArray &keys, int64_t rows, int64_t length,
                                int64_t row_stride, int64_t stride, bool descending) {
  const DeviceArray order = temporary({rows, length}, ir::DType::U32);
  SpmdSort sort{};
  sort.element = element_of(keys.dtype), sort.descending = descending;
  sort.rows = rows, sort.length = length;
  sort.keys = keys.data, sort.row_stride = row_stride, sort.stride = stride;
  sort.order = order.data;
  const uint64_t room = spmd_sort_workspace_bytes(static_cast<uint64_t>(rows * length));
  sort.room = temporary({static_cast<int64_t>(room)}, ir::DType::U8).data;
  if (rows * length > 0)
    commands_.push_back(sort);
  return order;
}

void Composition::scatter(SpmdScatterForm form, const DeviceArray &numbers, const DeviceArray &from,
                          const DeviceArray &to, SpmdScatter made) {
  made.form = form;
  made.entries = numbers.size();
  if (made.entries == 0 || made.width == 0)
    return;
  made.row_numbers = numbers.data, made.row_element = element_of(numbers.dtype);
  made.order = form == kSpmdAddRows ? sorted(numbers, 1, made.entries, 0, 1, false).data
                                    : temporary({made.rows}, ir::DType::U32).data;
  made.from = from.data, made.from_element = element_of(from.dtype);
  made.to = to.data, made.to_element = element_of(to.dtype);
  commands_.push_back(made);
}

} // namespace spmd::runtime
