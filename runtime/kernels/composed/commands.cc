// Loops are merged before they become a command: devices have few of them.
#include "runtime/kernels/composed/commands.h"

#include "ir/support/arrays.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

namespace spmd::runtime {

namespace {

// Loops [first, last) of several arrays: those of one place go, those that no array interrupts are
// one.
void merge(Strides &extents, llvm::ArrayRef<Strides *> arrays, size_t first, size_t &last) {
  auto drop = [&](size_t loop) {
    extents.erase(extents.begin() + static_cast<ptrdiff_t>(loop));
    for (Strides *strides : arrays)
      strides->erase(strides->begin() + static_cast<ptrdiff_t>(loop));
    --last;
  };
  for (size_t l = last; l-- > first;)
    if (extents[l] == 1)
      drop(l);
  for (size_t l = last; l-- > first + 1;) {
    bool one = llvm::all_of(arrays, [&](const Strides *strides) {
      return (*strides)[l - 1] == (*strides)[l] * extents[l];
    });
    if (!one)
      continue;
    extents[l] *= extents[l - 1];
    drop(l - 1);
  }
}

// Whether no two iterations of the loops are one element.
bool is_injective(llvm::ArrayRef<int64_t> extents, llvm::ArrayRef<int64_t> strides) {
  llvm::SmallVector<size_t, 8> order(extents.size());
  std::iota(order.begin(), order.end(), size_t(0));
  llvm::sort(order, [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  int64_t reach = 0;
  for (size_t loop : order) {
    if (extents[loop] <= 1)
      continue;
    if (strides[loop] <= reach)
      return false;
    reach += strides[loop] * (extents[loop] - 1);
  }
  return true;
}

} // namespace

bool LoopNestDraft::build(std::vector<Command> &commands) {
  size_t outer = extents.size() - inner, last = extents.size();
  if (llvm::is_contained(ir::as_array(extents).take_front(outer), 0))
    return true;
  if (inputs.size() > kSpmdArrays)
    return false;
  if (!is_injective(ir::as_array(extents).take_front(outer), out_strides))
    return false;
  out_strides.resize(last, 0);
  llvm::SmallVector<Strides *, 8> arrays = {&out_strides};
  for (Input &input : inputs)
    arrays.push_back(&input.strides);
  merge(extents, arrays, outer, last);
  const size_t innermost = last - outer;
  merge(extents, arrays, 0, outer);
  if (extents.size() > kSpmdLoops)
    return false;
  SpmdLoopNest nest{};
  nest.loops = static_cast<uint32_t>(extents.size());
  nest.inner = static_cast<uint32_t>(innermost);
  llvm::copy(extents, nest.extents);
  nest.arrays = static_cast<uint32_t>(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input &input = inputs[i];
    SpmdArray &array = nest.in[i];
    array.data = after(input.at.data, input.at.dtype, input.offset);
    array.element = element_of(input.at.dtype);
    array.index = input.index;
    array.stride = input.stride, array.extent = input.extent, array.begin = input.begin;
    llvm::copy(input.strides, array.strides);
  }
  nest.out.data = after(out.data, out.dtype, out_offset);
  nest.out.element = element_of(out.dtype);
  nest.out.index = ~0u;
  llvm::copy(out_strides, nest.out.strides);
  nest.combiner = combiner;
  nest.adds = adds;
  nest.factor = factor, nest.divisor = divisor;
  nest.steps = static_cast<uint32_t>(program.steps.size());
  nest.constants = static_cast<uint32_t>(program.constants.size());
  llvm::copy(program.steps, nest.program);
  llvm::copy(program.constants, nest.numbers);
  commands.push_back(nest);
  return true;
}

ScalarProgram product_program(unsigned inputs) {
  if (inputs == 0)
    return {{{kSpmdConstant, 0, 0, 0}}, {1}};
  ScalarProgram program;
  for (unsigned i = 0; i < inputs; ++i) {
    auto last = static_cast<uint8_t>(program.steps.size());
    program.steps.push_back({kSpmdInput, static_cast<uint8_t>(i), 0, 0});
    if (i > 0)
      program.steps.push_back({kSpmdMul, static_cast<uint8_t>(last - 1), last, 0});
  }
  return program;
}

bool lies_at_any(const DeviceArray &tensor, llvm::ArrayRef<DeviceArray> of) {
  return llvm::any_of(
      of, [&](const DeviceArray &each) { return each.data == tensor.data && each.size() > 0; });
}

bool add_scaled(const DeviceArray &from, const DeviceArray &to, double factor, double divisor,
                std::vector<Command> &commands) {
  LoopNestDraft nest;
  nest.extents = {to.size()};
  nest.inputs.push_back({from, {1}});
  nest.out = to;
  nest.out_strides = {1};
  nest.factor = factor, nest.divisor = divisor;
  nest.program = product_program(1);
  return nest.build(commands);
}

void add_fill(const DeviceArray &to, double number, std::vector<Command> &commands) {
  LoopNestDraft nest;
  nest.extents = {to.size()};
  nest.out = to;
  nest.out_strides = {1};
  nest.program = {{{kSpmdConstant, 0, 0, 0}}, {number}};
  nest.build(commands);
}

bool add_box(const DeviceArray &from, const DeviceArray &to, const BoxOf &box, bool adds,
             std::vector<Command> &commands) {
  if (llvm::is_contained(box.extents, 0))
    return true;
  if (adds || from.dtype != to.dtype) {
    LoopNestDraft nest;
    // What goes to one place is added up before.
    for (bool inner : {false, true})
      for (size_t l = 0; l < box.extents.size(); ++l)
        if ((adds && box.to_strides[l] == 0) == inner) {
          nest.extents.push_back(box.extents[l]);
          nest.inner += inner;
          if (!inner)
            nest.out_strides.push_back(box.to_strides[l]);
        }
    LoopNestDraft::Input input{from, {}, box.from};
    for (bool inner : {false, true})
      for (size_t l = 0; l < box.extents.size(); ++l)
        if ((adds && box.to_strides[l] == 0) == inner)
          input.strides.push_back(box.from_strides[l]);
    nest.inputs.push_back(std::move(input));
    nest.out = to;
    nest.out_offset = box.to;
    nest.adds = adds;
    nest.program = product_program(1);
    return nest.build(commands);
  }
  Strides extents(box.extents.begin(), box.extents.end());
  Strides from_strides(box.from_strides.begin(), box.from_strides.end());
  Strides to_strides(box.to_strides.begin(), box.to_strides.end());
  if (!is_injective(extents, to_strides))
    return false;
  size_t last = extents.size();
  merge(extents, {&from_strides, &to_strides}, 0, last);
  if (last > kSpmdLoops)
    return false;
  SpmdMove move{};
  move.bytes = ir::info(to.dtype).bytes;
  move.loops = static_cast<uint32_t>(last);
  llvm::copy(extents, move.extents);
  llvm::copy(from_strides, move.from_strides);
  llvm::copy(to_strides, move.to_strides);
  move.from = after(from.data, from.dtype, box.from);
  move.to = after(to.data, to.dtype, box.to);
  commands.push_back(move);
  return true;
}

} // namespace spmd::runtime
