// What a step needs is waited for before its commands are queued; nothing here waits for the device
// but copies to the host.
#include "runtime/device/step_runner.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

namespace {

const FusedStep *fused_step(const FusedSteps &steps, uint32_t index) {
  const auto at = steps.find(index);
  return at == steps.end() ? nullptr : &at->second;
}

} // namespace

llvm::Error StepRunner::run(StepRange range) {
  auto steps = [&](StepRange stretch) { return run_steps(stretch); };
  for (uint32_t i = range.first; i < range.last;) {
    uint32_t next = schedule_.end_of_stretch(i, range.last);
    const bool records = next > i;
    while (!records && next < range.last && schedule_.end_of_stretch(next, range.last) == next)
      next = step_after(plan_, next);
    if (llvm::Error error = records ? recordings_.run({i, next}, steps) : run_steps({i, next}))
      return error;
    i = next;
  }
  return llvm::Error::success();
}

llvm::Error StepRunner::run_steps(StepRange range) {
  const FusedSteps &fused_steps = lowered_.fused(range);
  for (uint32_t i = range.first; i < range.last;) {
    const Step &step = plan_.steps[i];
    const uint32_t end = std::min(schedule_.end_of_batch(i), range.last);
    if (end > i + 1) {
      if (llvm::Error error = run_batch({i, end}, fused_steps))
        return error;
      i = end;
      continue;
    }
    if (llvm::Error error = lowered_.named(step, run_step(step, i, fused_step(fused_steps, i))))
      return error;
    i = step_after(plan_, i);
  }
  return llvm::Error::success();
}

llvm::Error StepRunner::queue(llvm::ArrayRef<Command> commands) {
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

llvm::Error StepRunner::run_on_host(const Step &step, uint32_t index) {
  const bool computes = step.form == StepForm::Compute;
  llvm::ArrayRef<Use> operands = plan_.used(computes ? plan_.computes[step.index].operands
                                                     : plan_.local_steps[step.index].operands);
  llvm::SmallVector<BufferId, 4> results, read;
  if (computes)
    for (const Use &use : plan_.used(plan_.computes[step.index].results))
      results.push_back(use.buffer);
  else
    results.push_back(plan_.local_steps[step.index].result);
  for (size_t i = 0; i < operands.size(); ++i) {
    const BufferId buffer = operands[i].buffer;
    const bool reads =
        !computes || host_.op_of(step.index, lowered_.rank()).reads(static_cast<unsigned>(i));
    if (!reads || llvm::is_contained(read, buffer))
      continue;
    Tensor tensor;
    if (llvm::Error error = buffers_.fetch(buffer, tensor))
      return error;
    if (llvm::Error error = host_.write(buffer, lowered_.rank(), tensor))
      return error;
    read.push_back(buffer);
  }
  host_.set_iterations(iterations_);
  if (llvm::Error error = host_.run({index, index + 1}, kNoDeadline))
    return error;
  for (BufferId buffer : results) {
    Tensor tensor;
    if (llvm::Error error = host_.read(buffer, lowered_.rank(), tensor))
      return error;
    if (llvm::Error error = buffers_.store(buffer, tensor))
      return error;
    host_.forget(buffer, lowered_.rank());
  }
  for (BufferId buffer : read)
    host_.forget(buffer, lowered_.rank());
  return llvm::Error::success();
}

// Bytes of the rank that stands at the same place of the mesh of the operand.
llvm::Error StepRunner::receive(const Step &step) {
  const LocalStep &made = plan_.local_steps[step.index];
  const BufferId from = plan_.used(made.operands).front().buffer;
  llvm::ArrayRef<RankId> takers = lowered_.world().ranks(step.mesh),
                         givers = lowered_.world().ranks(plan_.buffers[from].mesh);
  llvm::SmallVector<SpmdTransfer, 2> sends, receives;
  bool keeps = false;
  for (size_t i = 0; i < takers.size(); ++i) {
    if (givers[i] == takers[i])
      keeps |= takers[i] == lowered_.rank();
    else if (givers[i] == lowered_.rank())
      sends.push_back({takers[i], lowered_.address(from), lowered_.bytes_of(from)});
    else if (takers[i] == lowered_.rank())
      receives.push_back(
          {givers[i], lowered_.address(made.result), lowered_.bytes_of(made.result)});
  }
  if (keeps) {
    if (llvm::Error error = buffers_.wait_for({{from, {}}, {made.result, {}}}))
      return error;
    std::vector<Command> commands;
    const DeviceArray to = lowered_.array_of(made.result);
    add_box(lowered_.array_of(from), to, {{to.size()}, {1}, {1}, 0, 0}, false, commands);
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

llvm::Error StepRunner::run_local_step(const Step &step, uint32_t index,
                                       llvm::ArrayRef<Command> commands) {
  const LocalStep &made = plan_.local_steps[step.index];
  if (lowered_.receives(step))
    return receive(step);
  if (lowered_[index].on_host)
    return run_on_host(step, index);
  if (llvm::Error error = buffers_.wait_for(plan_.used(made.operands)))
    return error;
  if (llvm::Error error = buffers_.wait_for(made.result))
    return error;
  return queue(commands);
}

llvm::Expected<bool> StepRunner::is_true(BufferId predicate) {
  Tensor tensor;
  if (llvm::Error error = buffers_.fetch(predicate, tensor))
    return error;
  if (tensor.size() != 1 || tensor.is_complex())
    return make_error("a predicate is one element");
  return tensor.of<double>()[0] != 0;
}

llvm::Error StepRunner::run_loop(const Loop &made, uint32_t index) {
  for (;; ++iterations_.back()) {
    if (llvm::Error error = run({index + 1, made.cond_end}))
      return error;
    llvm::Expected<bool> yes = is_true(made.predicate);
    if (!yes)
      return yes.takeError();
    if (!*yes)
      return llvm::Error::success();
    if (iterations_.back() >= plan_.max_rounds)
      return llvm::make_error<TooManyRounds>(plan_.steps[index].inst, plan_.max_rounds);
    if (llvm::Error error = run({made.cond_end, made.body_end}))
      return error;
  }
}

llvm::Error StepRunner::run_step(const Step &step, uint32_t index, const FusedStep *fused) {
  // Those who only send take part in it, too.
  if (!lowered_.takes_part(step) && !lowered_.receives(step))
    return llvm::Error::success();
  buffers_.note_done(step);
  if (fused && fused->commands.empty()) // others do its work
    return llvm::Error::success();
  if (llvm::Error error = link_.ask(link_.plugin().begin, index))
    return error;
  if (fused)
    if (llvm::Error error = wait_for_fused(*fused))
      return error;
  llvm::ArrayRef<Command> commands = fused ? fused->commands : lowered_[index].commands;
  switch (step.form) {
  case StepForm::Compute: {
    const Compute &made = plan_.computes[step.index];
    if (lowered_[index].on_host)
      return run_on_host(step, index);
    if (llvm::Error error = buffers_.wait_for(plan_.used(made.operands)))
      return error;
    if (llvm::Error error = buffers_.wait_for(plan_.used(made.results)))
      return error;
    return queue(commands);
  }
  case StepForm::LocalStep:
    return run_local_step(step, index, commands);
  case StepForm::Communicate:
    return run_collective(step, lowered_[index].collective);
  case StepForm::Release:
    return llvm::Error::success();
  case StepForm::Branch: {
    const Branch &made = plan_.branches[step.index];
    llvm::Expected<bool> yes = is_true(made.predicate);
    if (!yes)
      return yes.takeError();
    return *yes ? run({index + 1, made.then_end}) : run({made.then_end, made.else_end});
  }
  case StepForm::Loop:
    iterations_.push_back(0);
    llvm::Error error = run_loop(plan_.loops[step.index], index);
    iterations_.pop_back();
    return error;
  }
  return llvm::Error::success();
}

llvm::Error StepRunner::wait_for_fused(const FusedStep &fused) {
  for (uint32_t index : fused.fused) {
    const Step &step = plan_.steps[index];
    if (llvm::Error error = buffers_.wait_for(
            plan_.used(step.form == StepForm::Compute ? plan_.computes[step.index].operands
                                                      : plan_.local_steps[step.index].operands)))
      return error;
  }
  return llvm::Error::success();
}

// Local steps take place before the batch.
llvm::Error StepRunner::run_batch(StepRange range, const FusedSteps &fused_steps) {
  llvm::SmallVector<uint32_t, 8> collectives;
  for (uint32_t i = range.first; i < range.last; ++i) {
    const Step &step = plan_.steps[i];
    if (!lowered_.takes_part(step))
      continue;
    if (step.form == StepForm::Communicate)
      collectives.push_back(i);
    else if (step.form == StepForm::LocalStep)
      if (llvm::Error error = lowered_.named(step, run_step(step, i, fused_step(fused_steps, i))))
        return error;
  }
  // In their order: what is released may have been made here.
  for (uint32_t i = range.first; i < range.last; ++i)
    if (plan_.steps[i].form != StepForm::LocalStep)
      buffers_.note_done(plan_.steps[i]);
  return collectives.empty() ? llvm::Error::success() : send_batch(collectives);
}

} // namespace spmd::runtime
