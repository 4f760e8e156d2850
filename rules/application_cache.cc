// Typing one application of any op, and the cache that makes equal applications cost one look-up.
// What it costs and spares: checker/README.md, "One cache".
#include "rules/apply.h"

#include "rules/kinds/unknown.h"
#include "rules/ops/registry.h"
#include "rules/ops/user_rules.h"
#include "rules/shards/shards.h"
#include "rules/transitions/axes.h"
#include "rules/violations/coverage.h"
#include "rules/violations/gradients.h"

#include "ir/support/successors.h"

#include <deque>

namespace spmd::rules {

using ir::AxisSet;

bool lacks_vjp(const ir::Program &program, ir::AttrsId attrs) {
  const ir::AttrValue *vjp = program.find(attrs, "vjp");
  return vjp && vjp->form == ir::AttrForm::String &&
         program.strings[vjp->as<ir::StringId>()] == "none";
}

ir::TypeId without_gradient(ir::Program &program, ir::TypeId id) {
  ir::Type type = program.types[id];
  type.set_gradient_free(true);
  return program.types.add(type);
}

std::optional<OperandIndex> cut_gradient(const Application &app) {
  bool none = lacks_vjp(app.program, app.attrs);
  for (uint32_t i = 0; none && app.where().grad && i < app.args.size(); ++i)
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
  std::vector<uint32_t> keys; // of all distinct applications, back to back
  std::vector<size_t> ends;
  ir::IndexTable table;
  std::vector<uint32_t> key;
  ir::Successors order;

  llvm::ArrayRef<uint32_t> stored(uint32_t i) const {
    size_t first = i == 0 ? 0 : ends[i - 1];
    return llvm::ArrayRef<uint32_t>(keys.data() + first, ends[i] - first);
  }

  void make_key(const Application &app, uint32_t spelling) {
    key.assign({spelling, app.attrs.index, app.context.index,
                static_cast<uint32_t>(app.slots.size()),
                static_cast<uint32_t>(app.results.size())});
    for (const Slot &slot : app.slots) {
      key.push_back(static_cast<uint32_t>(slot.form));
      key.push_back(slot.count);
      if (slot.name.valid())
        key.push_back(slot.name.index | 0x8000'0000u);
      if (slot.form != Slot::Form::Tensor) // of a list: which members are there
        for (uint64_t word : {uint64_t(slot.literal.form), slot.literal.bits})
          key.push_back(static_cast<uint32_t>(word)),
              key.push_back(static_cast<uint32_t>(word >> 32));
    }
    for (const Arg &arg : app.args)
      key.insert(key.end(), {arg.type.index, arg.shape.index, arg.sizes.index});
    for (const ResultClaim &result : app.results)
      key.insert(key.end(), {result.shape.index, result.declared.index, result.global.index});
  }
};

Rules::Rules(ir::Program &program, bool memoise)
    : state_(new State{program, memoise, {}, {}, UserRules(program), {}, {}, {}, {}, {}, {}}) {}
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

static void dispatch(const Application &app, Outcome &out) {
  switch (app.op.form) {
  case OpForm::Equation:
    apply_equation(app, out);
    break;
  case OpForm::Transition:
    apply_transition(app, out);
    break;
  case OpForm::Boundary:
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
  llvm::SmallVector<Arg, 4> args(app.args.begin(), app.args.end());
  // What stands outside of a local region is a list inside of it.
  for (size_t i = 0; i < args.size(); ++i)
    warn_uneven_lists(app.program, args[i], app.local_axes(), {static_cast<uint32_t>(i)},
                      out.violations);
  std::optional<OperandIndex> cut = cut_gradient(app);
  for (Arg &arg : args)
    if (cut)
      arg.type = without_gradient(app.program, arg.type);
  Application seen{app.program, app.op, app.attrs,   app.context,
                   app.slots,   args,   app.results, app.infer_partial};
  dispatch(seen, out);
  if (app.op.form == OpForm::Equation || app.op.form == OpForm::Transition)
    add_certain(seen, dispatch, out);
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
  if (!state.memoise) {
    last_ = static_cast<uint32_t>(state.outcomes.size());
    apply_fresh(app, state.outcomes.emplace_back());
    return state.outcomes.back();
  }
  state.make_key(app, app.op.spelling.index);
  if (uint32_t next = state.order.likely();
      next != ir::Successors::kNone && state.stored(next) == llvm::ArrayRef<uint32_t>(state.key)) {
    state.order.meet(next);
    last_ = next;
    return state.outcomes[next];
  }
  uint64_t hash = ir::hash_bytes(state.key.data(), state.key.size() * sizeof(uint32_t));
  uint32_t &slot = state.table.find(
      hash, [&](uint32_t i) { return state.stored(i) == llvm::ArrayRef<uint32_t>(state.key); });
  if (slot == ir::IndexTable::kEmpty) {
    slot = static_cast<uint32_t>(state.outcomes.size());
    last_ = slot;
    state.table.inserted();
    state.keys.insert(state.keys.end(), state.key.begin(), state.key.end());
    state.ends.push_back(state.keys.size());
    state.order.meet(last_);
    apply_fresh(app, state.outcomes.emplace_back());
    return state.outcomes.back();
  }
  last_ = slot;
  state.order.meet(slot);
  return state.outcomes[slot];
}

} // namespace spmd::rules
