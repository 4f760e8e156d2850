// Finds parameters of which ranks have different values, and what brings these together or keeps
// them apart.
#include "checker/gradual/copies.h"

#include "checker/operand_list.h"
#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/shards/remesh.h"
#include "rules/violations/gradients.h"

#include "ir/claims.h"

#include "llvm/ADT/DenseSet.h"

#include <map>

namespace spmd::checker {

using ir::AxisSet;
using ir::Kind;
using ir::Type;
using ir::ValueId;

// The optimizer is promised a gradient that is equal on all ranks, for a parameter that differs and
// is no block of anything.
Copies::Copies(ir::Program &program) {
  for (uint32_t i = 0; i < program.params.size(); ++i) {
    const ir::Param &param = program.params[i];
    ir::Value &value = program.values[param.value];
    if (param.role != ir::Role::Param || !value.declared.valid() || !param.grad.step.valid())
      continue;
    const ir::TypeId promised = program.claims[param.grad.step].type;
    Type type = program.types[value.declared];
    if (!promised.valid() || program.types[promised].mesh() != type.mesh())
      continue;
    const Type &step = program.types[promised];
    const AxisSet loose = type.of(Kind::Varying) - type.sharded();
    AxisSet axes;
    for (Kind kind : {Kind::Replicate, Kind::Invariant}) {
      const AxisSet equal = loose & step.of(kind);
      type.set_kind(equal, kind);
      axes |= equal;
    }
    if (!axes)
      continue;
    declared_.push_back({param.value, value.declared});
    value.declared = program.types.add(type);
    for (uint32_t o = 0; o < program.outputs.size(); ++o) // what the step leaves of it
      if (ir::Output &output = program.outputs[o];
          output.of == param.value && output.declared.valid()) {
        left_.push_back({o, output.declared});
        output.declared = value.declared;
      }
    differing_[param.value.index] = axes;
    findings_.push_back({rules::CopiesDiffer{param.value, axes}, {Place::Form::Param, i}});
  }
}

void Copies::restore(ir::Program &program, CheckResult &result) const {
  for (const auto &[value, type] : declared_)
    result.types[value.index] = program.values[value].declared = type;
  for (const auto &[output, type] : left_)
    program.outputs[output].declared = type;
}

namespace {

// Names of the gradient of each parameter, in program order: what shares its storage with it, also
// after it was added to what was there.
llvm::DenseMap<uint32_t, std::vector<ValueId>> gradients_of(const ir::Program &program) {
  llvm::DenseMap<uint32_t, std::vector<ValueId>> names;
  std::vector<ValueId> whose(program.values.size());
  for (uint32_t i = 0; i < program.values.size(); ++i) {
    const ir::Value &value = program.values[ValueId{i}];
    if (value.grad_of.valid())
      whose[i] = value.grad_of;
    else if (value.alias_of.valid() && value.alias_of.index < i)
      whose[i] = whose[value.alias_of.index];
    if (!whose[i].valid())
      if (const ir::InstId by = defining_inst(program, ValueId{i});
          by.valid() && accumulates(program, by))
        for (ValueId operand : tensors_of(program, by))
          whose[i] = whose[i].valid() ? whose[i] : whose[operand.index];
    if (whose[i].valid())
      names[whose[i].index].push_back(ValueId{i});
  }
  return names;
}

// The axes of a mesh on which all ranks have the same value.
AxisSet equal_on(const ir::Program &program, const CheckResult &checked, ValueId value,
                 ir::MeshId mesh) {
  const ir::TypeId id = checked.types[value.index];
  if (!id.valid() || program.types[id].mesh() != mesh)
    return {};
  return program.types[id].same_on_all_ranks();
}

// The axes that cut no dimension of the value.
AxisSet uncut(const Cuts &cuts, ValueId value, AxisSet axes) {
  AxisSet left = axes;
  for (ir::AxisId axis : axes)
    if (cuts.dim(value, axis))
      left -= axis;
  return left;
}

} // namespace

void Copies::differ(const ir::Program &program, ValueId param, AxisSet axes, ir::InstId at) {
  if (!axes)
    return;
  differing_[param.index] |= axes;
  declared_.push_back({param, program.values[param].declared});
  findings_.push_back({rules::CopiesDiffer{param, axes}, Place::inst(at)});
}

// Parameters without a gradient, such as moving averages, that are written with what is equal on
// all ranks.
void Copies::find_averages(const ir::Program &program, const CheckResult &checked,
                           const Cuts &cuts) {
  struct Written {
    AxisSet axes = ~AxisSet(); // on which all else that enters is equal
    ir::InstId last;
  };
  llvm::DenseMap<uint32_t, Written> written; // by parameter
  std::vector<ValueId> roots(program.values.size());
  for (uint32_t i = 0; i < program.values.size(); ++i)
    if (const ValueId of = program.values[ValueId{i}].alias_of; of.valid() && of.index < i)
      roots[i] = roots[of.index].valid() ? roots[of.index] : of;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    if (inst.phase != ir::Phase::Optimizer || inst.result_count != 1)
      continue;
    const ValueId target = roots[inst.result(0).index];
    for (ValueId operand : tensors_of(program, ir::InstId{i}))
      if (target.valid() && operand != target && roots[operand.index] != target) {
        Written &known = written[target.index];
        known.axes &=
            equal_on(program, checked, operand, program.types[checked.types[target.index]].mesh());
        known.last = ir::InstId{i};
      }
  }
  for (const ir::Param &param : program.params) {
    const auto at = written.find(param.value.index);
    if (param.role != ir::Role::Param || at == written.end() ||
        program.values[param.value].requires_grad != ir::Tristate::False)
      continue;
    const Type &type = program.types[checked.types[param.value.index]];
    const AxisSet axes = type.of(Kind::Varying) & at->second.axes;
    differ(program, param.value, uncut(cuts, param.value, axes), at->second.last);
  }
}

// Buffers that a forward reads and nothing writes, and that are no blocks of anything.
void Copies::find_constants(const ir::Program &program, const CheckResult &checked,
                            const Cuts &cuts) {
  std::map<uint32_t, Finding> found; // by value
  for (uint32_t i = 0; i < program.params.size(); ++i) {
    const ir::Param &param = program.params[i];
    const ir::ShapeId shape = checked.shapes[param.value.index];
    if (param.role != ir::Role::Buffer || !shape.valid() || program.shapes[shape].dims.empty() ||
        !ir::differentiable(program.shapes[shape].dtype))
      continue;
    const Type &type = program.types[checked.types[param.value.index]];
    const AxisSet seen = rules::axes_of(program, param.observed, type.mesh()) -
                         rules::axes_of(program, param.drifted, type.mesh());
    AxisSet axes;
    for (ir::AxisId axis : type.of(Kind::Varying) & seen)
      if (cuts.has_drifted(param.value, axis))
        axes |= axis;
    if (axes)
      found.insert({param.value.index,
                    {rules::BuffersDiffer{param.value, axes}, Place{Place::Form::Param, i}}});
  }
  if (found.empty())
    return;
  llvm::DenseSet<uint32_t> read;
  OperandList operands;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    operands.read(program, inst.operands);
    for (size_t k = 0; k < operands.values.size(); ++k) {
      const uint32_t storage = storage_of(program, operands.values[k]).index;
      if (operands.written[k])
        found.erase(storage);
      else if (is_forward(inst))
        read.insert(storage);
    }
  }
  for (auto &[value, finding] : found)
    if (read.contains(value))
      findings_.push_back(std::move(finding));
}

// The place is where the gradient becomes equal on all ranks.
void Copies::find_updated_equally(const ir::Program &program, const CheckResult &checked,
                                  const Cuts &cuts) {
  find_averages(program, checked, cuts);
  find_constants(program, checked, cuts);
  const auto gradients = gradients_of(program);
  for (const ir::Param &param : program.params) {
    const auto names = gradients.find(param.value.index);
    if (param.role != ir::Role::Param || names == gradients.end())
      continue;
    const Type &type = program.types[checked.types[param.value.index]];
    const AxisSet axes = uncut(
        cuts, param.value,
        (type.of(Kind::Varying) & equal_on(program, checked, names->second.back(), type.mesh())) -
            equal_on(program, checked, names->second.front(), type.mesh()));
    auto first = llvm::find_if(names->second, [&](ValueId name) {
      return !(equal_on(program, checked, name, type.mesh()) & axes).empty();
    });
    if (first != names->second.end())
      differ(program, param.value, axes, defining_inst(program, *first));
  }
}

} // namespace spmd::checker
