// One row per call. What autograd sees has a backward of its own, which must be the dual of the
// transition; `torch.distributed` itself is for values without gradients.
#include "checker/fix/calls.h"

#include "checker/definitions.h"
#include "checker/walk/gradients/search.h"

#include "ir/support/strings.h"
#include "rules/transitions/axes.h"
#include "rules/violations/gradients.h"
#include "rules/violations/steps/returned.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

using ir::Kind;
using rules::TransitionOp;

// What a rank has before and after: an addend, the same as all (R or I), a block.
enum class Has : uint8_t { P, R, I, S };

struct CallRow {
  TransitionOp op;
  Has before, after;
  bool differentiable;
  TorchCall::Form form;
  // {0}: the tensor; {1}: `, group=tp_group`, or nothing; {2}: the dimension of blocks; {3}: the
  // group itself; {4}: the axis.
  std::string_view text;
};
using Form = TorchCall::Form;
// PyTorch has no word for what Megatron-LM calls its mappings: a forward with another backward.
constexpr CallRow kTorch[] = {
    {TransitionOp::AllReduce, Has::P, Has::R, true, Form::Expression,
     "torch.distributed.nn.functional.all_reduce({0}{1})"},
    {TransitionOp::AllReduce, Has::P, Has::I, true, Form::Described,
     "an autograd.Function that sums {0} over {4} forward and passes its gradient on backward "
     "(reduce_from_tensor_model_parallel_region in Megatron-LM)"},
    {TransitionOp::AllReduce, Has::P, Has::R, false, Form::Statement, "dist.all_reduce({0}{1})"},
    {TransitionOp::AllReduce, Has::P, Has::I, false, Form::Statement, "dist.all_reduce({0}{1})"},
    {TransitionOp::Convert, Has::I, Has::R, true, Form::Described,
     "an autograd.Function that returns {0} forward and sums its gradient over {4} backward "
     "(copy_to_tensor_model_parallel_region in Megatron-LM)"},
    {TransitionOp::Convert, Has::I, Has::S, true, Form::Described,
     "an autograd.Function that takes the rank's block of {0} along dimension {2} forward and "
     "gathers its gradient over {4} backward (scatter_to_tensor_model_parallel_region in "
     "Megatron-LM)"},
    {TransitionOp::Convert, Has::R, Has::S, true, Form::Expression,
     "torch.chunk({0}, dist.get_world_size({3}), dim={2})[dist.get_rank({3})]"},
    {TransitionOp::Convert, Has::R, Has::S, false, Form::Expression,
     "torch.chunk({0}, dist.get_world_size({3}), dim={2})[dist.get_rank({3})]"},
    {TransitionOp::AllGather, Has::S, Has::R, true, Form::Expression,
     "torch.cat(torch.distributed.nn.functional.all_gather({0}{1}), dim={2})"},
    {TransitionOp::AllGather, Has::S, Has::I, true, Form::Described,
     "an autograd.Function that gathers {0} along dimension {2} over {4} forward and takes the "
     "rank's block of its gradient backward (gather_from_tensor_model_parallel_region in "
     "Megatron-LM)"},
    {TransitionOp::ReduceScatter, Has::P, Has::S, true, Form::Expression,
     "torch.distributed._functional_collectives.reduce_scatter_tensor_autograd({0}, \"sum\", {2}, "
     "{3})"},
    {TransitionOp::ReduceScatter, Has::P, Has::S, false, Form::Expression,
     "torch.distributed._functional_collectives.reduce_scatter_tensor({0}, \"sum\", {2}, {3})"},
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
  return is_forward(program.insts[fix.inst]);
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

std::optional<Has> has_on(const ir::Type &type, ir::AxisId axis) {
  const std::optional<Kind> kind = type.kind(axis);
  if (kind == Kind::Partial)
    return type.combiner(axis) == ir::Combiner::Sum ? std::optional(Has::P) : std::nullopt;
  if (kind == Kind::Varying)
    return type.dim(axis) ? std::optional(Has::S) : std::nullopt;
  if (kind == Kind::Replicate)
    return Has::R;
  return kind == Kind::Invariant ? std::optional(Has::I) : std::nullopt;
}

// Of a parameter that one instruction of the forward reads all of the gradient comes from there.
bool is_read_once(const ir::Program &program, ir::ValueId value) {
  const ir::Param *param = program.find_param(value);
  if (!param || param->role != ir::Role::Param)
    return false;
  unsigned readers = 0;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
    if (is_forward(program.insts[ir::InstId{i}]))
      readers += llvm::is_contained(tensors_of(program, ir::InstId{i}), value);
  return readers == 1;
}

} // namespace

std::optional<TorchCall> torch_call(const ir::Program &program, const Fix &fix,
                                    std::string_view tensor) {
  const bool alone = fix.remark.empty() || fix.dual_too;
  if (fix.steps.size() != 1 || !alone || fix.changes_value || !is_of_torch(program))
    return std::nullopt;
  const FixStep &step = fix.steps.front();
  if (!step.before.type.valid() || !step.after.type.valid())
    return std::nullopt;
  const ir::Type &before = program.types[step.before.type], &after = program.types[step.after.type];
  const std::optional<ir::AxisId> axis = changed_axis(before, after);
  const auto from = axis ? has_on(before, *axis) : std::nullopt,
             to = axis ? has_on(after, *axis) : std::nullopt;
  const bool differentiable = fix.dual_too || has_gradient(program, fix);
  const auto *row = llvm::find_if(kTorch, [&](const CallRow &each) {
    return each.op == step.op && each.before == from && each.after == to &&
           each.differentiable == differentiable;
  });
  if (row == std::end(kTorch))
    return std::nullopt;
  const ir::Mesh &mesh = program.meshes[before.mesh()];
  const bool all = rules::size_of(mesh, *axis) == program.world.value_or(0);
  const std::string name = program.strings[mesh[*axis].name].str(),
                    group = all ? "dist.group.WORLD" : name + "_group";
  const std::string argument = all ? "" : ", group=" + group;
  if (step.op == TransitionOp::Convert && to == Has::R && row->differentiable && from == Has::I &&
      is_read_once(program, step.value))
    return TorchCall{Form::AfterBackward, fmt::format("dist.all_reduce(p.grad{})", argument)};
  const unsigned dim = before.dim(*axis).value_or(after.dim(*axis).value_or(0));
  return TorchCall{row->form,
                   fmt::format(fmt::runtime(row->text), tensor, argument, dim, group, name)};
}

// `, group=tp_group`; nothing where the axes are all of the job.
static std::string group_argument(const ir::Program &program, ir::ValueId value, ir::AxisSet axes) {
  const ir::MeshId id = program.values[value].mesh.valid()
                            ? program.values[value].mesh
                            : program.contexts[ir::ContextId{0}].mesh;
  const ir::Mesh &mesh = program.meshes[id];
  int64_t ranks = 1;
  std::string names;
  for (ir::AxisId axis : axes) {
    ranks *= rules::size_of(mesh, axis);
    names += program.strings[mesh[axis].name].str() + "_";
  }
  return axes.empty() || ranks == program.world.value_or(0) ? ""
                                                            : fmt::format(", group={}group", names);
}

std::string torch_hint(const ir::Program &program, const Finding &finding) {
  if (!is_of_torch(program))
    return "";
  constexpr std::string_view kReduce = "dist.all_reduce({}, op=dist.ReduceOp.AVG{}) ";
  if (const auto *drift = finding.violation.as<rules::CopiesDrift>()) {
    const ir::Param *param = program.find_param(drift->value);
    const std::string group = group_argument(program, drift->value, drift->axes);
    if (param && param->role == ir::Role::Buffer)
      return "in PyTorch, " + fmt::format(kReduce, "b", group) +
             "where the buffer b has been written, if it is to be one on all ranks";
    return "in PyTorch, " + fmt::format(kReduce, "p.grad", group) +
           "between the backward and the step of the optimizer, if nothing sums it (SUM where the "
           "loss is divided by the ranks already), where p is the parameter";
  }
  if (const auto *differ = finding.violation.as<rules::CopiesDiffer>())
    return fmt::format(
        "in PyTorch, dist.broadcast(p.data{}, group_src=0) before the first step, or "
        "one seed on all ranks where the parameter p is made",
        group_argument(program, differ->value, differ->axes));
  if (finding.violation.is<rules::TiedCopiesDrift>())
    return "in PyTorch, dist.all_reduce(p.grad, group=embedding_group) on the stages that have a "
           "copy, between the backward and the step of the optimizer";
  return "";
}

} // namespace spmd::checker
