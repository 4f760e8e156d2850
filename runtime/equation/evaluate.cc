// The rows that an instruction means, each with its operands, its factors and what carries it out:
// a kernel, or its equation.
#include "runtime/equation/evaluate.h"

#include "rules/violations/operands.h"

#include "runtime/equation/derived.h"
#include "runtime/equation/equation.h"
#include "runtime/equation/row_commands.h"
#include "runtime/tensor/scratch.h"

#include "llvm/ADT/STLExtras.h"

#include <deque>
#include <mutex>

namespace spmd::runtime {

namespace {

using rules::OpDef;

template <class... Args> llvm::Error error(const char *format, const Args &...args) {
  return llvm::createStringError(std::errc::not_supported, format, args...);
}

std::string name_of(const OpDef &row) { return std::string(row.name); }

// An equation that is laid out when it is first asked for; by whichever thread.
class LazyEquation {
public:
  llvm::Expected<const LoweredEquation *> get(const KernelContext &context,
                                              llvm::ArrayRef<Dims> args,
                                              llvm::ArrayRef<Dims> results, bool modular) const {
    std::call_once(made_, [&] {
      llvm::Expected<std::unique_ptr<LoweredEquation>> lowered =
          LoweredEquation::lower(context, args, results, modular);
      if (lowered)
        equation_ = std::move(*lowered);
      else
        problem_ = llvm::toString(lowered.takeError());
    });
    if (equation_)
      return equation_.get();
    return error("%s", problem_.c_str());
  }

private:
  mutable std::once_flag made_;
  mutable std::unique_ptr<LoweredEquation> equation_;
  mutable std::string problem_;
};

// A row with the operands and results that it takes.
struct Use {
  const OpDef *row = nullptr;
  const KernelDef *kernel = nullptr;
  std::unique_ptr<ForwardRow> forward; // of a derived row
  rules::ResolvedOp op;
  llvm::SmallVector<rules::Slot, 6> slots;
  llvm::SmallVector<unsigned, 2> indices; // of its results among all
  llvm::SmallVector<rules::ResultClaim, 2> claims;
  llvm::SmallVector<Dims, 2> result_dims;
  std::optional<rules::Application> app;
  rules::Binding binding;
  rules::FactorMap map;
  LazyEquation real, modular;
};

// Not null, also where there are no elements: null says that nothing stands there.
template <class T, class Cells> auto *data_of(Cells &cells) {
  static T none{};
  return cells.empty() ? &none : cells.data();
}
template <class T> const T *cells_of(const Tensor &tensor, Scratch<Complex> &) {
  return data_of<const T>(tensor.of<T>());
}
template <> const Complex *cells_of(const Tensor &tensor, Scratch<Complex> &room) {
  if (tensor.is_complex())
    return data_of<const Complex>(tensor.of<Complex>());
  const std::vector<double> &cells = tensor.of<double>();
  room.cells.assign(cells.begin(), cells.end());
  return data_of<const Complex>(room.cells);
}

// Complex numbers that a real result was made in: their real parts.
void put_back(const Scratch<Complex> &room, Tensor &result) {
  std::vector<double> &cells = result.of<double>();
  for (size_t i = 0; i < cells.size(); ++i)
    cells[i] = room.cells[i].real();
}

} // namespace

struct PreparedOp::State {
  rules::ResolvedOp op;
  llvm::SmallVector<rules::Slot, 6> slots;
  llvm::SmallVector<rules::TensorInfo, 6> args;
  llvm::SmallVector<Dims, 4> arg_dims;
  llvm::SmallVector<bool, 6> reads;
  std::deque<Use> uses;
  bool narrow = false;  // all floats have 24 bits or less
  bool complex = false; // a tensor has complex numbers

  KernelContext context(const Use &use, Domain domain, const Draws &draws) const {
    return {*use.app, *use.row, use.binding, use.map, domain, draws.seed, draws.op, draws.stream};
  }
  llvm::Expected<const LoweredEquation *> equation(const Use &use, const KernelContext &context,
                                                   bool modular) const {
    return (modular ? use.modular : use.real).get(context, arg_dims, use.result_dims, modular);
  }
  llvm::Error bind(Use &use);
  void find_reads(const Use &use);
  template <class T> llvm::Error check(const Use &use, const KernelContext &context) const;
  // True if the kernel of the row that it gives a gradient of answers for it.
  template <class T> static bool goes_back(const Use &use);

  template <class T>
  llvm::Error run(llvm::ArrayRef<TensorBlock> held, llvm::ArrayRef<TensorBlock> result_blocks,
                  llvm::MutableArrayRef<Tensor> results, Domain domain, const Draws &draws,
                  llvm::ArrayRef<const PreparedOp *> together) const;
  template <class T>
  llvm::Expected<bool> run(const Use &use, const Call<T> &call, llvm::ArrayRef<F32Cache *> kept,
                           llvm::ArrayRef<const ForwardRow *> more) const;
  bool stays_rounded(const Use &use) const;
};

// Making ready.

llvm::Error PreparedOp::State::bind(Use &use) {
  rules::OperandMismatch problem;
  const rules::Equation &equation = use.row->equation.equation;
  std::optional<rules::Binding> binding = rules::bind_operands(*use.app, equation, problem);
  if (!binding)
    return error("`%s` takes %s, but %s", name_of(*use.row).c_str(), problem.expected.c_str(),
                 problem.found.c_str());
  use.binding = *binding;
  rules::Outcome ignored; // sizes that are stated are those of one rank
  use.map = rules::shape_factors(*use.app, equation, use.binding, ignored);
  use.kernel = find_kernel(use.row->name);
  find_reads(use);
  if (!use.row->derivative_of)
    return llvm::Error::success();
  use.forward = std::make_unique<ForwardRow>();
  if (llvm::Error problem = use.forward->bind(*use.app, *use.row))
    return problem;
  use.forward->find_reads(reads);
  return llvm::Error::success();
}

void PreparedOp::State::find_reads(const Use &use) {
  auto mark = [&](const rules::Slot *slot) {
    for (unsigned k = 0; slot && k < slot->count; ++k)
      reads[slot->first + k] = true;
  };
  const rules::Equation &equation = use.row->equation.equation;
  for (unsigned r = 0; r < equation.ref_count; ++r)
    if (const rules::Ref &ref = equation.refs[r];
        ref.role != rules::RefRole::ShapeOnly && ref.operand != rules::kGenerator)
      mark(use.binding[ref.operand]);
  mark(use.binding.generator);
}

namespace {

// The context in which no axis cuts anything: any whose mesh is known.
llvm::Expected<ir::ContextId> any_context(const ir::Program &program) {
  for (size_t i = 0; i < program.contexts.size(); ++i)
    if (ir::ContextId id{static_cast<ir::ContextId::IndexType>(i)};
        program.contexts[id].mesh.valid())
      return id;
  return error("the program has no mesh");
}

ir::ShapeId shape_of(ir::Program &program, ir::DType dtype, const Dims &dims) {
  ir::Shape shape;
  shape.dtype = dtype;
  for (int64_t dim : dims)
    shape.dims.push_back(ir::Extent(dim));
  return program.shapes.add(std::move(shape));
}

bool is_narrow(ir::DType dtype) {
  return ir::info(dtype).form != ir::DTypeClass::Float || unit_roundoff(dtype) >= 0x1p-24;
}

} // namespace

llvm::Expected<std::unique_ptr<PreparedOp>>
prepare(ir::Program &program, const rules::ResolvedOp &op, ir::AttrsId attrs,
        llvm::ArrayRef<rules::Slot> slots, llvm::ArrayRef<ir::DType> arg_dtypes,
        llvm::ArrayRef<Dims> arg_dims, llvm::ArrayRef<ir::DType> result_dtypes,
        llvm::ArrayRef<Dims> result_dims) {
  llvm::Expected<ir::ContextId> context = any_context(program);
  if (!context)
    return context.takeError();
  auto state = std::make_unique<PreparedOp::State>();
  state->op = op;
  state->slots.assign(slots.begin(), slots.end());
  state->arg_dims.assign(arg_dims.begin(), arg_dims.end());
  state->reads.assign(arg_dims.size(), false);
  ir::Type whole;
  whole.set_mesh(program.contexts[*context].mesh);
  ir::TypeId type = program.types.add(whole);
  for (size_t i = 0; i < arg_dims.size(); ++i)
    state->args.push_back({type, shape_of(program, arg_dtypes[i], arg_dims[i]), {}});
  llvm::SmallVector<rules::ResultClaim, 4> claims;
  for (size_t k = 0; k < result_dims.size(); ++k)
    claims.push_back({shape_of(program, result_dtypes[k], result_dims[k]), {}, {}});
  state->narrow = llvm::all_of(arg_dtypes, is_narrow) && llvm::all_of(result_dtypes, is_narrow) &&
                  llvm::any_of(result_dtypes, [](ir::DType dtype) {
                    return ir::info(dtype).form == ir::DTypeClass::Float;
                  });
  auto is_complex = [](ir::DType dtype) { return ir::info(dtype).form == ir::DTypeClass::Complex; };
  state->complex = llvm::any_of(arg_dtypes, is_complex) || llvm::any_of(result_dtypes, is_complex);
  rules::Application all{program, state->op, attrs, *context, state->slots, state->args, claims};
  llvm::SmallVector<rules::RowUse, 1> uses = rules::row_uses(all);
  if (uses.empty() && !result_dims.empty())
    return error("`%s` cannot be run: it means nothing for these operands",
                 program.op_name(op.spelling).str().c_str());
  for (rules::RowUse &made : uses) {
    Use &use = state->uses.emplace_back();
    use.row = made.row;
    use.op = std::move(made.op);
    use.op.lists_rest = false; // the slots have the list
    use.slots = std::move(made.slots);
    use.indices.assign(made.results.begin(), made.results.end());
    for (unsigned index : use.indices) {
      use.claims.push_back(claims[index]);
      use.result_dims.push_back(result_dims[index]);
    }
    use.app.emplace(
        rules::Application{program, use.op, attrs, *context, use.slots, state->args, use.claims});
    if (llvm::Error problem = state->bind(use))
      return problem;
  }
  return std::unique_ptr<PreparedOp>(new PreparedOp(std::move(state)));
}

PreparedOp::PreparedOp(std::unique_ptr<State> state) : state_(std::move(state)) {}
PreparedOp::~PreparedOp() = default;

bool PreparedOp::reads(unsigned arg) const { return state_->reads[arg]; }

namespace {

template <class T> auto *kernel_of(const KernelDef &kernel) {
  if constexpr (std::is_same_v<T, double>)
    return kernel.real;
  else if constexpr (std::is_same_v<T, Complex>)
    return kernel.complex;
  else
    return kernel.modular;
}

} // namespace

template <class T> bool PreparedOp::State::goes_back(const Use &use) {
  if constexpr (std::is_same_v<T, double>)
    return use.forward && use.forward->kernel();
  else if constexpr (std::is_same_v<T, Residue>)
    return use.forward && use.forward->moves();
  else
    return false;
}

template <class T>
llvm::Error PreparedOp::State::check(const Use &use, const KernelContext &context) const {
  if ((use.kernel && kernel_of<T>(*use.kernel)) || goes_back<T>(use))
    return llvm::Error::success();
  const KernelDef *kernel = use.forward ? use.forward->kernel() : use.kernel;
  if (std::is_same_v<T, Complex> && kernel)
    return error("`%s` cannot be run: it has no kernel for complex numbers",
                 name_of(*use.row).c_str());
  llvm::Expected<const LoweredEquation *> lowered =
      equation(use, context, std::is_same_v<T, Residue>);
  return lowered ? llvm::Error::success() : lowered.takeError();
}

llvm::Error PreparedOp::check(Domain domain) const {
  for (const Use &use : state_->uses) {
    KernelContext context = state_->context(use, domain, {});
    llvm::Error problem = domain == Domain::Field ? state_->check<Residue>(use, context)
                          : state_->complex       ? state_->check<Complex>(use, context)
                                                  : state_->check<double>(use, context);
    if (problem)
      return problem;
  }
  return llvm::Error::success();
}

// Running.

// What is only moved is of its dtype already.
bool PreparedOp::State::stays_rounded(const Use &use) const {
  return use.kernel && use.kernel->puts_back &&
         llvm::all_of(args, [&](const rules::TensorInfo &arg) {
           return use.app->program.shapes[arg.shape].dtype ==
                  use.app->program.shapes[use.claims.front().shape].dtype;
         });
}

// True if the results need no rounding.
template <class T>
llvm::Expected<bool> PreparedOp::State::run(const Use &use, const Call<T> &call,
                                            llvm::ArrayRef<F32Cache *> kept,
                                            llvm::ArrayRef<const ForwardRow *> more) const {
  auto done = [](llvm::Error problem, bool rounded) -> llvm::Expected<bool> {
    if (problem)
      return problem;
    return rounded;
  };
  auto clear = [&](bool assigns) {
    for (const View<T> &result : call.results)
      if (result && !assigns)
        std::fill_n(result.data, result.size(), T(0));
  };
  if (use.kernel)
    if (auto *kernel = kernel_of<T>(*use.kernel)) {
      clear(use.kernel->assigns);
      return done(kernel(call), stays_rounded(use));
    }
  if constexpr (std::is_same_v<T, double>) {
    if (goes_back<T>(use)) {
      clear(use.forward->assigns());
      return done(use.forward->run_vjp(call, more), false);
    }
  } else if constexpr (std::is_same_v<T, Residue>) {
    if (goes_back<T>(use)) {
      clear(false);
      return done(use.forward->run_back(call), false);
    }
  }
  if (llvm::Error problem = check<T>(use, call.context))
    return problem;
  llvm::Expected<const LoweredEquation *> lowered =
      equation(use, call.context, std::is_same_v<T, Residue>);
  if (!lowered)
    return lowered.takeError();
  bool floats = (*lowered)->run<T>(call, {narrow && call.context.domain == Domain::Declared, kept});
  return floats && llvm::all_of(call.results, [](const View<T> &result) {
           return !result || result.dtype == ir::DType::F32;
         });
}

template <class T>
llvm::Error
PreparedOp::State::run(llvm::ArrayRef<TensorBlock> held, llvm::ArrayRef<TensorBlock> result_blocks,
                       llvm::MutableArrayRef<Tensor> results, Domain domain, const Draws &draws,
                       llvm::ArrayRef<const PreparedOp *> together) const {
  constexpr bool complex = std::is_same_v<T, Complex>;
  std::vector<Scratch<Complex>> arg_rooms(complex ? held.size() : 0);
  std::vector<Scratch<Complex>> result_rooms(complex ? results.size() : 0);
  Scratch<Complex> none;
  llvm::SmallVector<View<const T>, 6> args;
  llvm::SmallVector<F32Cache *, 6> kept;
  for (size_t i = 0; i < held.size(); ++i) {
    const TensorBlock &each = held[i];
    const T *data = nullptr;
    if (each.tensor)
      data = cells_of<T>(*each.tensor, complex ? arg_rooms[i] : none);
    args.push_back({each.dims, data, each.dtype, each.first, each.whole});
    kept.push_back(each.f32_cache);
  }
  llvm::SmallVector<View<T>, 2> made;
  for (size_t k = 0; k < results.size(); ++k) {
    T *data = nullptr;
    if constexpr (complex) {
      if (!results[k].is_complex()) {
        result_rooms[k].cells.assign(static_cast<size_t>(results[k].size()), T(0));
        data = data_of<T>(result_rooms[k].cells);
      }
    }
    if (!data)
      data = data_of<T>(results[k].of<T>());
    TensorBlock place = k < result_blocks.size() ? result_blocks[k] : TensorBlock();
    made.push_back({&results[k].dims, data, results[k].dtype, place.first, place.whole});
  }
  llvm::SmallVector<const ForwardRow *, 2> more;
  for (const PreparedOp *op : together)
    more.push_back(op->state_->uses.front().forward.get());
  llvm::SmallVector<bool, 2> rounded(results.size(), false);
  for (const Use &use : uses) {
    KernelContext at = context(use, domain, draws);
    llvm::SmallVector<View<T>, 2> own;
    for (unsigned index : use.indices)
      own.push_back(made[index]);
    own.append(made.end() - static_cast<ptrdiff_t>(more.size()), made.end());
    llvm::Expected<bool> done = run<T>(use, Call<T>{at, args, own}, kept, more);
    if (!done)
      return done.takeError();
    for (unsigned index : use.indices)
      rounded[index] = *done;
  }
  for (size_t k = 0; k < results.size(); ++k) {
    if constexpr (complex)
      if (!results[k].is_complex())
        put_back(result_rooms[k], results[k]);
    if (!rounded[k])
      round_cells(results[k], domain);
  }
  return llvm::Error::success();
}

llvm::Error PreparedOp::run(llvm::ArrayRef<TensorBlock> args,
                            llvm::ArrayRef<TensorBlock> result_blocks,
                            llvm::MutableArrayRef<Tensor> results, Domain domain,
                            const Draws &draws, llvm::ArrayRef<const PreparedOp *> together) const {
  if (domain == Domain::Field)
    return state_->run<Residue>(args, result_blocks, results, domain, draws, together);
  if (state_->complex)
    return state_->run<Complex>(args, result_blocks, results, domain, draws, together);
  return state_->run<double>(args, result_blocks, results, domain, draws, together);
}

bool PreparedOp::lower(llvm::ArrayRef<DeviceArray> args, llvm::ArrayRef<DeviceArray> results,
                       StepScratch &scratch, std::vector<Command> &commands) const {
  const size_t before = commands.size();
  for (const Use &use : state_->uses) {
    const KernelContext context = state_->context(use, Domain::Declared, {});
    llvm::SmallVector<DeviceArray, 2> own;
    for (unsigned index : use.indices)
      own.push_back(results[index]);
    const LoweredEquation *equation = nullptr;
    if (!use.kernel && !(use.forward && use.forward->kernel())) {
      llvm::Expected<const LoweredEquation *> made = state_->equation(use, context, false);
      if (made)
        equation = *made;
      else
        llvm::consumeError(made.takeError());
    }
    RowCall call{context, use.kernel, use.forward.get(), equation, args, own, scratch};
    if (!lower_row(call, commands)) {
      commands.resize(before);
      return false;
    }
  }
  scratch.reads_late |= state_->uses.size() > 1;
  return true;
}

bool PreparedOp::goes_with(const PreparedOp &other, Domain domain) const {
  auto backward = [&](const PreparedOp &op) {
    const State &state = *op.state_;
    bool one = state.uses.size() == 1 && state.uses[0].indices.size() == 1;
    return one && !state.complex && !state.uses[0].kernel ? state.uses[0].forward.get() : nullptr;
  };
  const ForwardRow *own = backward(*this), *theirs = backward(other);
  return domain != Domain::Field && own && theirs && own->goes_with(*theirs);
}

} // namespace spmd::runtime
