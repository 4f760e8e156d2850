// The walk over a program in order. A rule is applied to each instruction and its findings are
// placed; what the rules cannot see (claims, aliases, meshes, missing types) is settled here,
// before the look-up.
#include "checker/check.h"

#include "checker/gradual/second_reading.h"
#include "checker/report/provenance.h"
#include "checker/suppress.h"
#include "checker/walk/walk.h"

#include "rules/boundary/loss.h"
#include "rules/kinds/scale.h"
#include "rules/ops/registry.h"
#include "rules/shapes/extent_facts.h"
#include "rules/shards/remesh.h"
#include "rules/shards/shards.h"
#include "rules/violations/claims.h"
#include "rules/violations/coverage.h"
#include "rules/violations/gradients.h"
#include "rules/violations/norms.h"
#include "rules/violations/operands.h"
#include "rules/violations/shards.h"

#include "ir/dialect/dialect.h"
#include "ir/mesh/axis_scale.h"
#include "ir/text/text.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

namespace {

constexpr uint32_t kProgressOps = 1 << 15; // how often progress is told

// What leaves a local region, stated inside of it, says how its pieces join.
rules::Spec joining_in(const ir::Program &program, const ir::Inst &inst) {
  return program.contexts[inst.context].local ? rules::Spec::Joined : rules::Spec::Compared;
}

bool is_state_role(ir::Role role) {
  return role == ir::Role::Param || role == ir::Role::Buffer || role == ir::Role::OptState;
}

} // namespace

bool CheckResult::clean() const {
  for (const Finding &finding : findings)
    if (finding.severity() == rules::Severity::Error)
      return false;
  return true;
}

CheckResult check(ir::Program &program, const CheckOptions &options) {
  if (options.mode.value_or(program.mode) == ir::Mode::Gradual)
    return check_gradually(program, options);
  if (options.mode)
    program.mode = *options.mode;
  CheckResult result;
  Walk(program, options, result).run();
  apply_suppressions(program, options, result);
  return result;
}

Walk::Walk(ir::Program &program, const CheckOptions &options, CheckResult &result)
    : state_(program, options, result), program_(program), result_(result), undecided_(state_),
      contracts_(state_), gradients_(state_, contracts_, undecided_),
      effects_(state_, undecided_, gradients_), claims_(state_, undecided_), edits_(state_),
      conditions_(state_), bodies_(state_, undecided_, edits_, conditions_,
                                   [this](const ir::Body &body) { instructions(body); }),
      control_(state_, undecided_, bodies_, conditions_),
      calls_(state_, undecided_, claims_, bodies_, control_),
      unites_(ir::dialect_of(program) == ir::Dialect::LTensor) {
  if (result.gradual) {
    second_ = std::make_unique<SecondReading>(state_);
    state_.second = second_.get();
  }
}

Walk::~Walk() = default;

void Walk::run() {
  state_.caches = state_.options.memoise && !mover && !unites_ && !second_;
  contracts_.judge_functions();
  for (uint32_t i = 0; i < program_.params.size(); ++i)
    declare(i);
  const size_t declared = state_.trail->entries.size();
  const uint32_t first = program_.main.first.index, last = program_.main.last.index;
  for (uint32_t i = first; i < last; ++i) {
    instruction(InstId{i});
    if (state_.options.progress && (i - first) % kProgressOps == kProgressOps - 1)
      state_.options.progress(i - first, last - first);
  }
  const size_t told = state_.trail->entries.size();
  gradients_.judge_declared(declared);
  const size_t late = state_.trail->entries.size() - told;
  for (uint32_t i = 0; i < program_.outputs.size(); ++i)
    output(i);
  contracts_.judge_unread();
  undecided_.settle(declared, told, late);
  Collector(program_, state_.bodies).add(state_.main, result_);
  undecided_.settle_words();
  state_.caches = false;
  bodies_.keep_typings();
  state_.main = {};
  result_.stats.applications = state_.rules.distinct();
}

std::optional<std::vector<Finding>> Walk::retype(const Edit &edit) {
  edits_.begin(edit);
  for (InstId id = edits_.first(); id.index < program_.main.last.index; ++id.index)
    if (edits_.concerns(id))
      edits_.retype(id, [&](InstId each) { instruction(each); });
  for (uint32_t i = 0; i < program_.outputs.size(); ++i)
    if (edits_.changed(program_.outputs[i].value))
      output(i);
  CheckResult made;
  Collector collector(program_, state_.bodies);
  collector.add(state_.main, made);
  edits_.end();
  if (collector.refused())
    return std::nullopt;
  return std::move(made.findings);
}

void Walk::resume() {
  state_.recording = false;
  undecided_.take_decided_words();
  for (const ir::Param &param : program_.params)
    if (is_state_role(param.role))
      state_.kept[param.value.index] = true;
  for (uint32_t i = 0; i < program_.values.size(); ++i)
    state_.storage.define(ValueId{i});
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i)
    if (!state_.rules.resolve(program_.insts[InstId{i}].op).transition.empty())
      gradients_.note_move(InstId{i});
  contracts_.resume();
}

void Walk::judge_declaration(uint32_t index) {
  const ir::Param &param = program_.params[index];
  const ir::Value &value = program_.values[param.value];
  Type type;
  type.set_mesh(value.mesh.valid() ? value.mesh : program_.contexts[ir::ContextId{0}].mesh);
  if (value.declared.valid())
    type = state_.seen(value.declared, ir::ContextId{0});
  bool carries = param.role == ir::Role::Input || param.role == ir::Role::Param;
  type.set_gradient_free(state_.gradient_free(value, !carries));
  AxisSet axes = program_.meshes[type.mesh()].typed_axes();
  if (state_.options.permissive)
    type.unknown |= axes - type.claimed();
  undecided(index, type);
  rules::DeclaredSizes sizes;
  if (value.declared.valid() && program_.mode == ir::Mode::Global)
    sizes = rules::declared_sizes(program_, type, value.shape, value.global_shape,
                                  program_.rank.value_or(0));
  if (sizes.problem)
    state_.report({Place::Form::Param, index}, std::move(*sizes.problem));
  state_.learn(param.value, {state_.intern(type), value.shape, sizes.sizes});
  if (second_)
    second_->declare(param.value, type);
  state_.storage.define(param.value);
  if (is_state_role(param.role))
    state_.kept[param.value.index] = true;
  contracts_.declare(index);
}

// `R|I` is decided by the gradient contract, or does not matter where no gradient flows.
void Walk::undecided(uint32_t index, Type &type) {
  AxisSet open = type.either() - type.zero();
  if (open.empty() || type.gradient_free())
    return;
  const ir::Param &param = program_.params[index];
  if (param.grad.grad.valid()) {
    ir::TypeId stated = program_.claims[param.grad.grad].type;
    if (stated.valid()) {
      const Type &grad = program_.types[stated];
      AxisSet partial = open & grad.of(Kind::Partial), invariant = open & grad.of(Kind::Invariant);
      type.set_kind(partial, Kind::Replicate);
      type.set_kind(invariant, Kind::Invariant);
      open -= partial | invariant;
    }
  }
  if (open.empty())
    return;
  state_.report({Place::Form::Param, index}, rules::UndecidedKind{param.value, open});
  type.set_unknown(open);
}

void Walk::instructions(const ir::Body &body) {
  for (uint32_t i = body.first.index; i < body.last.index; ++i)
    instruction(InstId{i});
}

// Operands to which an ordinary op gives no gradient.
static llvm::SmallVector<uint32_t, 2> gradients_that_end(const rules::Outcome &outcome) {
  llvm::SmallVector<uint32_t, 2> operands;
  for (const rules::Violation &violation : outcome.violations)
    if (const auto *found = violation.as<rules::MissingVjp>())
      operands.push_back(found->operand.index);
  return operands;
}

void Walk::type_instruction(InstId id) {
  ir::Inst inst = program_.insts[id];
  const ir::Context &context = program_.contexts[inst.context];
  ++state_.trail->stats.ops;
  state_.operands.read(program_, inst.operands);
  state_.args.clear();
  for (ValueId value : state_.operands.values)
    state_.args.push_back(state_.known(value));
  const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
  if (second_)
    second_->begin(op);
  if (state_.edit && state_.edit->inst == id) {
    if (edits_.apply(inst))
      return;
  } else if (!state_.edit && !program_.lacks(ir::Missing::Mutation)) {
    effects_.judge_stale(id);
  }
  if (before_)
    before_ = counted();
  if (!state_.options.permissive)
    missing(id, context);
  if (op.form == rules::OpForm::Boundary)
    contracts_.put_operands(id, op.boundary);
  bool lifted = op.boundary == rules::Boundary::ReinterpretMesh || lift(id, inst);
  if (context.grad && (op.form == rules::OpForm::Transition || op.form == rules::OpForm::Call))
    if (contracts_.cut_gradients(inst))
      before_.reset();
  state_.claims.clear();
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    const ir::Value &value = program_.values[inst.result(i)];
    state_.claims.push_back({value.shape, value.declared, value.global_shape});
  }
  if (op.form == rules::OpForm::Unknown)
    ++state_.trail->stats.unknown_ops;
  if (op.assumed)
    state_.report(Place::inst(id), rules::AssumedRule{rule_text(op)});
  if (op.form == rules::OpForm::Call) {
    before_.reset();
    rules::Outcome outcome;
    undecided_.set_result_rows({});
    calls_.run(id, inst, op, outcome);
    results(id, inst, outcome);
    return;
  }
  rules::Application app{program_,
                         op,
                         inst.attrs,
                         inst.context,
                         state_.operands.slots,
                         state_.args,
                         state_.claims,
                         state_.options.infer_partial};
  if (!conditions_.empty())
    conditions_.judge(id, app);
  if (second_)
    if (std::optional<rules::Outcome> restated = second_->restated(inst, app))
      return results(id, inst, *restated);
  // Where an op gives an operand no gradient nothing is wrong if no parameter is behind it.
  auto judged = [&]() -> const rules::Outcome & {
    while (op.form == rules::OpForm::Equation) {
      bool changed = false;
      for (uint32_t at : gradients_that_end(state_.rules.apply(app))) {
        before_.reset(); // whether it is asked for depends on the value
        if (contracts_.boundary().needs_gradient(state_.operands.values[at]))
          continue;
        state_.args[at].type = rules::without_gradient(program_, state_.args[at].type);
        changed = true;
      }
      if (!changed)
        break;
    }
    return state_.rules.apply(app);
  };
  if (mover && lifted && context.implicit)
    mover(id, state_.rules, state_.operands.values, judged(), app, state_.args);
  if (unites_ && op.form == rules::OpForm::Equation && lifted && context.check)
    cast_implicitly(id, app, judged());
  const rules::Outcome &outcome = judged();
  uint32_t application = state_.rules.last_index();
  // Where checking is off nothing is refused; what does not follow is unknown.
  if (lifted && context.check) {
    for (const rules::Violation &violation : outcome.violations)
      state_.report(Place::inst(id), state_.named(violation), application);
    for (const rules::UndecidedExtents &open : outcome.undecided)
      state_.report(Place::inst(id), open, application);
  }
  if (second_)
    second_->judge(id, app);
  for (const rules::InferredWord &word : outcome.inferred)
    state_.trail->inferred.push_back({id, word});
  undecided_.apply(id, app, outcome, application);
  if (op.form == rules::OpForm::Boundary && context.check)
    contracts_.judge_results(id, op.boundary, outcome);
  results(id, inst, outcome);
}

std::string Walk::rule_text(const rules::ResolvedOp &op) const {
  std::string_view text = op.row ? op.row->equation.equation.text : op.transition;
  return std::string(text);
}

// A value without a claim on an axis is reported at its first use and silent from then on.
void Walk::missing(InstId id, const ir::Context &) {
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
bool Walk::lift(InstId id, const ir::Inst &inst) {
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

void Walk::results(InstId id, const ir::Inst &inst, const rules::Outcome &outcome) {
  llvm::SmallVector<AxisSet, 4> unknown_axes(inst.result_count);
  effects_.write(id, inst, outcome, unknown_axes);
  type_results(id, inst, outcome, unknown_axes);
  const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
  if (before_)
    note_cached(inst, op, outcome);
  before_.reset();
  gradients_.meet(id, inst, !op.transition.empty());
}

void Walk::type_results(InstId id, const ir::Inst &inst, const rules::Outcome &outcome,
                        llvm::ArrayRef<AxisSet> unknown_axes) {
  bool checked = program_.contexts[inst.context].check;
  rules::OpForm form = state_.rules.resolve(inst.op).form;
  // Rules hold the shapes of their results against the stated ones themselves.
  bool by_rule = form == rules::OpForm::Equation || form == rules::OpForm::Transition;
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    ValueId result = inst.result(i);
    const ir::Value &value = program_.values[result];
    ir::ShapeId shape = rules::stated_shape(program_, value.shape, outcome.shapes[i]);
    if (checked && !by_rule)
      claims_.judge_shape(id, result, value.shape, outcome.shapes[i]);
    Type type = program_.types[outcome.types[i]];
    ir::Value shaped = value;
    shaped.shape = shape;
    type.set_gradient_free(state_.gradient_free(shaped, type.gradient_free()));
    if (!state_.recording)
      undecided_.keep_word(id, type);
    type.set_unknown(unknown_axes[i]);
    if (value.declared.valid() && checked)
      claims_.judge(id, result, type, value.declared, joining_in(program_, inst));
    else if (value.declared.valid()) {
      bool free = type.gradient_free();
      type = state_.seen(value.declared, inst.context);
      type.set_gradient_free(free);
      state_.report(Place::inst(id), rules::UncheckedClaim{result, value.declared});
    }
    if (second_)
      second_->complete(id, inst, i, type);
    state_.trail->stats.silent += static_cast<uint64_t>(type.unknown.size());
    state_.learn(result, {state_.intern(type), shape, outcome.sizes[i]});
    if (state_.recording && (undecided_.any() || open_axes(type)))
      undecided_.define(result, undecided_.result_row(i), type);
    if (value.global_shape.valid())
      claims_.judge_sizes(id, result, type);
    if (!state_.edit)
      state_.storage.define(result);
  }
  if (state_.edit)
    edits_.take_gradients_back(inst);
}

void Walk::judge_output(uint32_t index) {
  const ir::Output &out = program_.outputs[index];
  const Type type = program_.types[result_.types[out.value.index]];
  Place place{Place::Form::Output, index};
  Type leaves = type;
  bool told = false;
  if (out.declared.valid()) {
    Type claimed = state_.seen(out.declared, ir::ContextId{0});
    if (claimed.mesh() == type.mesh()) {
      // The claim says how the pieces of what was local join.
      rules::ClaimCheck check =
          rules::check_claim(type, claimed, type.gradient_free(), rules::Spec::Joined);
      AxisSet wrong = check.mismatched | check.unowned;
      told = !wrong.empty();
      if (out.role == ir::OutputRole::Grad)
        wrong -= gradients_.unreduced(place, out.value, out.of, wrong);
      if (wrong)
        state_.report(place, rules::ClaimMismatch{out.value, result_.types[out.value.index],
                                                  out.declared, wrong});
      undecided_.meet(undecided_.row(out.value), type, 0, check.type, place,
                      [&](AxisId axis, Kind other) {
                        return rules::ClaimMismatch{out.value, state_.as_kind(type, axis, other),
                                                    state_.on_axes(claimed, axis), axis};
                      });
      leaves = check.type;
    }
  }
  state_output(index);
  AxisSet global = leaves.claimed() - state_.local_axes(leaves.mesh(), ir::ContextId{0});
  if (AxisSet loose = (leaves.of(Kind::Varying) - leaves.sharded()) & global)
    state_.report(place, rules::NoSpec{{}, out.value, loose});
  if (out.role == ir::OutputRole::Grad)
    return told ? void() : contracts_.judge_output(index, type);
  if (out.role == ir::OutputRole::Loss) {
    for (rules::Violation &violation : rules::loss_violations(program_, out.value, type))
      state_.report(place, std::move(violation));
    if (state_.recording)
      for (AxisId axis : open_axes(type) & undecided_.axes(out.value))
        undecided_.need(undecided_.row(out.value), axis, Kind::Invariant, place,
                        rules::LossKind{out.value, {.kind = Kind::Replicate}, axis});
    return contracts_.scales_at_root(place, contracts_.root_type(out.value));
  }
  ir::ScaleId needed =
      out.declared.valid() ? state_.seen(out.declared, ir::ContextId{0}).scale : program_.one();
  if (type.scale == needed)
    return;
  std::string other = ir::print_scale(program_, needed, type.mesh()) + " is needed";
  if (std::optional<rules::Violation> differs =
          rules::scale_differs(program_, type, needed, std::move(other), {}, out.value);
      differs && !told)
    state_.report(place, std::move(*differs));
}

// The new value of a parameter or buffer has the type of the old one.
void Walk::state_output(uint32_t index) {
  const ir::Output &out = program_.outputs[index];
  if (out.role != ir::OutputRole::State || !out.of.valid() || out.declared.valid())
    return;
  const Type &made = program_.types[result_.types[out.value.index]];
  ir::TypeId needed = result_.types[out.of.index];
  if (made.mesh() != program_.types[needed].mesh())
    return;
  AxisSet wrong = rules::check_claim(made, program_.types[needed], made.gradient_free()).mismatched;
  Place place{Place::Form::Output, index};
  wrong -= gradients_.unreduced(place, out.value, out.of, wrong);
  if (wrong)
    state_.report(place,
                  rules::ClaimMismatch{out.value, result_.types[out.value.index], needed, wrong});
}

} // namespace spmd::checker
