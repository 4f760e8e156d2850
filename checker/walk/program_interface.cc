// Declarations and outputs: what each states is held against what is known.
#include "checker/walk/program_interface.h"

#include "rules/boundary/claims.h"
#include "rules/boundary/loss.h"
#include "rules/kinds/scale.h"
#include "rules/shards/remesh.h"
#include "rules/shards/sizes.h"
#include "rules/violations/claims.h"
#include "rules/violations/gradients.h"
#include "rules/violations/operands.h"
#include "rules/violations/shards.h"

#include "ir/mesh/axis_scale.h"

#include <fmt/core.h>

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::Type;
using ir::ValueId;

// A gradient that the step before has left is no state: what it holds is replaced.
static bool is_state(const ir::Program &program, const ir::Param &param) {
  const ir::Role role = param.role;
  return role == ir::Role::Param || role == ir::Role::OptState ||
         (role == ir::Role::Buffer && !program.values[param.value].grad_of.valid());
}

void ProgramInterface::resume() {
  for (const ir::Param &param : program_.params)
    if (is_state(program_, param))
      state_.kept[param.value.index] = true;
}

void ProgramInterface::declare(uint32_t index) {
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
  decide(index, type);
  rules::DeclaredSizes sizes;
  if (value.declared.valid() && (program_.mode == ir::Mode::Global || state_.inference))
    sizes = rules::declared_sizes(program_, type, value.shape, value.global_shape,
                                  program_.rank.value_or(0));
  if (sizes.problem)
    state_.report({Place::Form::Param, index}, std::move(*sizes.problem));
  const AxisSet same = type.same_on_all_ranks() - type.unknown;
  if (AxisSet drifted = rules::axes_of(program_, param.drifted, type.mesh()) & same)
    state_.report({Place::Form::Param, index},
                  rules::CopiesDrift{param.value, drifted, "the first step"});
  if (AxisSet later = rules::axes_of(program_, param.drifts_later, type.mesh()) & same)
    state_.report({Place::Form::Param, index},
                  rules::CopiesDrift{param.value, later, fmt::format("step {}", param.drift_step)});
  if (state_.inference && param.role == ir::Role::Buffer)
    if (AxisSet drifted = state_.inference->drifted(param, type))
      state_.report({Place::Form::Param, index},
                    rules::CopiesDrift{param.value, drifted, "the first step"});
  if (std::string off = rules::describe_gradient_ratio(param.gradient_ratio.value_or(1));
      !off.empty())
    state_.report({Place::Form::Param, index}, rules::WrongGradient{param.value, std::move(off)});
  if (state_.inference) {
    type = state_.inference->with_cuts(param.value, type);
    state_.inference->declare(param.value, type);
  }
  state_.learn(param.value, {state_.intern(type), value.shape, sizes.sizes});
  state_.storage.define(param.value);
  if (is_state(program_, param))
    state_.kept[param.value.index] = true;
  contracts_.declare(index);
}

// `R|I` is decided by the gradient contract, or does not matter where no gradient flows.
void ProgramInterface::decide(uint32_t index, Type &type) {
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
  // Where nobody has declared anything, what is not decided is unknown, and that is all.
  if (!state_.options.undeclared)
    state_.report({Place::Form::Param, index}, rules::UndecidedKind{param.value, open});
  type.set_unknown(open);
}

// What the claim says of it; true if it contradicts. `leaves`: the type, then as it is claimed.
bool ProgramInterface::judge_claim(uint32_t index, Type &leaves) {
  const ir::Output &out = program_.outputs[index];
  if (!out.declared.valid())
    return false;
  const Type type = leaves, claimed = state_.seen(out.declared, ir::ContextId{0});
  if (claimed.mesh() != type.mesh())
    return false;
  const Place place{Place::Form::Output, index};
  // The claim says how the pieces of what was local join.
  rules::ClaimCheck check =
      rules::check_claim(type, claimed, type.gradient_free(), rules::Spec::Joined);
  AxisSet wrong = check.mismatched | check.unowned;
  const bool reported = !wrong.empty();
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
  return reported;
}

void ProgramInterface::output(uint32_t index) {
  const ir::Output &out = program_.outputs[index];
  const Type type = program_.types[result_.types[out.value.index]];
  const Place place{Place::Form::Output, index};
  Type leaves = type;
  const bool reported = judge_claim(index, leaves);
  judge_state(index);
  AxisSet global = leaves.claimed() - state_.local_axes(leaves.mesh(), ir::ContextId{0});
  if (AxisSet loose = (leaves.of(Kind::Varying) - leaves.sharded()) & global)
    state_.report(place, rules::NoSpec{{}, out.value, loose});
  if (out.role == ir::OutputRole::Grad)
    return reported ? void() : contracts_.judge_output(index, type);
  if (out.role == ir::OutputRole::Loss)
    return judge_loss(place, out.value, type);
  ir::ScaleId needed =
      out.declared.valid() ? state_.seen(out.declared, ir::ContextId{0}).scale : program_.one();
  if (type.scale == needed)
    return;
  std::string other = ir::print_scale(program_, needed, type.mesh()) + " is needed";
  if (std::optional<rules::Violation> differs =
          rules::scale_differs(program_, type, needed, std::move(other), {}, out.value);
      differs && !reported)
    state_.report(place, std::move(*differs));
}

void ProgramInterface::judge_loss(Place place, ValueId value, const Type &type) {
  for (rules::Violation &violation : rules::loss_violations(program_, value, type))
    state_.report(place, std::move(violation));
  if (state_.recording)
    for (AxisId axis : undecided_axes(type) & undecided_.axes(value))
      undecided_.need(undecided_.row(value), axis, Kind::Invariant, place,
                      rules::LossKind{value, {.kind = Kind::Replicate}, axis});
  contracts_.scales_at_root(place, contracts_.root_type(value));
}

// The new value of a parameter or buffer has the type of the old one.
void ProgramInterface::judge_state(uint32_t index) {
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
