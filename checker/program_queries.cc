// Looks up instructions by the values that they make, and the tensors and axes that they take.
#include "checker/program_queries.h"

#include "ir/claims.h"
#include "rules/ops/registry.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::ValueId;

namespace {

InstId defining_in(const ir::Program &program, const ir::Body &body, ValueId value) {
  uint32_t low = body.first.index, high = body.last.index;
  while (low < high) {
    const uint32_t half = low + (high - low) / 2;
    uint32_t middle = half;
    while (middle < high && program.insts[InstId{middle}].result_count == 0)
      ++middle; // which has no place among the values
    if (middle == high) {
      high = half;
      continue;
    }
    const ir::Inst &inst = program.insts[InstId{middle}];
    if (value.index < inst.first_result.index)
      high = half;
    else if (value.index >= inst.first_result.index + inst.result_count)
      low = middle + 1;
    else
      return InstId{middle};
  }
  return {};
}

// How far ahead a sum is looked for, in instructions; a layer is far shorter.
constexpr uint32_t kSumHorizon = 256;

void collect(const ir::Program &program, ir::OperandsId block,
             llvm::SmallVectorImpl<ValueId> &out) {
  for (const ir::Operand &operand : program.operand_lists[block]) {
    if (operand.is_value())
      out.push_back(operand.as_value());
    else if (operand.form == ir::Operand::Form::List)
      collect(program, operand.as_list(), out);
  }
}

// True if an operand may end up as an addend of the result: the op is no plain product.
bool adds(const rules::ResolvedOp &op) {
  if (op.form != rules::OpForm::Equation)
    return false;
  const rules::Equation &equation = op.row->equation.equation;
  return equation.term_count != 1 || equation.terms[0].atom_count < 2;
}

// True if addends of an operand are addends of the result, and it is not just looked at.
bool passes_addends(const rules::ResolvedOp &op) {
  if (op.form != rules::OpForm::Equation || op.row->equation.equation.has_function)
    return false;
  const rules::Equation &equation = op.row->equation.equation;
  return llvm::any_of(llvm::ArrayRef(equation.refs.data(), equation.ref_count),
                      [](const rules::Ref &ref) { return ref.role == rules::RefRole::Value; });
}

} // namespace

InstId defining_inst(const ir::Program &program, ValueId value) {
  InstId found = defining_in(program, program.main, value);
  for (const ir::Function &function : program.functions) {
    if (found.valid())
      break;
    if (!function.opaque)
      found = defining_in(program, function.body, value);
  }
  return found;
}

// Axes are those of their layout, on whichever mesh they are named.
bool runs_over(const ir::Program &program, InstId id, AxisSet axes) {
  const ir::Inst &inst = program.insts[id];
  const ir::MeshId mesh_id = program.contexts[inst.context].mesh;
  const ir::Mesh &mesh = program.meshes[mesh_id];
  auto meets = [&](llvm::ArrayRef<ir::Atom> layout) {
    auto found = ir::axes_of_layout(mesh, layout);
    return found && llvm::any_of(*found, [&](AxisId axis) { return axes.contains(axis); });
  };
  if (const ir::AttrValue *axis = program.find(inst.attrs, "axis");
      axis && axis->form == ir::AttrForm::Axes)
    return llvm::any_of(program.axis_refs[axis->as<ir::AxisRefsId>()].refs,
                        [&](const ir::AxisRef &ref) {
                          std::string unknown;
                          auto found = find_axis(program, mesh_id, ref, unknown);
                          return found && meets(program.meshes[found->mesh][found->axis].layout);
                        });
  const ir::AttrValue *key = program.find(inst.attrs, "group");
  for (const ir::Group &group : program.groups) {
    if (!key || key->form != ir::AttrForm::String || group.key != key->as<ir::StringId>())
      continue;
    if (group.form == ir::Group::Form::Axes)
      return meets(ir::layout_of_axes(program.meshes[group.mesh], group.axes));
    std::optional<ir::Layout> listed =
        group.form == ir::Group::Form::Ranks ? ir::layout_of(group.ranks) : group.layout;
    return listed && meets(*listed);
  }
  return false;
}

ir::ValueId storage_of(const ir::Program &program, ir::ValueId value) {
  while (program.values[value].alias_of.valid())
    value = program.values[value].alias_of;
  return value;
}

llvm::SmallVector<ValueId, 4> tensors_of(const ir::Program &program, InstId inst) {
  llvm::SmallVector<ValueId, 4> tensors;
  collect(program, program.insts[inst].operands, tensors);
  return tensors;
}

InstId reducing_collective_of(const ir::Program &program, InstId from, AxisSet axes) {
  if (!adds(rules::resolve_op(program, program.insts[from].op)))
    return {};
  llvm::DenseSet<uint32_t> reached;
  auto mark = [&](const ir::Inst &inst) {
    for (uint32_t r = 0; r < inst.result_count; ++r)
      reached.insert(inst.result(r).index);
  };
  mark(program.insts[from]);
  ir::Phase phase = program.insts[from].phase;
  uint32_t last = std::min<uint32_t>(program.insts.size(), from.index + kSumHorizon);
  for (uint32_t i = from.index + 1; i < last; ++i) {
    const ir::Inst &inst = program.insts[InstId{i}];
    if (inst.phase != phase || llvm::none_of(tensors_of(program, InstId{i}), [&](ValueId value) {
          return reached.count(value.index);
        }))
      continue;
    rules::ResolvedOp op = rules::resolve_op(program, inst.op);
    if (passes_addends(op))
      mark(inst);
    else if (op.transition == rules::TransitionOp::AllReduce ||
             op.transition == rules::TransitionOp::ReduceScatter)
      if (runs_over(program, InstId{i}, axes))
        return InstId{i};
  }
  return {};
}

ValueId only_source(const ir::Program &program, ValueId value) {
  const InstId by = defining_inst(program, value);
  const llvm::SmallVector<ValueId, 4> from =
      by.valid() ? tensors_of(program, by) : llvm::SmallVector<ValueId, 4>();
  return from.size() == 1 ? from[0] : ValueId();
}

std::optional<int64_t> extent_of(const ir::Program &program, ir::ShapeId shape, unsigned dim) {
  if (dim >= dimension_count(program, shape))
    return std::nullopt;
  const ir::Extent &extent = program.shapes[shape].dims[dim];
  return extent.is_number() ? std::optional(extent.number()) : std::nullopt;
}

size_t dimension_count(const ir::Program &program, ir::ShapeId shape) {
  return shape.valid() && program.shapes[shape].ranked ? program.shapes[shape].dims.size() : 0;
}

bool is_scalar(const ir::Program &program, ir::ShapeId shape) {
  return shape.valid() && program.shapes[shape].ranked && program.shapes[shape].dims.empty();
}

} // namespace spmd::checker
