// One row per call. What autograd sees has a backward of its own, which must be the dual of the
// transition; `torch.distributed` itself is for values without gradients.
#include "checker/fix/calls.h"

#include "ir/support/strings.h"
#include "ir/text/text.h"
#include "rules/transitions/axes.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

using ir::Kind;
using rules::TransitionOp;

struct CallRow {
  TransitionOp op;
  Kind src, dst;
  bool differentiable;
  std::string_view text; // {0}: the tensor; {1}: `, group=tp_group`, or nothing
};
constexpr CallRow kTorch[] = {
    {TransitionOp::AllReduce, Kind::Partial, Kind::Replicate, true,
     "torch.distributed.nn.functional.all_reduce({0}{1})"},
    {TransitionOp::AllReduce, Kind::Partial, Kind::Replicate, false, "dist.all_reduce({0}{1})"},
    {TransitionOp::AllReduce, Kind::Partial, Kind::Invariant, false, "dist.all_reduce({0}{1})"},
};
constexpr std::string_view kTorchFrameworks[] = {"torch", "megatron-core", "torchtitan"};

bool is_of_torch(const ir::Program &program) {
  ir::StringId framework = program.producer.framework;
  return framework.valid() && llvm::any_of(kTorchFrameworks, [&](std::string_view name) {
           return ir::starts_with(program.strings[framework], {name.data(), name.size()});
         });
}

// The backward and the optimizer are recorded as they ran: nothing derives them again.
bool has_gradient(const ir::Program &program, const Fix &fix) {
  ir::Phase phase = program.insts[fix.inst].phase;
  return phase == ir::Phase::Unstated || phase == ir::Phase::Forward;
}

// The axis on which the step changes the type; none if these are several.
std::optional<ir::AxisId> changed_axis(const ir::Type &before, const ir::Type &after) {
  std::optional<ir::AxisId> found;
  for (ir::AxisId axis : before.claimed() | after.claimed()) {
    if (before.kind(axis) == after.kind(axis) && before.dim(axis) == after.dim(axis))
      continue;
    if (found)
      return std::nullopt;
    found = axis;
  }
  return found;
}

} // namespace

std::string torch_call(const ir::Program &program, const Fix &fix, std::string_view tensor) {
  if (fix.steps.size() != 1 || !fix.remark.empty() || fix.changes_value || !is_of_torch(program))
    return "";
  const FixStep &step = fix.steps.front();
  if (!step.before.type.valid() || !step.after.type.valid())
    return "";
  const ir::Type &before = program.types[step.before.type], &after = program.types[step.after.type];
  std::optional<ir::AxisId> axis = changed_axis(before, after);
  if (!axis || !before.kind(*axis) || !after.kind(*axis) ||
      (before.kind(*axis) == Kind::Partial && before.combiner(*axis) != ir::Combiner::Sum))
    return "";
  const ir::Mesh &mesh = program.meshes[before.mesh()];
  std::string group;
  if (rules::size_of(mesh, *axis) != program.world.value_or(0))
    group = fmt::format(", group={}_group", program.strings[mesh[*axis].name].str());
  for (const CallRow &row : kTorch)
    if (row.op == step.op && row.src == *before.kind(*axis) && row.dst == *after.kind(*axis) &&
        row.differentiable == has_gradient(program, fix))
      return fmt::format(fmt::runtime(row.text), tensor, group);
  return "";
}

} // namespace spmd::checker
