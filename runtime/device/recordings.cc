// Stretches of steps whose commands never change are recorded when they are come to for the second
// time, and replayed from then on. The first time makes libraries load and connect what they need.
#include "runtime/device/recordings.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <utility>

namespace spmd::runtime {

std::string Recordings::try_out() {
  uint32_t trial = 0;
  llvm::Error refused = link_.ask(link_.plugin().begin_record);
  if (!refused)
    refused = link_.ask(link_.plugin().end_record, &trial);
  if (!refused)
    refused = link_.ask(link_.plugin().forget, uint32_t(trial));
  return llvm::toString(std::move(refused));
}

llvm::Error Recordings::run(StepRange range, RunSteps run_steps) {
  Recording &recording = recordings_[{range.first, range.last}];
  if (recording.number)
    return replay(range, *recording.number);
  if (recording.met++ == 0 || recording.refused)
    return run_steps(range);
  return record(range, recording, run_steps);
}

llvm::Error Recordings::record(StepRange range, Recording &recording, RunSteps run_steps) {
  const SpmdDevicePlugin &plugin = link_.plugin();
  const Step &first = lowered_.plan().steps[range.first];
  if (llvm::Error error = lowered_.named(first, link_.ask(plugin.begin, uint32_t(range.first))))
    return error;
  if (llvm::Error error = lowered_.named(first, link_.ask(plugin.begin_record)))
    return error;
  // What is replayed begins when everything before it is done, and leaves nothing behind.
  buffers_.clear_pending();
  llvm::Error failed = run_steps(range);
  buffers_.clear_pending();
  uint32_t number = 0;
  llvm::Error ended = link_.ask(plugin.end_record, &number);
  if (failed || ended) {
    const std::string why = llvm::toString(llvm::joinErrors(std::move(failed), std::move(ended)));
    // Others may have recorded it: what they replay does not meet what is not recorded.
    for (uint32_t i = range.first; i < range.last; ++i)
      if (lowered_.meets_others(lowered_.plan().steps[i]))
        return make_error(fmt::format("steps {} to {} cannot be recorded: {}. Next: add "
                                      "--no-graphs",
                                      range.first, range.last - 1, why));
    recording.refused = true;
    if (report_ && !std::exchange(reported_, true))
      report_(why);
    return run_steps(range);
  }
  recording.number = number;
  return replay(range, number);
}

llvm::Error Recordings::replay(StepRange range, uint32_t number) {
  const Step &first = lowered_.plan().steps[range.first];
  for (uint32_t i = range.first; i < range.last; ++i)
    buffers_.note_done(lowered_.plan().steps[i]);
  buffers_.clear_pending();
  if (llvm::Error error = link_.ask(link_.plugin().begin, uint32_t(range.first)))
    return lowered_.named(first, std::move(error));
  return lowered_.named(first, link_.ask(link_.plugin().replay, uint32_t(number)));
}

size_t Recordings::count() const {
  return static_cast<size_t>(
      llvm::count_if(recordings_, [](const auto &each) { return each.second.number.has_value(); }));
}

Recordings::~Recordings() {
  for (const auto &[range, recording] : recordings_)
    if (recording.number)
      llvm::consumeError(link_.ask(link_.plugin().forget, uint32_t(*recording.number)));
}

} // namespace spmd::runtime
