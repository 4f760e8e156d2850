// Collectives of a run: what comes before one on this rank, the call of the library, what comes
// after it; and several of them as one batch, one launch instead of several.
#include "runtime/device/step_runner.h"

namespace spmd::runtime {

// Up to what goes between ranks.
llvm::Error StepRunner::begin_collective(const Communicate &made, const CollectiveCall &call) {
  if (call.before.empty())
    return llvm::Error::success();
  if (llvm::Error error = buffers_.wait_for({{made.operand, {}}, {made.result, {}}}))
    return error;
  return queue(call.before);
}

llvm::Error StepRunner::send(const CollectiveCall &call) {
  const SpmdDevicePlugin &plugin = link_.plugin();
  if (call.collective)
    return link_.ask(plugin.collective, static_cast<const SpmdCollective *>(&*call.collective));
  return link_.ask(plugin.exchange, call.group, call.sends.data(),
                   static_cast<uint32_t>(call.sends.size()), call.receives.data(),
                   static_cast<uint32_t>(call.receives.size()));
}

// What computes with these bytes waits for the collective that was just queued.
void StepRunner::note_pending(const Communicate &made) {
  for (BufferId buffer : {made.operand, made.result})
    buffers_.add_pending(buffer);
}

llvm::Error StepRunner::run_collective(const Step &step, const CollectiveCall &call) {
  const SpmdDevicePlugin &plugin = link_.plugin();
  const Communicate &made = plan_.communicates[step.index];
  if (llvm::Error error = begin_collective(made, call))
    return error;
  if (call.sends_any()) {
    if (llvm::Error error =
            link_.ask(plugin.follow, uint32_t(kSpmdCollectives), uint32_t(kSpmdCompute)))
      return error;
    if (llvm::Error error = send(call))
      return error;
    note_pending(made);
  }
  // The scratch memory is the next one's.
  return call.direct ? llvm::Error::success() : finish_collective(made, call);
}

llvm::Error StepRunner::finish_collective(const Communicate &made, const CollectiveCall &call) {
  if (call.sends_any()) {
    buffers_.clear_pending();
    if (llvm::Error error =
            link_.ask(link_.plugin().follow, uint32_t(kSpmdCompute), uint32_t(kSpmdCollectives)))
      return error;
  }
  if (llvm::Error error = buffers_.wait_for({{made.operand, {}}, {made.result, {}}}))
    return error;
  return queue(call.after);
}

llvm::Error StepRunner::send_batch(llvm::ArrayRef<uint32_t> collectives) {
  const SpmdDevicePlugin &plugin = link_.plugin();
  const Step &first = plan_.steps[collectives.front()];
  auto made = [&](uint32_t i) -> const Communicate & {
    return plan_.communicates[plan_.steps[i].index];
  };
  if (llvm::Error error =
          lowered_.named(first, link_.ask(plugin.begin, uint32_t(collectives.front()))))
    return error;
  for (uint32_t i : collectives)
    if (llvm::Error error =
            lowered_.named(plan_.steps[i], begin_collective(made(i), lowered_[i].collective)))
      return error;
  if (llvm::Error error = lowered_.named(
          first, link_.ask(plugin.follow, uint32_t(kSpmdCollectives), uint32_t(kSpmdCompute))))
    return error;
  if (llvm::Error error = lowered_.named(first, link_.ask(plugin.begin_batch)))
    return error;
  for (uint32_t i : collectives)
    if (lowered_[i].collective.sends_any())
      if (llvm::Error error = lowered_.named(plan_.steps[i], send(lowered_[i].collective)))
        return error;
  if (llvm::Error error = lowered_.named(first, link_.ask(plugin.end_batch)))
    return error;
  for (uint32_t i : collectives)
    if (lowered_[i].collective.sends_any())
      note_pending(made(i));
  return llvm::Error::success();
}

} // namespace spmd::runtime
