// Forward: of which parameters' gradients a value is made.
#include "checker/gradual/step/owned_norms.h"

#include "checker/operand_list.h"
#include "checker/program_queries.h"

#include "rules/apply.h"
#include "rules/ops/op.h"
#include "rules/transitions/call.h"
#include "rules/violations/gradients.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;
using rules::Computes;

namespace {

class OwnedNorms {
public:
  OwnedNorms(ir::Program &program, CheckResult &result)
      : program_(program), result_(result), rules_(program) {}

  void run();

private:
  struct Owner {
    uint16_t axes = 0; // bits of an AxisSet
    int64_t root = 0;  // the rank along them
    friend auto operator<=>(const Owner &, const Owner &) = default;
  };
  using Params = std::set<uint32_t>; // by the value of the parameter

  bool find_owners();
  ir::AxisSet communicates(InstId id);
  void follow(InstId id);
  void judge(InstId id);
  std::optional<Owner> owner(const Params &params) const;
  void report(InstId at, uint32_t operand, ir::AxisSet axes);
  bool is_scalar(ValueId value) const {
    return checker::is_scalar(program_, result_.shapes[value.index]);
  }
  const Params &params(ValueId value) const {
    static const Params none;
    const auto at = params_.find(value.index);
    return at == params_.end() ? none : at->second;
  }

  ir::Program &program_;
  CheckResult &result_;
  rules::Rules rules_;
  OperandList operands_;                   // of the instruction
  llvm::DenseMap<uint32_t, Owner> owners_; // by the value of a parameter
  std::map<uint32_t, Params> params_;      // by value: of whose gradients it is made
  llvm::DenseSet<uint32_t> reported_;      // instructions
};

// The axes over which an instruction communicates.
ir::AxisSet OwnedNorms::communicates(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  const rules::ResolvedOp &op = rules_.resolve(inst.op);
  if (op.form != rules::OpForm::Transition)
    return {};
  const auto args = operands_.args(result_.types, result_.shapes);
  return rules::communicated_axes(
      {program_, op, inst.attrs, inst.context, operands_.slots, args, {}});
}

// Whether there are several owners. A parameter that several ranks hand out has none.
bool OwnedNorms::find_owners() {
  llvm::DenseSet<uint32_t> shared;
  std::set<Owner> all;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    if (rules_.resolve(inst.op).transition != rules::TransitionOp::Broadcast)
      continue;
    const ir::AttrValue *root = program_.find(inst.attrs, "root");
    operands_.read(program_, inst.operands);
    for (ValueId value : operands_.values) {
      const ValueId storage = storage_of(program_, value);
      const ir::Param *param = program_.find_param(storage);
      if (!param || param->role != ir::Role::Param || !root || root->form != ir::AttrForm::Integer)
        continue;
      const Owner found{communicates(InstId{i}).bits(), root->as_integer()};
      if (const auto [at, added] = owners_.try_emplace(storage.index, found);
          !added && at->second != found)
        shared.insert(storage.index);
      all.insert(found);
    }
  }
  for (uint32_t value : shared)
    owners_.erase(value);
  return all.size() > 1;
}

// Of whose gradients a result is made: of those of all operands, or of one of a list where there
// is a result for each.
void OwnedNorms::follow(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  const bool sent = !communicates(id).empty();
  llvm::SmallVector<ValueId, 4> operands;
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    const ValueId result = inst.result(r);
    Params made;
    if (const ValueId of = program_.values[result].grad_of; of.valid() && program_.find_param(of))
      made.insert(of.index);
    operands_.operands_of_result(r, inst.result_count, operands);
    for (ValueId value : operands)
      made.insert(params(value).begin(), params(value).end());
    if (!made.empty() && !(sent && is_scalar(result))) // which is one on all ranks then
      params_[result.index] = std::move(made);
  }
}

std::optional<OwnedNorms::Owner> OwnedNorms::owner(const Params &params) const {
  std::optional<Owner> found;
  for (uint32_t param : params) {
    const auto at = owners_.find(param);
    if (at == owners_.end() || (found && *found != at->second))
      return std::nullopt;
    found = at->second;
  }
  return found;
}

// Gradients that are multiplied with a number that is made of them.
void OwnedNorms::judge(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  const rules::ResolvedOp &op = rules_.resolve(inst.op);
  if (inst.phase != ir::Phase::Optimizer || !is_product(op))
    return;
  for (uint32_t n = 0; n < operands_.values.size(); ++n) {
    const Params &all = params(operands_.values[n]);
    const std::optional<Owner> by = owner(all);
    const bool one_of_them = llvm::any_of(operands_.values, [&](ValueId value) {
      return !is_scalar(value) && !params(value).empty() &&
             std::includes(all.begin(), all.end(), params(value).begin(), params(value).end());
    });
    if (all.size() > 1 && by && is_scalar(operands_.values[n]) && one_of_them)
      report(id, n, ir::AxisSet(by->axes));
  }
}

// At the first number that is made of all these gradients, where it is read.
void OwnedNorms::report(InstId at, uint32_t operand, ir::AxisSet axes) {
  ValueId number = operands_.values[operand];
  const Params all = params(number);
  for (InstId made = defining_inst(program_, number); made.valid();
       made = defining_inst(program_, number)) {
    const llvm::SmallVector<ValueId, 4> from = tensors_of(program_, made);
    const auto *before = llvm::find_if(
        from, [&](ValueId value) { return is_scalar(value) && params(value) == all; });
    if (before == from.end())
      break;
    at = made, number = *before, operand = static_cast<uint32_t>(before - from.begin());
  }
  if (reported_.insert(at.index).second)
    result_.findings.push_back({rules::UnlikeSteps{{operand}, axes}, Place::inst(at)});
}

void OwnedNorms::run() {
  if (!find_owners())
    return;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    operands_.read(program_, program_.insts[InstId{i}].operands);
    judge(InstId{i});
    follow(InstId{i});
  }
}

} // namespace

void judge_owned_norms(ir::Program &program, CheckResult &result) {
  OwnedNorms(program, result).run();
}

} // namespace spmd::checker
