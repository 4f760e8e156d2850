// Tensors that are stretched to common extents, as loops.
#include "runtime/device/composition.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

bool add_stretched(const ScalarProgram &program, llvm::ArrayRef<int64_t> over,
                   llvm::ArrayRef<Placed> inputs, const Placed &out, SpmdCombiner combiner,
                   double divisor, std::vector<Command> &commands) {
  NestDraft draft;
  // Dimensions that the result lacks come last.
  llvm::SmallVector<size_t, 8> loops;
  const Strides out_strides = strides_over(*out.dims, over);
  for (bool inner : {false, true})
    for (size_t l = 0; l < over.size(); ++l)
      if ((out_strides[l] == 0 && over[l] != 1) == inner) {
        loops.push_back(l);
        draft.inner += inner;
        draft.extents.push_back(over[l]);
        if (!inner)
          draft.out_strides.push_back(out_strides[l]);
      }
  for (const Placed &from : inputs) {
    const Strides strides = strides_over(*from.dims, over);
    NestDraft::Input input{from, {}};
    for (size_t l : loops)
      input.strides.push_back(strides[l]);
    draft.inputs.push_back(std::move(input));
  }
  draft.program = program;
  draft.out = out;
  draft.combiner = combiner;
  draft.divisor = divisor;
  return draft.build(commands);
}

const Placed *Composition::operand(std::string_view name) const {
  const unsigned place = site.operand(name);
  if (place >= site.row.equation.equation.operand_count || !site.members(place))
    return nullptr;
  return &args_[site.binding[place]->first];
}

bool Composition::is_by(std::string_view name) const { return by && *by == site.operand(name); }

const Placed *Composition::only_gradient(size_t place) const {
  for (size_t i = 0; i < gradients_.size(); ++i)
    if ((gradients_[i] != nullptr) != (i == place))
      return nullptr;
  return place < gradients_.size() ? gradients_[place] : nullptr;
}

Placed Composition::temporary(llvm::ArrayRef<int64_t> dims) {
  const Dims &kept = dims_.emplace_back(dims.begin(), dims.end());
  Placed made{scratch_.data + used_, ir::DType::F64, &kept, nullptr};
  used_ += (static_cast<uint64_t>(made.size()) * sizeof(double) + 63) / 64 * 64;
  scratch_.bytes = std::max(scratch_.bytes, used_);
  return made;
}

Placed Composition::as(const Placed &tensor, llvm::ArrayRef<int64_t> dims) {
  Placed made = tensor;
  made.dims = &dims_.emplace_back(dims.begin(), dims.end());
  return made;
}

Dims Composition::without(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<unsigned> along) {
  Dims made(dims.begin(), dims.end());
  for (unsigned d : along)
    made[d] = 1;
  return made;
}

bool Composition::make(const Placed &out, llvm::ArrayRef<int64_t> over,
                       llvm::ArrayRef<Placed> inputs, Formula formula, SpmdCombiner combiner,
                       double divisor) {
  std::optional<ScalarProgram> program = record([&] {
    llvm::SmallVector<Symbol, 6> symbols;
    for (unsigned i = 0; i < inputs.size(); ++i)
      symbols.push_back(Symbol::input(i));
    return formula(symbols);
  });
  return program && add_stretched(*program, over, inputs, out, combiner, divisor, commands_);
}

} // namespace spmd::runtime
