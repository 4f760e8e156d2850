// By hand where a kernel says how; where elements only move, by moving their positions; else by the
// tape.
#include "runtime/kernels/vjp.h"

#include "runtime/tensor/number.h"

namespace spmd::runtime {

namespace {

// Whether an operand says which elements move where: a condition, positions, whole numbers.
bool steers(const KernelContext &context, unsigned operand) {
  const rules::Equation &equation = context.row.equation.equation;
  for (unsigned r = 0; r < equation.ref_count; ++r) {
    const rules::Ref &ref = equation.refs[r];
    if (ref.operand == operand &&
        (ref.role == rules::RefRole::Condition || ref.index != rules::kNoFactor))
      return true;
  }
  ir::DTypeClass form = ir::info(context.dtype(operand)).form;
  return form == ir::DTypeClass::Integer || form == ir::DTypeClass::Boolean;
}

unsigned operand_of(const KernelContext &context, size_t arg) {
  for (unsigned k = 0; k < context.row.equation.equation.operand_count; ++k)
    if (const rules::Slot *slot = context.binding[k];
        slot && arg >= slot->first && arg < size_t(slot->first) + slot->count)
      return k;
  return context.row.equation.equation.operand_count;
}

size_t asked_arg(const VjpCall &vjp) {
  return vjp.call.context.binding[vjp.operand]->first + vjp.member;
}

// The results that a gradient flows to, of the extents of their gradients.
template <class T> struct Outputs {
  explicit Outputs(const VjpCall &vjp) : cells(vjp.gradients.size()) {
    for (size_t r = 0; r < vjp.gradients.size(); ++r) {
      const View<const double> &g = vjp.gradients[r];
      views.push_back({});
      if (!g)
        continue;
      cells[r].resize(static_cast<size_t>(g.size()));
      views[r] = {g.dims, cells[r].data(), g.dtype, g.first, g.whole};
    }
  }
  std::vector<std::vector<T>> cells;
  llvm::SmallVector<View<T>, 2> views;
};

// No number of a program has this fraction.
constexpr double kMark = 0.328125;

// The kernel runs on the positions of the asked operand, zeros elsewhere; each gradient goes back
// to the place that arrived where it is.
llvm::Error vjp_of_moves(const KernelDef &kernel, const VjpCall &vjp) {
  std::fill_n(vjp.result.data, vjp.result.size(), 0.0);
  const KernelContext &context = vjp.call.context;
  size_t asked = asked_arg(vjp);
  llvm::SmallVector<View<const double>, 4> args(vjp.call.args.begin(), vjp.call.args.end());
  std::vector<std::vector<double>> made(args.size());
  for (size_t a = 0; a < args.size(); ++a) {
    if (!args[a] || (a != asked && steers(context, operand_of(context, a))))
      continue;
    made[a].resize(static_cast<size_t>(args[a].size()));
    for (size_t i = 0; a == asked && i < made[a].size(); ++i)
      made[a][i] = static_cast<double>(i) + kMark;
    args[a].data = made[a].data();
  }
  Outputs<double> outputs(vjp);
  if (llvm::Error error = kernel.real({context, args, outputs.views}))
    return error;
  for (size_t r = 0; r < outputs.cells.size(); ++r)
    for (size_t i = 0; i < outputs.cells[r].size(); ++i) {
      double place = std::floor(outputs.cells[r][i]);
      if (outputs.cells[r][i] == place + kMark)
        vjp.result[static_cast<int64_t>(place)] += vjp.gradients[r][static_cast<int64_t>(i)];
    }
  return llvm::Error::success();
}

} // namespace

llvm::Error run_taped_vjp(llvm::Error (*taped)(const Call<Var> &), const VjpCall &vjp) {
  Tape &tape = Tape::here();
  tape.clear();
  size_t asked = asked_arg(vjp), size = vjp.call.args.size();
  std::vector<std::vector<Var>> numbers(size);
  llvm::SmallVector<View<const Var>, 4> args(size);
  for (size_t a = 0; a < size; ++a) {
    const View<const double> &from = vjp.call.args[a];
    if (!from)
      continue;
    for (int64_t i = 0; i < from.size(); ++i)
      numbers[a].push_back(a == asked ? Var::input(from[i]) : Var(from[i]));
    args[a] = {from.dims, numbers[a].data(), from.dtype, from.first, from.whole};
  }
  Outputs<Var> outputs(vjp);
  if (llvm::Error error = taped({vjp.call.context, args, outputs.views}))
    return error;
  std::vector<double> gradient(tape.size(), 0.0);
  for (size_t r = 0; r < outputs.cells.size(); ++r)
    for (size_t i = 0; i < outputs.cells[r].size(); ++i)
      gradient[outputs.cells[r][i].place()] += vjp.gradients[r][static_cast<int64_t>(i)];
  gradient[0] = 0;
  tape.backward(gradient);
  for (int64_t i = 0; i < vjp.result.size(); ++i)
    vjp.result[i] = gradient[numbers[asked][static_cast<size_t>(i)].place()];
  tape.clear();
  return llvm::Error::success();
}

llvm::Error run_vjp(const KernelDef &kernel, const VjpCall &vjp) {
  const KernelContext &context = vjp.call.context;
  if (!context.row.gradient)
    return cannot_run(context, "it has no derivative");
  if (kernel.vjp)
    return kernel.vjp(vjp);
  if (kernel.puts_back) {
    llvm::Expected<bool> done = kernel.puts_back(vjp);
    if (!done || *done)
      return done.takeError();
  }
  if (kernel.moves && kernel.real)
    return vjp_of_moves(kernel, vjp);
  if (kernel.taped)
    return run_taped_vjp(kernel.taped, vjp);
  return cannot_run(context, "its derivative is not known");
}

} // namespace spmd::runtime
