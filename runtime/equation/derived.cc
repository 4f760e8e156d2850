// The gradient of one operand by the kernel of its row: derived, or moved back.
#include "runtime/equation/derived.h"

#include "runtime/kernels/vjp.h"
#include "runtime/tensor/scratch.h"

#include "rules/derivative.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

llvm::Error ForwardRow::bind(const rules::Application &app, const rules::OpDef &derived) {
  row_ = derived.derivative_of;
  kernel_ = find_kernel(row_->name);
  operand_ = derived.derivative_at;
  rules::ForwardCall call = rules::forward_call(app, derived);
  op_ = std::move(call.op);
  op_.row = row_; // the slots are in the order of its operands
  slots_.assign(call.slots.begin(), call.slots.end());
  results_.assign(call.results.begin(), call.results.end());
  app_.emplace(
      rules::Application{app.program, op_, app.attrs, app.context, slots_, app.args, results_});
  rules::OperandMismatch problem;
  const rules::Equation &equation = row_->equation.equation;
  std::optional<rules::Binding> binding = rules::bind_operands(*app_, equation, problem);
  if (!binding)
    return llvm::createStringError(std::errc::invalid_argument, "`%s` takes %s, but %s",
                                   std::string(row_->name).c_str(), problem.expected.c_str(),
                                   problem.found.c_str());
  binding_ = *binding;
  rules::Outcome ignored;
  map_ = rules::shape_factors(*app_, equation, binding_, ignored);
  for (unsigned i = 0; i < rules::gradient_count(*row_) && i < app.slots.size(); ++i)
    for (unsigned k = 0; k < std::max<unsigned>(app.slots[i].count, 1); ++k) {
      gradient_args_.emplace_back();
      if (k < app.slots[i].count)
        gradient_args_.back() = static_cast<uint32_t>(app.slots[i].first + k);
    }
  if (equation.operands[operand_].list != rules::ListForm::Single)
    member_ = static_cast<unsigned>(rules::number_attr(app, {"member"}).value_or(0));
  return llvm::Error::success();
}

void ForwardRow::find_reads(llvm::MutableArrayRef<bool> reads) const {
  const rules::Equation &equation = row_->equation.equation;
  for (unsigned r = 0; kernel_ && r < equation.ref_count; ++r) {
    const rules::Ref &ref = equation.refs[r];
    const rules::Slot *slot = ref.operand == rules::kGenerator ? nullptr : binding_[ref.operand];
    for (unsigned k = 0; ref.role != rules::RefRole::ShapeOnly && slot && k < slot->count; ++k)
      reads[slot->first + k] = true;
  }
}

template <class T>
llvm::SmallVector<View<const T>, 2> ForwardRow::gradients(const Call<T> &call) const {
  llvm::SmallVector<View<const T>, 2> found;
  for (std::optional<uint32_t> arg : gradient_args_)
    found.push_back(arg ? call.args[*arg] : View<const T>());
  return found;
}

llvm::Error ForwardRow::run_vjp(const Call<double> &call,
                                llvm::ArrayRef<const ForwardRow *> more) const {
  llvm::SmallVector<View<const double>, 2> incoming = gradients(call);
  llvm::SmallVector<View<double>, 2> results;
  for (const View<const double> &gradient : incoming)
    results.push_back({gradient.dims, nullptr, gradient.dtype, gradient.first, gradient.whole});
  KernelContext at = context(call.context);
  Call<double> forward{at, call.args, results};
  llvm::SmallVector<VjpResult, 2> with;
  for (size_t i = 0; i < more.size(); ++i)
    with.push_back({more[i]->operand_, more[i]->member_, call.results[i + 1]});
  return runtime::run_vjp(*kernel_, {forward, incoming, operand_, member_, call.results[0], with});
}

// The kernel is run on the positions of the operand's elements, each times a number that nothing
// else in a program is a small multiple of; all other values are 0. What stands in a result tells
// where it came from.
llvm::Error ForwardRow::run_back(const Call<Residue> &call) const {
  static const Residue mark = Residue::from_bits(0x5bd1e9955bd1e995), unmark = mark.inverse();
  llvm::SmallVector<View<const Residue>, 2> incoming = gradients(call);
  const View<Residue> &result = call.results[0];
  llvm::SmallVector<View<const Residue>, 6> args(call.args.begin(), call.args.end());
  Scratch<Residue> positions, zeros;
  blank_values(args, zeros.cells);
  positions.cells.resize(static_cast<size_t>(std::max<int64_t>(result.size(), 1)));
  for (size_t i = 0; i < positions.cells.size(); ++i)
    positions.cells[i] = mark * Residue(static_cast<int64_t>(i + 1));
  args[binding_[operand_]->first + member_].data = positions.cells.data();
  std::vector<Scratch<Residue>> rooms(incoming.size());
  llvm::SmallVector<View<Residue>, 2> moved;
  for (size_t j = 0; j < incoming.size(); ++j) {
    const View<const Residue> &gradient = incoming[j];
    moved.emplace_back();
    if (!gradient)
      continue;
    rooms[j].cells.assign(static_cast<size_t>(std::max<int64_t>(gradient.size(), 1)), Residue());
    moved.back() = {gradient.dims, rooms[j].cells.data(), gradient.dtype, gradient.first,
                    gradient.whole};
  }
  KernelContext at = context(call.context);
  if (llvm::Error problem = kernel_->modular(Call<Residue>{at, args, moved}))
    return problem;
  for (size_t j = 0; j < incoming.size(); ++j)
    for (int64_t i = 0; incoming[j] && i < incoming[j].size(); ++i)
      if (int64_t place = (moved[j][i] * unmark).number(); place > 0 && place <= result.size())
        result[place - 1] += incoming[j][i];
  return llvm::Error::success();
}

// Conditions and indices stay: they say what moves where.
void ForwardRow::blank_values(llvm::SmallVectorImpl<View<const Residue>> &args,
                              std::vector<Residue> &zeros) const {
  int64_t largest = 1;
  for (const View<const Residue> &arg : args)
    largest = std::max(largest, arg.dims ? arg.size() : 0);
  zeros.assign(static_cast<size_t>(largest), Residue());
  const rules::Equation &equation = row_->equation.equation;
  for (unsigned r = 0; r < equation.ref_count; ++r) {
    const rules::Ref &ref = equation.refs[r];
    const rules::Slot *slot = ref.operand == rules::kGenerator ? nullptr : binding_[ref.operand];
    for (unsigned k = 0; ref.role == rules::RefRole::Value && slot && k < slot->count; ++k)
      args[slot->first + k].data = zeros.data();
  }
}

} // namespace spmd::runtime
