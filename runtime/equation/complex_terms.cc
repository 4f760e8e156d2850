// Complex numbers lie as pairs: each part of a product is a loop nest over the parts of its
// factors.
#include "runtime/equation/row_commands.h"

#include "runtime/equation/term.h"

#include "rules/ops/op.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

namespace {

DeviceArray real_parts(DeviceArray tensor) {
  tensor.dtype = part_of(tensor.dtype);
  return tensor;
}
Strides doubled(Strides strides) {
  for (int64_t &stride : strides)
    stride *= 2;
  return strides;
}

} // namespace

bool lower_complex_term(const RowCall &call, const lowered::Term &term, const DeviceArray &out,
                        bool fresh, std::vector<Command> &commands) {
  // The derivative of a product conjugates.
  if (call.context.row.derivative_of || term.scatters || !term.indices.empty() ||
      !term.functions.empty() || term.edges.count || term.sources.empty())
    return false;
  LoopNestDraft draft;
  const llvm::SmallVector<unsigned, 8> loops = add_loops(term, draft);
  if (fresh && covered_by(draft) != out.size())
    return false;
  struct Parts { // by place among the inputs
    unsigned real;
    std::optional<unsigned> imaginary;
  };
  llvm::SmallVector<Parts, 3> factors;
  for (const lowered::Source &source : term.sources) {
    const DeviceArray &from = call.args[source.arg];
    if (source.form != lowered::Source::Form::Operand)
      return false;
    Strides along;
    for (unsigned v : loops)
      along.push_back(source.strides[v]);
    factors.push_back({static_cast<unsigned>(draft.inputs.size()), std::nullopt});
    if (!from.is_complex()) {
      draft.inputs.push_back({from, along});
      continue;
    }
    factors.back().imaginary = factors.back().real + 1;
    for (int64_t part : {0, 1})
      draft.inputs.push_back({real_parts(from), doubled(along), part});
  }
  draft.out = real_parts(out), draft.out_strides = doubled(draft.out_strides);
  draft.adds = !fresh;
  draft.factor = static_cast<double>(term.integer) * term.number;
  draft.divisor = static_cast<double>(term.divisor);
  // Both parts of one complex factor are made by the same steps.
  if (llvm::count_if(factors, [](const Parts &each) { return each.imaginary.has_value(); }) == 1) {
    const size_t outer = draft.extents.size() - draft.inner;
    auto add = [&](Strides &of, int64_t stride) {
      of.insert(of.begin() + static_cast<ptrdiff_t>(outer), stride);
    };
    std::vector<LoopNestDraft::Input> inputs;
    for (const Parts &factor : factors) {
      inputs.push_back(draft.inputs[factor.real]);
      add(inputs.back().strides, factor.imaginary ? 1 : 0);
    }
    draft.inputs = std::move(inputs);
    add(draft.extents, 2);
    draft.out_strides.push_back(1);
    draft.program = product_program(static_cast<unsigned>(factors.size()));
    return draft.build(commands);
  }
  for (bool imaginary : {false, true}) {
    std::optional<ScalarProgram> program = record([&] {
      std::optional<TracedNumber> x, y; // none: nothing yet, no imaginary part
      for (const Parts &factor : factors) {
        const TracedNumber a = TracedNumber::input(factor.real);
        std::optional<TracedNumber> b;
        if (factor.imaginary)
          b = TracedNumber::input(*factor.imaginary);
        if (!x) {
          x = a, y = b;
          continue;
        }
        const TracedNumber real = y && b ? *x * a - *y * *b : *x * a;
        y = y && b ? *x * *b + *y * a : b ? *x * *b : y ? std::optional(*y * a) : y;
        x = real;
      }
      return imaginary ? y.value_or(TracedNumber(0.0)) : *x;
    });
    LoopNestDraft part = draft;
    if (!program)
      return false;
    part.program = std::move(*program);
    part.out_offset = imaginary;
    if (!part.build(commands))
      return false;
  }
  return true;
}

} // namespace spmd::runtime
