// Commands hold addresses, and how much memory they need is known once they are made: they are made
// twice, the first time as if memory began at 0.
#include "runtime/device/lowered_plan.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

LoweredPlan::LoweredPlan(ir::Program &program, const Plan &plan, const World &world, RankId own,
                         CpuBackend &host, std::vector<uint32_t> device_groups)
    : program_(program), plan_(plan), world_(world), own_(own), host_(host),
      device_groups_(std::move(device_groups)) {
  for (const Communicator &each : plan.communicators.all())
    groups_.push_back(world.groups(each.mesh, each.axes));
}

llvm::Error LoweredPlan::check_collectives() {
  for (const Step &step : plan_.steps)
    if (step.form == StepForm::Communicate && takes_part(step))
      if (llvm::Error error = check_collective(step))
        return named(step, std::move(error));
  return llvm::Error::success();
}

uint64_t LoweredPlan::needed_bytes() const {
  return static_cast<uint64_t>(plan_.peak_bytes) + scratch_bytes_ + 512;
}

void LoweredPlan::lower(SpmdAddress arena) {
  arena_ = arena;
  scratch_ = (arena_ + static_cast<uint64_t>(plan_.peak_bytes) + 511) / 512 * 512;
  steps_.assign(plan_.steps.size(), {});
  fused_.clear();
  host_ops_.clear();
  device_steps_ = 0;
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step &step = plan_.steps[i];
    if (!takes_part(step))
      continue;
    if (step.form == StepForm::Compute)
      lower_compute(step, steps_[i]);
    else if (step.form == StepForm::LocalStep)
      steps_[i].on_host = !lower_local_step(plan_.local_steps[step.index], steps_[i].commands);
    else if (step.form == StepForm::Communicate)
      lower_collective(step, steps_[i].collective);
    if (step.form != StepForm::Compute && step.form != StepForm::LocalStep)
      continue;
    if (steps_[i].on_host)
      ++host_ops_[step.form == StepForm::Compute
                      ? program_.op_name(plan_.computes[step.index].op).str()
                      : "elements written over"];
    else
      ++device_steps_;
  }
}

void LoweredPlan::lower_compute(const Step &step, LoweredStep &lowered) {
  const Compute &made = plan_.computes[step.index];
  llvm::SmallVector<DeviceArray, 8> args, results;
  for (const Use &use : plan_.used(made.operands))
    args.push_back(array_of(use));
  for (const Use &use : plan_.used(made.results))
    results.push_back(array_of(use));
  StepScratch scratch{scratch_, 0};
  lowered.on_host = !host_.op_of(step.index, own_).lower(args, results, scratch, lowered.commands);
  scratch_bytes_ = std::max(scratch_bytes_, scratch.bytes + 512);
  fuse_commands(made, scratch.bytes, lowered.commands);
  // What is read after a result was written must not be where it lies.
  bool takes_over = llvm::any_of(plan_.used(made.results), [&](const Use &use) {
    return plan_.buffers[use.buffer].in_place.valid();
  });
  if (takes_over && scratch.reads_late)
    lowered = {{}, true, {}};
}

uint64_t LoweredPlan::bytes_of(BufferId buffer) const {
  const Buffer &made = plan_.buffers[buffer];
  return static_cast<uint64_t>(count(made.on(own_))) * ir::info(made.dtype).bytes;
}

DeviceArray LoweredPlan::array_of(Use use) const {
  const Buffer &buffer = plan_.buffers[use.buffer];
  DeviceArray made{address(use.buffer), buffer.dtype, &buffer.on(own_), nullptr};
  if (const Block *block = host_.block_of(use, own_))
    made.first = &block->first, made.whole = &block->whole;
  return made;
}

llvm::Error LoweredPlan::named(const Step &step, llvm::Error error) const {
  if (!error)
    return error;
  return make_error(
      fmt::format("{}: {}", name_of(program_, step), llvm::toString(std::move(error))));
}

} // namespace spmd::runtime
