// A step begins when the one before it is done, on devices too: what overlaps in an ordinary run
// does not here.
#include "runtime/cli/profile.h"

#include "checker/render/json_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstring>

namespace spmd::runtime {

using Json = nlohmann::ordered_json;

namespace {

std::string_view form_of(StepForm form) {
  switch (form) {
  case StepForm::Compute:
    return "compute";
  case StepForm::Communicate:
    return "collective";
  case StepForm::Branch:
    return "branch";
  case StepForm::Loop:
    return "loop";
  default:
    return "move";
  }
}

Json event_of(const ir::Program &program, const Plan &plan, const StepTime &time, size_t rank) {
  const Step &step = plan.steps[time.step];
  Json made;
  const ir::Inst *inst = step.inst.valid() ? &program.insts[step.inst] : nullptr;
  made["name"] = inst ? program.op_name(inst->op).str() : "program";
  made["cat"] = form_of(step.form);
  made["ph"] = "X";
  made["ts"] = time.begin;
  made["dur"] = time.took;
  made["pid"] = rank;
  made["tid"] = 0;
  made["args"]["step"] = time.step;
  if (inst && inst->result_count)
    made["args"]["value"] = ir::print(program.values[inst->first_result].name, program.strings);
  return made;
}

} // namespace

llvm::Expected<TimesByRank> time_steps(const Plan &plan, Backend &backend, Team *team) {
  using Clock = std::chrono::steady_clock;
  std::vector<StepTime> times;
  const Clock::time_point begin = Clock::now();
  auto since = [&] {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  };
  for (uint32_t i = 0; i < plan.steps.size();) {
    const uint32_t next = step_after(plan, i);
    const double from = since();
    if (llvm::Error error = backend.run({i, next}, kNoDeadline))
      return error;
    if (plan.steps[i].form != StepForm::Release)
      times.push_back({i, from, since() - from});
    i = next;
  }
  if (!team)
    return TimesByRank{std::move(times)};
  llvm::Expected<std::vector<std::string>> gathered =
      team->gather({reinterpret_cast<const char *>(times.data()), times.size() * sizeof(StepTime)});
  if (!gathered)
    return gathered.takeError();
  TimesByRank all;
  for (const std::string &bytes : *gathered) {
    all.emplace_back(bytes.size() / sizeof(StepTime));
    std::memcpy(all.back().data(), bytes.data(), all.back().size() * sizeof(StepTime));
  }
  return all;
}

std::string print_profile(const ir::Program &program, const Plan &plan, const TimesByRank &times,
                          bool together) {
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (size_t rank = 0; rank < times.size(); ++rank) {
    Json name;
    name["name"] = "process_name";
    name["ph"] = "M";
    name["pid"] = rank;
    name["args"]["name"] = together ? std::string("all ranks") : fmt::format("rank {}", rank);
    text += (rank ? ",\n" : "") + checker::print_json(name);
    for (const StepTime &time : times[rank])
      text += ",\n" + checker::print_json(event_of(program, plan, time, rank));
  }
  return text + "\n]}\n";
}

} // namespace spmd::runtime
