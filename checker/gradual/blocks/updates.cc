// What reaches a parameter.
#include "checker/gradual/blocks/updates.h"

#include "checker/operand_list.h"
#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/transitions/call.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;

bool Updates::adds_to_kept(const ir::Inst &inst, const rules::ResolvedOp &op) const {
  return inst.result_count == 1 && program_.values[inst.first_result].alias_of.valid() &&
         (op.computes(rules::Computes::Add) || op.computes(rules::Computes::Sub)) &&
         kept_.test(storage_of(program_, inst.first_result).index);
}

// Whether something stands in the program that asks: an addend may be picked or brought together
// with others, a buffer drift, a sum be kept, or a number be added up for a log.
bool Updates::is_asked(rules::Rules &rules) const {
  auto picks = [&](uint32_t i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    if (op.transition == rules::TransitionOp::Broadcast ||
        op.transition == rules::TransitionOp::AllGather || adds_to_kept(inst, op))
      return true;
    if (op.form != rules::OpForm::Transition || !rules::unstated_words(op.transition).reduces)
      return false;
    const ir::AttrValue *by = program_.find(inst.attrs, "op");
    const auto combiner = by ? rules::combiner_of(program_, *by) : std::nullopt;
    const ir::ShapeId shape =
        inst.result_count ? program_.values[inst.first_result].shape : ir::ShapeId();
    if (inst.phase == ir::Phase::Optimizer && shape.valid() && program_.shapes[shape].dims.empty())
      return true;
    return combiner == ir::Combiner::Max || combiner == ir::Combiner::Min;
  };
  return llvm::any_of(program_.params, [](const auto &each) { return each.drifted.valid(); }) ||
         llvm::any_of(llvm::seq(program_.main.first.index, program_.main.last.index), picks);
}

Updates::Updates(ir::Program &program)
    : program_(program), kept_(program.values.size()), made_of_(program.values.size()),
      read_(program.values.size()), in_turn_(program.values.size()) {
  rules::Rules rules(program);
  for (const ir::Param &param : program.params)
    if (param.role == ir::Role::Input || param.role == ir::Role::Buffer)
      kept_.set(param.value.index);
  if (!is_asked(rules))
    return;
  for (const ir::Output &output : program.outputs) {
    const ir::Param *param = output.of.valid() ? program.find_param(output.of) : nullptr;
    if (param && param->role == ir::Role::Param &&
        (output.role == ir::OutputRole::State || output.role == ir::OutputRole::Grad))
      made_of_.set(output.value.index);
  }
  OperandList operands;
  for (uint32_t i = program.main.last.index; i-- > program.main.first.index;) {
    const ir::Inst &inst = program.insts[InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    const bool decides = op.row && op.row->dtype == rules::DTypeRule::Boolean;
    const bool leaves = inst.result_count == 0 && op.form == rules::OpForm::Boundary &&
                        inst.phase == ir::Phase::Optimizer;
    if (decides || !(leaves || feeds_parameter(InstId{i})))
      continue;
    operands.read(program, inst.operands);
    for (ValueId value : operands.values)
      made_of_.set(value.index);
  }
  find_read(rules);
  find_in_turn(rules);
}

void Updates::find_read(rules::Rules &rules) {
  OperandList operands;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    if (!is_forward(inst) || !feeds_parameter(InstId{i}) ||
        op.variant() == rules::Variant::BatchNorm)
      continue;
    operands.read(program_, inst.operands);
    for (ValueId value : operands.values)
      read_.set(value.index);
  }
}

bool Updates::feeds_parameter(InstId id) const {
  const ir::Inst &inst = program_.insts[id];
  return llvm::any_of(llvm::seq<uint32_t>(0, inst.result_count),
                      [&](uint32_t r) { return made_of_.test(inst.result(r).index); });
}

void Updates::find_in_turn(rules::Rules &rules) {
  llvm::DenseMap<uint32_t, const ir::AttrValue *> roots; // by value
  OperandList operands;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    if (rules.resolve(inst.op).transition != rules::TransitionOp::Broadcast)
      continue;
    const ir::AttrValue *root = program_.find(inst.attrs, "root");
    operands.read(program_, inst.operands);
    for (ValueId value : operands.values)
      if (const auto [known, added] = roots.try_emplace(value.index, root);
          root && known->second && !(*known->second == *root))
        in_turn_.set(value.index);
  }
}

bool Updates::is_tally(InstId id) const {
  const ir::Inst &inst = program_.insts[id];
  return adds_to_kept(inst, op_of(program_, id)) &&
         !read_.test(storage_of(program_, inst.first_result).index);
}

bool Updates::is_broadcast_by_each_owner(InstId broadcast) const {
  return llvm::all_of(tensors_of(program_, broadcast),
                      [&](ValueId value) { return in_turn_.test(value.index); });
}

} // namespace spmd::checker
