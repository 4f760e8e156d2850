// Plans before anything is allocated or run: what does not fit or has no input is said first.
#include "runtime/cli/run/planned_program.h"

#include "rules/violations/commands/runs.h"

#include "runtime/backends/sized_plan.h"
#include "runtime/cli/memory_need.h"
#include "runtime/judge/last_uses.h"
#include "runtime/judge/whole_numbers.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using checker::ExitCode;

PlannedProgram::PlannedProgram(const RunOptions &options, checker::CheckedProgram &program,
                               Reporter &reporter, Ranks &ranks)
    : options_(options), program_(program), reporter_(reporter), ranks_(ranks) {}

// The integer tier is for sums of products alone: false, and said, where something else is
// computed.
bool PlannedProgram::stays_whole() {
  std::optional<ir::InstId> other = first_not_whole(program_.mutable_program());
  if (!other)
    return true;
  const ir::Program &program = program_.program();
  return reporter_.refuse(
      program_.mutable_program(),
      rules::RunInput{"the integer tier",
                      fmt::format("`{}` does not keep whole numbers whole: take "
                                  "`--tier=field`",
                                  program.op_name(program.insts[*other].op).str())},
      checker::Place::inst(*other));
}

bool PlannedProgram::make() {
  if (options_.tier == TierChoice::Integer && !stays_whole())
    return false;
  llvm::Expected<World> world = World::make(program_.program());
  if (!world)
    return reporter_.refuse(program_.mutable_program(),
                            rules::RunInput{"the program", llvm::toString(world.takeError())});
  world_.emplace(std::move(*world));
  roots_ = recorded_losses(program_, options_.losses);
  sized_by_data_ = has_tensor_sizes(program_.program());
  if (sized_by_data_)
    return read_inputs() && plan_for(options_.seed, modes().front());
  return plan_for(options_.seed, modes().front()) && (options_.plan || read_inputs());
}

// What comes before sizes are known is simulated here for all ranks, so that processes find the
// same plan.
bool PlannedProgram::plan_for(uint64_t seed, RunMode mode) {
  // In the field numbers are residues: how much is moved is what real data say.
  Domain domain = mode.domain == Domain::Field ? Domain::Declared : mode.domain;
  if (plan_ && planned_ == std::tuple(seed, domain, mode.is_whole()))
    return true;
  auto simulated = [&](const Plan &first) {
    return with_inputs(
        make_cpu_backend({.domain = domain, .seed = seed, .threads = options_.threads}), first,
        seed, {mode.tier, domain});
  };
  sizes_.lengths.clear();
  ir::InstId failed;
  PlanOptions asked{.max_rounds = options_.max_rounds, .failed = &failed};
  llvm::Expected<Plan> plan = sized_by_data_
                                  ? make_sized_plan(program_, *world_, simulated, sizes_, asked)
                                  : make_plan(program_, *world_, asked);
  if (!plan && !reporter_.is_clean()) { // said already
    llvm::consumeError(plan.takeError());
    return false;
  }
  if (!plan)
    return reporter_.refuse(program_.mutable_program(),
                            rules::RunInput{"the program", llvm::toString(plan.takeError())},
                            place_of_inst(program_.program(), failed));
  plan_.emplace(std::move(*plan));
  ranks_.set_plan(program_, *plan_);
  planned_ = {seed, domain, mode.is_whole()};
  peak_bytes_ = std::max(peak_bytes_, plan_->peak_bytes);
  return true;
}

bool PlannedProgram::read_inputs() {
  for (const std::string &word : options_.inputs)
    if (std::string problem = files_.add(word); !problem.empty())
      return reporter_.refuse(program_.mutable_program(), rules::RunInput{word, problem});
  inputs_.emplace(program_, *world_, files_);
  if (inputs_->problems().empty())
    return true;
  std::vector<checker::Finding> findings;
  for (const InputProblem &problem : inputs_->problems()) {
    checker::Place place = kWholeFile;
    if (problem.param)
      place = {checker::Place::Form::Param, static_cast<uint32_t>(*problem.param)};
    findings.push_back({rules::RunInput{problem.input, problem.text}, place});
  }
  reporter_.report(program_.mutable_program(), std::move(findings));
  return reporter_.stop(ExitCode::Call);
}

bool PlannedProgram::fits() {
  MemoryScope scope{.rank = {}, .compares = options_.check != CheckMode::Off};
  scope.gradients = !roots_.empty();
  scope.stepwise = is_stepwise(options_.check);
  const std::vector<uint32_t> drawn = drawn_for(options_.seed);
  if (options_.check == CheckMode::SampleCount)
    scope.drawn = drawn;
  uint64_t sharers = 1;
  if (const Session *session = ranks_.session()) {
    scope.rank = session->rank();
    scope.compares &= session->leads();
    scope.reads = scope.stepwise;
    sharers = session->local_size();
  }
  MemoryNeed need = memory_need(program_.program(), *plan_, *world_, scope);
  ranks_.set_needed_memory(checker::print_bytes(int64_t(need.bytes)));
  uint64_t limit = options_.memory_limit.value_or(available_memory() / sharers);
  if (need.bytes <= limit || !options_.backend->holds_data)
    return true;
  return reporter_.refuse(program_.mutable_program(),
                          rules::RunMemory{checker::print_bytes(int64_t(need.bytes)),
                                           checker::print_bytes(int64_t(limit)), need.largest});
}

llvm::SmallVector<RunMode, 3> PlannedProgram::modes() {
  RunMode modular{Tier::Field, Domain::Field}, integer{Tier::Integer, Domain::Declared};
  RunMode real{Tier::Real, options_.f64 ? Domain::F64 : Domain::Declared};
  switch (options_.tier) {
  case TierChoice::Field:
    return {modular};
  case TierChoice::Real:
    return {real};
  case TierChoice::Integer:
    return {integer};
  case TierChoice::Auto:
    break;
  }
  if (!options_.backend->any_numbers)
    return first_not_whole(program_.mutable_program())
               ? llvm::SmallVector<RunMode, 3>{real}
               : llvm::SmallVector<RunMode, 3>{integer, real};
  return {modular, real};
}

std::vector<uint32_t> PlannedProgram::drawn_for(uint64_t seed) const {
  return options_.check == CheckMode::SampleCount
             ? drawn_steps(program_.program(), *plan_, seed, options_.drawn)
             : std::vector<uint32_t>();
}

std::unique_ptr<Backend> PlannedProgram::with_inputs(std::unique_ptr<Backend> backend,
                                                     const Plan &plan, uint64_t seed,
                                                     RunMode mode) {
  llvm::Error error = backend->prepare(program_.mutable_program(), plan, *world_);
  if (error.isA<NoDeviceMemory>()) {
    llvm::handleAllErrors(std::move(error),
                          [&](const NoDeviceMemory &memory) { refuse_memory(memory); });
    return nullptr;
  }
  if (error) {
    reporter_.stop_at_file(ExitCode::Coverage, std::move(error));
    return nullptr;
  }
  if (!write_inputs(*backend, plan, seed, mode))
    return nullptr;
  return backend;
}

bool PlannedProgram::write_inputs(Backend &backend, const Plan &plan, uint64_t seed, RunMode mode) {
  if (llvm::Error wrong = inputs_->write_to(backend, plan, input_options(seed, mode)))
    return reporter_.stop_at_file(ExitCode::Input, std::move(wrong));
  return true;
}

std::vector<JudgeOptions::Given> PlannedProgram::given_to_ranks(size_t param,
                                                                const InputOptions &options) const {
  const PlannedValue &value = plan_->values[plan_->params[param]];
  std::vector<JudgeOptions::Given> given;
  for (std::vector<RankId> &ranks :
       inputs_->ranks_by_part(param, world_->ranks(plan_->buffers[value.buffer].mesh))) {
    Tensor tensor = inputs_->on_rank(param, ranks.front(), options);
    given.push_back({std::move(ranks), std::move(tensor)});
  }
  return given;
}

void PlannedProgram::refuse_memory(const NoDeviceMemory &memory) {
  reporter_.refuse(
      program_.mutable_program(),
      rules::RunMemory{checker::print_bytes(int64_t(memory.needed)),
                       memory.free ? checker::print_bytes(int64_t(*memory.free)) : "less than that",
                       largest_values(program_.program(), *plan_),
                       std::to_string(ranks_.session()->rank())});
}

} // namespace spmd::runtime
