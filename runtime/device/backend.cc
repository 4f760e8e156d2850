// Plans on a device: prepared once, run from the first step to the last, and read back.
#include "runtime/device/backend.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

class DeviceBackend::NoPeers final : public Peers {
public:
  explicit NoPeers(RankId own) : own_(own) {}
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
    : link_(link), options_(options), own_(link.rank()),
      no_peers_(std::make_unique<NoPeers>(own_)) {}
DeviceBackend::~DeviceBackend() {
  recordings_.reset(); // before the memory that they use
  if (arena_)
    llvm::consumeError(link_.ask(link_.plugin().release, arena_));
}

// --- before the run

llvm::Error DeviceBackend::prepare(ir::Program &program, const Plan &plan, const World &world) {
  llvm::Error error = prepare_own(program, plan, world);
  // The others ask all ranks, so one that cannot go on does.
  if (!error)
    return find_recordable();
  std::string none(plan.steps.size() + 1, 0);
  if (options_.records && options_.on_all)
    error = llvm::joinErrors(std::move(error), options_.on_all(none));
  return error;
}

llvm::Error DeviceBackend::prepare_own(ir::Program &program, const Plan &plan, const World &world) {
  program_ = &program;
  host_ = std::make_unique<CpuBackend>(
      CpuOptions{.domain = Domain::Declared, .seed = options_.seed, .peers = no_peers_.get()});
  if (llvm::Error error = host_->prepare(program, plan, world))
    return error;
  llvm::Expected<std::vector<uint32_t>> groups =
      link_.groups().groups_of(plan, world, own_, [&](uint32_t colour, uint32_t key, uint32_t *to) {
        return link_.ask(link_.plugin().split, colour, key, to);
      });
  if (!groups)
    return groups.takeError();
  lowered_ = std::make_unique<LoweredPlan>(program, plan, world, own_, *host_, std::move(*groups));
  if (llvm::Error error = lowered_->check_collectives())
    return error;
  lowered_->lower(0); // to know how much memory it needs
  llvm::Expected<SpmdAddress> memory = link_.allocate(lowered_->needed_bytes());
  if (!memory)
    return memory.takeError();
  arena_ = *memory;
  lowered_->lower(arena_);
  schedule_.emplace(*lowered_, options_.batches);
  buffers_.emplace(link_, *lowered_);
  recordings_.emplace(link_, *lowered_, *buffers_, options_.on_no_record);
  runner_.emplace(link_, *lowered_, *schedule_, *buffers_, *recordings_, *host_);
  if (options_.on_host && !lowered_->host_ops().empty())
    options_.on_host(lowered_->host_ops());
  return llvm::Error::success();
}

// Which steps may be part of a recording: those that are equal on all ranks, because a library may
// want what is recorded of a collective to be so on all ranks that meet in it. What the device of
// one rank cannot do, none does.
llvm::Error DeviceBackend::find_recordable() {
  if (!options_.records)
    return llvm::Error::success();
  const std::vector<Step> &steps = lowered_->plan().steps;
  const std::string refused = recordings_->try_out();
  std::string fixed(steps.size() + 1, refused.empty() ? 1 : 0);
  for (uint32_t i = 0; i < steps.size(); ++i)
    if (steps[i].form == StepForm::Branch || steps[i].form == StepForm::Loop ||
        (*lowered_)[i].on_host)
      fixed[i] = 0;
  if (options_.on_all)
    if (llvm::Error error = options_.on_all(fixed))
      return error;
  if (fixed.back())
    schedule_->set_recordable(fixed);
  else if (options_.on_no_record)
    options_.on_no_record(refused.empty() ? "another rank's device refuses" : refused);
  return llvm::Error::success();
}

// --- data

llvm::Error DeviceBackend::write(BufferId to, RankId rank, const Tensor &host) {
  const Buffer &buffer = lowered_->plan().buffers[to];
  SPMD_CHECK(rank == own_ && lowered_->world().on(buffer.mesh, rank),
             "a rank that does not hold the buffer");
  if (host.dims != buffer.on(rank) || host.dtype != buffer.dtype)
    return make_error("data of other extents or another element type than the buffer has");
  return buffers_->store(to, host);
}

llvm::Error DeviceBackend::read(BufferId from, RankId rank, Tensor &host) {
  if (rank != own_ || !buffers_->holds_data(from))
    return make_error(fmt::format("buffer {} holds nothing on rank {}", from.index,
                                  lowered_->world().number(rank)));
  return buffers_->fetch(from, host);
}

// --- the run

llvm::Error DeviceBackend::run(StepRange steps, Deadline) {
  if (llvm::Error error = runner_->run(steps))
    return error;
  return finish_queued();
}

llvm::Error DeviceBackend::finish_queued() {
  buffers_->clear_pending();
  return link_.ask(link_.plugin().wait);
}

bool DeviceBackend::restart(uint64_t seed) {
  options_.seed = seed;
  host_->set_seed(seed);
  buffers_->clear();
  runner_->restart();
  return true;
}

// Data decide what comes behind a branch and how often a loop is run; what the host computes is
// between two calls; and what is received has its arguments made as it comes.
llvm::Expected<std::string> DeviceBackend::prepare_bare() {
  const Plan &plan = lowered_->plan();
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    const Step &step = plan.steps[i];
    const bool decides = step.form == StepForm::Branch || step.form == StepForm::Loop;
    if (decides || lowered_->receives(step) || (*lowered_)[i].on_host)
      return fmt::format("{} is more than a call of the device", name_of(*program_, step));
  }
  bare_.clear();
  link_.keep_calls(&bare_);
  llvm::Error error = runner_->run_steps(plan.all());
  link_.keep_calls(nullptr);
  error = error ? std::move(error) : finish_queued();
  if (error)
    return error;
  return std::string();
}

llvm::Error DeviceBackend::run_bare() {
  const SpmdDevicePlugin &plugin = link_.plugin();
  if (llvm::Error error = link_.ask(plugin.watch, uint32_t(0)))
    return error;
  llvm::Error error = link_.repeat(bare_);
  error = error ? std::move(error) : link_.ask(plugin.wait);
  return llvm::joinErrors(std::move(error), link_.ask(plugin.watch, uint32_t(1)));
}

} // namespace spmd::runtime
