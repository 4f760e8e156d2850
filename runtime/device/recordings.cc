// Stretches of steps whose commands never change are recorded when they are come to for the second
// time, and replayed from then on. The first time makes libraries load and connect what they need.
#include "runtime/device/backend.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <utility>

namespace spmd::runtime {

namespace {
// Below that a recording saves nothing.
constexpr uint32_t kLeastSteps = 4;
} // namespace

// Which steps may be part of a recording: those that are equal on all ranks, because a library may
// want what is recorded of a collective to be so on all ranks that meet in it.
llvm::Error DeviceBackend::find_stretches() {
  const std::vector<Step> &steps = plan_->steps;
  stretch_ends_.clear();
  if (!options_.records)
    return llvm::Error::success();
  // A trial: what one rank cannot do, none does.
  uint32_t trial = 0;
  llvm::Error refused = link_.ask(link_.plugin().begin_record);
  if (!refused)
    refused = link_.ask(link_.plugin().end_record, &trial);
  if (!refused)
    refused = link_.ask(link_.plugin().forget, uint32_t(trial));
  std::string fixed(steps.size() + 1, refused ? 0 : 1);
  const std::string why = llvm::toString(std::move(refused));
  for (size_t i = 0; i < steps.size(); ++i)
    if (steps[i].form == StepForm::Branch || steps[i].form == StepForm::Loop || ready_[i].on_host)
      fixed[i] = 0;
  if (options_.on_all)
    if (llvm::Error error = options_.on_all(fixed))
      return error;
  if (!fixed.back()) {
    if (options_.on_no_record)
      options_.on_no_record(why.empty() ? "another rank's device refuses" : why);
    return llvm::Error::success();
  }
  stretch_ends_.assign(steps.size(), 0);
  stretch_steps_.assign(steps.size() + 1, 0);
  for (auto i = static_cast<uint32_t>(steps.size()); i-- > 0;) {
    const bool goes_on = i + 1 < steps.size() && fixed[i + 1];
    stretch_ends_[i] = !fixed[i] ? i : goes_on ? stretch_ends_[i + 1] : i + 1;
    stretch_steps_[i] = stretch_steps_[i + 1] + (steps[i].form != StepForm::Release);
  }
  return llvm::Error::success();
}

// Behind the stretch that begins with this step; the step itself, where there is none.
uint32_t DeviceBackend::end_of_stretch(uint32_t first, uint32_t last) const {
  if (stretch_ends_.empty())
    return first;
  const uint32_t end = std::min(stretch_ends_[first], last);
  return stretch_steps_[first] - stretch_steps_[end] < kLeastSteps ? first : end;
}

llvm::Error DeviceBackend::run_stretch(StepRange range) {
  Recording &recording = recordings_[{range.first, range.last}];
  if (recording.number)
    return replay(range, *recording.number);
  if (recording.met++ == 0 || recording.refused)
    return run_steps(range);
  return record(range, recording);
}

llvm::Error DeviceBackend::record(StepRange range, Recording &recording) {
  const SpmdDevicePlugin &plugin = link_.plugin();
  const Step &first = plan_->steps[range.first];
  if (llvm::Error error = named(first, link_.ask(plugin.begin, uint32_t(range.first))))
    return error;
  if (llvm::Error error = named(first, link_.ask(plugin.begin_record)))
    return error;
  // What is replayed begins when everything before it is done, and leaves nothing behind.
  pending_.clear();
  llvm::Error failed = run_steps(range);
  pending_.clear();
  uint32_t number = 0;
  llvm::Error ended = link_.ask(plugin.end_record, &number);
  if (failed || ended) {
    const std::string why = llvm::toString(llvm::joinErrors(std::move(failed), std::move(ended)));
    // Others may have recorded it: what they replay does not meet what is not recorded.
    for (uint32_t i = range.first; i < range.last; ++i)
      if (meets_others(plan_->steps[i]))
        return make_error(fmt::format("steps {} to {} cannot be recorded: {}. Next: add "
                                      "--no-graphs",
                                      range.first, range.last - 1, why));
    recording.refused = true;
    if (options_.on_no_record && !std::exchange(no_recording_reported_, true))
      options_.on_no_record(why);
    return run_steps(range);
  }
  recording.number = number;
  return replay(range, number);
}

llvm::Error DeviceBackend::replay(StepRange range, uint32_t number) {
  const Step &first = plan_->steps[range.first];
  for (uint32_t i = range.first; i < range.last; ++i)
    note(plan_->steps[i]);
  pending_.clear();
  if (llvm::Error error = link_.ask(link_.plugin().begin, uint32_t(range.first)))
    return named(first, std::move(error));
  return named(first, link_.ask(link_.plugin().replay, uint32_t(number)));
}

bool DeviceBackend::meets_others(const Step &step) const {
  return (step.form == StepForm::Communicate && takes_part(step)) || receives(step);
}

size_t DeviceBackend::recordings() const {
  return static_cast<size_t>(
      llvm::count_if(recordings_, [](const auto &each) { return each.second.number.has_value(); }));
}

void DeviceBackend::forget_recordings() {
  for (const auto &[range, recording] : recordings_)
    if (recording.number)
      llvm::consumeError(link_.ask(link_.plugin().forget, uint32_t(*recording.number)));
  recordings_.clear();
}

} // namespace spmd::runtime
