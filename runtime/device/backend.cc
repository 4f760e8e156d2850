// Plans on a device: what its steps come to there, and which the host computes.
#include "runtime/device/backend.h"

#include "runtime/tensor/element_bytes.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

class DeviceBackend::Nobody final : public Peers {
public:
  explicit Nobody(RankId own) : own_(own) {}
  RankId rank() const override { return own_; }
  llvm::Error prepare(const Plan &, const World &) override { return llvm::Error::success(); }
  llvm::Error at(uint32_t) override { return llvm::Error::success(); }
  llvm::Error all_gather(CommunicatorId, const void *, void *, llvm::ArrayRef<uint64_t>) override {
    return make_error("ranks meet on their devices");
  }
  llvm::Error exchange(CommunicatorId, llvm::ArrayRef<SpmdSend>,
                       llvm::ArrayRef<SpmdReceive>) override {
    return make_error("ranks meet on their devices");
  }

private:
  RankId own_;
};

DeviceBackend::DeviceBackend(DeviceLink &link, const DeviceOptions &options)
    : link_(link), options_(options), own_(link.rank()), nobody_(std::make_unique<Nobody>(own_)) {}
DeviceBackend::~DeviceBackend() {
  forget_recordings();
  if (arena_)
    llvm::consumeError(link_.ask(link_.plugin().release, arena_));
}

// --- data

uint64_t DeviceBackend::bytes_of(BufferId buffer) const {
  const Buffer &made = plan_->buffers[buffer];
  return static_cast<uint64_t>(count(made.on(own_))) * ir::info(made.dtype).bytes;
}

Placed DeviceBackend::placed(Use use) const {
  const Buffer &buffer = plan_->buffers[use.buffer];
  Placed made{address(use.buffer), buffer.dtype, &buffer.on(own_), nullptr};
  if (const Block *block = host_->block_of(use, own_))
    made.first = &block->first, made.whole = &block->whole;
  return made;
}

llvm::Error DeviceBackend::store(BufferId buffer, const Tensor &host) {
  std::string bytes = pack_elements(host);
  there_[buffer.index] = true;
  return link_.ask(link_.plugin().put, address(buffer), static_cast<const void *>(bytes.data()),
                   static_cast<uint64_t>(bytes.size()));
}

llvm::Error DeviceBackend::fetch(BufferId from, Tensor &host) {
  const Buffer &buffer = plan_->buffers[from];
  host = Tensor::make(buffer.dtype, buffer.on(own_), Domain::Declared);
  std::string bytes(bytes_of(from), '\0');
  pending_.clear(); // a copy to the host waits for everything
  if (llvm::Error error = link_.ask(link_.plugin().get, static_cast<void *>(bytes.data()),
                                    address(from), static_cast<uint64_t>(bytes.size())))
    return error;
  return unpack_elements(bytes, host);
}

llvm::Error DeviceBackend::write(BufferId to, RankId rank, const Tensor &host) {
  const Buffer &buffer = plan_->buffers[to];
  SPMD_CHECK(rank == own_ && world_->on(buffer.mesh, rank), "a rank that does not hold the buffer");
  if (host.dims != buffer.on(rank) || host.dtype != buffer.dtype)
    return make_error("data of other extents or another element type than the buffer has");
  return store(to, host);
}

llvm::Error DeviceBackend::read(BufferId from, RankId rank, Tensor &host) {
  if (rank != own_ || !there_[from.index])
    return make_error(
        fmt::format("buffer {} holds nothing on rank {}", from.index, world_->number(rank)));
  return fetch(from, host);
}

bool DeviceBackend::restart(uint64_t seed) {
  options_.seed = seed;
  host_->set_seed(seed);
  there_.assign(plan_->buffers.size(), false);
  pending_.clear();
  iterations_.clear();
  return true;
}

// Data decide what comes behind a branch and how often a loop is run; what the host computes is
// between two calls; and what is received has its arguments made as it comes.
llvm::Expected<std::string> DeviceBackend::prepare_bare() {
  for (size_t i = 0; i < plan_->steps.size(); ++i) {
    const Step &step = plan_->steps[i];
    const bool decides = step.form == StepForm::Branch || step.form == StepForm::Loop;
    if (decides || receives(step) || ready_[i].on_host)
      return fmt::format("{} is more than a call of the device", name_of(*program_, step));
  }
  bare_.clear();
  link_.keep_calls(&bare_);
  llvm::Error error = run_steps(plan_->all());
  link_.keep_calls(nullptr);
  error = error ? std::move(error) : settle();
  if (error)
    return error;
  return std::string();
}

llvm::Error DeviceBackend::run_bare() {
  const SpmdDevicePlugin &plugin = link_.plugin();
  if (llvm::Error error = link_.ask(plugin.watch, uint32_t(0)))
    return error;
  llvm::Error error = link_.ask_again(bare_);
  error = error ? std::move(error) : link_.ask(plugin.wait);
  return llvm::joinErrors(std::move(error), link_.ask(plugin.watch, uint32_t(1)));
}

// --- before the run

llvm::Error DeviceBackend::prepare(ir::Program &program, const Plan &plan, const World &world) {
  llvm::Error error = prepare_own(program, plan, world);
  // The others ask all ranks, so one that cannot go on does.
  if (!error)
    return find_stretches();
  std::string none(plan.steps.size() + 1, 0);
  if (options_.records && options_.on_all)
    error = llvm::joinErrors(std::move(error), options_.on_all(none));
  return error;
}

llvm::Error DeviceBackend::prepare_own(ir::Program &program, const Plan &plan, const World &world) {
  program_ = &program;
  plan_ = &plan;
  world_ = &world;
  host_ = std::make_unique<CpuBackend>(
      CpuOptions{.domain = Domain::Declared, .seed = options_.seed, .peers = nobody_.get()});
  if (llvm::Error error = host_->prepare(program, plan, world))
    return error;
  for (const Communicator &each : plan.communicators.all())
    groups_.push_back(world.groups(each.mesh, each.axes));
  llvm::Expected<std::vector<uint32_t>> groups =
      link_.groups().groups_of(plan, world, own_, [&](uint32_t colour, uint32_t key, uint32_t *to) {
        return link_.ask(link_.plugin().split, colour, key, to);
      });
  if (!groups)
    return groups.takeError();
  device_groups_ = std::move(*groups);
  there_.assign(plan.buffers.size(), false);
  for (const Step &step : plan.steps)
    if (step.form == StepForm::Communicate && takes_part(step))
      if (llvm::Error error = prepare_collective(step))
        return make_error(
            fmt::format("{}: {}", name_of(*program_, step), llvm::toString(std::move(error))));
  // Commands hold addresses: the first time only to know how much they need.
  const auto arena = static_cast<uint64_t>(plan.peak_bytes);
  scratch_ = (arena + 511) / 512 * 512;
  lower_steps();
  llvm::Expected<SpmdAddress> memory = link_.allocate(arena + scratch_bytes_ + 512);
  if (!memory)
    return memory.takeError();
  arena_ = *memory;
  scratch_ = (arena_ + arena + 511) / 512 * 512;
  lower_steps();
  find_batches();
  if (options_.on_host && !host_ops_.empty())
    options_.on_host(host_ops_);
  return llvm::Error::success();
}

void DeviceBackend::lower_steps() {
  ready_.assign(plan_->steps.size(), {});
  fused_.clear();
  host_ops_.clear();
  device_steps_ = 0;
  for (size_t i = 0; i < plan_->steps.size(); ++i) {
    const Step &step = plan_->steps[i];
    if (!takes_part(step))
      continue;
    if (step.form == StepForm::Compute)
      prepare_compute(step, ready_[i]);
    else if (step.form == StepForm::LocalStep)
      ready_[i].on_host = !lower_local_step(plan_->local_steps[step.index], ready_[i].commands);
    else if (step.form == StepForm::Communicate)
      lower_collective(step, ready_[i].collective);
    if (step.form != StepForm::Compute && step.form != StepForm::LocalStep)
      continue;
    if (ready_[i].on_host)
      ++host_ops_[step.form == StepForm::Compute
                      ? program_->op_name(plan_->computes[step.index].op).str()
                      : "elements written over"];
    else
      ++device_steps_;
  }
}

void DeviceBackend::prepare_compute(const Step &step, Ready &ready) {
  const Compute &made = plan_->computes[step.index];
  llvm::SmallVector<Placed, 8> args, results;
  for (const Use &use : plan_->used(made.operands))
    args.push_back(placed(use));
  for (const Use &use : plan_->used(made.results))
    results.push_back(placed(use));
  StepScratch scratch{scratch_, 0};
  ready.on_host = !host_->op_of(step.index, own_).lower(args, results, scratch, ready.commands);
  scratch_bytes_ = std::max(scratch_bytes_, scratch.bytes + 512);
  fuse_commands(made, scratch.bytes, ready.commands);
  // What is read after a result was written must not be where it lies.
  bool takes_over = llvm::any_of(plan_->used(made.results), [&](const Use &use) {
    return plan_->buffers[use.buffer].in_place.valid();
  });
  if (takes_over && scratch.reads_late)
    ready = {{}, true, {}};
}

// --- the run

llvm::Error DeviceBackend::queue(llvm::ArrayRef<Command> commands) {
  const SpmdDevicePlugin &plugin = link_.plugin();
  for (const Command &command : commands) {
    llvm::Error error = std::visit(
        [&](const auto &each) {
          using T = std::decay_t<decltype(each)>;
          if constexpr (std::is_same_v<T, SpmdMove>)
            return link_.ask(plugin.move, &each);
          else if constexpr (std::is_same_v<T, SpmdLoopNest>)
            return link_.ask(plugin.nest, &each);
          else if constexpr (std::is_same_v<T, SpmdMatrices>)
            return link_.ask(plugin.matrices, &each);
          else if constexpr (std::is_same_v<T, SpmdSort>)
            return link_.ask(plugin.sort, &each);
          else
            return link_.ask(plugin.scatter, &each);
        },
        command);
    if (error)
      return error;
  }
  return llvm::Error::success();
}

// Before the device computes with these bytes: collectives that still use them come to their end.
llvm::Error DeviceBackend::touch(BufferId buffer) {
  if (!pending_.meet(plan_->buffers[buffer]))
    return llvm::Error::success();
  pending_.clear();
  return link_.ask(link_.plugin().follow, uint32_t(kSpmdCompute), uint32_t(kSpmdCollectives));
}
llvm::Error DeviceBackend::touch(llvm::ArrayRef<Use> uses) {
  for (const Use &use : uses)
    if (llvm::Error error = touch(use.buffer))
      return error;
  return llvm::Error::success();
}

llvm::Error DeviceBackend::on_host(const Step &step, uint32_t index) {
  const bool computes = step.form == StepForm::Compute;
  llvm::ArrayRef<Use> operands = plan_->used(computes ? plan_->computes[step.index].operands
                                                      : plan_->local_steps[step.index].operands);
  llvm::SmallVector<BufferId, 4> results, read;
  if (computes)
    for (const Use &use : plan_->used(plan_->computes[step.index].results))
      results.push_back(use.buffer);
  else
    results.push_back(plan_->local_steps[step.index].result);
  for (size_t i = 0; i < operands.size(); ++i) {
    const BufferId buffer = operands[i].buffer;
    const bool reads = !computes || host_->op_of(step.index, own_).reads(static_cast<unsigned>(i));
    if (!reads || llvm::is_contained(read, buffer))
      continue;
    Tensor tensor;
    if (llvm::Error error = fetch(buffer, tensor))
      return error;
    if (llvm::Error error = host_->write(buffer, own_, tensor))
      return error;
    read.push_back(buffer);
  }
  host_->set_iterations(iterations_);
  if (llvm::Error error = host_->run({index, index + 1}, kNoDeadline))
    return error;
  for (BufferId buffer : results) {
    Tensor tensor;
    if (llvm::Error error = host_->read(buffer, own_, tensor))
      return error;
    if (llvm::Error error = store(buffer, tensor))
      return error;
    host_->forget(buffer, own_);
  }
  for (BufferId buffer : read)
    host_->forget(buffer, own_);
  return llvm::Error::success();
}

// Bytes of the rank that stands at the same place of the mesh of the operand.
llvm::Error DeviceBackend::receive(const Step &step) {
  const LocalStep &made = plan_->local_steps[step.index];
  const BufferId from = plan_->used(made.operands).front().buffer;
  llvm::ArrayRef<RankId> takers = world_->ranks(step.mesh),
                         givers = world_->ranks(plan_->buffers[from].mesh);
  llvm::SmallVector<SpmdTransfer, 2> sends, receives;
  bool keeps = false;
  for (size_t i = 0; i < takers.size(); ++i) {
    if (givers[i] == takers[i])
      keeps |= takers[i] == own_;
    else if (givers[i] == own_)
      sends.push_back({takers[i], address(from), bytes_of(from)});
    else if (takers[i] == own_)
      receives.push_back({givers[i], address(made.result), bytes_of(made.result)});
  }
  if (keeps) {
    if (llvm::Error error = touch({{from, {}}, {made.result, {}}}))
      return error;
    std::vector<Command> commands;
    const Placed to = placed(made.result);
    add_box(placed(from), to, {{to.size()}, {1}, {1}, 0, 0}, false, commands);
    if (llvm::Error error = queue(commands))
      return error;
  }
  if (sends.empty() && receives.empty())
    return llvm::Error::success();
  const SpmdDevicePlugin &plugin = link_.plugin();
  if (llvm::Error error =
          link_.ask(plugin.follow, uint32_t(kSpmdCollectives), uint32_t(kSpmdCompute)))
    return error;
  if (llvm::Error error = link_.ask(
          plugin.exchange, uint32_t(kSpmdAllRanks), static_cast<const SpmdTransfer *>(sends.data()),
          static_cast<uint32_t>(sends.size()), static_cast<const SpmdTransfer *>(receives.data()),
          static_cast<uint32_t>(receives.size())))
    return error;
  return link_.ask(plugin.follow, uint32_t(kSpmdCompute), uint32_t(kSpmdCollectives));
}

llvm::Error DeviceBackend::local_step(const Step &step, uint32_t index,
                                      llvm::ArrayRef<Command> commands) {
  const LocalStep &made = plan_->local_steps[step.index];
  if (receives(step))
    return receive(step);
  if (ready_[index].on_host)
    return on_host(step, index);
  if (llvm::Error error = touch(plan_->used(made.operands)))
    return error;
  if (llvm::Error error = touch(made.result))
    return error;
  return queue(commands);
}

llvm::Expected<bool> DeviceBackend::holds(BufferId predicate) {
  Tensor tensor;
  if (llvm::Error error = fetch(predicate, tensor))
    return error;
  if (tensor.size() != 1 || tensor.is_complex())
    return make_error("a predicate is one element");
  return tensor.of<double>()[0] != 0;
}

llvm::Error DeviceBackend::loop(const Loop &made, uint32_t index) {
  for (;; ++iterations_.back()) {
    if (llvm::Error error = run_range({index + 1, made.cond_end}))
      return error;
    llvm::Expected<bool> yes = holds(made.predicate);
    if (!yes)
      return yes.takeError();
    if (!*yes)
      return llvm::Error::success();
    if (iterations_.back() >= plan_->max_rounds)
      return llvm::make_error<LoopGoesOn>(plan_->steps[index].inst, plan_->max_rounds);
    if (llvm::Error error = run_range({made.cond_end, made.body_end}))
      return error;
  }
}

llvm::Error DeviceBackend::run_step(const Step &step, uint32_t index, const FusedStep *fused) {
  // Those who only send take part in it, too.
  if (!takes_part(step) && !receives(step))
    return llvm::Error::success();
  note(step);
  if (fused && fused->commands.empty()) // others do its work
    return llvm::Error::success();
  if (llvm::Error error = link_.ask(link_.plugin().begin, index))
    return error;
  if (fused)
    if (llvm::Error error = touch_joined(*fused))
      return error;
  llvm::ArrayRef<Command> commands = fused ? fused->commands : ready_[index].commands;
  switch (step.form) {
  case StepForm::Compute: {
    const Compute &made = plan_->computes[step.index];
    if (ready_[index].on_host)
      return on_host(step, index);
    if (llvm::Error error = touch(plan_->used(made.operands)))
      return error;
    if (llvm::Error error = touch(plan_->used(made.results)))
      return error;
    return queue(commands);
  }
  case StepForm::LocalStep:
    return local_step(step, index, commands);
  case StepForm::Communicate:
    return collective(step, ready_[index].collective);
  case StepForm::Release:
    return llvm::Error::success();
  case StepForm::Branch: {
    const Branch &made = plan_->branches[step.index];
    llvm::Expected<bool> yes = holds(made.predicate);
    if (!yes)
      return yes.takeError();
    return *yes ? run_range({index + 1, made.then_end}) : run_range({made.then_end, made.else_end});
  }
  case StepForm::Loop:
    iterations_.push_back(0);
    llvm::Error error = loop(plan_->loops[step.index], index);
    iterations_.pop_back();
    return error;
  }
  return llvm::Error::success();
}

// What is there behind a step, and what is not.
void DeviceBackend::note(const Step &step) {
  if (!takes_part(step))
    return;
  switch (step.form) {
  case StepForm::Compute:
    for (const Use &use : plan_->used(plan_->computes[step.index].results))
      there_[use.buffer.index] = true;
    break;
  case StepForm::LocalStep:
    there_[plan_->local_steps[step.index].result.index] = true;
    break;
  case StepForm::Communicate:
    there_[plan_->communicates[step.index].result.index] = true;
    break;
  case StepForm::Release:
    there_[plan_->releases[step.index].buffer.index] = false;
    break;
  case StepForm::Branch:
  case StepForm::Loop:
    break;
  }
}

llvm::Error DeviceBackend::named(const Step &step, llvm::Error error) const {
  if (!error)
    return error;
  return make_error(
      fmt::format("{}: {}", name_of(*program_, step), llvm::toString(std::move(error))));
}

llvm::Error DeviceBackend::run_range(StepRange range) {
  for (uint32_t i = range.first; i < range.last;) {
    uint32_t next = end_of_stretch(i, range.last);
    const bool records = next > i;
    while (!records && next < range.last && end_of_stretch(next, range.last) == next)
      next = step_after(*plan_, next);
    if (llvm::Error error = records ? run_stretch({i, next}) : run_steps({i, next}))
      return error;
    i = next;
  }
  return llvm::Error::success();
}

llvm::Error DeviceBackend::run_steps(StepRange range) {
  const FusedSteps &fused_steps = fused(range);
  for (uint32_t i = range.first; i < range.last;) {
    const Step &step = plan_->steps[i];
    const uint32_t end = std::min(batch_ends_[i], range.last);
    if (end > i + 1) {
      if (llvm::Error error = run_batch({i, end}, fused_steps))
        return error;
      i = end;
      continue;
    }
    if (llvm::Error error = named(step, run_step(step, i, fused_step(fused_steps, i))))
      return error;
    i = step_after(*plan_, i);
  }
  return llvm::Error::success();
}

llvm::Error DeviceBackend::settle() {
  pending_.clear();
  return link_.ask(link_.plugin().wait);
}

llvm::Error DeviceBackend::run(StepRange steps, Deadline) {
  if (llvm::Error error = run_range(steps))
    return error;
  return settle();
}

} // namespace spmd::runtime
