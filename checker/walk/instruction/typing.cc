// A rule is applied to the operands as it takes them; what it cannot see (aliases, meshes, missing
// types, claims) is decided before and after.
#include "checker/walk/instruction/typing.h"

#include "checker/walk/instruction/implicit_casts.h"

#include "rules/application_key.h"
#include "rules/apply.h"
#include "rules/boundary/claims.h"
#include "rules/shapes/extent_facts.h"
#include "rules/shards/remesh.h"
#include "rules/transitions/call.h"
#include "rules/violations/claims.h"
#include "rules/violations/coverage.h"
#include "rules/violations/gradients.h"
#include "rules/violations/operands.h"

#include "ir/dialect/dialect.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::InstId;
using ir::Type;
using ir::ValueId;

namespace {

// What leaves a local region, stated inside of it, says how its pieces join.
rules::Spec joining_in(const ir::Program &program, const ir::Inst &inst) {
  return program.contexts[inst.context].local ? rules::Spec::Joined : rules::Spec::Compared;
}

// Operands to which an ordinary op gives no gradient.
llvm::SmallVector<uint32_t, 2> gradients_that_end(const rules::Outcome &outcome) {
  llvm::SmallVector<uint32_t, 2> operands;
  for (const rules::Violation &violation : outcome.violations)
    if (const auto *found = violation.as<rules::MissingVjp>())
      operands.push_back(found->operand.index);
  return operands;
}

// A broadcast of what all its ranks have, which programs begin with and which changes nothing.
bool is_equal_broadcast(const rules::Application &app) {
  if (app.op.transition != rules::TransitionOp::Broadcast || app.args.empty())
    return false;
  const Type &type = app.type(app.args[0]);
  AxisSet equal = type.same_on_all_ranks();
  return equal.contains(rules::communicated_axes(app));
}

rules::Outcome as_it_was(const rules::Application &app) {
  rules::Outcome outcome;
  for (size_t r = 0; r < app.results.size(); ++r) {
    const rules::TensorInfo &from = app.args[std::min(r, app.args.size() - 1)];
    outcome.types.push_back(from.type);
    outcome.shapes.push_back(from.shape);
    outcome.sizes.push_back(from.sizes);
  }
  return outcome;
}

ValueId first_value(llvm::ArrayRef<ir::Operand> operands) {
  for (const ir::Operand &operand : operands)
    if (operand.is_value())
      return operand.as_value();
  return {};
}

rules::ResultClaim claim_of(const ir::Value &value) {
  return {value.shape, value.declared, value.global_shape};
}

std::string rule_text(const rules::ResolvedOp &op) {
  std::string_view text = op.row ? op.row->equation.equation.text : rules::name_of(op.transition);
  return std::string(text);
}

} // namespace

InstructionTyping::InstructionTyping(WalkState &state, UndecidedKinds &undecided,
                                     GradientContracts &contracts, RecordedGradients &gradients,
                                     Edits &edits, const Mover &mover)
    : state_(state), program_(state.program), result_(state.result), undecided_(undecided),
      contracts_(contracts), gradients_(gradients), edits_(edits), mover_(mover),
      casts_(ir::dialect_of(state.program) == ir::Dialect::LTensor), rewrites_(mover || casts_),
      effects_(state, undecided, gradients), claims_(state, undecided), conditions_(state),
      bodies_(state, undecided, edits, conditions_,
              [this](const ir::Body &body) { instructions(body); }),
      control_(state, undecided, bodies_, conditions_),
      calls_(state, undecided, claims_, bodies_, control_) {}

void InstructionTyping::instructions(const ir::Body &body) {
  for (uint32_t i = body.first.index; i < body.last.index; ++i)
    instruction(InstId{i});
}

void InstructionTyping::instruction(InstId id) {
  ++state_.body_result->stats.ops;
  if (!may_repeat() || !repeats(id, program_.insts[id]))
    apply_rule(id);
}

void InstructionTyping::apply_rule(InstId id) {
  ir::Inst inst = program_.insts[id];
  const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
  const ir::Context &context = program_.contexts[inst.context];
  read_operands(inst, op);
  if (state_.edit && state_.edit->inst == id) {
    if (edits_.apply(inst))
      return;
  } else if (!state_.edit && !program_.lacks(ir::Missing::Mutation) &&
             !(op.boundary == rules::Boundary::Alias && state_.operands.values.size() > 1)) {
    effects_.judge_stale(id);
  }
  by_value_ = false;
  rules::Application app{program_,
                         op,
                         inst.attrs,
                         inst.context,
                         state_.operands.slots,
                         state_.args,
                         state_.claims,
                         state_.options.infer_partial};
  const size_t reported = state_.body_result->entries.size();
  const bool lifted = prepare(id, inst, op);
  if (op.boundary == rules::Boundary::Alias)
    effects_.derive(id);
  app.args = state_.args;
  if (op.form == rules::OpForm::Unknown)
    ++state_.body_result->stats.unknown_ops;
  if (op.assumed)
    state_.report(Place::inst(id), rules::AssumedRule{rule_text(op)});
  if (op.form == rules::OpForm::Call) {
    rules::Outcome outcome;
    undecided_.set_result_rows({});
    calls_.run(id, inst, op, outcome);
    return results(id, inst, op, outcome);
  }
  if (!conditions_.empty())
    conditions_.judge(id, app);
  if (state_.options.undeclared && is_equal_broadcast(app))
    return results(id, inst, op, as_it_was(app));
  if (state_.inference) {
    state_.inference->bind(inst, app);
    if (std::optional<rules::Outcome> restated = state_.inference->restated(inst, app))
      return results(id, inst, op, *restated);
  }
  if (mover_ && lifted && context.implicit)
    mover_(id, state_.rules, state_.operands.values, judged(app), app, state_.args);
  if (casts_ && op.form == rules::OpForm::Equation && lifted && context.check)
    cast_implicitly(state_, id, app, judged(app));
  const rules::Outcome &outcome = judged(app);
  const uint32_t application = state_.rules.last_index();
  // Where checking is off nothing is refused; what does not follow is unknown.
  take(id, app, outcome, lifted && context.check);
  if (op.form == rules::OpForm::Boundary && context.check)
    contracts_.judge_results(id, op.boundary, outcome);
  results(id, inst, op, outcome);
  const bool by_rule = op.form == rules::OpForm::Equation || op.form == rules::OpForm::Transition;
  if (by_rule && may_repeat() && state_.body_result->entries.size() == reported)
    keep_plain(inst, app, outcome, application);
}

// True where what is known of whole values does not matter.
inline bool InstructionTyping::may_repeat() const {
  return !rewrites_ && !undecided_.any() && conditions_.empty() && state_.recording &&
         !state_.edit && !state_.inference;
}

// True if the words of an instruction's operands are those of the key, and none is a stale name.
// Lists are long: their key is made once. `writes`: what it writes.
// Inlined: most have one or two.
LLVM_ATTRIBUTE_ALWAYS_INLINE bool
InstructionTyping::are_operands(llvm::ArrayRef<ir::Operand> operands, ValueId first,
                                rules::KeyComparison &words, Writes &writes) {
  const bool written = state_.storage.any_written();
  ir::StringId name;
  for (const ir::Operand &operand : operands) {
    if (operand.is_value()) {
      const ValueId value = operand.as_value();
      if (written && state_.storage.stale_since(value).valid())
        return false;
      writes = with_tensor(writes, value == first, operand.mut);
      rules::key_of_tensor(words, name, state_.known(value));
    } else if (operand.form == ir::Operand::Form::Literal) {
      const ir::AttrValue &literal = program_.literals[operand.index];
      rules::key_of_literal(words, form_of(literal), name, literal);
    } else if (operand.form == ir::Operand::Form::Name) {
      name = operand.as_name();
      continue;
    } else {
      return false;
    }
    name = {};
  }
  return true;
}

// An instruction of the application that is expected here, if that is known to be plain, gets its
// types at once.
inline bool InstructionTyping::repeats(InstId id, const ir::Inst &inst) {
  const llvm::ArrayRef<ir::Operand> operands = program_.operand_lists[inst.operands];
  llvm::ArrayRef<ir::Value> made; // without results there is no first one
  if (inst.result_count)
    made = program_.values.all().slice(inst.first_result.index, inst.result_count);
  const ValueId first = first_value(operands);
  const auto [application, key] =
      state_.rules.expected(inst.op, first.valid() ? state_.known(first) : rules::TensorInfo(),
                            made.empty() ? ir::ShapeId() : made.front().shape);
  if (application >= plain_.size() || plain_[application].results == rules::Rules::kNone)
    return false;
  const Plain plain = plain_[application];
  rules::KeyComparison words(key);
  Writes writes = Writes::None;
  rules::key_of_op(words, inst.op, inst.attrs, inst.context, inst.result_count);
  if (!are_operands(operands, first, words, writes) || writes != plain.writes)
    return false;
  bool gradients = plain.transition;
  for (const ir::Value &value : made) {
    if (value.requires_grad != ir::Tristate::Unstated)
      return false;
    gradients |= value.grad_of.valid();
    rules::key_of_result(words, claim_of(value));
  }
  if (!words.equal())
    return false;
  state_.rules.came(application);
  if (writes == Writes::First)
    state_.storage.write(first, id);
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    state_.learn(inst.result(i), plain_results_[plain.results + i]);
    state_.storage.define(inst.result(i), made[i].alias_of);
  }
  if (gradients)
    gradients_.meet(id, inst, plain.transition);
  return true;
}

// Nothing was reported of the instruction. Remembers that its application is plain if the same
// operands and claims can lead to nothing else, whatever values they are.
void InstructionTyping::keep_plain(const ir::Inst &inst, const rules::Application &app,
                                   const rules::Outcome &outcome, uint32_t application) {
  bool plain = !by_value_ && outcome.violations.empty() && outcome.undecided.empty() &&
               outcome.inferred.empty() && effects_.keep_types(inst, outcome);
  for (const rules::Slot &slot : app.slots)
    plain &= !program_.is_out(slot.name);
  for (size_t i = 0; i < app.args.size(); ++i)
    plain &= app.args[i] == state_.known(state_.operands.values[i]);
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    const ir::Value &value = program_.values[inst.result(i)];
    const Type &type = program_.types[state_.known(inst.result(i)).type];
    plain &= !value.declared.valid() && !value.global_shape.valid() && type.unknown.empty() &&
             value.requires_grad == ir::Tristate::Unstated && undecided_axes(type).empty();
  }
  if (!plain)
    return;
  if (application >= plain_.size())
    plain_.resize(application + 1);
  plain_[application] = {static_cast<uint32_t>(plain_results_.size()), state_.operands.writes,
                         app.op.form == rules::OpForm::Transition};
  for (uint32_t i = 0; i < inst.result_count; ++i)
    plain_results_.push_back(state_.known(inst.result(i)));
}

void InstructionTyping::read_operands(const ir::Inst &inst, const rules::ResolvedOp &op) {
  state_.operands.read(program_, inst.operands);
  const llvm::ArrayRef<ValueId> values = state_.operands.values;
  state_.args.resize_for_overwrite(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    state_.args[i] = state_.known(values[i]);
  if (state_.inference)
    state_.inference->begin(inst, op);
  state_.claims.clear();
  for (uint32_t i = 0; i < inst.result_count; ++i)
    state_.claims.push_back(claim_of(program_.values[inst.result(i)]));
}

// Operands as the rule takes them. False if some operand cannot be seen on the mesh of
// the instruction.
bool InstructionTyping::prepare(InstId id, const ir::Inst &inst, const rules::ResolvedOp &op) {
  if (!state_.options.permissive)
    judge_missing(id);
  if (op.form == rules::OpForm::Boundary)
    contracts_.put_operands(id, op.boundary);
  const bool lifted = op.boundary == rules::Boundary::ReinterpretMesh || lift(id, inst);
  const bool cuts = op.form == rules::OpForm::Transition || op.form == rules::OpForm::Call;
  if (cuts && program_.contexts[inst.context].grad)
    by_value_ |= contracts_.cut_gradients(inst);
  return lifted;
}

// Where an op gives an operand no gradient nothing is wrong if no parameter is behind it.
const rules::Outcome &InstructionTyping::judged(const rules::Application &app) {
  const rules::Outcome *outcome = &state_.rules.apply(app);
  bool changed = app.op.form == rules::OpForm::Equation;
  while (changed) {
    changed = false;
    for (uint32_t at : gradients_that_end(*outcome)) {
      if (contracts_.boundary().needs_gradient(state_.operands.values[at]))
        continue;
      state_.args[at].type = rules::without_gradient(program_, state_.args[at].type);
      changed = true;
    }
    if (changed)
      outcome = &state_.rules.apply(app);
  }
  return *outcome;
}

// What the rule says of more than its results.
void InstructionTyping::take(InstId id, const rules::Application &app,
                             const rules::Outcome &outcome, bool checked) {
  const uint32_t application = state_.rules.last_index();
  if (checked) {
    for (const rules::Violation &violation : outcome.violations)
      state_.report(Place::inst(id), state_.named(violation), application);
    for (const rules::UndecidedExtents &open : outcome.undecided)
      state_.report(Place::inst(id), open, application);
  }
  if (state_.inference)
    state_.inference->judge(id, app);
  for (const rules::InferredKinds &word : outcome.inferred)
    state_.body_result->inferred.push_back({id, word});
  undecided_.apply(id, app, outcome, application);
}

// A value without a claim on an axis is reported at its first use and silent from then on.
void InstructionTyping::judge_missing(InstId id) {
  for (size_t i = 0; i < state_.args.size(); ++i) {
    Type type = program_.types[state_.args[i].type];
    AxisSet absent = program_.meshes[type.mesh()].typed_axes() - type.claimed();
    if (absent.empty())
      continue;
    state_.report(Place::inst(id), rules::MissingClaim{{static_cast<uint32_t>(i)}, absent});
    type.unknown |= absent;
    state_.args[i].type = state_.intern(type);
    state_.learn_type(state_.operands.values[i], state_.args[i].type);
  }
}

// Operands on another mesh over the same ranks are seen on the mesh of the instruction.
bool InstructionTyping::lift(InstId id, const ir::Inst &inst) {
  ir::MeshId mesh = program_.contexts[inst.context].mesh;
  bool fine = true;
  for (size_t i = 0; i < state_.args.size(); ++i) {
    const Type type = program_.types[state_.args[i].type];
    if (type.mesh() == mesh)
      continue;
    rules::Remeshed seen = rules::remesh(program_, type, mesh, {static_cast<uint32_t>(i)});
    if (seen.violation) {
      state_.report(Place::inst(id), *seen.violation);
      fine = false;
    }
    state_.args[i].type = state_.intern(seen.type);
  }
  return fine;
}

void InstructionTyping::results(InstId id, const ir::Inst &inst, const rules::ResolvedOp &op,
                                const rules::Outcome &outcome) {
  llvm::SmallVector<AxisSet, 4> unknown_axes(inst.result_count);
  effects_.write(id, inst, op, outcome, unknown_axes);
  // Rules hold the shapes of their results against the stated ones themselves.
  const bool by_rule = op.form == rules::OpForm::Equation || op.form == rules::OpForm::Transition;
  for (uint32_t i = 0; i < inst.result_count; ++i)
    type_result(id, inst, i, {outcome.types[i], outcome.shapes[i], outcome.sizes[i]},
                unknown_axes[i], by_rule);
  if (state_.edit)
    edits_.apply_dual_to_gradients(inst);
  gradients_.meet(id, inst, op.form == rules::OpForm::Transition);
}

// `found`: what the rule says of it. `by_rule`: it has judged the stated shape.
void InstructionTyping::type_result(InstId id, const ir::Inst &inst, uint32_t index,
                                    const rules::TensorInfo &found, AxisSet unknown_axes,
                                    bool by_rule) {
  const bool checked = program_.contexts[inst.context].check;
  const ValueId result = inst.result(index);
  const ir::Value &value = program_.values[result];
  ir::ShapeId shape = rules::stated_shape(program_, value.shape, found.shape);
  if (checked && !by_rule)
    claims_.judge_shape(id, result, value.shape, found.shape);
  Type type = program_.types[found.type];
  ir::Value shaped = value;
  shaped.shape = shape;
  type.set_gradient_free(state_.gradient_free(shaped, type.gradient_free()));
  if (!state_.recording)
    undecided_.apply_decided_dst(id, type);
  type.set_unknown(unknown_axes);
  if (value.declared.valid()) // it may say that nothing is known
    type.set_unknown(program_.types[value.declared].unknown &
                     program_.meshes[type.mesh()].typed_axes());
  if (value.declared.valid() && checked)
    claims_.judge(id, result, type, value.declared, joining_in(program_, inst));
  else if (value.declared.valid()) {
    bool free = type.gradient_free();
    type = state_.seen(value.declared, inst.context);
    type.set_gradient_free(free);
    state_.report(Place::inst(id), rules::UncheckedClaim{result, value.declared});
  }
  if (state_.inference)
    state_.inference->complete(id, inst, index, type);
  state_.body_result->stats.silent += static_cast<uint64_t>(type.unknown.size());
  const bool same = type == program_.types[found.type];
  state_.learn(result, {same ? found.type : state_.intern(type), shape, found.sizes});
  if (state_.recording && (undecided_.any() || undecided_axes(type)))
    undecided_.define(result, undecided_.result_row(index), type);
  if (value.global_shape.valid())
    claims_.judge_sizes(id, result, type);
  if (!state_.edit)
    state_.storage.define(result);
}

} // namespace spmd::checker
