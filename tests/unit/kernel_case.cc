// The instruction is read from text and bound as a run binds it.
#include "tests/unit/kernel_case.h"

#include "checker/check.h"
#include "rules/derivative.h"
#include "rules/violation.h"
#include "rules/violations/operands.h"
#include "runtime/equation/row_commands.h"
#include "runtime/kernels/composed/composition.h"
#include "runtime/kernels/vjp.h"
#include "runtime/tensor/number.h"
#include "tests/device/carry_out.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>

#ifdef SPMD_DEVICE
#include "runtime/device/fusion/fusion.h"
#endif

namespace spmd::runtime {

namespace {

std::string program_text(llvm::StringRef inputs, const std::string &statement) {
  std::string text = "trace { mode = local }\nmesh m { tp = 1 }\n";
  llvm::SmallVector<llvm::StringRef, 4> shapes;
  inputs.split(shapes, ';', -1, false);
  for (size_t i = 0; i < shapes.size(); ++i)
    text += "%" + std::to_string(i) + " = input " + shapes[i].trim().str() + " R\n";
  return text + statement + "\n";
}

Tensor zeros(const ir::Shape &shape) {
  Dims dims;
  for (ir::Extent dim : shape.dims)
    dims.push_back(dim.number());
  return Tensor::make(shape.dtype, dims, Domain::Declared);
}

bool is_float(ir::DType dtype) { return ir::info(dtype).form == ir::DTypeClass::Float; }

} // namespace

KernelCase::KernelCase(const char *inputs, const std::string &statement)
    : read_(ir::read_text(program_text(inputs, statement))) {
  for (const ir::InputError &error : read_.errors)
    problem += error.message + "; ";
  if (!problem.empty())
    return;
  ir::Program &program = read_.program;
  checker::CheckResult checked = checker::check(program);
  for (const checker::Finding &finding : checked.findings)
    problem += std::string(rules::info(finding.violation).name) + "; ";
  const ir::Inst &inst = program.insts[ir::InstId{program.main.last.index - 1}];
  op_ = rules::resolve_spelling(program.op_name(inst.op), "");
  operands_.read(program, inst.operands);
  for (ir::ValueId value : operands_.values) {
    known_.push_back({checked.types[value.index], checked.shapes[value.index], {}});
    args.push_back(zeros(program.shapes[known_.back().shape]));
  }
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    ir::ShapeId shape = checked.shapes[inst.result(i).index];
    if (!shape.valid()) {
      problem += "the shape of a result is not known; ";
      return;
    }
    claims_.push_back({shape, {}, {}});
    results.push_back(zeros(program.shapes[shape]));
  }
  rules::Application all{program, op_, inst.attrs, inst.context, operands_.slots, known_, claims_};
  use_ = rules::row_uses(all).front();
  op_.lists_rest = false;
  app_.emplace(
      rules::Application{program, op_, inst.attrs, inst.context, use_->slots, known_, claims_});
  rules::OperandMismatch mismatch;
  std::optional<rules::Binding> bound =
      rules::bind_operands(*app_, row().equation.equation, mismatch);
  if (!bound) {
    problem += mismatch.expected + ", but " + mismatch.found;
    return;
  }
  binding_ = *bound;
  rules::Outcome ignored;
  map_ = rules::shape_factors(*app_, row().equation.equation, binding_, ignored);
}

std::string KernelCase::run() {
  llvm::SmallVector<View<const double>, 6> in;
  llvm::SmallVector<View<double>, 2> out;
  for (Tensor &arg : args)
    in.push_back({&arg.dims, arg.of<double>().data(), arg.dtype});
  for (Tensor &result : results) {
    result.of<double>().assign(result.of<double>().size(), kernel()->assigns ? kNaN : 0);
    out.push_back({&result.dims, result.of<double>().data(), result.dtype});
  }
  KernelContext at = context();
  std::string found = llvm::toString(kernel()->real({at, in, out}));
  return found.empty() ? device_problem() : found;
}

namespace {

bool is_near(double got, double want) {
  if (std::isnan(want) || std::isinf(want))
    return got == want || (std::isnan(got) && std::isnan(want));
  return std::abs(got - want) <= 1e-11 * std::max(1.0, std::abs(want));
}

DeviceArray on_host(const Dims &dims, const double *cells) {
  return {reinterpret_cast<SpmdAddress>(cells), ir::DType::F64, &dims, nullptr};
}

void carry_out(llvm::ArrayRef<Command> commands) {
  for (const Command &command : commands)
    std::visit([](const auto &each) { test::carry_out(each); }, command);
}

// Those of one step, as few as they become: as they are where devices are left out.
#ifdef SPMD_DEVICE
std::vector<Command> fused(llvm::ArrayRef<Command> commands, const std::vector<double> &room,
                           llvm::ArrayRef<DeviceArray> out) {
  std::vector<DeviceTensor> writes;
  for (uint32_t i = 0; i < out.size(); ++i)
    writes.push_back(
        {i, {out[i].data, out[i].data + uint64_t(out[i].size()) * ir::info(out[i].dtype).bytes}});
  const auto scratch = reinterpret_cast<SpmdAddress>(room.data());
  Fusion fusion({scratch, scratch + (room.size() - 1) * sizeof(double)});
  fusion.add(0, commands, {}, writes);
  std::map<uint32_t, FusedStep> made = fusion.run();
  return made.empty() ? commands.vec() : made.at(0).commands;
}
#else
std::vector<Command> fused(llvm::ArrayRef<Command> commands, const std::vector<double> & /*room*/,
                           llvm::ArrayRef<DeviceArray> /*out*/) {
  return commands.vec();
}
#endif

} // namespace

// Numbers are doubles; truth values are bytes, by which rows tell a mask.
std::vector<DeviceArray> KernelCase::array_args() {
  std::vector<DeviceArray> in;
  truths_.clear();
  for (const Tensor &arg : args) {
    in.push_back(on_host(arg.dims, arg.of<double>().data()));
    if (arg.dtype != ir::DType::Bool)
      continue;
    truths_.emplace_back(arg.of<double>().begin(), arg.of<double>().end());
    in.back().dtype = ir::DType::Bool;
    in.back().data = reinterpret_cast<SpmdAddress>(truths_.back().data());
  }
  return in;
}

bool KernelCase::lower(llvm::ArrayRef<DeviceArray> out, std::vector<double> &room,
                       std::vector<Command> &commands) {
  const std::vector<DeviceArray> in = array_args();
  KernelContext at = context();
  // Once to know how much is needed on the way.
  StepScratch scratch;
  for (unsigned i = 0; i < 2; ++i) {
    room.assign(scratch.bytes / sizeof(double) + 1, kNaN);
    scratch.data = reinterpret_cast<SpmdAddress>(room.data());
    commands.clear();
    if (!lower_row({at, kernel(), nullptr, nullptr, in, out, scratch}, commands))
      return false;
  }
  return true;
}

bool KernelCase::has_commands() {
  std::vector<DeviceArray> out;
  for (const Tensor &result : results)
    out.push_back(on_host(result.dims, result.of<double>().data()));
  std::vector<double> room;
  std::vector<Command> commands;
  return lower(out, room, commands);
}

// What is wrong with the gradient that the commands leave in `made`.
static std::string gradient_problem(llvm::ArrayRef<Command> commands,
                                    const std::vector<double> &made,
                                    const std::vector<double> &want) {
  carry_out(commands);
  for (size_t i = 0; i < want.size(); ++i)
    if (!is_near(made[i], want[i]))
      return fmt::format("a device gives {} for element {} of the gradient, the kernel {}", made[i],
                         i, want[i]);
  return "";
}

std::string KernelCase::device_problem() {
  std::vector<DeviceArray> out;
  std::vector<std::vector<double>> made;
  for (const Tensor &result : results)
    made.emplace_back(result.of<double>().size(), kNaN);
  for (size_t r = 0; r < results.size(); ++r)
    out.push_back(on_host(results[r].dims, made[r].data()));
  std::vector<double> room;
  std::vector<Command> commands;
  if (!lower(out, room, commands))
    return "";
  carry_out(commands);
  const std::vector<std::vector<double>> apart = made;
  for (std::vector<double> &cells : made)
    std::fill(cells.begin(), cells.end(), kNaN);
  std::fill(room.begin(), room.end(), kNaN);
  carry_out(fused(commands, room, out));
  for (size_t r = 0; r < results.size(); ++r)
    if (!made[r].empty() &&
        std::memcmp(made[r].data(), apart[r].data(), made[r].size() * sizeof(double)) != 0)
      return fmt::format("result {} has other bits when its commands are fused", r);
  for (size_t r = 0; r < results.size(); ++r)
    for (size_t i = 0; i < made[r].size(); ++i) {
      // A kernel gives numbers, which are rounded to the element type after it.
      double got = rounded(made[r][i], results[r].dtype),
             want = rounded(results[r].of<double>()[i], results[r].dtype);
      if (!is_near(got, want))
        return fmt::format("a device gives {} for element {} of result {}, the kernel {}", got, i,
                           r, want);
    }
  return "";
}

std::string KernelCase::device_problem(unsigned arg,
                                       const std::vector<std::vector<double>> &gradients,
                                       const std::vector<double> &want) {
  std::optional<Place> place = place_of(arg);
  if (!place)
    return "";
  const std::vector<DeviceArray> in = array_args();
  std::vector<DeviceArray> from;
  for (size_t r = 0; r < results.size(); ++r)
    from.push_back(on_host(results[r].dims, gradients[r].data()));
  llvm::SmallVector<const DeviceArray *, 2> flows;
  for (size_t r = 0; r < results.size(); ++r)
    flows.push_back(gradients[r].empty() ? nullptr : &from[r]);
  std::vector<double> made(want.size(), kNaN), room;
  const DeviceArray out = on_host(args[arg].dims, made.data());
  StepScratch scratch;
  std::vector<Command> commands;
  KernelContext at = context();
  for (unsigned i = 0; kernel()->composed && i < 2; ++i) {
    room.assign(scratch.bytes / sizeof(double) + 1, kNaN);
    scratch.data = reinterpret_cast<SpmdAddress>(room.data());
    commands.clear();
    Composition composition(at, in, out, flows, place->operand, scratch, commands);
    if (!kernel()->composed(composition) || !composition.finish())
      return slopes_problem(arg, gradients[0], want);
  }
  if (!kernel()->composed)
    return slopes_problem(arg, gradients[0], want);
  return gradient_problem(commands, made, want);
}

std::string KernelCase::slopes_problem(unsigned arg, const std::vector<double> &gradient,
                                       const std::vector<double> &want) {
  std::optional<Place> place = place_of(arg);
  if (results.size() != 1 || !kernel()->traced || !place || args[arg].dims != results[0].dims)
    return "";
  KernelContext at = context();
  std::optional<ScalarProgram> program = kernel()->traced(at, place->operand);
  if (!program)
    return "";
  LoopNestDraft draft;
  draft.extents = {static_cast<int64_t>(want.size())};
  std::vector<double> made(want.size(), kNaN);
  const Dims dims = {static_cast<int64_t>(want.size())};
  draft.out = on_host(dims, made.data());
  draft.out_strides = {1};
  for (SpmdScalarStep &step : program->steps)
    if (step.op == kSpmdInput) {
      const bool is_gradient = step.a == kGradientInput;
      const Tensor &from = args[is_gradient ? arg : binding_[step.a]->first];
      if (from.dims != results[0].dims)
        return "";
      step.a = static_cast<uint8_t>(draft.inputs.size());
      draft.inputs.push_back(
          {on_host(dims, is_gradient ? gradient.data() : from.of<double>().data()), {1}});
    }
  draft.program = std::move(*program);
  std::vector<Command> commands;
  if (!draft.build(commands))
    return "a derivative that is no nest";
  return gradient_problem(commands, made, want);
}

llvm::Expected<std::vector<double>>
KernelCase::vjp(unsigned operand, unsigned member,
                const std::vector<std::vector<double>> &gradients) {
  auto all = vjps(*kernel(), Place{operand, member}, gradients);
  if (!all)
    return all.takeError();
  return std::move(all->front());
}

llvm::Expected<std::vector<std::vector<double>>>
KernelCase::vjps(const KernelDef &kernel, llvm::ArrayRef<Place> asked,
                 const std::vector<std::vector<double>> &gradients) {
  llvm::SmallVector<View<const double>, 6> in;
  llvm::SmallVector<View<double>, 2> none(results.size());
  llvm::SmallVector<View<const double>, 2> from;
  for (Tensor &arg : args)
    in.push_back({&arg.dims, arg.of<double>().data(), arg.dtype});
  for (size_t r = 0; r < results.size(); ++r)
    from.push_back(gradients[r].empty() ? View<const double>()
                                        : View<const double>{&results[r].dims, gradients[r].data(),
                                                             results[r].dtype});
  bool assigns = kernel.vjp ? kernel.vjp_assigns : kernel.moves;
  std::vector<std::vector<double>> made;
  for (const Place &place : asked)
    made.emplace_back(tensor_at(place).of<double>().size(), assigns ? kNaN : 0);
  llvm::SmallVector<VjpResult, 3> to;
  for (size_t i = 0; i < asked.size(); ++i) {
    Tensor &of = tensor_at(asked[i]);
    to.push_back({asked[i].operand, asked[i].member, {&of.dims, made[i].data(), of.dtype}});
  }
  KernelContext at = context();
  Call<double> call{at, in, none};
  llvm::ArrayRef<VjpResult> more(to);
  if (llvm::Error error = run_vjp(
          kernel, {call, from, to[0].operand, to[0].member, to[0].result, more.drop_front()}))
    return error;
  return made;
}

std::optional<KernelCase::Place> KernelCase::place_of(unsigned arg) const {
  for (unsigned k = 0; k < row().equation.equation.operand_count; ++k)
    if (const rules::Slot *slot = binding_[k];
        slot && arg >= slot->first && arg < unsigned(slot->first) + slot->count)
      return Place{k, arg - slot->first};
  return std::nullopt;
}

namespace {

// The sum of weighted results.
double weighted(const KernelCase &test, const std::vector<std::vector<double>> &weights) {
  double sum = 0;
  for (size_t r = 0; r < weights.size(); ++r)
    for (size_t i = 0; i < weights[r].size(); ++i)
      sum += weights[r][i] * test.results[r].of<double>()[i];
  return sum;
}

// Along one direction: the difference quotient and what the gradient says.
std::string difference(KernelCase &test, unsigned arg, const std::vector<double> &gradient,
                       const std::vector<std::vector<double>> &weights, std::mt19937_64 &random,
                       bool &depends) {
  std::vector<double> &cells = test.args[arg].of<double>();
  const std::vector<double> at = cells;
  std::vector<double> direction(at.size());
  double expected = 0, largest = 1;
  for (size_t i = 0; i < at.size(); ++i) {
    direction[i] = std::normal_distribution<double>()(random);
    expected += direction[i] * gradient[i];
    largest = std::max(largest, std::abs(at[i]));
  }
  double step = 6e-6 * largest, sides[2];
  for (int side = 0; side < 2; ++side) {
    for (size_t i = 0; i < at.size(); ++i)
      cells[i] = at[i] + (side ? step : -step) * direction[i];
    if (std::string error = test.run(); !error.empty())
      return error;
    sides[side] = weighted(test, weights);
  }
  cells = at;
  double found = (sides[1] - sides[0]) / (2 * step);
  double scale = std::max({1.0, std::abs(expected), std::abs(sides[0]) * 1e-3});
  depends |= std::abs(found) > 1e-6 * scale;
  if (std::abs(found - expected) <= 1e-6 * scale)
    return "";
  return "argument " + std::to_string(arg) + ": gradient " + std::to_string(expected) +
         ", differences " + std::to_string(found) + "; ";
}

std::string same(llvm::Expected<std::vector<std::vector<double>>> got,
                 const std::vector<std::vector<double>> &want) {
  if (!got)
    return llvm::toString(got.takeError()) + "; ";
  for (size_t i = 0; i < want.size(); ++i)
    for (size_t j = 0; j < want[i].size(); ++j)
      if (!(std::abs((*got)[i][j] - want[i][j]) <= 1e-12 * std::max(1.0, std::abs(want[i][j]))))
        return "another way to the gradient gives another one; ";
  return "";
}

} // namespace

std::string gradient_problem(KernelCase &test, std::mt19937_64 &random,
                             std::set<std::string> *verified) {
  std::vector<std::vector<double>> weights;
  for (const Tensor &result : test.results) {
    weights.emplace_back();
    if (is_float(result.dtype))
      for (size_t i = 0; i < result.of<double>().size(); ++i)
        weights.back().push_back(std::normal_distribution<double>()(random));
  }
  std::string problem;
  std::vector<std::vector<double>> one_by_one;
  llvm::SmallVector<KernelCase::Place, 3> positions;
  for (unsigned arg = 0; arg < test.args.size(); ++arg) {
    std::optional<KernelCase::Place> place = test.place_of(arg);
    if (!is_float(test.args[arg].dtype) || !place)
      continue;
    llvm::Expected<std::vector<double>> gradient = test.vjp(place->operand, place->member, weights);
    if (!gradient) {
      problem += llvm::toString(gradient.takeError()) + "; ";
      continue;
    }
    std::string wrong;
    bool depends = false;
    for (int i = 0; i < 3; ++i)
      wrong += difference(test, arg, *gradient, weights, random, depends);
    const std::string name(test.row().equation.equation.operands[place->operand].name);
    if (depends && !rules::derivative(test.row(), place->operand))
      wrong += "no rule gives operand " + name + " its gradient; ";
    wrong += test.device_problem(arg, weights, *gradient);
    if (verified && wrong.empty())
      verified->insert(name);
    problem += wrong;
    positions.push_back(*place);
    one_by_one.push_back(std::move(*gradient));
  }
  KernelDef followed = *test.kernel(); // place by place, not box by box
  followed.puts_back = nullptr;
  for (size_t i = 0; test.kernel()->puts_back && i < positions.size(); ++i)
    problem += same(test.vjps(followed, positions[i], weights), {one_by_one[i]});
  if (test.kernel()->together && positions.size() > 1)
    problem += same(test.vjps(*test.kernel(), positions, weights), one_by_one);
  return problem;
}

} // namespace spmd::runtime
