// Neighbouring collectives, given to the library as one batch: one launch instead of several. Which
// ones these are must be the same on all ranks, so it is read off the plan alone.
#include "runtime/device/backend.h"

#include <fmt/format.h>

namespace spmd::runtime {

namespace {

// Libraries have a limit of some thousand sends, receives and collectives.
constexpr size_t kMostCalls = 512;

} // namespace

// By step: behind the last collective of the batch that begins there.
void DeviceBackend::find_batches() {
  const std::vector<Step> &steps = plan_->steps;
  batch_ends_.assign(steps.size(), 0);
  for (uint32_t i = 0; i < steps.size(); ++i) {
    batch_ends_[i] = i + 1;
    if (options_.batches && steps[i].form == StepForm::Communicate)
      batch_ends_[i] = end_of_batch(i);
  }
}

uint32_t DeviceBackend::end_of_batch(uint32_t first) const {
  UsedBytes read, written;
  size_t calls = 0;
  uint32_t end = first + 1;
  auto is_apart = [&](const Buffer &reads, const Buffer &writes) {
    return !written.meet(reads) && !written.meet(writes) && !read.meet(writes);
  };
  for (uint32_t i = first; i < plan_->steps.size(); ++i) {
    const Step &step = plan_->steps[i];
    if (step.form == StepForm::Release)
      continue;
    if (step.form == StepForm::Communicate) {
      const Communicate &made = plan_->communicates[step.index];
      const Buffer &operand = plan_->buffers[made.operand], &result = plan_->buffers[made.result];
      calls += 2 * groups_[made.group.index].size();
      if (!is_direct(made) || !is_apart(operand, result) || calls > kMostCalls)
        return end;
      read.add(operand);
      written.add(result);
      end = i + 1;
      continue;
    }
    // Local steps take place before the batch: as if they came first.
    if (step.form != StepForm::LocalStep || receives(step))
      return end;
    const LocalStep &local = plan_->local_steps[step.index];
    for (const Use &use : plan_->used(local.operands))
      if (written.meet(plan_->buffers[use.buffer]))
        return end;
    const Buffer &result = plan_->buffers[local.result];
    if (written.meet(result) || read.meet(result))
      return end;
  }
  return end;
}

llvm::Error DeviceBackend::run_batch(StepRange range, const FusedSteps &fused_steps) {
  llvm::SmallVector<uint32_t, 8> collectives;
  for (uint32_t i = range.first; i < range.last; ++i) {
    const Step &step = plan_->steps[i];
    if (!takes_part(step))
      continue;
    if (step.form == StepForm::Communicate)
      collectives.push_back(i);
    else if (step.form == StepForm::LocalStep)
      if (llvm::Error error = named(step, run_step(step, i, fused_step(fused_steps, i))))
        return error;
  }
  // In their order: what is released may have been made here.
  for (uint32_t i = range.first; i < range.last; ++i)
    if (plan_->steps[i].form != StepForm::LocalStep)
      note(plan_->steps[i]);
  return collectives.empty() ? llvm::Error::success() : send_batch(collectives);
}

llvm::Error DeviceBackend::send_batch(llvm::ArrayRef<uint32_t> collectives) {
  const SpmdDevicePlugin &plugin = link_.plugin();
  const Step &first = plan_->steps[collectives.front()];
  auto made = [&](uint32_t i) -> const Communicate & {
    return plan_->communicates[plan_->steps[i].index];
  };
  if (llvm::Error error = named(first, link_.ask(plugin.begin, uint32_t(collectives.front()))))
    return error;
  for (uint32_t i : collectives)
    if (llvm::Error error = named(plan_->steps[i], begin_collective(made(i), ready_[i].collective)))
      return error;
  if (llvm::Error error = named(
          first, link_.ask(plugin.follow, uint32_t(kSpmdCollectives), uint32_t(kSpmdCompute))))
    return error;
  if (llvm::Error error = named(first, link_.ask(plugin.begin_batch)))
    return error;
  for (uint32_t i : collectives)
    if (ready_[i].collective.sends_any())
      if (llvm::Error error = named(plan_->steps[i], send(ready_[i].collective)))
        return error;
  if (llvm::Error error = named(first, link_.ask(plugin.end_batch)))
    return error;
  for (uint32_t i : collectives)
    if (ready_[i].collective.sends_any())
      wait_later(made(i));
  return llvm::Error::success();
}

} // namespace spmd::runtime
