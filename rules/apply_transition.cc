// The local judgment of collectives, convert and reinterpret: each axis of a call on its own, then
// equal verdicts joined into one violation (rules/README.md; precedence: checker/README.md).
#include "rules/transition_call.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {
namespace {

using ir::AxisId;
using ir::AxisSet;
using ir::Combiner;
using ir::Kind;
using ir::KindWord;

// What one axis of the call comes to for one operand.
struct Verdict {
  enum class Form : uint8_t {
    Fine,
    Unknown, // nothing is known of the operand: silent
    WrongSource,
    ReduceOfReplicated,
    WrongAxis,
    NoTransition,
    ReducedWithoutOwner,
    Expert,
    ReductionMismatch,
    NonSumGradient,
  };
  Form form = Form::Fine;
  KindWord src, dst, found;
  bool erased = false; // a word was inferred
  AxisSet actual;      // WrongAxis
  friend bool operator==(const Verdict &, const Verdict &) = default;
};

bool is_replicated(Kind kind) {
  return kind == Kind::Replicate || kind == Kind::Reduced || kind == Kind::Invariant;
}
bool is_same_everywhere(KindWord word) {
  return word.form == KindWord::Form::Either ||
         (word.form == KindWord::Form::Plain && is_replicated(word.kind));
}

// The axes on which the operand may stand as `kind`. Without a gradient R, Reduced and I are alike.
AxisSet axes_as(const ir::Type &type, Kind kind, bool gradient_free) {
  AxisSet replicated = type.replicated(), invariant = type.of(Kind::Invariant);
  if (gradient_free && is_replicated(kind))
    return replicated | invariant;
  return kind == Kind::Replicate ? replicated : type.of(kind);
}

// Whether V is written at this end in a form that the row has.
bool has_form(const Transition &row, const KindWord &src, const KindWord &dst) {
  bool src_shard = src.form == KindWord::Form::Shard, dst_shard = dst.form == KindWord::Form::Shard;
  if (!src_shard && !dst_shard)
    return true;
  if (row.layouts == Layouts::Plain || row.composed)
    return false;
  // Both ends varying: a transposition of stacks or of shards, never one of each.
  return row.src != Kind::Varying || row.dst != Kind::Varying || src_shard == dst_shard;
}

const Transition *row_of(std::string_view name, Kind src, Kind dst) {
  const Transition *row = find_transition(name, src, dst);
  return row || src != Kind::Reduced ? row : find_transition(name, Kind::Replicate, dst);
}

// The word of the operand, where the call states none: what the name expects, else what it is.
std::optional<KindWord> erased_source(const TransitionCall &call, const ir::Type &type,
                                      std::optional<AxisId> axis) {
  if (call.erased->src)
    return KindWord{.kind = *call.erased->src};
  std::optional<KindWord> found = axis ? ir::kind_word(type, *axis) : std::nullopt;
  if (!found || found->form == KindWord::Form::Unknown)
    return std::nullopt;
  return KindWord{.kind = found->kind};
}

KindWord erased_result(const TransitionCall &call) {
  if (call.erased->dst == Kind::Replicate)
    return {.form = KindWord::Form::Either};
  return {.kind = *call.erased->dst};
}

// The words on one axis, erased ones filled in, and the row that they name. `axis`: a piece of the
// axis as written; none if that has size 1.
AxisEffect effect_of(const TransitionCall &call, size_t written, const ir::Type &type,
                     std::optional<AxisId> axis) {
  const CallWords &words = call.words[written];
  AxisEffect effect;
  effect.src_stated = words.src.has_value();
  effect.dst_stated = words.dst.has_value();
  effect.dst = words.dst ? *words.dst : erased_result(call);
  std::optional<KindWord> source = words.src ? words.src : erased_source(call, type, axis);
  if (!source)
    return effect;
  effect.src = *source;
  Kind src = source->kind, dst = effect.dst.kind;
  // A list of contributions to a maximum is read as pending.
  if (call.erased->reduces && call.asked(*source) != Combiner::Sum && src == Kind::Varying)
    src = Kind::Partial;
  const Transition *row = row_of(call.name, src, dst);
  if (row && has_form(*row, effect.src, effect.dst))
    effect.row = row;
  // Of the names, only convert and reinterpret take any operand.
  bool forgets = src == Kind::Reduced && dst == Kind::Replicate;
  effect.identity = !call.erased->src && (effect.src == effect.dst || forgets);
  return effect;
}

// Judges one operand of a call.
class OperandJudgment {
public:
  OperandJudgment(const Application &app, const TransitionCall &call, uint16_t operand,
                  Outcome &out)
      : app_(app), call_(call), operand_{operand}, out_(out),
        type_(app.type(app.args[operand]).erased()),
        gradient_free_(type_.gradient_free() || !app.where().grad) {}

  ir::Type run();
  llvm::ArrayRef<AxisEffect> effects() const { return effects_; }

private:
  Verdict judge(const AxisEffect &effect, AxisId axis) const;
  Verdict::Form form_of(const AxisEffect &effect, AxisId axis, Verdict &verdict) const;
  bool stands_as_source(const AxisEffect &effect, AxisId axis) const;
  Verdict::Form mismatch(const AxisEffect &effect, AxisId axis, Verdict &verdict) const;
  bool needs_mark(const AxisEffect &effect) const;
  void report(const Verdict &verdict, AxisSet axes);
  void infer(const Verdict &verdict, AxisSet axes);
  void set_result(ir::Type &result, const Verdict &verdict, AxisSet axes) const;

  const Application &app_;
  const TransitionCall &call_;
  OperandIndex operand_;
  Outcome &out_;
  ir::Type type_; // a copy: interning moves types
  bool gradient_free_;
  llvm::SmallVector<AxisEffect, 2> effects_;
};

bool OperandJudgment::stands_as_source(const AxisEffect &effect, AxisId axis) const {
  if (effect.src.kind == Kind::Partial && type_.zero().contains(axis))
    return true;
  bool as_contributions = call_.erased->reduces && !effect.src_stated;
  if (as_contributions && type_.of(Kind::Varying).contains(axis))
    return true;
  return axes_as(type_, effect.src.kind, gradient_free_).contains(axis);
}

// Which of the findings about a wrong operand it is: those that say more come first.
Verdict::Form OperandJudgment::mismatch(const AxisEffect &effect, AxisId axis,
                                        Verdict &verdict) const {
  bool pending = type_.of(Kind::Partial).contains(axis) && !type_.zero().contains(axis);
  if (pending && is_replicated(effect.src.kind))
    return Verdict::Form::WrongSource;
  if (call_.erased->reduces && effect.src.kind == Kind::Partial &&
      is_same_everywhere(verdict.found))
    return Verdict::Form::ReduceOfReplicated;
  AxisSet elsewhere = axes_as(type_, effect.src.kind, gradient_free_);
  if (effect.src.kind == Kind::Partial)
    elsewhere -= type_.zero();
  verdict.actual = elsewhere & (app_.mesh().typed_axes() - call_.axes.all());
  return verdict.actual ? Verdict::Form::WrongAxis : Verdict::Form::WrongSource;
}

// A row that only moves a gradient is no matter where there is none: it then is the row of the
// other replicated kind, or nothing at all.
bool OperandJudgment::needs_mark(const AxisEffect &effect) const {
  if (!effect.row || !effect.row->expert || call_.marked || effect.dst.combiner != Combiner::Sum)
    return false;
  if (!gradient_free_ || !is_replicated(effect.src.kind))
    return true;
  Kind other = effect.src.kind == Kind::Invariant ? Kind::Replicate : Kind::Invariant;
  const Transition *row = find_transition(call_.name, other, effect.dst.kind);
  return !is_replicated(effect.dst.kind) && (!row || row->expert);
}

Verdict::Form OperandJudgment::form_of(const AxisEffect &effect, AxisId axis,
                                       Verdict &verdict) const {
  if (!type_.claimed().contains(axis) || type_.unknown.contains(axis))
    return Verdict::Form::Unknown;
  verdict.found = ir::kind_word(type_, axis).value_or(KindWord{});
  bool pending = type_.of(Kind::Partial).contains(axis) && !type_.zero().contains(axis);
  if (effect.src.kind == Kind::Replicate && effect.dst.kind == Kind::Reduced && !pending) {
    bool owned = gradient_free_ || type_.of(Kind::Reduced).contains(axis);
    return owned ? Verdict::Form::Fine : Verdict::Form::ReducedWithoutOwner;
  }
  if (!effect.row && !effect.identity)
    return Verdict::Form::NoTransition;
  if (!stands_as_source(effect, axis))
    return mismatch(effect, axis, verdict);
  if (pending && type_.combiner(axis) != call_.asked(effect.src))
    return Verdict::Form::ReductionMismatch;
  bool sums = call_.asked(effect.src) == Combiner::Sum && effect.dst.combiner == Combiner::Sum;
  if (!sums && !gradient_free_)
    return Verdict::Form::NonSumGradient;
  return needs_mark(effect) ? Verdict::Form::Expert : Verdict::Form::Fine;
}

Verdict OperandJudgment::judge(const AxisEffect &effect, AxisId axis) const {
  Verdict verdict;
  verdict.src = effect.src;
  verdict.dst = effect.dst;
  verdict.erased = !effect.src_stated || !effect.dst_stated;
  if (effect.src.kind == Kind::Partial)
    verdict.src.combiner = call_.asked(effect.src);
  verdict.form = form_of(effect, axis, verdict);
  return verdict;
}

void OperandJudgment::report(const Verdict &verdict, AxisSet axes) {
  const ir::Mesh &mesh = app_.mesh();
  auto add = [&](Violation violation) { out_.violations.push_back(std::move(violation)); };
  switch (verdict.form) {
  case Verdict::Form::Fine:
  case Verdict::Form::Unknown:
    break;
  case Verdict::Form::WrongSource:
    return add(WrongSource{operand_, verdict.src, verdict.found, axes});
  case Verdict::Form::ReduceOfReplicated: {
    bool grows = verdict.src.combiner == Combiner::Sum && call_.combiner != Combiner::Avg;
    int64_t factor = grows ? size_of(mesh, axes) : 1;
    return add(ReduceOfReplicated{operand_, verdict.found.kind, factor, axes});
  }
  case Verdict::Form::WrongAxis:
    return add(WrongAxis{operand_, verdict.src, axes, verdict.actual,
                         print_layout(mesh, layout_of_set(mesh, axes)),
                         print_layout(mesh, layout_of_set(mesh, verdict.actual))});
  case Verdict::Form::NoTransition:
    return add(NoTransition{verdict.src, verdict.dst, axes});
  case Verdict::Form::ReducedWithoutOwner:
    return add(ReducedWithoutOwner{operand_, axes});
  case Verdict::Form::Expert:
    return add(ExpertTransition{verdict.src, verdict.dst, axes});
  case Verdict::Form::ReductionMismatch:
    return add(ReductionMismatch{operand_, verdict.found.combiner, verdict.src.combiner, axes});
  case Verdict::Form::NonSumGradient: {
    bool by_source = verdict.src.combiner != Combiner::Sum;
    Combiner combiner = by_source ? verdict.src.combiner : verdict.dst.combiner;
    return add(NonSumGradient{operand_, combiner, axes});
  }
  }
}

void OperandJudgment::infer(const Verdict &verdict, AxisSet axes) {
  InferredWord word{axes, verdict.src, verdict.dst};
  if (verdict.found.form == KindWord::Form::Plain && verdict.found.kind == Kind::Varying)
    word.src = verdict.found;
  for (InferredWord &known : out_.inferred)
    if (known.src == word.src && known.dst == word.dst) {
      known.axes |= axes;
      return;
    }
  out_.inferred.push_back(word);
}

void OperandJudgment::set_result(ir::Type &result, const Verdict &verdict, AxisSet axes) const {
  if (verdict.form != Verdict::Form::Fine)
    return result.set_unknown(axes);
  if (verdict.dst.form == KindWord::Form::Either)
    return result.set_either(axes);
  result.set_kind(axes, verdict.dst.kind);
  if (verdict.dst.kind == Kind::Partial)
    for (AxisId axis : axes)
      result.set_combiner(axis, verdict.dst.combiner);
}

ir::Type OperandJudgment::run() {
  llvm::SmallVector<std::pair<Verdict, AxisSet>, 2> verdicts;
  for (size_t i = 0; i < call_.axes.written.size(); ++i) {
    llvm::ArrayRef<AxisId> pieces = call_.axes.written[i].axes;
    std::optional<AxisId> first = pieces.empty() ? std::nullopt : std::optional(pieces.front());
    effects_.push_back(effect_of(call_, i, type_, first));
    for (AxisId axis : pieces) {
      Verdict verdict = judge(effect_of(call_, i, type_, axis), axis);
      auto *same = llvm::find_if(verdicts, [&](const auto &each) { return each.first == verdict; });
      if (same == verdicts.end())
        verdicts.push_back({verdict, axis});
      else
        same->second |= axis;
    }
  }
  ir::Type result = type_;
  result.set_mesh(app_.where().mesh);
  result.set_gradient_free(gradient_free_);
  for (const auto &[verdict, axes] : verdicts) {
    report(verdict, axes);
    if (verdict.form == Verdict::Form::Fine && verdict.erased)
      infer(verdict, axes);
    set_result(result, verdict, axes);
  }
  return result;
}

} // namespace

static bool communicates(const Transition &row, bool backward) {
  if (row.composed) {
    TransitionParts parts = parts_of(row);
    return communicates(*parts.first, backward) || communicates(*parts.second, backward);
  }
  const Transition *dual = dual_of(row);
  return row.wire != Wire::None || (backward && dual && dual->wire != Wire::None);
}

ir::AxisSet communicated_axes(const Application &app) {
  Outcome ignored;
  AxisSet axes;
  bool sends = app.op.boundary == "send" || app.op.boundary == "recv";
  if (sends && app.attr("axis"))
    if (std::optional<CallAxes> along = resolve_axes(app, {}, ignored))
      axes = along->all();
  if (app.op.form != OpForm::Transition)
    return axes;
  std::optional<TransitionCall> call = read_call(app, ignored);
  if (!call)
    return axes;
  for (uint16_t operand : operands_of(app)) {
    ir::Type type = app.type(app.args[operand]).erased();
    bool backward = app.where().grad && !type.gradient_free();
    for (size_t i = 0; i < call->axes.written.size(); ++i)
      for (AxisId axis : call->axes.written[i].axes) {
        AxisEffect effect = effect_of(*call, i, type, axis);
        // A call that names no row of its own is judged by what the name does on the wire.
        bool over = effect.row ? communicates(*effect.row, backward)
                               : !effect.identity && call->erased->src.has_value();
        if (over)
          axes |= axis;
      }
  }
  return axes;
}

void apply_transition(const Application &app, Outcome &out) {
  forget_results(app, out);
  llvm::SmallVector<uint16_t, 2> operands = operands_of(app);
  if (operands.empty()) {
    out.violations.push_back(OperandMismatch{"a value, or a list of values", "none is given"});
    return;
  }
  std::optional<TransitionCall> call = read_call(app, out);
  if (!call)
    return;
  for (size_t i = 0; i < operands.size(); ++i) {
    size_t found = out.violations.size();
    OperandJudgment judgment(app, *call, operands[i], out);
    ir::Type type = judgment.run();
    ir::ShapeId declared = i < app.results.size() ? app.results[i].shape : ir::ShapeId{};
    // Shapes that do not fit often follow from the wrong axis: one mistake, one finding.
    Outcome silent;
    ir::ShapeId shape = transition_shape(app, *call, judgment.effects(), app.args[operands[i]],
                                         declared, out.violations.size() == found ? out : silent);
    if (i < app.results.size()) {
      out.types[i] = app.program.types.add(type);
      out.shapes[i] = shape;
    }
  }
}

} // namespace spmd::rules
