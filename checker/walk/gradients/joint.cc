// Duals of types, and which forward instruction or parameter a gradient belongs to.
#include "checker/walk/gradients/joint.h"

#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/boundary/claims.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Phase;
using ir::Type;
using ir::ValueId;

AxisSet not_dual(const Type &value, const Type &gradient, AxisSet local) {
  AxisSet known = (value.claimed() - value.unknown - value.either()) &
                  (gradient.claimed() - gradient.unknown - gradient.zero());
  AxisSet equal = gradient.same_on_all_ranks() - (gradient.either() & local);
  AxisSet partial = gradient.of(Kind::Partial), varying = gradient.of(Kind::Varying);
  AxisSet summed = value.of(Kind::Partial) - value.combining();
  AxisSet wrong = value.replicated() & (equal | gradient.sharded() | gradient.combining());
  wrong |= (value.of(Kind::Invariant) | summed) & (partial | varying);
  wrong |= value.of(Kind::Varying) & partial;
  wrong |= value.sharded() & (equal - local);
  for (AxisId axis : value.sharded() & gradient.sharded())
    if (!rules::same_shard(gradient, value, axis))
      wrong |= axis;
  return wrong & known;
}

Type dual_on(const Type &value, AxisSet axes) {
  Type dual = value;
  dual.clear(~axes);
  dual.scale = {};
  dual.set_kind(value.replicated() & axes, Kind::Partial);
  dual.set_kind(value.of(Kind::Partial) & axes, Kind::Replicate);
  return dual;
}

bool equal_by_collective(const ir::Program &program, const CheckResult &result, ValueId value,
                         AxisId axis) {
  auto type = [&](ValueId each) { return program.types[result.types[each.index]]; };
  auto equal = [&](ValueId each) {
    return result.types[each.index].valid() && type(each).same_on_all_ranks().contains(axis);
  };
  InstId first = defining_inst(program, value);
  if (!first.valid())
    return false;
  Phase phase = program.insts[first].phase;
  return search(
             program, value,
             [&](InstId inst, ValueId operand) {
               return program.insts[inst].phase == phase && equal(operand);
             },
             [&](ValueId each) {
               InstId inst = defining_inst(program, each);
               if (!inst.valid() || program.insts[inst].phase != phase ||
                   op_of(program, inst).form != rules::OpForm::Transition)
                 return false;
               return llvm::any_of(tensors_of(program, inst),
                                   [&](ValueId operand) { return !equal(operand); });
             })
      .valid();
}

InstId forward_of(const ir::Program &program, InstId backward, AxisSet axes) {
  const ir::Inst &inst = program.insts[backward];
  ValueId value;
  for (uint32_t r = 0; r < inst.result_count && !value.valid(); ++r)
    value = program.values[inst.result(r)].grad_of;
  InstId taker;
  for (uint32_t i = program.main.first.index;
       value.valid() && i < std::min(program.main.last.index, backward.index); ++i) {
    InstId id{i};
    if (!is_forward(program.insts[id]) || !llvm::is_contained(tensors_of(program, id), value))
      continue;
    if (op_of(program, id).form == rules::OpForm::Transition &&
        (axes.empty() || runs_over(program, id, axes)))
      return id;
    if (!taker.valid())
      taker = id;
  }
  InstId stated = inst.bwd_of.valid() ? defining_inst(program, inst.bwd_of) : InstId{};
  return stated.valid() ? stated : taker;
}

ValueId pending_gradient(const ir::Program &program, const CheckResult &result,
                         llvm::ArrayRef<ValueId> values, ValueId param, AxisSet axes) {
  auto pending = [&](ValueId value) {
    if (!result.types[value.index].valid())
      return false;
    const Type &type = program.types[result.types[value.index]];
    return ((type.of(Kind::Varying) | type.of(Kind::Partial)) - type.zero()).contains(axes);
  };
  llvm::SmallVector<ValueId, 4> start;
  llvm::copy_if(values, std::back_inserter(start), pending);
  ValueId found;
  search(
      program, start, [&](InstId, ValueId operand) { return pending(operand); },
      [&](ValueId value) {
        ValueId of = program.values[value].grad_of;
        found = of.valid() ? parameter_behind(program, of) : ValueId{};
        return found.valid() && (!param.valid() || found == param);
      });
  return !param.valid() || found == param ? found : ValueId{};
}

} // namespace spmd::checker
