// What an instruction at hand states.
#include "runtime/plan/planner/site.h"

#include "rules/transitions/axes.h"

#include "ir/support/arrays.h"
#include "ir/support/error.h"

namespace spmd::runtime {

int64_t PlanSite::integer(const ir::Program &program, llvm::StringRef name) const {
  const ir::AttrValue *attr = program.find(inst.attrs, name);
  return attr && attr->form == ir::AttrForm::Integer ? attr->as_integer() : 0;
}

llvm::SmallVector<BufferId, 4> PlanSite::buffers(const Plan &plan, size_t first) const {
  llvm::SmallVector<BufferId, 4> all;
  for (PlannedId value : ir::as_array(values).drop_front(first))
    all.push_back(plan.values[value].buffer);
  return all;
}

llvm::Expected<llvm::SmallVector<ir::AxisId, 4>> call_axes(const rules::Application &app) {
  rules::Outcome out;
  std::optional<rules::CallAxes> axes = rules::resolve_axes(app, {}, out);
  if (!axes)
    return make_error("the call does not say along which axes it runs");
  llvm::SmallVector<ir::AxisId, 4> order;
  for (const rules::WrittenAxis &written : axes->written)
    order.append(written.axes.begin(), written.axes.end());
  return order;
}

} // namespace spmd::runtime
