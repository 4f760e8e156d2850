// Names and their buffers.
#include "runtime/plan/planner/values.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::ValueId;

std::string BodyValues::who(const PlanFrame &frame, ValueId value) const {
  std::string name = ir::print(program_.values[value].name, program_.strings);
  if (frame.call == 0)
    return fmt::format("`{}`", name);
  const PlannedCall &call = plan_.calls[frame.call];
  const ir::Inst &site = program_.insts[call.site];
  return fmt::format("`{}` in a body of `{}`", name, program_.op_name(site.op).str());
}

llvm::Expected<PlannedId> BodyValues::find(const PlanFrame &frame, ValueId value) const {
  auto found = frame.values.find(value.index);
  if (found == frame.values.end())
    return make_error(fmt::format("{} has no data here", who(frame, value)));
  return found->second;
}

llvm::Error BodyValues::define(PlanFrame &frame, ValueId value, BufferId buffer) {
  if (llvm::any_of(plan_.buffers[buffer].dims,
                   [](const Dims &dims) { return count(dims) >= kTooManyElements; }))
    return make_error(fmt::format("{} has more elements than can be counted", who(frame, value)));
  PlannedValue made;
  made.value = value;
  made.call = frame.call;
  made.known = checked_.known(value, frame.typing);
  made.buffer = buffer;
  made.from = static_cast<uint32_t>(plan_.steps.size());
  if (made.known.type.valid() && made.known.shape.valid())
    made.place = builder_.place_of(made.known, plan_.buffers[buffer]);
  frame.values[value.index] = plan_.values.add(std::move(made));
  return llvm::Error::success();
}

llvm::Error BodyValues::define_results(PlanSite &site, llvm::ArrayRef<BufferId> buffers) {
  for (unsigned r = 0; r < site.inst.result_count && r < buffers.size(); ++r)
    if (llvm::Error error = define_result(site, r, buffers[r]))
      return error;
  return llvm::Error::success();
}

} // namespace spmd::runtime
