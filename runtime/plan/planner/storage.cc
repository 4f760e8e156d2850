// Storage that several names share.
#include "runtime/plan/planner/storage.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::ValueId;

StorageName StoragePlanner::name_of(PlanFrame &frame, ValueId value, PlannedId planned) {
  auto found = frame.names.find(value.index);
  if (found != frame.names.end())
    return found->second;
  StorageName name{static_cast<uint32_t>(frame.storages.size()), {}};
  frame.storages.push_back({planned, {}});
  frame.names[value.index] = name;
  return name;
}

void StoragePlanner::note(PlanSite &site) {
  llvm::SmallVector<ValueId, 2> written;
  auto note = [&](const ir::Operand &operand) {
    if (operand.mut && operand.is_value())
      written.push_back(operand.as_value());
  };
  for (const ir::Operand &operand : program_.operand_lists[site.inst.operands]) {
    note(operand);
    if (operand.form == ir::Operand::Form::List)
      for (const ir::Operand &member : program_.operand_lists[operand.as_list()]) {
        note(member);
        if (operand.mut && member.is_value())
          written.push_back(member.as_value());
      }
  }
  bool replaces = rules::writes_first(site.op.boundary);
  for (unsigned r = 0; r < site.inst.result_count; ++r) {
    ValueId result = site.inst.result(r);
    ValueId base = program_.values[result].alias_of;
    auto made = site.frame.values.find(result.index);
    if (!base.valid() || site.op.boundary == rules::Boundary::Alias ||
        made == site.frame.values.end())
      continue;
    auto old = site.frame.values.find(base.index);
    if (old == site.frame.values.end())
      continue;
    StorageName name = name_of(site.frame, base, old->second);
    bool views = site.values.size() == 1 && !llvm::is_contained(written, base) && !replaces;
    if (views && site.op.form == rules::OpForm::Equation)
      name.views.push_back({site.id, r});
    else if (!views)
      site.frame.storages[name.storage].written.push_back({name, made->second});
    site.frame.names[result.index] = std::move(name);
  }
}

// Views again, of other content.
llvm::Expected<BufferId> StoragePlanner::replay(PlanFrame &frame, BufferId base,
                                                llvm::ArrayRef<StorageView> views) {
  for (StorageView view : views) {
    const ir::Inst inst = program_.insts[view.inst];
    PlanSite site{frame, view.inst, inst, rules_.resolve(inst.op), {}, {}, {}, {}};
    site.operands.read(program_, inst.operands);
    llvm::Expected<PlannedId> operand = values_.find(frame, site.operands.values[0]);
    if (!operand)
      return operand.takeError();
    PlannedValue value = plan_.values[*operand];
    value.value = {};
    value.buffer = base;
    PlannedId replaced = plan_.values.add(value);
    llvm::Expected<llvm::SmallVector<BufferId, 2>> made =
        equations_.compute(site, {replaced}, plan_.buffers[base].dtype);
    if (!made)
      return made.takeError();
    base = (*made)[view.result];
  }
  return base;
}

// All of a storage, with what was written through views.
llvm::Expected<PlannedId> StoragePlanner::content_of(PlanFrame &frame, uint32_t id) {
  std::vector<PlannedStorage::Written> written = std::move(frame.storages[id].written);
  frame.storages[id].written.clear();
  for (const PlannedStorage::Written &each : written) {
    if (each.name.views.empty()) {
      frame.storages[id].content = each.value;
      continue;
    }
    PlannedValue content = plan_.values[frame.storages[id].content];
    BufferId all = content.buffer;
    ir::MeshId mesh = plan_.buffers[all].mesh;
    LocalStep count{LocalStepForm::Count};
    count.result = builder_.buffer(ir::DType::I64, mesh, builder_.dims_of_buffer(all));
    BufferId numbered = count.result;
    builder_.local_step(std::move(count), mesh);
    llvm::Expected<BufferId> seen = replay(frame, numbered, each.name.views);
    if (!seen)
      return seen.takeError();
    if (builder_.dims_of_buffer(*seen) != builder_.dims_of_buffer(plan_.values[each.value].buffer))
      return make_error("what was written through a view has other extents than the view");
    LocalStep made{LocalStepForm::Overwrite};
    made.operands = builder_.uses_of({all, *seen, plan_.values[each.value].buffer});
    made.result = builder_.buffer_like(all, builder_.dims_of_buffer(all));
    content.value = {};
    content.buffer = made.result;
    builder_.local_step(std::move(made), mesh);
    frame.storages[id].content = plan_.values.add(content);
  }
  return frame.storages[id].content;
}

llvm::Error StoragePlanner::alias(PlanSite &site) {
  if (site.values.size() < 2)
    return values_.define_result(site, 0, plan_.values[site.values[0]].buffer);
  PlanFrame &frame = site.frame;
  StorageName name = name_of(frame, site.operands.values[0], site.values[0]);
  StorageName old = name_of(frame, site.operands.values[1], site.values[1]);
  if (name.storage != old.storage)
    return make_error(fmt::format("{} and {} do not share storage",
                                  values_.who(frame, site.operands.values[0]),
                                  values_.who(frame, site.operands.values[1])));
  llvm::Expected<PlannedId> content = content_of(frame, old.storage);
  if (!content)
    return content.takeError();
  llvm::Expected<BufferId> seen = replay(frame, plan_.values[*content].buffer, old.views);
  if (!seen)
    return seen.takeError();
  if (llvm::Error error = values_.define_result(site, 0, *seen))
    return error;
  frame.names[site.inst.result(0).index] = std::move(old);
  return llvm::Error::success();
}

} // namespace spmd::runtime
