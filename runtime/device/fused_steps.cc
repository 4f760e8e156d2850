// Which commands of a range of steps become one. What is read between two steps is there, for then
// a range ends.
#include "runtime/device/lowered_plan.h"

namespace spmd::runtime {

DeviceTensor LoweredPlan::region(BufferId buffer) const {
  const SpmdAddress first = address(buffer);
  return {buffer.index, {first, first + static_cast<uint64_t>(plan_.buffers[buffer].bytes)}};
}

// Those of one op.
void LoweredPlan::fuse_commands(const Compute &made, uint64_t scratch_bytes,
                                std::vector<Command> &commands) {
  if (commands.size() < 2)
    return;
  llvm::SmallVector<DeviceTensor, 8> reads, writes;
  for (const Use &use : plan_.used(made.operands))
    reads.push_back(region(use.buffer));
  for (const Use &use : plan_.used(made.results))
    writes.push_back(region(use.buffer));
  Fusion fusion({scratch_, scratch_ + scratch_bytes});
  fusion.add(0, commands, reads, writes);
  for (auto &[step, fused] : fusion.run())
    commands = fused.commands;
}

void LoweredPlan::add_to(Fusion &fusion, uint32_t index) const {
  const Step &step = plan_.steps[index];
  llvm::SmallVector<DeviceTensor, 8> reads, writes;
  switch (step.form) {
  case StepForm::Compute:
    for (const Use &use : plan_.used(plan_.computes[step.index].operands))
      reads.push_back(region(use.buffer));
    for (const Use &use : plan_.used(plan_.computes[step.index].results))
      writes.push_back(region(use.buffer));
    break;
  case StepForm::LocalStep:
    for (const Use &use : plan_.used(plan_.local_steps[step.index].operands))
      reads.push_back(region(use.buffer));
    writes.push_back(region(plan_.local_steps[step.index].result));
    break;
  case StepForm::Communicate:
    reads.push_back(region(plan_.communicates[step.index].operand));
    writes.push_back(region(plan_.communicates[step.index].result));
    break;
  case StepForm::Release:
    return fusion.end(plan_.releases[step.index].buffer.index);
  case StepForm::Branch:
  case StepForm::Loop:
    return;
  }
  const bool commands =
      step.form != StepForm::Communicate && !receives(step) && !steps_[index].on_host;
  if (commands)
    fusion.add(index, steps_[index].commands, reads, writes);
  else if (takes_part(step) || receives(step))
    fusion.add_other(index, reads, writes);
}

// Commands are large, and seldom meet from so far.
constexpr uint32_t kMostSteps = 1 << 14;

const FusedSteps &LoweredPlan::fused(StepRange steps) {
  auto [at, fresh] = fused_.try_emplace({steps.first, steps.last});
  if (!fresh)
    return at->second;
  const Bytes scratch{scratch_, scratch_ + scratch_bytes_};
  std::optional<Fusion> fusion;
  uint32_t first = steps.first;
  auto close = [&, &made = at->second] {
    if (fusion)
      made.merge(fusion->run());
    fusion.reset();
  };
  for (uint32_t i = steps.first; i < steps.last; i = step_after(plan_, i)) {
    const StepForm form = plan_.steps[i].form;
    if (form == StepForm::Branch || form == StepForm::Loop) {
      close();
      continue;
    }
    if (fusion && i - first >= kMostSteps)
      close();
    if (!fusion)
      fusion.emplace(scratch), first = i;
    add_to(*fusion, i);
  }
  close();
  return at->second;
}

std::vector<Command> LoweredPlan::commands_of(StepRange steps) {
  const FusedSteps &fused_steps = fused(steps);
  std::vector<Command> all;
  for (uint32_t i = steps.first; i < steps.last; i = step_after(plan_, i)) {
    if (steps_[i].on_host)
      continue;
    const auto own = fused_steps.find(i);
    const std::vector<Command> &each =
        own == fused_steps.end() ? steps_[i].commands : own->second.commands;
    all.insert(all.end(), each.begin(), each.end());
  }
  return all;
}

} // namespace spmd::runtime
