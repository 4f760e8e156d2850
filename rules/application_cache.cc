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

#include <array>
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
  llvm::SmallVector<uint32_t, 64> key; // of the application that was looked for last
  uint32_t *slot = nullptr;            // where the table has it, or is to have it
  // Layers repeat: by an application and a little of the one that comes next, which one that was.
  static constexpr unsigned kNextBits = 11;
  std::array<uint32_t, 1 << kNextBits> next{};

  static size_t next_slot(uint32_t before, const Application &app) {
    const Arg first = app.args.empty() ? Arg() : app.args[0];
    const uint32_t result = app.results.empty() ? 0 : app.results[0].shape.index;
    const uint32_t hash = before * 0x9e37'79b1u ^ app.op.spelling.index * 0x85eb'ca6bu ^
                          first.type.index * 0xc2b2'ae35u ^ first.shape.index * 0x27d4'eb2fu ^
                          result * 0x1656'67b1u;
    return hash >> (32 - kNextBits);
  }

  // Keys are short, and mostly equal: compared in place, without a branch for each word.
  bool is_key(uint32_t i) const {
    const size_t first = i == 0 ? 0 : ends[i - 1], count = ends[i] - first;
    if (count != key.size())
      return false;
    uint32_t differ = 0;
    for (size_t at = 0; at < count; ++at)
      differ |= keys[first + at] ^ key[at];
    return differ == 0;
  }

  void make_key(const Application &app, uint32_t spelling) {
    constexpr size_t kHead = 5, kSlot = 7, kArg = 3;
    key.resize_for_overwrite(kHead + kSlot * app.slots.size() +
                             kArg * (app.args.size() + app.results.size()));
    uint32_t *at = key.data(); // the most that it can take; cut to size below
    const auto add = [&](auto... words) { ((*at++ = static_cast<uint32_t>(words)), ...); };
    add(spelling, app.attrs.index, app.context.index, app.slots.size(), app.results.size());
    for (const Slot &slot : app.slots) {
      add(slot.form, slot.count);
      if (slot.name.valid())
        add(slot.name.index | 0x8000'0000u);
      if (slot.form != Slot::Form::Tensor) // of a list: which members are there
        for (uint64_t word : {uint64_t(slot.literal.form), slot.literal.bits})
          add(word, word >> 32);
    }
    for (const Arg &arg : app.args)
      add(arg.type.index, arg.shape.index, arg.sizes.index);
    for (const ResultClaim &result : app.results)
      add(result.shape.index, result.declared.index, result.global.index);
    key.truncate(static_cast<size_t>(at - key.data()));
  }
};

Rules::Rules(ir::Program &program, bool memoise)
    : state_(new State{program, memoise, {}, {}, UserRules(program), {}, {}, {}, {}, {}, nullptr}) {
}
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

uint32_t Rules::find(const Application &app) {
  State &state = *state_;
  if (!state.memoise)
    return kNone;
  state.make_key(app, app.op.spelling.index);
  uint32_t &next = state.next[State::next_slot(last_, app)];
  if (next < state.outcomes.size() && state.is_key(next))
    return last_ = next;
  // A caller that does not find what it needs asks for the same again.
  if (last_ < state.outcomes.size() && state.is_key(last_))
    return last_;
  state.slot =
      &state.table.find(ir::hash_bytes(state.key.data(), state.key.size() * sizeof(uint32_t)),
                        [&](uint32_t i) { return state.is_key(i); });
  if (*state.slot == ir::IndexTable::kEmpty)
    return kNone;
  return last_ = next = *state.slot;
}

const Outcome &Rules::apply(const Application &app) {
  State &state = *state_;
  if (uint32_t found = find(app); found != kNone)
    return state.outcomes[found];
  last_ = static_cast<uint32_t>(state.outcomes.size());
  if (state.memoise) {
    *state.slot = last_;
    state.table.inserted();
    state.keys.insert(state.keys.end(), state.key.begin(), state.key.end());
    state.ends.push_back(state.keys.size());
  }
  apply_fresh(app, state.outcomes.emplace_back());
  return state.outcomes.back();
}

} // namespace spmd::rules
