// The boundary that gradients cross: loss roots, contracts of parameters, the optimizer, declared
// gradients of functions. What an instruction needs of the program around it is put beside its
// operands, so that rules see it.
#include "checker/walk/gradients/contracts.h"

#include "checker/program_queries.h"

#include "rules/boundary/contract.h"
#include "rules/kinds/scale.h"
#include "rules/transitions/call.h"
#include "rules/violations/gradients.h"

#include "ir/mesh/axis_scale.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using rules::Boundary;

namespace {

constexpr const char *kContractStates = "its contract states ";

// What is wrong with the scale of the gradient of a parameter; none needed: nothing.
std::optional<rules::Violation> gradient_differs(ir::Program &program, ValueId param,
                                                 const Type &gradient, ir::ScaleId needed,
                                                 const char *who) {
  if (!needed.valid() || gradient.scale == needed)
    return std::nullopt;
  std::string other = who + ir::print_scale(program, needed, gradient.mesh());
  std::optional<rules::Violation> differs =
      rules::scale_differs(program, gradient, needed, std::move(other), {}, param);
  if (differs)
    differs->as<rules::ScaleMismatch>()->what = "the gradient of ";
  return differs;
}

// Then nothing else in the program need say that an optimizer reads the gradient.
bool says_what_is_needed(const ir::GradContract &grad) {
  return !grad.sync.empty() || grad.step.valid();
}

// In a step that was recorded with its backward: what the optimizer reads is judged where it reads
// it.
bool records_gradients(const ir::Program &program) {
  return llvm::any_of(program.values.all(),
                      [](const ir::Value &value) { return value.grad_of.valid(); });
}

bool has_root(const ir::Program &program, const GradientBoundary &boundary) {
  if (records_gradients(program))
    return false;
  return boundary.root_before(program.main.last).valid() ||
         llvm::any_of(program.outputs,
                      [](const ir::Output &out) { return out.role == ir::OutputRole::Loss; });
}

} // namespace

rules::Contract GradientContracts::contract(ValueId value) {
  ValueId root = state_.storage.root(value);
  llvm::SmallVector<rules::Violation, 1> reported; // with the declaration
  std::optional<uint32_t> param = boundary_.param_of(root.valid() ? root : value);
  if (!param)
    return rules::contract_of(program_, {}, value, program_.types[result_.types[value.index]],
                              reported);
  std::optional<rules::Contract> &known = contracts_[*param];
  if (!known)
    known = rules::contract_of(
        program_, program_.params[*param].grad, program_.params[*param].value,
        program_.types[result_.types[program_.params[*param].value.index]], reported);
  return *known;
}

// What a contract states is checked where it is stated. Where nothing in the program reads the
// gradient, its reductions alone must lead to the type that it says the optimizer needs.
void GradientContracts::declare(uint32_t index) {
  const ir::Param &param = program_.params[index];
  if (!param.grad.stated)
    return;
  llvm::SmallVector<rules::Violation, 2> found;
  rules::Contract contract = rules::contract_of(
      program_, param.grad, param.value, program_.types[result_.types[param.value.index]], found);
  // A step type alone promises something where there is a gradient, and nothing asks for it.
  bool promises = !param.grad.sync.empty() ||
                  (says_what_is_needed(param.grad) && has_root(program_, boundary_) &&
                   !boundary_.is_asked(param.value));
  if (found.empty() && promises && !boundary_.is_stepped(param.value)) {
    Type after = rules::after_sync(program_, contract, contract.gradient, found);
    after.scale = contract.needed.scale; // at the root
    rules::check_step(program_, contract, after, {}, found);
  }
  for (rules::Violation &violation : found)
    state_.report({Place::Form::Param, index}, std::move(violation));
  if (param.role == ir::Role::Param)
    contracts_[index] = std::move(contract);
}

void GradientContracts::judge_unread() {
  llvm::DenseMap<uint32_t, ValueId> last; // of the values of parameters: their last gradient
  for (uint32_t i = 0; i < program_.params.size(); ++i) {
    const ir::Param &param = program_.params[i];
    if (param.role == ir::Role::Param && says_what_is_needed(param.grad) && contracts_[i] &&
        !boundary_.is_stepped(param.value))
      last[param.value.index] = {};
  }
  if (last.empty())
    return;
  llvm::DenseSet<uint32_t> read;
  OperandList operands;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    operands.read(program_, inst.operands);
    for (ValueId value : operands.values)
      read.insert(value.index);
    for (uint32_t r = 0; r < inst.result_count; ++r)
      if (ValueId of = program_.values[inst.result(r)].grad_of; of.valid())
        if (auto known = last.find(of.index); known != last.end())
          known->second = inst.result(r);
  }
  for (const ir::Output &out : program_.outputs)
    read.insert(out.value.index);
  for (uint32_t i = 0; i < program_.params.size(); ++i) {
    const ValueId gradient = last.lookup(program_.params[i].value.index);
    if (!gradient.valid() || read.contains(gradient.index))
      continue;
    const rules::Contract &contract = *contracts_[i];
    llvm::SmallVector<rules::Violation, 2> found;
    Type type =
        state_.remapped_to(program_.types[result_.types[gradient.index]], contract.needed.mesh());
    type = rules::after_sync(program_, contract, type, found);
    rules::check_step(program_, contract, type, {}, found);
    for (rules::Violation &violation : found)
      state_.report(Place::inst(defining_inst(program_, gradient)), std::move(violation));
  }
}

void GradientContracts::scales_at_root(Place place, const Type &root) {
  for (size_t i = 0; i < contracts_.size(); ++i) {
    std::optional<rules::Contract> &contract = contracts_[i];
    if (!contract || root.unknown || contract->gradient.mesh() != root.mesh())
      continue;
    Type gradient = contract->gradient;
    gradient.scale = ir::product(program_, root.scale, gradient.scale);
    auto compare = [&](const Type &type, ir::ScaleId needed, const char *who) {
      if (std::optional<rules::Violation> differs =
              gradient_differs(program_, contract->param, type, needed, who))
        state_.report(place, std::move(*differs));
    };
    compare(gradient, contract->stated, kContractStates);
    const ir::GradContract &stated = program_.params[i].grad;
    if (!says_what_is_needed(stated) || boundary_.is_stepped(contract->param) ||
        (stated.sync.empty() &&
         (boundary_.is_asked(contract->param) || records_gradients(program_))))
      continue;
    llvm::SmallVector<rules::Violation, 1> reported;
    Type after = rules::after_sync(program_, *contract, gradient, reported);
    if (reported.empty())
      compare(after, contract->needed.scale, "the optimizer needs ");
  }
}

const Type &GradientContracts::root_type(ValueId root) {
  ir::TypeId known_as = result_.types[root.index];
  if (root_.value == root && root_.known_as == known_as)
    return root_.type;
  Type type = program_.types[known_as];
  AxisSet wrong = type.replicated() | type.of(Kind::Varying);
  type.drop_shards(wrong - type.either());
  type.set_unknown(wrong - type.either());
  root_ = {root, known_as, type};
  return root_.type;
}

void GradientContracts::put_operands(InstId id, Boundary op) {
  if (op == Boundary::Grad && !state_.args.empty()) {
    if (ValueId root = boundary_.root_before(id); root.valid())
      state_.args.push_back({state_.intern(root_type(root)), {}, {}});
    return;
  }
  if (op != Boundary::Step || state_.args.size() != 2)
    return;
  rules::Contract contract = this->contract(state_.operands.values[0]);
  rules::TensorInfo needed = state_.args[0];
  Type own = program_.types[state_.args[0].type], gradient = program_.types[state_.args[1].type];
  if (own.of(Kind::Varying) != contract.needed.of(Kind::Varying))
    needed.shape = {}, needed.sizes = {}; // the optimizer holds a block of the parameter
  gradient = state_.remapped_to(gradient, contract.needed.mesh());
  llvm::SmallVector<rules::Violation, 1> found;
  gradient = rules::after_sync(program_, contract, gradient, found);
  for (rules::Violation &violation : found)
    state_.report(Place::inst(id), std::move(violation));
  state_.args[1].type = state_.intern(gradient);
  contract.needed.set_gradient_free(false);
  needed.type = state_.intern(contract.needed);
  state_.args.push_back(needed);
}

bool GradientContracts::cut_gradients(const ir::Inst &inst) {
  bool asked = false;
  bool cuts = rules::lacks_vjp(program_, inst.attrs);
  if (const ir::AttrValue *op = program_.find(inst.attrs, "op")) {
    std::optional<ir::Combiner> combiner = rules::combiner_of(program_, *op);
    cuts |= combiner != ir::Combiner::Sum && combiner != ir::Combiner::Avg;
  }
  for (size_t i = 0; i < state_.args.size() && i < state_.operands.values.size(); ++i) {
    const Type &type = program_.types[state_.args[i].type];
    if (type.gradient_free() || (!cuts && type.combining().empty()))
      continue;
    asked = true;
    if (!boundary_.needs_gradient(state_.operands.values[i]))
      state_.args[i].type = rules::without_gradient(program_, state_.args[i].type);
  }
  return asked;
}

void GradientContracts::judge_results(InstId id, Boundary op, const rules::Outcome &outcome) {
  if (op == Boundary::Backward && !state_.operands.values.empty())
    return scales_at_root(Place::inst(id), root_type(state_.operands.values[0]));
  std::optional<uint32_t> param = op == Boundary::Grad && !state_.operands.values.empty()
                                      ? boundary_.param_of(state_.operands.values[0])
                                      : std::nullopt;
  if (!param || !contracts_[*param] || outcome.types.empty())
    return;
  const rules::Contract &contract = *contracts_[*param];
  if (std::optional<rules::Violation> differs =
          gradient_differs(program_, contract.param, program_.types[outcome.types[0]],
                           contract.stated, kContractStates))
    state_.report(Place::inst(id), std::move(*differs));
}

void GradientContracts::judge_output(uint32_t index, const Type &type) {
  const ir::Output &out = program_.outputs[index];
  std::optional<uint32_t> param = boundary_.param_of(out.of);
  bool stated = param && program_.params[*param].grad.stated;
  if (!out.of.valid() || (!stated && out.declared.valid()))
    return;
  rules::Contract contract = this->contract(out.of);
  llvm::SmallVector<rules::Violation, 2> found;
  Type gradient = rules::after_sync(program_, contract,
                                    state_.remapped_to(type, contract.needed.mesh()), found);
  if (found.empty())
    rules::check_step(program_, contract, gradient, {}, found);
  for (rules::Violation &violation : found) {
    if (auto *scale = violation.as<rules::ScaleMismatch>())
      scale->value = out.value;
    state_.report({Place::Form::Output, index}, std::move(violation));
  }
}

void GradientContracts::judge_functions() {
  for (uint32_t i = 0; i < program_.functions.size(); ++i) {
    const ir::Function &function = program_.functions[ir::FunctionId{i}];
    for (const ir::FunctionParam &param : function.params) {
      const ir::Value &value = program_.values[param.value];
      ir::TypeId grad = param.grad.valid() ? program_.claims[param.grad].type : ir::TypeId();
      if (!grad.valid() || !value.declared.valid() || state_.gradient_free(value, false))
        continue;
      llvm::SmallVector<rules::Violation, 1> found;
      ir::ContextId context = function.context.valid() ? function.context : ir::ContextId{0};
      rules::check_declared_gradient(program_, param.value, state_.seen(value.declared, context),
                                     state_.seen(grad, context), found);
      for (rules::Violation &violation : found)
        state_.report({Place::Form::Function, i}, std::move(violation));
    }
  }
}

void GradientContracts::resume() {
  for (const ir::Param &param : program_.params)
    if (param.role == ir::Role::Param && param.grad.stated)
      contracts_[*boundary_.param_of(param.value)] = contract(param.value);
}

} // namespace spmd::checker
