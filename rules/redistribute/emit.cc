// Types between moves, words and prices of calls.
#include "rules/redistribute/emit.h"

#include "rules/redistribute/ends.h"
#include "rules/transitions/transition.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules::redistribute {

using ir::AxisId;
using ir::Combiner;
using ir::Kind;
using ir::WrittenKind;

namespace {

// The call that a move becomes.
TransitionOp op_of(Form form) {
  switch (form) {
  case Form::Gather:
    return TransitionOp::AllGather;
  case Form::AllToAll:
    return TransitionOp::AllToAll;
  case Form::Reorder:
    return TransitionOp::Reorder;
  case Form::Reduce:
    return TransitionOp::AllReduce;
  case Form::Scatter:
    return TransitionOp::ReduceScatter;
  case Form::Slice:
  case Form::Keep:
  case Form::Zeros:
  case Form::Convert:
    return TransitionOp::Convert;
  }
  report_bug(__FILE__, __LINE__, "a form of move");
}

// What turns the moves of a problem into steps between types.
class Emitter {
public:
  Emitter(ir::Program &program, const Request &request, const NumericProblem &posed)
      : program_(program), posed_(posed), problem_(posed.problem),
        source_(program.types[request.source]), target_(program.types[request.target]),
        at_(source_), before_(request.source) {}

  void run(llvm::ArrayRef<Move> moves, Plan &plan) {
    for (size_t i = 0; i < moves.size(); ++i)
      touched_.push_back(touched(i ? moves[i - 1].after : problem_.source, moves[i]));
    State state = problem_.source;
    for (size_t i = 0; i < moves.size();) {
      size_t count = joined(state, moves.drop_front(i));
      add(state, moves.slice(i, count), i, plan);
      i += count;
      state = moves[i - 1].after;
    }
    retag(state, plan);
  }

private:
  static Axes touched(const State &before, const Move &move) {
    Axes set = (before.partial ^ move.after.partial) | (before.invariant ^ move.after.invariant);
    for (unsigned axis = 0; axis < kMostAxes; ++axis)
      if (before.dim(axis) != move.after.dim(axis))
        set |= one(axis);
    return set;
  }
  // Slices in a row of axes of one kind are one step, unless several are cheaper: of I axes the
  // backward is a gather.
  size_t joined(const State &before, llvm::ArrayRef<Move> moves) const {
    if (moves.front().form != Form::Slice)
      return 1;
    auto before_of = [&](size_t i) -> const State & { return i ? moves[i - 1].after : before; };
    auto kind = [&](size_t i) { return before_of(i).invariant != moves[i].after.invariant; };
    auto cost = [&](const State &from, size_t i) {
      return cost_of(problem_, price_of(problem_, from, moves[i]));
    };
    size_t count = 1;
    while (count < moves.size() && moves[count].form == Form::Slice && kind(count) == kind(0) &&
           cost(before, count) <= cost(before, count - 1) + cost(before_of(count), count))
      ++count;
    return count;
  }
  // The kind of a replicated axis after the move of this index: what the source or the target says,
  // R in between.
  Kind replicated_kind(const State &after, unsigned axis, size_t index) const {
    if (has(after.invariant, axis))
      return Kind::Invariant;
    bool first = true, last = true;
    for (size_t i = 0; i < touched_.size(); ++i)
      (i <= index ? first : last) &= !has(touched_[i], axis);
    AxisId id = posed_.axes[axis];
    if (first) // not used: told apart where it is set
      return source_.kind(id).value_or(Kind::Replicate);
    std::optional<Kind> wanted = kind_at(target_, source_, id);
    bool equal =
        wanted && is_replicated(*wanted) && (!problem_.has_invariant || *wanted != Kind::Invariant);
    return last && equal ? *wanted : Kind::Replicate;
  }
  ir::Type type_of(const State &after, Axes changed, size_t index) {
    ir::Type type = at_;
    for (unsigned axis = 0; axis < problem_.axis_count(); ++axis) {
      AxisId id = posed_.axes[axis];
      bool moved = has(changed, axis);
      if (after.sharded(axis)) {
        type.set_kind(id, Kind::Varying);
        type.set_shard(id, after.dim(axis), after.place(axis));
      } else if (has(after.partial, axis) && moved) {
        type.set_kind(id, Kind::Partial);
        type.set_combiner(id, static_cast<Combiner>(problem_.combiners[axis]));
      } else if (moved) {
        type.set_kind(id, replicated_kind(after, axis, index));
      }
    }
    return type;
  }
  void add(const State &before, llvm::ArrayRef<Move> moves, size_t index, Plan &plan) {
    const State &after = moves.back().after;
    Step step;
    step.op = op_of(moves.front().form);
    Axes changed = 0;
    State state = before;
    for (size_t i = 0; i < moves.size(); ++i) {
      for (const Moved &each : moved_axes(problem_, state, moves[i]))
        step.axes.push_back(posed_.axes[each.axis]);
      changed |= touched_[index + i];
      state = moves[i].after;
    }
    ir::Type type = type_of(after, changed, index + moves.size() - 1);
    push(step, price_of(problem_, before, {moves.front().form, after}), type, plan);
    uint64_t held = std::max(bytes_of(problem_, before), bytes_of(problem_, after));
    plan.peak_bytes = std::max(plan.peak_bytes, held);
  }
  void push(Step &step, const StepPrice &price, const ir::Type &type, Plan &plan) {
    for (AxisId axis : step.axes) {
      step.src.push_back(word_at(at_, type, axis));
      step.dst.push_back(word_at(type, at_, axis));
    }
    step.before = before_;
    at_ = type;
    before_ = step.after = program_.types.add(type);
    step.bytes = price.bytes;
    step.padded_bytes = price.padded;
    step.hops = price.hops;
    if (!source_.gradient_free() && !target_.gradient_free()) {
      step.backward_bytes = price.backward_bytes;
      step.backward_hops = price.backward_hops;
    }
    plan.steps.push_back(std::move(step));
  }

  // Kinds that a state does not know are set last, one step for each pair of them.
  void retag(const State &state, Plan &plan) {
    while (true) {
      Step step;
      step.op = TransitionOp::Convert;
      ir::Type type = at_;
      std::optional<Kind> from, to;
      for (unsigned axis = 0; axis < problem_.axis_count(); ++axis) {
        AxisId id = posed_.axes[axis];
        std::optional<Kind> has = at_.kind(id), wanted = target_.kind(id);
        if (!has || !wanted || *has == *wanted || !is_replicated(*has) ||
            (from && (from != has || to != wanted)))
          continue;
        from = has, to = wanted;
        step.axes.push_back(id);
        type.set_kind(id, *wanted);
      }
      if (step.axes.empty())
        return;
      push(step, StepPrice{}, type, plan);
      plan.peak_bytes = std::max(plan.peak_bytes, bytes_of(problem_, state));
    }
  }

  ir::Program &program_;
  const NumericProblem &posed_;
  const Problem &problem_;
  const ir::Type source_, target_; // copies: interning moves types
  ir::Type at_;
  ir::TypeId before_;
  llvm::SmallVector<Axes, 8> touched_; // by move
};

} // namespace

void emit(ir::Program &program, const Request &request, const NumericProblem &posed,
          llvm::ArrayRef<Move> moves, Plan &plan) {
  Emitter(program, request, posed).run(moves, plan);
}

ir::AttrsId attributes_of(ir::Program &program, const Step &step) {
  ir::AxisRefs refs;
  const ir::Mesh &mesh = program.meshes[program.types[step.before].mesh()];
  for (AxisId axis : step.axes)
    refs.refs.push_back({{}, mesh[axis].name});
  auto words = [&](llvm::ArrayRef<WrittenKind> list) {
    if (llvm::all_of(list, [&](const WrittenKind &word) { return word == list.front(); }))
      return ir::AttrValue::kind(list.front());
    ir::AttrList items;
    for (const WrittenKind &word : list)
      items.items.push_back(ir::AttrValue::kind(word));
    return ir::AttrValue::list(program.lists.add(std::move(items)));
  };
  bool expert = false;
  for (size_t i = 0; i < step.axes.size(); ++i) {
    const Transition *row = find_transition(step.op, step.src[i].kind, step.dst[i].kind);
    expert |= row && row->expert;
  }
  ir::AttrDict dict;
  auto add = [&](llvm::StringRef key, ir::AttrValue value) {
    dict.attrs.push_back({program.strings.add(key), value});
  };
  add("axis", ir::AttrValue::axes(program.axis_refs.add(std::move(refs))));
  add("src", words(step.src));
  add("dst", words(step.dst));
  if (expert)
    add("expert", ir::AttrValue::boolean(true));
  ir::sort_canonically(dict, program.strings);
  return program.attrs.add(std::move(dict));
}

} // namespace spmd::rules::redistribute
