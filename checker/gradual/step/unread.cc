// A parameter is read where an instruction of the forward takes it, whatever becomes of that.
#include "checker/gradual/step/unread.h"

#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "llvm/ADT/BitVector.h"

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;

void leave_unread_open(const ir::Program &program, CheckResult &result) {
  llvm::BitVector graded(program.values.size()), read(program.values.size());
  for (const ir::Value &value : program.values.all())
    if (value.grad_of.valid())
      graded.set(value.grad_of.index);
  if (graded.none())
    return;
  for (uint32_t i = 0; i < program.insts.size(); ++i)
    if (is_forward(program.insts[InstId{i}]))
      for (ValueId value : tensors_of(program, InstId{i}))
        read.set(value.index);
  for (const ir::Output &output : program.outputs) {
    const ir::Param *param = output.of.valid() ? program.find_param(output.of) : nullptr;
    if (!param || param->role != ir::Role::Param || !graded.test(output.of.index) ||
        read.test(output.of.index))
      continue;
    result.proved[output.value.index] = {};
    const Place place{Place::Form::Param, static_cast<uint32_t>(param - program.params.data())};
    for (ir::AxisId axis :
         program.meshes[program.types[result.types[output.of.index]].mesh()].typed_axes())
      result.lost.push_back({axis, place});
  }
}

} // namespace spmd::checker
