// Read off the plan alone, so that all ranks find the same.
#include "runtime/device/schedule.h"

namespace spmd::runtime {

namespace {

// Libraries have a limit of some thousand sends, receives and collectives.
constexpr size_t kMostCalls = 512;
// Below that a recording saves nothing.
constexpr uint32_t kLeastSteps = 4;

} // namespace

StepSchedule::StepSchedule(const LoweredPlan &lowered, bool batches) : lowered_(lowered) {
  const std::vector<Step> &steps = lowered.plan().steps;
  batch_ends_.assign(steps.size(), 0);
  for (uint32_t i = 0; i < steps.size(); ++i) {
    batch_ends_[i] = i + 1;
    if (batches && steps[i].form == StepForm::Communicate)
      batch_ends_[i] = find_end_of_batch(i);
  }
}

uint32_t StepSchedule::find_end_of_batch(uint32_t first) const {
  const Plan &plan = lowered_.plan();
  UsedBytes read, written;
  size_t calls = 0;
  uint32_t end = first + 1;
  auto is_apart = [&](const Buffer &reads, const Buffer &writes) {
    return !written.meet(reads) && !written.meet(writes) && !read.meet(writes);
  };
  for (uint32_t i = first; i < plan.steps.size(); ++i) {
    const Step &step = plan.steps[i];
    if (step.form == StepForm::Release)
      continue;
    if (step.form == StepForm::Communicate) {
      const Communicate &made = plan.communicates[step.index];
      const Buffer &operand = plan.buffers[made.operand], &result = plan.buffers[made.result];
      calls += 2 * lowered_.groups(made.group).size();
      if (!lowered_.is_direct(made) || !is_apart(operand, result) || calls > kMostCalls)
        return end;
      read.add(operand);
      written.add(result);
      end = i + 1;
      continue;
    }
    // Local steps take place before the batch: as if they came first.
    if (step.form != StepForm::LocalStep || lowered_.receives(step))
      return end;
    const LocalStep &local = plan.local_steps[step.index];
    for (const Use &use : plan.used(local.operands))
      if (written.meet(plan.buffers[use.buffer]))
        return end;
    const Buffer &result = plan.buffers[local.result];
    if (written.meet(result) || read.meet(result))
      return end;
  }
  return end;
}

void StepSchedule::set_recordable(const std::string &fixed) {
  const std::vector<Step> &steps = lowered_.plan().steps;
  stretch_ends_.assign(steps.size(), 0);
  stretch_steps_.assign(steps.size() + 1, 0);
  for (auto i = static_cast<uint32_t>(steps.size()); i-- > 0;) {
    const bool goes_on = i + 1 < steps.size() && fixed[i + 1];
    stretch_ends_[i] = !fixed[i] ? i : goes_on ? stretch_ends_[i + 1] : i + 1;
    stretch_steps_[i] = stretch_steps_[i + 1] + (steps[i].form != StepForm::Release);
  }
}

uint32_t StepSchedule::end_of_stretch(uint32_t first, uint32_t last) const {
  if (stretch_ends_.empty())
    return first;
  const uint32_t end = std::min(stretch_ends_[first], last);
  return stretch_steps_[first] - stretch_steps_[end] < kLeastSteps ? first : end;
}

} // namespace spmd::runtime
