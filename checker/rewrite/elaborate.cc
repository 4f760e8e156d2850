// Three passes: the walk asks, op by op, to what its operands are brought; the moves are put in, R
// or I left open where one makes an axis replicated; the solution for unstated words says which.
#include "checker/rewrite/elaborate.h"

#include "checker/operand_list.h"
#include "checker/rewrite/inline.h"
#include "checker/walk/walk.h"

#include "rules/bind.h"
#include "rules/derivative.h"
#include "rules/ops/registry.h"
#include "rules/redistribute/ends.h"
#include "rules/redistribute/placement.h"
#include "rules/shards/sizes.h"
#include "rules/violations/operands.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

#include <map>

namespace spmd::checker {
namespace {

namespace rd = rules::redistribute;
using ir::AxisId;
using ir::AxisSet;
using ir::Inst;
using ir::InstId;
using ir::Kind;
using ir::TypeId;
using ir::ValueId;

// What one op needs.
struct Decision {
  rd::Placement placement;
  llvm::SmallVector<rules::TensorInfo, 4> had;
  std::string reason;
  llvm::SmallVector<std::string, 4> names; // of the operands in the row
  llvm::SmallVector<bool, 4> read_again;
  bool torn = false;    // calls of one body need different ones
  bool several = false; // calls of one body start from different types
};

class Elaborator {
public:
  Elaborator(ir::Program &program, const CheckOptions &options, const rd::Topology &topology)
      : program_(program), options_(options), planner_(program, topology, &effort_),
        copier_(program) {}

  Elaboration run() {
    decide();
    put();
    settle();
    return std::move(out_);
  }

private:
  // --- which moves ---

  void decide() {
    CheckResult result;
    Walk walk(program_, options_, result);
    walk.mover = [this](InstId id, rules::Rules &rules, llvm::ArrayRef<ValueId> values,
                        const rules::Outcome &outcome, rules::Application &app,
                        llvm::MutableArrayRef<rules::TensorInfo> args) {
      decide(id, rules, values, outcome, app, args);
    };
    walk.run();
  }
  void decide(InstId id, rules::Rules &rules, llvm::ArrayRef<ValueId> values,
              const rules::Outcome &outcome, rules::Application &app,
              llvm::MutableArrayRef<rules::TensorInfo> args) {
    const uint32_t application = rules.last_index(); // of the outcome
    rd::Placer placer(program_, rules, planner_);
    auto known = decisions_.find(id.index);
    if (!placer.refuses(app, outcome)) {
      // Accepted here, moved for another call.
      if (known != decisions_.end())
        known->second.torn = true;
      else
        accepted_.insert(id.index);
      return;
    }
    const std::optional<rd::Placement> &placement =
        placed(placer, id, application, values, outcome, app);
    if (!placement)
      return;
    Decision decision{.placement = *placement, .had = {args.begin(), args.end()}};
    if (known != decisions_.end()) {
      known->second.several |= known->second.had != decision.had;
      if (known->second.placement.types != decision.placement.types) {
        plain(known->second);
        plain(decision);
      }
      known->second.torn |= known->second.placement.types != decision.placement.types ||
                            known->second.placement.attrs != decision.placement.attrs;
    } else {
      decision.torn = accepted_.count(id.index);
      describe(app, outcome, decision);
      known = decisions_.emplace(id.index, std::move(decision)).first;
    }
    const rd::Placement &chosen = known->second.placement;
    for (size_t i = 0; i < args.size(); ++i)
      args[i] = rd::moved_to(program_, args[i], chosen.types[i]);
    app.attrs = chosen.attrs;
  }

  // R where it was left open which: calls that start from different types may agree on that.
  void plain(Decision &decision) {
    for (size_t i = 0; i < decision.had.size(); ++i) {
      ir::Type type = program_.types[decision.placement.types[i]];
      AxisSet open = type.either() - program_.types[decision.had[i].type].either();
      type.set_kind(open, Kind::Replicate);
      decision.placement.types[i] = program_.types.add(type);
    }
  }

  // Found once for equal applications whose operands are the same values.
  const std::optional<rd::Placement> &placed(rd::Placer &placer, InstId id, uint32_t application,
                                             llvm::ArrayRef<ValueId> values,
                                             const rules::Outcome &outcome,
                                             const rules::Application &app) {
    OperandList operands;
    operands.read(program_, program_.insts[id].operands);
    std::vector<uint32_t> key{application};
    for (size_t i = 0; i < values.size(); ++i) {
      auto first = static_cast<uint32_t>(llvm::find(values, values[i]) - values.begin());
      key.push_back(2 * first + operands.written[i]);
    }
    auto [at, fresh] = placed_.try_emplace(std::move(key));
    if (fresh) {
      effort_ = {kPerOp, false};
      at->second = placer.place(app, outcome, values, operands.written);
      out_.cut += effort_.cut;
    }
    return at->second;
  }

  void describe(const rules::Application &app, const rules::Outcome &outcome, Decision &decision) {
    decision.reason = "claim-mismatch";
    for (const rules::Violation &violation : outcome.violations)
      if (rules::info(violation).severity == rules::Severity::Error) {
        decision.reason = std::string(rules::info(violation).name);
        break;
      }
    decision.names.resize(app.args.size());
    decision.read_again.resize(app.args.size());
    for (const rules::RowUse &use : rules::row_uses(app)) {
      rules::Application one = app.bound_to(use);
      rules::OperandMismatch problem;
      const rules::Equation &equation = use.row->equation.equation;
      if (std::optional<rules::Binding> binding = rules::bind_operands(one, equation, problem))
        describe(one, *use.row, *binding, decision);
    }
  }
  static void describe(const rules::Application &app, const rules::OpDef &row,
                       const rules::Binding &binding, Decision &decision) {
    const rules::Equation &equation = row.equation.equation;
    for (unsigned operand = 0; operand < equation.operand_count; ++operand) {
      if (!binding[operand])
        continue;
      bool again = is_read_backward(app, row, binding, operand);
      const rules::Slot &slot = *binding[operand];
      for (unsigned i = 0; i < slot.count; ++i) {
        decision.names[slot.first + i] = std::string(equation.operands[operand].name);
        decision.read_again[slot.first + i] = again;
      }
    }
  }
  // True if the derivative with respect to an operand that carries a gradient is a function of this
  // one.
  static bool is_read_backward(const rules::Application &app, const rules::OpDef &row,
                               const rules::Binding &binding, unsigned operand) {
    const rules::Equation &equation = row.equation.equation;
    auto reads = [&](const rules::OpDef &derived) {
      const rules::Equation &backward = derived.equation.equation;
      unsigned place = backward.find_operand(equation.operands[operand].name);
      return place < backward.operand_count && backward.reads(place);
    };
    for (unsigned other = 0; other < equation.operand_count; ++other) {
      bool carries = false;
      for (unsigned i = 0; binding[other] && i < binding[other]->count; ++i)
        carries |= !app.type(app.args[binding[other]->first + i]).gradient_free();
      const rules::OpDef *derived =
          carries && app.op_context().grad ? rules::derivative(row, other) : nullptr;
      if (derived && reads(*derived))
        return true;
    }
    return false;
  }

  // --- the moves as instructions ---

  void put() {
    replace_each(program_, [&](const Inst &inst, InstId id, std::vector<Inst> &out) {
      Inst made = inst;
      auto known = decisions_.find(id.index);
      if (known != decisions_.end() && known->second.torn)
        out_.torn.push_back(InstId{static_cast<uint32_t>(out.size())});
      else if (known != decisions_.end())
        put(known->second, made, out);
      out.push_back(made);
    });
  }
  void put(const Decision &decision, Inst &inst, std::vector<Inst> &out) {
    OperandList operands;
    operands.read(program_, inst.operands);
    llvm::SmallVector<ValueId, 8> &values = operands.values;
    llvm::SmallVector<std::pair<size_t, size_t>, 4> used; // operand, insertion
    for (size_t i = 0; i < values.size(); ++i) {
      TypeId wanted = decision.placement.types[i];
      if (wanted == decision.had[i].type)
        continue;
      auto [at, fresh] =
          moves_.try_emplace({values[i].index, wanted.index}, out_.insertions.size());
      if (fresh)
        insert(inst, decision, i, values[i], out);
      Insertion &insertion = out_.insertions[at->second];
      ++insertion.uses;
      insertion.read_again |= decision.read_again[i] && insertion.gradient;
      values[i] = insertion.value;
      used.push_back({i, at->second});
    }
    for (auto [operand, index] : used)
      if (out_.insertions[index].uses == 1)
        out_.insertions[index].first_use = InstId{static_cast<uint32_t>(out.size())};
    size_t next = 0;
    inst.operands = replaced(inst.operands, values, next);
    if (inst.attrs != decision.placement.attrs)
      out_.sums.push_back(
          {InstId{static_cast<uint32_t>(out.size())},
           stated(decision.placement.attrs, inst.context) - stated(inst.attrs, inst.context)});
    inst.attrs = decision.placement.attrs;
  }
  void insert(const Inst &use, const Decision &decision, size_t operand, ValueId of,
              std::vector<Inst> &out) {
    Insertion insertion;
    insertion.of = of;
    insertion.had = decision.had[operand].type;
    insertion.wanted = decision.placement.types[operand];
    insertion.op = program_.op_name(use.op).str();
    insertion.operand = decision.names[operand];
    insertion.reason = decision.reason;
    insertion.gradient =
        !program_.types[insertion.had].gradient_free() && program_.contexts[use.context].grad;
    ir::Value value;
    value.name = copier_.fresh_name(name_of(of));
    insertion.value = program_.values.add(value);
    Inst move = use;
    move.op = spmd_op(program_, rules::name_of(rules::TransitionOp::Redistribute));
    move.operands = program_.operand_lists.add({ir::Operand::value(of)});
    move.first_result = insertion.value;
    move.result_count = 1;
    move.attrs = to_type(insertion, decision.had[operand]);
    out.push_back(move);
    had_.push_back(decision.had[operand]);
    by_type_.push_back(decision.several);
    out_.insertions.push_back(std::move(insertion));
  }
  std::string name_of(ValueId value) const {
    const ir::ValueName name = program_.values[value].name;
    return (name.is_number() ? "v" : "") + ir::print(name, program_.strings).substr(1);
  }
  ir::OperandsId replaced(ir::OperandsId block, llvm::ArrayRef<ValueId> values, size_t &next) {
    llvm::SmallVector<ir::Operand, 8> operands(program_.operand_lists[block].begin(),
                                               program_.operand_lists[block].end());
    for (ir::Operand &operand : operands) {
      if (operand.form == ir::Operand::Form::List)
        operand.index = replaced(operand.as_list(), values, next).index;
      else if (operand.is_value())
        operand.index = values[next++].index;
    }
    return program_.operand_lists.add(operands);
  }
  AxisSet stated(ir::AttrsId attrs, ir::ContextId context) const {
    AxisSet axes;
    const ir::Mesh &mesh = program_.meshes[program_.contexts[context].mesh];
    if (const ir::AttrValue *partial = program_.find(attrs, "partial");
        partial && partial->form == ir::AttrForm::Axes)
      for (const ir::AxisRef &ref : program_.axis_refs[partial->as<ir::AxisRefsId>()].refs)
        if (std::optional<AxisId> axis = mesh.find(ref.axis))
          axes |= *axis;
    return axes;
  }

  // --- R or I, prices, and how it is written ---

  void settle() {
    if (out_.insertions.empty())
      return;
    CheckResult result = check(program_, options_);
    rules::Rules rules(program_);
    for (size_t i = 0; i < out_.insertions.size(); ++i) {
      Insertion &insertion = out_.insertions[i];
      ir::Type had = program_.types[insertion.had], wanted = program_.types[insertion.wanted];
      AxisSet kept = (wanted.either() & had.either()) - had.zero() - wanted.zero();
      decide(had, result.types[insertion.of.index]);
      decide(wanted, result.types[insertion.value.index]);
      for (AxisId axis : kept)
        wanted.set_kind(axis, *had.kind(axis));
      insertion.had = had_[i].type = program_.types.add(had);
      insertion.wanted = program_.types.add(wanted);
      by_type_[i] = price(insertion, had_[i]).steps.size() != 1 || by_type_[i];
    }
    std::map<uint32_t, size_t> made;
    for (size_t i = 0; i < out_.insertions.size(); ++i)
      made[out_.insertions[i].value.index] = i;
    for (uint32_t i = 0; i < program_.insts.size(); ++i) {
      Inst &inst = program_.insts[InstId{i}];
      if (auto found = made.find(inst.first_result.index);
          inst.result_count == 1 && found != made.end())
        inst.attrs = written(rules, inst, found->second);
    }
  }
  // R or I as it was found; R where no use decides.
  void decide(ir::Type &type, TypeId found) const {
    for (AxisId axis : type.either() - type.zero()) {
      std::optional<Kind> kind =
          found.valid() ? program_.types[found].kind(axis) : std::optional<Kind>();
      type.set_kind(axis, kind == Kind::Invariant ? Kind::Invariant : Kind::Replicate);
    }
  }
  const rd::Plan &price(Insertion &insertion, const rules::TensorInfo &had) {
    rd::Request request{insertion.had, insertion.wanted,
                        rules::global_shape(program_, program_.types[insertion.had], had)};
    request.gradient = insertion.gradient;
    effort_ = {kPerOp, false};
    const rd::Plan &plan = planner_.plan(request);
    insertion.forward_bytes = plan.bytes;
    insertion.backward_bytes = insertion.gradient ? plan.backward_bytes : 0;
    insertion.collectives = plan.collectives;
    return plan;
  }
  // On one axis by its words where these say the same, else by the whole type.
  ir::AttrsId written(rules::Rules &rules, const Inst &inst, size_t index) {
    const Insertion &insertion = out_.insertions[index];
    const rules::TensorInfo had = had_[index];
    const ir::Type from = program_.types[insertion.had], to = program_.types[insertion.wanted];
    AxisSet changed = rd::changed_axes(program_, from, to);
    if (changed.size() == 1 && !by_type_[index]) {
      ir::AttrsId attrs = by_words(from, to, changed.first());
      rules::Slot slot;
      slot.form = rules::Slot::Form::Tensor;
      slot.count = 1;
      rules::ResultClaim claim;
      const rules::Outcome &outcome =
          rules.apply({program_, rules.resolve(inst.op), attrs, inst.context, slot, had, claim});
      rules::TensorInfo wanted = rd::moved_to(program_, had, insertion.wanted);
      if (outcome.violations.empty() && outcome.types[0] == wanted.type &&
          outcome.shapes[0] == wanted.shape && outcome.sizes[0] == wanted.sizes)
        return attrs;
    }
    return to_type(insertion, had);
  }
  ir::AttrsId by_words(const ir::Type &from, const ir::Type &to, AxisId axis) {
    ir::AxisRefs refs;
    refs.refs.push_back({{}, program_.meshes[from.mesh()][axis].name});
    return attributes({{"axis", ir::AttrValue::axes(program_.axis_refs.add(std::move(refs)))},
                       {"src", ir::AttrValue::kind(rd::word_at(from, to, axis))},
                       {"dst", ir::AttrValue::kind(rd::word_at(to, from, axis))}});
  }
  ir::AttrsId to_type(const Insertion &insertion, const rules::TensorInfo &had) {
    ir::Type wanted = program_.types[insertion.wanted];
    // Before it is decided: what is open stays what it is.
    wanted.clear(program_.types[insertion.had].either() & wanted.either());
    wanted.set_gradient_free(false);
    ir::Claim claim{
        program_.types.add(wanted), rd::moved_to(program_, had, insertion.wanted).shape, {}};
    return attributes({{"type", ir::AttrValue::claim(program_.claims.add(claim))}});
  }
  ir::AttrsId attributes(std::initializer_list<std::pair<llvm::StringRef, ir::AttrValue>> list) {
    ir::AttrDict dict;
    for (const auto &[key, value] : list)
      dict.attrs.push_back({program_.strings.add(key), value});
    ir::sort_canonically(dict, program_.strings);
    return program_.attrs.add(std::move(dict));
  }

  ir::Program &program_;
  const CheckOptions &options_;
  // Moves that the search for one op looks at, on every machine the same.
  static constexpr uint64_t kPerOp = 150'000;
  rd::SearchBudget effort_;
  rd::Planner planner_;
  BodyCopier copier_;                      // for names
  std::map<uint32_t, Decision> decisions_; // by instruction
  llvm::DenseSet<uint32_t> accepted_;
  std::map<std::vector<uint32_t>, std::optional<rd::Placement>> placed_;
  std::map<std::pair<uint32_t, uint32_t>, size_t> moves_; // value and type -> insertion
  std::vector<rules::TensorInfo> had_;                    // per insertion
  std::vector<bool>
      by_type_; // per insertion: it starts from other types too, or takes several steps
  Elaboration out_;
};

} // namespace

Elaboration elaborate(ir::Program &program, const CheckOptions &options,
                      const rd::Topology &topology) {
  if (options.mode)
    program.mode = *options.mode;
  bool any = llvm::any_of(program.insts.all(), [&](const Inst &inst) {
    return program.contexts[inst.context].implicit;
  });
  if (!any)
    return {};
  return Elaborator(program, options, topology).run();
}

} // namespace spmd::checker
