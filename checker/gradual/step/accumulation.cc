// Looks backward from what the step leaves: which passes reach it, and which numbers are on the
// way.
#include "checker/gradual/step/accumulation.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/operand_list.h"
#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/shapes/attrs.h"
#include "rules/violations/gradients.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;

namespace {

class Accumulation {
public:
  Accumulation(ir::Program &program, CheckResult &result)
      : program_(program), result_(result), rules_(program), needed_(program.values.size()),
        read_(program.values.size()) {}

  void run();

private:
  void need_backward();
  void read_backward();
  bool is_persistent(ValueId value) const;
  bool writes_kept(InstId id);
  bool decides(InstId first, InstId seed);
  bool is_seed(InstId id);
  bool takes_mean(InstId id);
  bool is_mean(ValueId root);
  bool divides_by(int64_t count);
  bool dealt_out(double all, int64_t count) const;
  ValueId root(InstId seed);
  ir::Program &program_;
  CheckResult &result_;
  rules::Rules rules_;
  llvm::BitVector needed_; // values that what the step leaves depends on
  llvm::BitVector read_;   // values on which a number depends that an optimizer looks at
  OperandList operands_;
};

// A name of a storage is needed where a later name is.
void Accumulation::need_backward() {
  for (const ir::Output &output : program_.outputs)
    if (output.role == ir::OutputRole::State || output.role == ir::OutputRole::Grad)
      needed_.set(output.value.index);
  // `step` and `store` leave something without a name, a write in place leaves what it writes.
  add_needed(program_, needed_, [&](InstId id) {
    const ir::Inst &inst = program_.insts[id];
    return writes_kept(id) ||
           (inst.result_count == 0 && rules_.resolve(inst.op).form == rules::OpForm::Boundary);
  });
}

void Accumulation::read_backward() {
  add_needed(program_, read_, [&](InstId id) {
    const ir::Inst &inst = program_.insts[id];
    return inst.phase == ir::Phase::Optimizer && inst.result_count == 0;
  });
}

bool Accumulation::writes_kept(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  bool writes = false;
  for (uint32_t r = 0; r < inst.result_count; ++r)
    writes |= inst.phase == ir::Phase::Optimizer && is_persistent(inst.result(r));
  return writes;
}

// A search along a line, such as that of LBFGS, tries parameters: of a pass it may want no more
// than numbers, by which it goes on. Passes between which nothing is written are addends of one
// gradient.
bool Accumulation::decides(InstId first, InstId seed) {
  if (!read_.test(program_.insts[seed].first_result.index))
    return false;
  for (uint32_t i = first.index; i < seed.index; ++i)
    if (writes_kept(InstId{i}))
      return true;
  return false;
}

// It lies in the storage of a parameter or of its state.
bool Accumulation::is_persistent(ValueId value) const {
  while (program_.values[value].alias_of.valid() &&
         program_.values[value].alias_of.index < value.index)
    value = program_.values[value].alias_of;
  const ir::Param *param = program_.find_param(value);
  return param && (param->role == ir::Role::Param || param->role == ir::Role::OptState);
}

// The loss of a pass. Autograd may hand its gradient on under another name, which then has that of
// the loss: a recorder states what a loss is where a pass begins.
ValueId Accumulation::root(InstId seed) {
  const ir::Inst &inst = program_.insts[seed];
  const ValueId loss = program_.values[inst.first_result].grad_of;
  if (loss.valid() || !inst.bwd_of.valid())
    return loss;
  const InstId made = defining_inst(program_, inst.bwd_of);
  const bool stated = made.valid() && rules_.resolve(program_.insts[made].op).transition ==
                                          rules::TransitionOp::Reinterpret;
  // Else it is memory that something in the backward is written to.
  const bool alike = result_.shapes[inst.first_result.index] == result_.shapes[inst.bwd_of.index];
  return stated && alike ? inst.bwd_of : ValueId();
}

// What a pass begins with: ones in the place of the gradient of a loss.
bool Accumulation::is_seed(InstId id) {
  return may_begin_backward(program_, rules_, id) && root(id).valid();
}

bool Accumulation::takes_mean(InstId id) {
  if (!id.valid())
    return false;
  const ir::Inst &inst = program_.insts[id];
  const rules::ResolvedOp &op = rules_.resolve(inst.op);
  if (!op.row)
    return false;
  operands_.read(program_, inst.operands);
  if (op.row->reduces) {
    rules::Application app{program_, op, inst.attrs, inst.context, operands_.slots, {}, {}};
    return rules::reduction_of(app) == rules::LossReduction::Mean;
  }
  const rules::Equation &row = op.row->equation.equation;
  return row.term_count > 0 && row.terms[0].divisors != 0;
}

// A mean, multiplied by numbers and named again.
bool Accumulation::is_mean(ValueId root) {
  for (InstId made; (made = defining_inst(program_, root)).valid();) {
    if (takes_mean(made))
      return true;
    operands_.read(program_, program_.insts[made].operands);
    if (operands_.values.size() != 1)
      return false;
    root = operands_.values[0];
  }
  return false;
}

// Of so many passes of all ranks, dealt out to those of an axis in turn, this one has `count`.
bool Accumulation::dealt_out(double all, int64_t count) const {
  if (all > 1e6 || std::abs(all - std::round(all)) > 1e-6 * all)
    return false;
  const int64_t whole = int64_t(std::round(all));
  const ir::Mesh &mesh = program_.meshes[ir::MeshId{0}];
  for (ir::AxisId axis : mesh.typed_axes())
    if (const int64_t ranks = mesh[axis].size(); ranks > 1)
      if (whole / ranks == count || (whole + ranks - 1) / ranks == count)
        return true;
  return false;
}

// A number on the way divides by so many, perhaps together with a number of ranks.
bool Accumulation::divides_by(int64_t count) {
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    if (inst.result_count == 0 || !needed_.test(inst.first_result.index))
      continue;
    if (inst.bwd_of.valid() && takes_mean(defining_inst(program_, inst.bwd_of)))
      continue; // the number of its elements
    operands_.read(program_, inst.operands);
    const std::optional<double> factor = factor_of(rules_.resolve(inst.op), operands_);
    const double left = factor ? 1 / std::abs(*factor * double(count)) : 0;
    if (left > 0.5 && std::abs(left - std::round(left)) < 1e-6 * left)
      return true;
    const bool divides = factor && rules_.resolve(inst.op).computes(rules::Computes::Div);
    if (divides && inst.phase == ir::Phase::Optimizer && dealt_out(1 / std::abs(*factor), count))
      return true;
  }
  return false;
}

void Accumulation::run() {
  need_backward();
  read_backward();
  llvm::MapVector<uint32_t, llvm::SmallVector<InstId, 4>> passes; // by line of the script
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i)
    if (is_seed(InstId{i}))
      passes[program_.locs[program_.insts[InstId{i}].loc].frame.index].push_back(InstId{i});
  for (auto &pass : passes) {
    const llvm::SmallVector<InstId, 4> &seeds = pass.second;
    const int64_t count = int64_t(seeds.size());
    auto reaches = [&](InstId seed) {
      return needed_.test(program_.insts[seed].first_result.index);
    };
    const int64_t kept = llvm::count_if(seeds, reaches);
    const bool in_vain = program_.phase == ir::ProgramPhase::Step && needed_.none();
    if ((count < 2 || kept == 0) && !in_vain)
      continue;
    auto used = [&](InstId seed) { return reaches(seed) || decides(seeds[0], seed); };
    const int64_t dropped = count - llvm::count_if(seeds, used);
    if (dropped)
      result_.findings.push_back({rules::DroppedGradients{root(seeds[0]), dropped, count},
                                  Place::inst(*llvm::find_if_not(seeds, used))});
    else if (kept < count)
      continue;
    else if (llvm::all_of(seeds, [&](InstId seed) { return is_mean(root(seed)); }) &&
             !divides_by(count))
      result_.findings.push_back(
          {rules::AccumulatedMeans{root(seeds[0]), count}, Place::inst(seeds[0])});
  }
}

} // namespace

void judge_accumulation(ir::Program &program, CheckResult &result) {
  Accumulation(program, result).run();
}

} // namespace spmd::checker
