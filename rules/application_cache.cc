// Types one application of any op, and the cache that makes equal applications cost one look-up.
// What it costs and spares: checker/README.md, "One cache".
#include "rules/apply.h"

#include "rules/application_key.h"
#include "rules/attributes/attributes.h"
#include "rules/boundary/boundary.h"
#include "rules/kinds/unknown.h"
#include "rules/ops/registry.h"
#include "rules/ops/user_rules.h"
#include "rules/redistribute/call.h"
#include "rules/shards/sizes.h"
#include "rules/transitions/axes.h"
#include "rules/transitions/call.h"
#include "rules/violations/coverage.h"
#include "rules/violations/gradients.h"

#include "ir/mesh/symbols.h"

#include <array>
#include <deque>

namespace spmd::rules {

using ir::AxisSet;

ir::TypeId without_gradient(ir::Program &program, ir::TypeId id) {
  ir::Type type = program.types[id];
  type.set_gradient_free(true);
  return program.types.add(type);
}

std::optional<OperandIndex> cut_gradient(const Application &app) {
  bool none = lacks_vjp(app.program, app.attrs);
  for (uint32_t i = 0; none && app.op_context().grad && i < app.args.size(); ++i)
    if (!app.type(app.args[i]).gradient_free())
      return OperandIndex{i};
  return std::nullopt;
}

struct Rules::State {
  ir::Program &program;
  bool memoise;
  llvm::SmallVector<std::unique_ptr<ResolvedOp>, 0> resolved; // by spelling id
  std::vector<std::unique_ptr<OpDef>> user_rows;
  UserRules user_rules{program};
  std::deque<Outcome> outcomes;
  ir::IndexTable table;
  llvm::SmallVector<uint32_t, 64> key; // of the application that is looked for

  void make_key(const Application &app) {
    key.resize_for_overwrite(kMostOfOp + kMostOfOperand * app.slots.size() +
                             kMostOfTensor * app.args.size() + kMostOfResult * app.results.size());
    uint32_t *at = key.data(); // cut to size below
    const auto add = [&](auto... words) { ((*at++ = static_cast<uint32_t>(words)), ...); };
    key_of_op(add, app.op.spelling, app.attrs, app.context, app.results.size());
    const auto add_args = [&](llvm::ArrayRef<TensorInfo> args) {
      for (const TensorInfo &arg : args)
        add(arg.type.index, arg.shape.index, arg.sizes.index);
    };
    size_t taken = 0;
    for (const Slot &slot : app.slots) {
      const llvm::ArrayRef<TensorInfo> args = app.args.slice(slot.first, slot.count);
      taken += slot.count;
      if (slot.form == Slot::Form::Tensor) {
        key_of_tensor(add, slot.name, args.front());
        continue;
      }
      key_of_literal(add, slot.form, slot.name, slot.literal); // a list: which members are there
      if (slot.form == Slot::Form::List)
        add(slot.count);
      add_args(args);
    }
    add_args(app.args.drop_front(taken)); // what the checker puts behind the operands
    for (const ResultClaim &result : app.results)
      key_of_result(add, result);
    key.truncate(static_cast<size_t>(at - key.data()));
  }
};

Rules::Rules(ir::Program &program, bool memoise)
    : state_(new State{program, memoise, {}, {}, UserRules(program), {}, {}, {}}) {}
Rules::~Rules() = default;

size_t Rules::distinct() const { return state_->outcomes.size(); }

const ResolvedOp &Rules::resolve(ir::OpNameId spelling) {
  State &state = *state_;
  if (spelling.index >= state.resolved.size())
    state.resolved.resize(std::max<size_t>(spelling.index + 1, state.program.strings.size()));
  std::unique_ptr<ResolvedOp> &slot = state.resolved[spelling.index];
  if (!slot) {
    slot = std::make_unique<ResolvedOp>(resolve_op(state.program, spelling));
    if (slot->form == OpForm::Unknown)
      if (std::optional<ResolvedOp> taught =
              state.user_rules.resolve(spelling, state.user_rows.emplace_back()))
        *slot = std::move(*taught);
    slot->spelling = spelling;
  }
  return *slot;
}

// A redistribution to a whole type, or a call along axes. A backward that it states must lead from
// one dual to the other.
static void apply_checked_transition(const Application &app, Outcome &out) {
  if (redistribute::states_whole_type(app))
    redistribute::apply_whole_type(app, out);
  else
    apply_transition(app, out, [&](const TransitionCall &call) {
      const bool names_ranks = app.attr("root") || app.attr("perm");
      return names_ranks &&
             check_transition_attributes(
                 app, call.op, ir::most_ranks(app.program, size_of(app.mesh(), call.axes.all())),
                 out);
    });
  if (out.violations.empty() && redistribute::stated_gradient(app))
    redistribute::judge_stated_gradient(app, out);
}

static void dispatch(const Application &app, Outcome &out) {
  switch (app.op.form) {
  case OpForm::Equation:
    apply_equation(app, out);
    break;
  case OpForm::Transition:
    forget_results(app, out);
    if (!check_transition_attributes(app, app.op.transition, std::nullopt, out))
      apply_checked_transition(app, out);
    break;
  case OpForm::Boundary:
    forget_results(app, out);
    if (!check_boundary_attributes(app, out))
      apply_boundary(app, out);
    break;
  case OpForm::Call:
  case OpForm::Unknown:
    forget_results(app, out);
    out.violations.push_back(UnknownOp{app.op.nearest});
    break;
  }
  SPMD_CHECK(out.types.size() == app.results.size(), "a rule typed another number of results");
  out.shapes.resize(app.results.size());
  out.sizes.resize(app.results.size());
}

// A call that is stated to have no derivative lets no gradient through; where one should pass, that
// is said, and the results are free of it.
static void apply_fresh(const Application &app, Outcome &out) {
  llvm::SmallVector<TensorInfo, 4> args(app.args.begin(), app.args.end());
  // What stands outside of a local region is a list inside of it.
  for (size_t i = 0; i < args.size(); ++i)
    warn_uneven_shards(app.program, args[i], app.local_axes(), {static_cast<uint32_t>(i)},
                       out.violations);
  std::optional<OperandIndex> cut = cut_gradient(app);
  for (TensorInfo &arg : args)
    if (cut)
      arg.type = without_gradient(app.program, arg.type);
  Application seen{app.program, app.op, app.attrs,   app.context,
                   app.slots,   args,   app.results, app.infer_partial};
  dispatch(seen, out);
  if (app.op.form == OpForm::Equation || app.op.form == OpForm::Transition)
    add_violations_for_all_types(seen, dispatch, out);
  if (!cut)
    return;
  Outcome ignored;
  std::optional<CallAxes> axes;
  if (app.op.form == OpForm::Transition)
    axes = resolve_axes(app, {}, ignored);
  out.violations.push_back(MissingVjp{*cut, axes ? axes->all() : AxisSet()});
}

const Outcome &Rules::apply(const Application &app) {
  State &state = *state_;
  const auto fresh = [&]() -> const Outcome & {
    last_ = static_cast<uint32_t>(state.outcomes.size());
    apply_fresh(app, state.outcomes.emplace_back());
    return state.outcomes.back();
  };
  if (!state.memoise)
    return fresh();
  state.make_key(app);
  const llvm::ArrayRef<uint32_t> key = state.key;
  uint32_t &next =
      known_.next[Known::slot(last_, app.op.spelling, app.args.empty() ? TensorInfo() : app.args[0],
                              app.results.empty() ? ir::ShapeId() : app.results[0].shape)];
  uint32_t &slot = state.table.find(ir::hash_bytes(key.data(), key.size() * sizeof(uint32_t)),
                                    [&](uint32_t i) { return known_.key(i) == key; });
  if (slot != ir::IndexTable::kEmpty) {
    last_ = next = slot;
    return state.outcomes[slot];
  }
  slot = next = static_cast<uint32_t>(state.outcomes.size());
  state.table.inserted();
  known_.keys.insert(known_.keys.end(), key.begin(), key.end());
  known_.ends.push_back(known_.keys.size());
  return fresh();
}

} // namespace spmd::rules
