// Each row by what stands behind it in the tables of kernels: boxes, functions of numbers,
// equations.
#include "runtime/equation/row_commands.h"

#include "ir/support/arrays.h"
#include "runtime/equation/derived.h"
#include "runtime/equation/equation.h"
#include "runtime/equation/lowering.h"
#include "runtime/kernels/moves/moves.h"

#include "llvm/ADT/STLExtras.h"

#include <utility>

namespace spmd::runtime {
namespace {

using Commands = std::vector<Command>;

class RowLowering {
public:
  RowLowering(const RowCall &call, Commands &commands) : call_(call), commands_(commands) {}
  bool run() {
    const size_t before = commands_.size();
    const bool is_forward = call_.kernel;
    const KernelDef *kernel = is_forward      ? call_.kernel
                              : call_.forward ? call_.forward->kernel()
                                              : nullptr;
    auto either = [&](bool made) {
      if (made)
        call_.scratch.reads_late |= !reads_first_ && commands_.size() > before + 1;
      else
        commands_.resize(before);
      return made;
    };
    if (!kernel)
      return call_.equation && either(terms());
    if (kernel->boxes && either(is_forward ? moves() : moves_back(*kernel)))
      return true;
    if (kernel->traced && either(is_forward ? elements() : slopes(*kernel)))
      return true;
    if (!kernel->composed)
      return false;
    return is_forward
               ? composed(*kernel, call_.context, std::nullopt)
               : composed(*kernel, call_.forward->context(call_.context), call_.forward->operand());
  }

private:
  const DeviceArray &arg(const KernelContext &context, unsigned operand,
                         unsigned member = 0) const {
    return call_.args[context.binding[operand]->first + member];
  }
  std::optional<Moves> plan_of(const KernelDef &kernel, const KernelContext &context,
                               llvm::ArrayRef<const Dims *> results) const;
  bool moves();
  bool moves_back(const KernelDef &kernel);
  bool elements();
  bool slopes(const KernelDef &kernel);
  // Over the extents of `over`; inputs by operand of the row.
  bool nest(const KernelContext &context, ScalarProgram program, const Dims &over,
            const DeviceArray *gradient, const DeviceArray &out);
  bool composed(const KernelDef &kernel, const KernelContext &context, std::optional<unsigned> by);
  bool is_real() const;
  bool terms();
  DeviceArray in_scratch(const DeviceArray &result, ir::DType dtype);
  bool copied(const DeviceArray &from, const DeviceArray &to);
  bool complex_terms(llvm::ArrayRef<lowered::Term> terms, const DeviceArray &result);
  bool sum_of_terms(llvm::ArrayRef<lowered::Term> terms, const DeviceArray &result);
  bool term(const lowered::Term &term, const DeviceArray &out, bool fresh);
  bool all_terms(llvm::ArrayRef<lowered::Term> terms, const DeviceArray &out);
  bool add_inputs(const lowered::Term &term, llvm::ArrayRef<unsigned> loops, LoopNestDraft &draft);
  bool matrices(const lowered::Term &term, const DeviceArray &out, bool fresh);

  const RowCall &call_;
  Commands &commands_;
  bool reads_first_ = false; // no operand is read after a result was written
};

// --- boxes

std::optional<Moves> RowLowering::plan_of(const KernelDef &kernel, const KernelContext &context,
                                          llvm::ArrayRef<const Dims *> results) const {
  llvm::SmallVector<const Dims *, 6> args;
  for (const DeviceArray &each : call_.args)
    args.push_back(each.dims);
  bool asks_data = false;
  auto first = [&](unsigned) {
    asks_data = true;
    return 0.0;
  };
  llvm::Expected<Moves> made = kernel.boxes({context, args, results, first});
  if (!made) {
    llvm::consumeError(made.takeError());
    return std::nullopt;
  }
  if (asks_data)
    return std::nullopt;
  return std::move(*made);
}

bool RowLowering::moves() {
  llvm::SmallVector<const Dims *, 2> results;
  for (const DeviceArray &each : call_.results)
    results.push_back(each.dims);
  std::optional<Moves> made = plan_of(*call_.kernel, call_.context, results);
  if (!made)
    return false;
  if (made->fill) {
    if (call_.context.members(*made->fill))
      return false; // a number that is only on the device
    add_fill(call_.results[0],
             rounded(call_.context.number(*made->fill).value_or(0), call_.results[0].dtype),
             commands_);
  }
  bool covered = made->list.size() == 1 && !made->adds;
  for (const DeviceArray &result : call_.results)
    if (!made->fill && !(covered && covers(made->list[0].box, result.size())))
      add_fill(result, 0, commands_);
  return llvm::all_of(made->list, [&](const Move &move) {
    const Box &box = move.box;
    return add_box(call_.args[move.arg], call_.results[move.result],
                   {box.extents, box.from_strides, box.to_strides, box.from, box.to}, made->adds,
                   commands_);
  });
}

bool RowLowering::moves_back(const KernelDef &kernel) {
  const KernelContext context = call_.forward->context(call_.context);
  llvm::SmallVector<const Dims *, 2> results;
  for (std::optional<uint32_t> gradient : call_.forward->gradient_args()) {
    if (!gradient)
      return false;
    results.push_back(call_.args[*gradient].dims);
  }
  std::optional<Moves> made = plan_of(kernel, context, results);
  if (!made || made->fill == call_.forward->operand())
    return false;
  // Later boxes overwrite: of what they cover, nothing would go back to the earlier ones.
  llvm::SmallVector<unsigned, 2> boxes(results.size(), 0);
  for (const Move &move : made->list)
    if (++boxes[move.result] > 1)
      return false;
  const unsigned asked = context.binding[call_.forward->operand()]->first + call_.forward->member();
  add_fill(call_.results[0], 0, commands_);
  for (const Move &move : made->list) {
    const Box &box = move.box;
    if (move.arg == asked &&
        !add_box(call_.args[*call_.forward->gradient_args()[move.result]], call_.results[0],
                 {box.extents, box.to_strides, box.from_strides, box.to, box.from}, true,
                 commands_))
      return false;
  }
  return true;
}

// --- functions of numbers

bool RowLowering::nest(const KernelContext &context, ScalarProgram program, const Dims &over,
                       const DeviceArray *gradient, const DeviceArray &out) {
  llvm::SmallVector<uint8_t, 6> known; // inputs of the program, by place in the loop nest
  llvm::SmallVector<DeviceArray, 6> inputs;
  for (SpmdScalarStep &step : program.steps) {
    if (step.op != kSpmdInput)
      continue;
    auto at = llvm::find(known, step.a);
    if (at == known.end()) {
      inputs.push_back(step.a == kGradientInput ? *gradient : arg(context, step.a));
      known.push_back(step.a);
      at = known.end() - 1;
    }
    step.a = static_cast<uint8_t>(at - known.begin());
  }
  return add_stretched(program, over, inputs, out, kSpmdSum, 1, commands_);
}

bool RowLowering::is_real() const {
  auto real = [](const DeviceArray &each) { return !each.is_complex(); };
  return llvm::all_of(call_.args, real) && llvm::all_of(call_.results, real);
}

bool RowLowering::elements() {
  if (call_.results.size() != 1 || !is_real())
    return false;
  std::optional<ScalarProgram> program = call_.kernel->traced(call_.context, std::nullopt);
  return program && nest(call_.context, std::move(*program), *call_.results[0].dims, nullptr,
                         call_.results[0]);
}

bool RowLowering::slopes(const KernelDef &kernel) {
  llvm::ArrayRef<std::optional<uint32_t>> gradients = call_.forward->gradient_args();
  if (gradients.size() != 1 || !gradients[0] || !is_real())
    return false;
  const KernelContext context = call_.forward->context(call_.context);
  std::optional<ScalarProgram> program = kernel.traced(context, call_.forward->operand());
  const DeviceArray &gradient = call_.args[*gradients[0]];
  return program && nest(context, std::move(*program), *gradient.dims, &gradient, call_.results[0]);
}

// --- formulas

bool RowLowering::composed(const KernelDef &kernel, const KernelContext &context,
                           std::optional<unsigned> by) {
  llvm::SmallVector<const DeviceArray *, 2> gradients;
  if (by)
    for (std::optional<uint32_t> each : call_.forward->gradient_args())
      gradients.push_back(each ? &call_.args[*each] : nullptr);
  Composition made(context, call_.args, call_.results, gradients, by, call_.scratch, commands_);
  return kernel.composed(made) && made.finish();
}

// --- equations

// Memory for it that is no operand's.
DeviceArray RowLowering::in_scratch(const DeviceArray &result, ir::DType dtype) {
  DeviceArray made = result;
  made.data = call_.scratch.data;
  made.dtype = dtype;
  const auto bytes = static_cast<uint64_t>(result.size()) * ir::info(dtype).bytes;
  call_.scratch.bytes = std::max(call_.scratch.bytes, bytes);
  return made;
}
bool RowLowering::copied(const DeviceArray &from, const DeviceArray &to) {
  return add_box(from, to, {{to.size()}, {1}, {1}}, false, commands_);
}

// Made elsewhere if it lies where an operand does: a part of it may be written before the other one
// is read.
bool RowLowering::complex_terms(llvm::ArrayRef<lowered::Term> terms, const DeviceArray &result) {
  const bool lies_there = lies_at_any(result, call_.args);
  const DeviceArray out = lies_there ? in_scratch(result, result.dtype) : result;
  reads_first_ = true;
  bool fresh = true;
  for (const lowered::Term &each : terms)
    if (!lower_complex_term(call_, each, out, std::exchange(fresh, false), commands_))
      return false;
  return !terms.empty() && (!lies_there || copied(out, result));
}

// One term after another is added to what is there. A result of 16 bits and less is rounded once,
// as everywhere: it is added up in f32, and cuBLASLt would round a product before it adds it to 16
// bits.
bool RowLowering::sum_of_terms(llvm::ArrayRef<lowered::Term> terms, const DeviceArray &result) {
  const bool narrow = ir::differentiable(result.dtype) && ir::info(result.dtype).bytes < 4;
  const bool widened = narrow && terms.size() > 1;
  const DeviceArray out = widened ? in_scratch(result, ir::DType::F32) : result;
  reads_first_ |= widened && call_.results.size() == 1;
  bool fresh = true;
  for (const lowered::Term &each : terms)
    if (!term(each, out, std::exchange(fresh, false)))
      return false;
  return !widened || copied(out, result);
}

bool RowLowering::terms() {
  llvm::ArrayRef<lowered::ResultPlan> plans = call_.equation->results();
  for (size_t k = 0; k < plans.size(); ++k) {
    if (plans[k].opaque)
      return false;
    if (call_.results[k].is_complex()) {
      if (plans.size() > 1 || !complex_terms(plans[k].terms, call_.results[k]))
        return false;
      continue;
    }
    if (plans[k].terms.empty())
      add_fill(call_.results[k], 0, commands_);
    if (plans[k].terms.size() > 1 && all_terms(plans[k].terms, call_.results[k]))
      continue;
    if (!sum_of_terms(plans[k].terms, call_.results[k]))
      return false;
  }
  return true;
}

// Looked up by at most one index each.
bool RowLowering::add_inputs(const lowered::Term &term, llvm::ArrayRef<unsigned> loops,
                             LoopNestDraft &draft) {
  for (const lowered::Source &source : term.sources) {
    if (source.form != lowered::Source::Form::Operand || call_.args[source.arg].is_complex())
      return false;
    LoopNestDraft::Input input{call_.args[source.arg], {}, 0};
    for (unsigned v : loops)
      input.strides.push_back(source.strides[v]);
    draft.inputs.push_back(std::move(input));
  }
  draft.program = product_program(static_cast<unsigned>(term.sources.size()));
  for (unsigned i = 0; i < term.indices.size(); ++i) {
    const lowered::Index &index = term.indices[i];
    unsigned used = 0;
    for (size_t s = 0; s < term.sources.size(); ++s) {
      int64_t stride = term.sources[s].strides[index.target];
      if (stride == 0)
        continue;
      LoopNestDraft::Input &input = draft.inputs[s];
      if (input.index != ~0u)
        return false;
      input.index = static_cast<unsigned>(draft.inputs.size());
      input.stride = stride, input.extent = index.extent;
      if (index.held && !index.whole) {
        const DeviceArray &block =
            index.in_result ? call_.results[index.tensor] : call_.args[index.tensor];
        input.begin = block.first ? (*block.first)[index.dim] : 0;
      }
      ++used;
    }
    // Where nothing is looked up by it, entries that point outside would count.
    if (used == 0)
      return false;
    LoopNestDraft::Input entries{call_.args[index.arg], {}, 0};
    for (unsigned v : loops)
      entries.strides.push_back(index.strides[v]);
    draft.inputs.push_back(std::move(entries));
  }
  return true;
}

bool RowLowering::term(const lowered::Term &term, const DeviceArray &out, bool fresh) {
  if (term.scatters || !term.functions.empty() || term.edges.count)
    return false;
  LoopNestDraft draft;
  const llvm::SmallVector<unsigned, 8> loops = add_loops(term, draft);
  if (fresh && covered_by(draft) != out.size()) {
    add_fill(out, 0, commands_);
    fresh = false;
  }
  if (matrices(term, out, fresh))
    return true;
  draft.out = out;
  draft.adds = !fresh;
  draft.factor = static_cast<double>(term.integer) * term.number;
  draft.divisor = static_cast<double>(term.divisor);
  return add_inputs(term, loops, draft) && draft.build(commands_);
}

// Terms that sum nothing, in one loop nest: each element is rounded once, and may be written over
// an operand.
bool RowLowering::all_terms(llvm::ArrayRef<lowered::Term> terms, const DeviceArray &out) {
  LoopNestDraft draft;
  draft.out = out;
  ScalarProgram &program = draft.program;
  int64_t covered = 1;
  for (const lowered::Term &term : terms) {
    if (term.scatters || !term.indices.empty() || !term.functions.empty() || term.edges.count)
      return false;
    llvm::SmallVector<unsigned, 8>
        loops; // by their strides in the result, which are those of all terms
    for (unsigned v = 0; v < term.extents.size(); ++v) {
      if (term.extents[v] != 1 && term.result[v] == 0)
        return false;
      if (term.extents[v] != 1)
        loops.push_back(v);
    }
    llvm::sort(loops, [&](unsigned a, unsigned b) { return term.result[a] > term.result[b]; });
    Strides extents, strides;
    for (unsigned v : loops)
      extents.push_back(term.extents[v]), strides.push_back(term.result[v]);
    if (&term == terms.begin()) {
      draft.extents = extents, draft.out_strides = strides;
      for (int64_t extent : extents)
        covered *= extent;
    } else if (draft.extents != extents || draft.out_strides != strides) {
      return false;
    }
    auto last = static_cast<uint8_t>(program.steps.size() - 1); // the sum so far
    auto add = [&](SpmdOp op, size_t a, size_t b) {
      program.steps.push_back({op, static_cast<uint8_t>(a), static_cast<uint8_t>(b), 0});
      return program.steps.size() - 1;
    };
    program.constants.push_back(static_cast<double>(term.integer) * term.number /
                                static_cast<double>(term.divisor));
    size_t product = add(kSpmdConstant, program.constants.size() - 1, 0);
    for (const lowered::Source &source : term.sources) {
      if (source.form != lowered::Source::Form::Operand || call_.args[source.arg].is_complex())
        return false;
      LoopNestDraft::Input input{call_.args[source.arg], {}};
      for (unsigned v : loops)
        input.strides.push_back(source.strides[v]);
      draft.inputs.push_back(std::move(input));
      product = add(kSpmdMul, product, add(kSpmdInput, draft.inputs.size() - 1, 0));
    }
    if (&term != terms.begin())
      add(kSpmdAdd, last, product);
  }
  return covered == out.size() && program.steps.size() <= kSpmdSteps &&
         program.constants.size() <= kSpmdConstants && draft.build(commands_);
}

// Variables that are one dimension of a matrix: one stride each in two arrays, once they are
// merged.
struct Flat {
  Strides extents, first, second;
  void add(int64_t extent, int64_t in_first, int64_t in_second) {
    extents.push_back(extent);
    first.push_back(in_first);
    second.push_back(in_second);
  }
  // False: it takes more than one loop.
  bool flatten() {
    llvm::SmallVector<size_t, 4> order;
    for (size_t i = 0; i < extents.size(); ++i)
      order.push_back(i);
    llvm::sort(order, [&](size_t a, size_t b) { return first[a] > first[b]; });
    int64_t size = 1, in_first = 1, in_second = 1;
    for (size_t i : llvm::reverse(order)) {
      if (size == 1)
        in_first = first[i], in_second = second[i];
      else if (first[i] != in_first * size || second[i] != in_second * size)
        return false;
      size *= extents[i];
    }
    extents = {size}, first = {in_first}, second = {in_second};
    return true;
  }
};

bool is_device_float(ir::DType dtype) {
  return dtype == ir::DType::F64 || dtype == ir::DType::F32 || dtype == ir::DType::BF16 ||
         dtype == ir::DType::F16;
}

// A variable that both operands and the result have.
struct Batch {
  int64_t extent, a, b, out;
};

// The variables of a product of two operands, by what they are of a product of matrices.
struct MatrixVariables {
  Flat rows, columns, inner;
  llvm::SmallVector<Batch, 4> batch;

  // False: it is none.
  bool sort(const lowered::Term &term) {
    const lowered::Source &a = term.sources[0], &b = term.sources[1];
    for (unsigned v = 0; v < term.extents.size(); ++v) {
      const int64_t extent = term.extents[v], x = a.strides[v], y = b.strides[v],
                    z = term.result[v];
      if (extent == 1)
        continue;
      if (x && y && z)
        batch.push_back({extent, x, y, z});
      else if (x && z)
        rows.add(extent, x, z);
      else if (y && z)
        columns.add(extent, y, z);
      else if (x && y)
        inner.add(extent, x, y);
      else
        return false;
    }
    return !inner.extents.empty() && rows.flatten() && columns.flatten() && inner.flatten();
  }
};

// The strides of one product; false where no dimension of a matrix lies next to itself.
bool set_strides(const MatrixVariables &of, SpmdMatrices &made) {
  made.rows = of.rows.extents[0], made.columns = of.columns.extents[0];
  made.inner = of.inner.extents[0];
  made.a_row = of.rows.first[0], made.a_inner = of.inner.first[0];
  made.b_inner = of.inner.second[0], made.b_column = of.columns.first[0];
  made.out_row = of.rows.second[0], made.out_column = of.columns.second[0];
  // A dimension of one place has any stride.
  auto has_unit_stride = [](int64_t x, int64_t &in_x, int64_t y, int64_t &in_y) {
    if (x == 1)
      in_x = in_y == 1 ? y : 1;
    if (y == 1)
      in_y = in_x == 1 ? x : 1;
    return in_x == 1 || in_y == 1;
  };
  return has_unit_stride(made.rows, made.a_row, made.inner, made.a_inner) &&
         has_unit_stride(made.inner, made.b_inner, made.columns, made.b_column) &&
         has_unit_stride(made.rows, made.out_row, made.columns, made.out_column);
}

bool RowLowering::matrices(const lowered::Term &term, const DeviceArray &out, bool fresh) {
  using Form = lowered::Source::Form;
  if (term.sources.size() != 2 || !term.indices.empty() || term.sources[0].form != Form::Operand ||
      term.sources[1].form != Form::Operand)
    return false;
  const DeviceArray &left = call_.args[term.sources[0].arg],
                    &right = call_.args[term.sources[1].arg];
  if (left.dtype != right.dtype || !is_device_float(left.dtype) ||
      (out.dtype != left.dtype && out.dtype != ir::DType::F32))
    return false;
  MatrixVariables variables;
  SpmdMatrices made{};
  if (!variables.sort(term) || !set_strides(variables, made))
    return false;
  made.element = element_of(left.dtype), made.out_element = element_of(out.dtype);
  made.adds = !fresh;
  made.factor = static_cast<double>(term.integer) * term.number / static_cast<double>(term.divisor);
  // The innermost loop of a batch is the library's, the others are calls of their own.
  llvm::SmallVector<Batch, 4> &batch = variables.batch;
  llvm::sort(batch, [](const Batch &x, const Batch &y) { return x.out > y.out; });
  made.batch = 1;
  if (!batch.empty()) {
    const Batch last = batch.pop_back_val();
    made.batch = last.extent;
    made.a_batch = last.a, made.b_batch = last.b, made.out_batch = last.out;
  }
  constexpr int64_t kMostCalls = 64;
  int64_t calls = 1;
  for (const Batch &each : batch)
    calls *= each.extent;
  if (calls > kMostCalls)
    return false;
  for (int64_t i = 0; i < calls; ++i) {
    int64_t at_a = 0, at_b = 0, at_out = 0, rest = i;
    for (const Batch &each : llvm::reverse(batch)) {
      const int64_t place = rest % each.extent;
      rest /= each.extent;
      at_a += place * each.a, at_b += place * each.b, at_out += place * each.out;
    }
    made.a = after(left.data, left.dtype, at_a);
    made.b = after(right.data, right.dtype, at_b);
    made.out = after(out.data, out.dtype, at_out);
    commands_.push_back(made);
  }
  return true;
}

} // namespace

llvm::SmallVector<unsigned, 8> add_loops(const lowered::Term &term, LoopNestDraft &draft) {
  llvm::SmallVector<unsigned, 8> loops;
  for (bool inner : {false, true})
    for (unsigned v = 0; v < term.extents.size(); ++v)
      if ((term.result[v] == 0) == inner && term.extents[v] != 1) {
        loops.push_back(v);
        draft.extents.push_back(term.extents[v]);
        draft.inner += inner;
        if (!inner)
          draft.out_strides.push_back(term.result[v]);
      }
  return loops;
}

int64_t covered_by(const LoopNestDraft &draft) {
  return count(ir::as_array(draft.extents).drop_back(draft.inner));
}

bool lower_row(const RowCall &call, std::vector<Command> &commands) {
  if (llvm::any_of(call.args, [](const DeviceArray &each) { return !each.dims; }))
    return false;
  return RowLowering(call, commands).run();
}

} // namespace spmd::runtime
