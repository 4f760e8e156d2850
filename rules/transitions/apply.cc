// The judgment of collectives, convert and reinterpret: each axis of a call on its own, by its kind
// and, where it is global, by the dimension that it shards; then equal verdicts joined into one
// violation (rules/README.md; precedence: checker/README.md).
#include "rules/transitions/call.h"

#include "rules/kinds/scale.h"
#include "rules/violations/meshes.h"
#include "rules/violations/operands.h"
#include "rules/violations/shards.h"
#include "rules/violations/transitions.h"

#include "ir/claims.h"

#include "ir/mesh/symbols.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {
namespace {

using ir::AxisId;
using ir::AxisSet;
using ir::Combiner;
using ir::Kind;
using ir::WrittenKind;

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
    NoShardRule,
    WrongDimension,
  };
  Form form = Form::Fine;
  WrittenKind src, dst, found;
  int64_t stated = 0; // WrongDimension
  bool inferred_word = false;
  AxisSet actual; // WrongAxis
  friend bool operator==(const Verdict &, const Verdict &) = default;
};

bool is_replicated(Kind kind) {
  return kind == Kind::Replicate || kind == Kind::Reduced || kind == Kind::Invariant;
}
bool is_same_everywhere(WrittenKind word) {
  return word.form == WrittenKind::Form::Either ||
         (word.form == WrittenKind::Form::Plain && is_replicated(word.kind));
}

// The axes on which the operand may stand as `kind`. Without a gradient R, Reduced and I are
// equivalent.
AxisSet axes_as(const ir::Type &type, Kind kind, bool gradient_free) {
  AxisSet replicated = type.replicated(), invariant = type.of(Kind::Invariant);
  if (gradient_free && is_replicated(kind))
    return replicated | invariant;
  return kind == Kind::Replicate ? replicated : type.of(kind);
}

// Judges one operand of a call.
class OperandJudgment {
public:
  OperandJudgment(const Application &app, const TransitionCall &call, uint32_t operand,
                  ResultClaim declared, Outcome &out);

  ir::Type run();
  ir::ShapeId shape() const { return layout_.shape; }
  ir::ShardSizesId sizes() const { return layout_.sizes; }
  llvm::SmallVector<TransitionMove, 2> take_moves() { return std::move(layout_.moves); }

private:
  using Judged = std::pair<Verdict, AxisSet>;

  llvm::SmallVector<Judged, 2> judge_all();
  Verdict judge(const AxisEffect &effect, AxisId axis) const;
  Verdict::Form form_of(const AxisEffect &effect, AxisId axis, Verdict &verdict) const;
  bool stands_as_source(const AxisEffect &effect, AxisId axis) const;
  Verdict::Form mismatch(const AxisEffect &effect, AxisId axis, Verdict &verdict) const;
  std::optional<Verdict::Form> spec_form(const AxisEffect &effect, AxisId axis,
                                         Verdict &verdict) const;
  bool needs_mark(const AxisEffect &effect) const;
  bool mixes_lists();
  void match_positions(llvm::SmallVectorImpl<Judged> &verdicts) const;
  std::optional<int64_t> from_front(const WrittenKind &word) const;
  void name_layout(const AxisEffect &effect, Verdict &verdict) const;
  void report(const Verdict &verdict, AxisSet axes);
  void infer(const Verdict &verdict, AxisSet axes);
  void set_result(ir::Type &result, const Verdict &verdict, AxisSet axes) const;
  void place_shards(ir::Type &result) const;
  void rescale(ir::Type &result, const Verdict &verdict, AxisSet axes) const;
  void need_plain_scale(ir::Type &result);

  const Application &app_;
  const TransitionCall &call_;
  OperandIndex operand_;
  ResultClaim declared_;
  Outcome &out_;
  size_t first_;                            // of the violations that are about this operand
  ir::Type type_;                           // a copy: interning moves types
  std::optional<ir::Shape> shape_, wanted_; // copies too
  TransitionOperand view_;
  bool gradient_free_;
  llvm::SmallVector<AxisEffect, 2> effects_;
  TransitionLayout layout_;
};

// V that no dimension explains is a value of each rank, whatever the program is on the axis.
AxisSet per_rank_axes(const Application &app, const ir::Type &type) {
  return app.local_axes() | (type.of(Kind::Varying) - type.sharded());
}

OperandJudgment::OperandJudgment(const Application &app, const TransitionCall &call,
                                 uint32_t operand, ResultClaim declared, Outcome &out)
    : app_(app), call_(call), operand_{operand}, declared_(declared), out_(out),
      first_(out.violations.size()), type_(app.type(app.args[operand])),
      view_{app,     call,    type_,
            nullptr, nullptr, app.mesh().typed_axes() - per_rank_axes(app, type_)},
      gradient_free_(type_.gradient_free() || !app.op_context().grad) {
  if (const ir::Shape *shape = app.shape(app.args[operand]))
    view_.shape = &shape_.emplace(*shape);
  if (declared.shape.valid())
    view_.declared = &wanted_.emplace(app.program.shapes[declared.shape]);
}

bool OperandJudgment::stands_as_source(const AxisEffect &effect, AxisId axis) const {
  // A zero is an addend, and the rank's own; as a block of a tensor it is cut first.
  if ((effect.src.kind == Kind::Partial || effect.src.form == WrittenKind::Form::Plain) &&
      type_.zero().contains(axis))
    return true;
  bool as_contributions = call_.unstated->reduces && !effect.src_stated;
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
  if (verdict.found.form == WrittenKind::Form::Shard && !effect.src_stated)
    return Verdict::Form::WrongSource;
  if (call_.unstated->reduces && effect.src.kind == Kind::Partial &&
      is_same_everywhere(verdict.found))
    return Verdict::Form::ReduceOfReplicated;
  AxisSet elsewhere = axes_as(type_, effect.src.kind, gradient_free_);
  if (effect.src.kind == Kind::Partial)
    elsewhere -= type_.zero();
  // A list is no shard, nor is a shard of another dimension what the call names.
  for (AxisId other : elsewhere &type_.of(Kind::Varying))
    if (std::optional<unsigned> dim = view_.dim(other);
        dim && (effect.src.form != WrittenKind::Form::Shard || from_front(effect.src) != *dim))
      elsewhere -= other;
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
  const Transition *row = find_transition(call_.op, other, effect.dst.kind);
  return !is_replicated(effect.dst.kind) && (!row || row->expert);
}

std::optional<int64_t> OperandJudgment::from_front(const WrittenKind &word) const {
  if (word.dim >= 0)
    return word.dim;
  if (!view_.shape || !view_.shape->ranked)
    return std::nullopt;
  return word.dim + static_cast<int64_t>(view_.shape->dims.size());
}

// Where the axis is global a shard is moved by S(i) alone, and V without a dimension is no result.
std::optional<Verdict::Form> OperandJudgment::spec_form(const AxisEffect &effect, AxisId axis,
                                                        Verdict &verdict) const {
  const WrittenKind &src = effect.src, &dst = effect.dst;
  bool shard = view_.dim(axis).has_value();
  bool by_dimension = src.form == WrittenKind::Form::Shard;
  bool plain_target = dst.form == WrittenKind::Form::Plain && dst.kind == Kind::Varying;
  if (effect.identity && !by_dimension)
    return std::nullopt;
  if (shard && !by_dimension) {
    // The blocks of one tensor are no addends.
    bool adds = dst.kind == Kind::Partial && call_.op == TransitionOp::Reinterpret;
    adds |= call_.unstated->reduces && call_.op != TransitionOp::Reduce;
    return adds ? Verdict::Form::WrongSource : Verdict::Form::NoShardRule;
  }
  if (plain_target)
    return Verdict::Form::NoShardRule;
  if (!by_dimension)
    return std::nullopt;
  std::optional<int64_t> from = from_front(src);
  if (!from)
    return Verdict::Form::Unknown;
  if (*from != verdict.found.dim) {
    // Another axis shards the dimension that is meant.
    for (AxisId other : type_.of(Kind::Varying) - call_.axes.all())
      if (view_.dim(other) == static_cast<unsigned>(*from))
        verdict.actual |= other;
    verdict.stated = *from;
    return verdict.actual ? Verdict::Form::WrongAxis : Verdict::Form::WrongDimension;
  }
  // Blocks of one dimension that change places are in no order any more.
  if (!effect.identity && !call_.joint() && dst.form == WrittenKind::Form::Shard &&
      from_front(dst) == from)
    return Verdict::Form::NoShardRule;
  return std::nullopt;
}

Verdict::Form OperandJudgment::form_of(const AxisEffect &effect, AxisId axis,
                                       Verdict &verdict) const {
  if (!type_.claimed().contains(axis) || type_.unknown.contains(axis))
    return Verdict::Form::Unknown;
  verdict.found = ir::kind_word(type_, axis).value_or(WrittenKind{});
  if (std::optional<unsigned> dim = view_.dim(axis))
    verdict.found = {
        .form = WrittenKind::Form::Shard, .kind = Kind::Varying, .dim = static_cast<int8_t>(*dim)};
  bool pending = type_.of(Kind::Partial).contains(axis) && !type_.zero().contains(axis);
  if (effect.src.kind == Kind::Replicate && effect.dst.kind == Kind::Reduced && !pending) {
    bool owned = gradient_free_ || type_.of(Kind::Reduced).contains(axis);
    return owned ? Verdict::Form::Fine : Verdict::Form::ReducedWithoutOwner;
  }
  if (!effect.row && !effect.identity)
    return Verdict::Form::NoTransition;
  if (!stands_as_source(effect, axis))
    return mismatch(effect, axis, verdict);
  auto is_list = [](const WrittenKind &word) {
    return word.kind == Kind::Varying && word.form != WrittenKind::Form::Shard;
  };
  if (call_.joint() && (is_list(effect.src) || is_list(effect.dst)))
    return Verdict::Form::NoShardRule;
  if (effect.global)
    if (std::optional<Verdict::Form> form = spec_form(effect, axis, verdict))
      return *form;
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
  verdict.inferred_word = !effect.src_stated || !effect.dst_stated;
  if (effect.src.kind == Kind::Partial)
    verdict.src.combiner = call_.asked(effect.src);
  verdict.form = form_of(effect, axis, verdict);
  if (verdict.form == Verdict::Form::Fine)
    name_layout(effect, verdict);
  return verdict;
}

// Where only kinds count an unstated call concatenates and chunks unless the declared rank says
// that it stacks: the word that says so is S(i).
void OperandJudgment::name_layout(const AxisEffect &effect, Verdict &verdict) const {
  if (!view_.shape || !view_.shape->ranked)
    return;
  bool exchanges = call_.op == TransitionOp::AllToAll;
  auto name = [&](WrittenKind &word, bool applies, int stacked, llvm::StringRef key) {
    bool plain = word.form == WrittenKind::Form::Plain && word.kind == Kind::Varying;
    if (!applies || !plain || view_.result_has(stacked))
      return;
    word = shard_word(view_, key);
    if (std::optional<int64_t> dim = from_front(word); dim && *dim >= 0 && *dim < ir::kMaxDims)
      word.dim = static_cast<int8_t>(*dim);
  };
  name(verdict.src, !effect.src_stated && (exchanges || call_.op == TransitionOp::AllGather), +1,
       exchanges ? "concat_dim" : "dim");
  name(verdict.dst, !effect.dst_stated && (exchanges || call_.op == TransitionOp::ReduceScatter),
       -1, exchanges ? "split_dim" : "dim");
}

void OperandJudgment::report(const Verdict &verdict, AxisSet axes) {
  const ir::Mesh &mesh = app_.mesh();
  auto add = [&](Violation violation) {
    add_merged(out_.violations, first_, std::move(violation));
  };
  switch (verdict.form) {
  case Verdict::Form::Fine:
  case Verdict::Form::Unknown:
    break;
  case Verdict::Form::WrongSource:
    return add(WrongSource{operand_, verdict.src, verdict.found, axes});
  case Verdict::Form::ReduceOfReplicated: {
    bool grows = verdict.src.combiner == Combiner::Sum && call_.combiner != Combiner::Avg;
    int64_t factor = grows ? size_of(mesh, axes) : 1;
    return add(ReduceOfReplicated{operand_, verdict.found.kind, {factor}, axes});
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
    Combiner asked = call_.asked(verdict.src);
    return add(
        NonSumGradient{operand_, asked == Combiner::Sum ? verdict.dst.combiner : asked, axes});
  }
  case Verdict::Form::NoShardRule:
    return add(NoShardRule{operand_, axes});
  case Verdict::Form::WrongDimension:
    return add(WrongDimension{operand_, verdict.stated, verdict.found.dim, axes});
  }
}

void OperandJudgment::infer(const Verdict &verdict, AxisSet axes) {
  InferredKinds word{axes, verdict.src, verdict.dst};
  bool list = verdict.found.form == WrittenKind::Form::Plain && verdict.found.kind == Kind::Varying;
  if (list && verdict.src.form == WrittenKind::Form::Plain)
    word.src = verdict.found;
  for (InferredKinds &known : out_.inferred)
    if (known.src == word.src && known.dst == word.dst) {
      known.axes |= axes;
      return;
    }
  out_.inferred.push_back(word);
}

void OperandJudgment::set_result(ir::Type &result, const Verdict &verdict, AxisSet axes) const {
  if (verdict.form != Verdict::Form::Fine)
    return result.set_unknown(axes);
  if (verdict.dst.form == WrittenKind::Form::Either)
    return result.set_either(axes);
  result.set_kind(axes, verdict.dst.kind);
  if (verdict.dst.kind == Kind::Partial)
    for (AxisId axis : axes)
      result.set_combiner(axis, verdict.dst.combiner);
}

llvm::SmallVector<OperandJudgment::Judged, 2> OperandJudgment::judge_all() {
  llvm::SmallVector<Judged, 2> verdicts;
  for (size_t i = 0; i < call_.axes.written.size(); ++i) {
    llvm::ArrayRef<AxisId> pieces = call_.axes.written[i].axes;
    std::optional<AxisId> first = pieces.empty() ? std::nullopt : std::optional(pieces.front());
    effects_.push_back(effect_of(view_, i, first));
    for (AxisId axis : pieces) {
      Verdict verdict = judge(effect_of(view_, i, axis), axis);
      auto *same = llvm::find_if(verdicts, [&](const auto &each) { return each.first == verdict; });
      if (same == verdicts.end())
        verdicts.push_back({verdict, axis});
      else
        same->second |= axis;
    }
  }
  return verdicts;
}

// One call cannot move a list along one axis and a shard along another.
bool OperandJudgment::mixes_lists() {
  AxisSet all = call_.axes.all(), lists = all & type_.of(Kind::Varying) & ~view_.global;
  AxisSet shards = all & type_.sharded() & view_.global;
  if (lists && shards)
    add_merged(out_.violations, 0, MixedPolicy{lists, shards});
  return lists && shards;
}

// Along axes that change places copies stay copies of one kind: a gradient would else count once
// for each of them.
void OperandJudgment::match_positions(llvm::SmallVectorImpl<Judged> &verdicts) const {
  auto fine = [](const Judged &each) { return each.first.form == Verdict::Form::Fine; };
  for (Judged &freed : verdicts)
    for (Judged &taken : verdicts) {
      bool pair = fine(freed) && fine(taken) && freed.first.src.kind == Kind::Varying &&
                  freed.first.dst.kind != Kind::Varying && taken.first.src.kind != Kind::Varying;
      WrittenKind had = taken.first.src, gets = freed.first.dst;
      if (!pair || had == gets)
        continue;
      bool copies = is_replicated(had.kind) && is_replicated(gets.kind);
      bool owned = gets.kind != Kind::Reduced;
      if (copies && (gradient_free_ ||
                     (had.kind != Kind::Invariant && owned && gets.kind != Kind::Invariant)))
        continue;
      if (copies && !owned && had.kind == Kind::Replicate) {
        freed.first.form = Verdict::Form::ReducedWithoutOwner;
        continue;
      }
      freed.first.form = taken.first.form = Verdict::Form::NoTransition;
      freed.first.src = taken.first.src = had;
      freed.first.dst = taken.first.dst = gets;
    }
}

// Axes that a finding took out leave the others of their dimension closed up.
void OperandJudgment::place_shards(ir::Type &result) const {
  AxisSet placed = result.of(Kind::Varying) - result.unknown;
  for (unsigned dim = 0; dim < layout_.shards.size(); ++dim) {
    unsigned order = 0;
    for (AxisId axis : layout_.shards[dim])
      if (placed.contains(axis))
        result.set_shard(axis, dim, order++);
  }
}

// An average divides what the ranks sum; a value that each rank reads as its addend counts once for
// each.
void OperandJudgment::rescale(ir::Type &result, const Verdict &verdict, AxisSet axes) const {
  ir::Program &program = app_.program;
  ir::MeshId mesh = app_.op_context().mesh;
  AxisSet summed = axes & (type_.of(Kind::Partial) - type_.zero());
  if (call_.combiner == Combiner::Avg && verdict.src.kind == Kind::Partial)
    result.scale = ir::quotient(program, result.scale, ir::axes_scale(program, mesh, summed));
  bool counted = call_.op == TransitionOp::Reinterpret && verdict.dst.kind == Kind::Partial &&
                 verdict.dst.form == WrittenKind::Form::Plain && is_same_everywhere(verdict.src);
  if (counted)
    result.scale = ir::product(program, result.scale, ir::axes_scale(program, mesh, axes));
}

// A product of scaled factors has the scale once for each rank; words of bits have none.
void OperandJudgment::need_plain_scale(ir::Type &result) {
  Combiner combiner = call_.combiner.value_or(Combiner::Sum);
  if (combiner == Combiner::Sum || combiner == Combiner::Avg || combiner == Combiner::Max ||
      combiner == Combiner::Min)
    return;
  if (std::optional<Violation> differs =
          scale_differs(app_.program, type_, app_.program.one(), "1 is needed", operand_)) {
    add_merged(out_.violations, first_, std::move(*differs));
    result.scale = {};
  }
}

ir::Type OperandJudgment::run() {
  ir::Type result = type_.without_shards();
  result.set_mesh(app_.op_context().mesh);
  result.set_gradient_free(gradient_free_);
  AxisSet fine;
  if (mixes_lists()) {
    result.set_unknown(call_.axes.all());
  } else {
    llvm::SmallVector<Judged, 2> verdicts = judge_all();
    if (call_.joint())
      match_positions(verdicts);
    for (const auto &[verdict, axes] : verdicts) {
      report(verdict, axes);
      bool right = verdict.form == Verdict::Form::Fine;
      if (right && verdict.inferred_word)
        infer(verdict, axes);
      if (right) {
        fine |= axes;
        rescale(result, verdict, axes);
      }
      set_result(result, verdict, axes);
    }
  }
  // Shapes that do not fit often follow from the wrong axis: one mistake, one finding.
  Outcome specs, shapes;
  layout_ = transition_layout({app_, call_, effects_, operand_.index, type_, fine, declared_},
                              specs, shapes);
  for (Violation &violation : specs.violations)
    add_merged(out_.violations, first_, std::move(violation));
  if (out_.violations.size() == first_)
    llvm::move(shapes.violations, std::back_inserter(out_.violations));
  llvm::move(shapes.undecided, std::back_inserter(out_.undecided));
  result.set_unknown(layout_.bad);
  place_shards(result);
  need_plain_scale(result);
  return result;
}

} // namespace

// One call over axes of which some are judged by kinds alone.
static bool mixes_policies(const Application &app, const TransitionCall &call, Outcome &out) {
  AxisSet axes = call.axes.all(), local = axes & app.local_axes();
  if (!local || local == axes)
    return false;
  out.violations.push_back(MixedPolicy{local, axes - local});
  return true;
}

void apply_transition(const Application &app, Outcome &out,
                      llvm::function_ref<bool(const TransitionCall &)> is_refused) {
  llvm::SmallVector<uint32_t, 2> operands = operands_of(app);
  if (operands.empty()) {
    out.violations.push_back(OperandMismatch{"a value, or a list of values", "none is given"});
    return;
  }
  std::optional<TransitionCall> call = read_call(app, out);
  if (!call || mixes_policies(app, *call, out) || is_refused(*call))
    return;
  for (size_t i = 0; i < operands.size(); ++i) {
    ResultClaim declared = i < app.results.size() ? app.results[i] : ResultClaim{};
    OperandJudgment judgment(app, *call, operands[i], declared, out);
    ir::Type type = judgment.run();
    if (i >= app.results.size())
      continue;
    out.types[i] = app.program.types.add(type);
    out.shapes[i] = judgment.shape();
    out.sizes[i] = judgment.sizes();
  }
}

llvm::SmallVector<TransitionMoves, 1> transition_moves(const Application &app) {
  Outcome out;
  forget_results(app, out);
  std::optional<TransitionCall> call = read_call(app, out);
  if (!call)
    return {};
  llvm::SmallVector<TransitionMoves, 1> moves;
  llvm::SmallVector<uint32_t, 2> operands = operands_of(app);
  for (size_t i = 0; i < operands.size(); ++i) {
    ResultClaim declared = i < app.results.size() ? app.results[i] : ResultClaim{};
    OperandJudgment judgment(app, *call, operands[i], declared, out);
    judgment.run();
    moves.push_back(judgment.take_moves());
  }
  return moves;
}

} // namespace spmd::rules
