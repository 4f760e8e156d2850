// Extents of results, and the steps that compute them.
#include "runtime/plan/planner/equations.h"

#include "runtime/plan/row_dims.h"

#include "ir/support/arrays.h"
#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

static bool is_stated(const ir::Shape &shape) {
  return shape.ranked && llvm::all_of(shape.dims, [](ir::Extent e) { return e.is_number(); });
}

// The type says how blocks are cut, unless an operand is not cut as its type says: then extents are
// inferred from those of the operands.
llvm::Expected<RankDims>
EquationPlanner::result_dims(PlanSite &site, llvm::ArrayRef<PlannedId> values, unsigned result) {
  rules::TensorInfo known = checked_.known(site.inst.result(result), site.frame.typing);
  std::string name = values_.who(site.frame, site.inst.result(result));
  ir::MeshId mesh = site.mesh(program_);
  bool regular =
      known.shape.valid() && known.type.valid() && is_stated(program_.shapes[known.shape]);
  bool even = true;
  for (PlannedId value : values) {
    const PlannedValue &operand = plan_.values[value];
    const Buffer &buffer = plan_.buffers[operand.buffer];
    regular &= operand.place.valid() || buffer.dims.size() == 1;
    even &= buffer.dims.size() == 1;
  }
  if (regular) {
    llvm::Expected<Placement> place = Placement::make(program_, world_, known, name);
    if (!place)
      return place.takeError();
    if (place->even() && even)
      return RankDims{place->block(world_, world_.ranks(place->mesh())[0]).dims};
    if (!place->even())
      return builder_.map_dims(place->mesh(), [&](RankId rank) -> llvm::Expected<Dims> {
        return place->block(world_, rank).dims;
      });
  }
  // Ranks whose operands have equal extents have equal results.
  llvm::SmallVector<std::pair<RankId, Dims>, 4> classes;
  return builder_.map_dims(mesh, [&](RankId rank) -> llvm::Expected<Dims> {
    for (const auto &each : classes)
      if (llvm::all_of(values, [&](PlannedId value) {
            const Buffer &buffer = plan_.buffers[plan_.values[value].buffer];
            return buffer.on(rank) == buffer.on(each.first);
          }))
        return each.second;
    llvm::Expected<Dims> dims = inferred_dims(site, values, result, rank);
    if (dims)
      classes.push_back({rank, *dims});
    return dims;
  });
}

// By shapes alone; or as the type says, where the rank that it speaks of has such operands.
llvm::Expected<Dims> EquationPlanner::inferred_dims(PlanSite &site,
                                                    llvm::ArrayRef<PlannedId> values,
                                                    unsigned result, RankId rank) {
  llvm::SmallVector<TensorForm, 4> forms;
  for (PlannedId value : values) {
    const Buffer &buffer = plan_.buffers[plan_.values[value].buffer];
    forms.push_back({buffer.dtype, buffer.on(rank)});
  }
  if (std::optional<Dims> dims = row_dims(program_, site.application(program_), forms, result))
    return std::move(*dims);
  rules::TensorInfo known = checked_.known(site.inst.result(result), site.frame.typing);
  std::string name = values_.who(site.frame, site.inst.result(result));
  bool first = llvm::all_of(values, [&](PlannedId value) {
    const PlannedValue &operand = plan_.values[value];
    llvm::Expected<Dims> stated = dims_of(program_, operand.known.shape, name);
    if (!stated)
      llvm::consumeError(stated.takeError());
    return stated && *stated == plan_.buffers[operand.buffer].on(rank);
  });
  if (first && known.shape.valid())
    return dims_of(program_, known.shape, name);
  return make_error(fmt::format("the extents of {} on rank {} do not follow: state them", name,
                                world_.number(rank)));
}

llvm::Expected<llvm::SmallVector<BufferId, 2>>
EquationPlanner::compute(PlanSite &site, llvm::ArrayRef<PlannedId> values, ir::DType dtype) {
  Compute made;
  made.op = site.inst.op;
  made.attrs = site.inst.attrs;
  made.slots = {static_cast<uint32_t>(plan_.slots.size()),
                static_cast<uint32_t>(site.operands.slots.size())};
  plan_.slots.insert(plan_.slots.end(), site.operands.slots.begin(), site.operands.slots.end());
  made.call = site.frame.call;
  made.inst = drawn_by(program_, site.id);
  llvm::SmallVector<Use, 4> args, results;
  for (PlannedId value : values)
    args.push_back({plan_.values[value].buffer, plan_.values[value].place});
  llvm::SmallVector<BufferId, 2> buffers;
  ir::MeshId mesh = site.mesh(program_);
  for (unsigned r = 0; r < site.inst.result_count; ++r) {
    rules::TensorInfo known = checked_.known(site.inst.result(r), site.frame.typing);
    llvm::Expected<RankDims> dims = result_dims(site, values, r);
    if (!dims)
      return dims.takeError();
    ir::DType own = dtype == ir::DType::Unknown ? builder_.dtype_of(known) : dtype;
    if (own == ir::DType::Unknown)
      return make_error(fmt::format("the element type of {} is not known",
                                    values_.who(site.frame, site.inst.result(r))));
    buffers.push_back(builder_.buffer(own, mesh, std::move(*dims)));
    results.push_back({buffers.back(), builder_.place_of(known, plan_.buffers[buffers.back()])});
    if (r == 0 && known.type.valid() && program_.types[known.type].mesh() == mesh)
      for (ir::AxisId axis : per_rank_axes(program_.types[known.type]))
        made.own_draws.push_back(axis);
  }
  made.operands = builder_.uses(args);
  made.results = builder_.uses(results);
  plan_.computes.push_back(std::move(made));
  builder_.step(StepForm::Compute, plan_.computes.size() - 1, mesh);
  return buffers;
}

BufferId EquationPlanner::op(llvm::StringRef name, llvm::ArrayRef<rules::Slot> slots,
                             llvm::ArrayRef<BufferId> operands, ir::DType dtype, RankDims dims) {
  Compute made;
  made.op = ir::OpNameId{program_.strings.add(name).index};
  made.attrs = program_.no_attrs();
  made.slots = {static_cast<uint32_t>(plan_.slots.size()), static_cast<uint32_t>(slots.size())};
  plan_.slots.insert(plan_.slots.end(), slots.begin(), slots.end());
  ir::MeshId mesh = plan_.buffers[operands[0]].mesh;
  BufferId result = builder_.buffer(dtype, mesh, std::move(dims));
  made.operands = builder_.uses_of(operands);
  made.results = builder_.uses_of(result);
  plan_.computes.push_back(std::move(made));
  builder_.step(StepForm::Compute, plan_.computes.size() - 1, mesh);
  return result;
}

BufferId EquationPlanner::op(llvm::StringRef name, llvm::ArrayRef<BufferId> operands,
                             ir::DType dtype, RankDims dims) {
  llvm::SmallVector<rules::Slot, 2> slots;
  for (uint32_t i = 0; i < operands.size(); ++i)
    slots.push_back({rules::Slot::Form::Tensor, i, 1, {}, {}});
  return op(name, slots, operands, dtype, std::move(dims));
}

llvm::Error EquationPlanner::plan(PlanSite &site) {
  llvm::Expected<llvm::SmallVector<BufferId, 2>> made = compute(site, site.values);
  if (!made)
    return made.takeError();
  for (unsigned r = 0; r < made->size(); ++r)
    if (llvm::Error error = values_.define_result(site, r, (*made)[r]))
      return error;
  return llvm::Error::success();
}

} // namespace spmd::runtime
