// Follows a tensor from transition to transition, as long as nothing else takes what is in between,
// and asks the planner for the way from the first type to the last.
#include "checker/report/cheapest.h"

#include "checker/program_queries.h"

#include "rules/ops/registry.h"
#include "rules/redistribute/plan.h"
#include "rules/shards/sizes.h"
#include "rules/transitions/transition.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>

namespace spmd::checker {
namespace {

using ir::InstId;
using ir::ValueId;
namespace plans = rules::redistribute;

constexpr uint64_t kEffort = 20'000'000; // moves that all plans may look at, about two seconds

// Transitions of one tensor, each of the result of the one before.
struct Sequence {
  ValueId from, to;
  ir::Type source, target; // with blocks that calls name where only kinds are judged
  ir::AxisSet touched;
  std::vector<InstId> steps;
};

class Sequences {
public:
  Sequences(ir::Program &program, const CheckResult &result, llvm::ArrayRef<CommCall> messages);
  std::vector<Sequence> run();
  std::optional<plans::Request> request(const Sequence &sequence);

private:
  // What a step makes of its operand means the same, on every axis, and each end is known.
  bool follow(InstId step, ValueId from, ValueId to, Sequence &sequence) const;
  bool place(InstId step, llvm::StringRef key, ir::AxisId axis, ir::Type &type) const;

  ir::Program &program_;
  const CheckResult &result_;
  std::map<uint32_t, const CommCall *> messages_;
  // Per value how much depends on it besides one transition; with more than one use it cannot go.
  std::vector<unsigned> uses_;
};

Sequences::Sequences(ir::Program &program, const CheckResult &result,
                     llvm::ArrayRef<CommCall> messages)
    : program_(program), result_(result), uses_(program.values.size()) {
  for (const CommCall &message : messages)
    messages_[message.inst.index] = &message;
  for (uint32_t i = 0; i < program.insts.size(); ++i)
    for (ValueId value : tensors_of(program, InstId{i}))
      ++uses_[value.index];
  for (const ir::Output &output : program.outputs)
    uses_[output.value.index] += 2;
  for (const ir::Value &value : program.values)
    for (ValueId other : {value.alias_of, value.grad_of})
      if (other.valid())
        uses_[other.index] += 2;
}

// The axis at an end of a step: a list of values, one per rank, is no part of a tensor.
bool Sequences::place(InstId step, llvm::StringRef key, ir::AxisId axis, ir::Type &type) const {
  std::optional<ir::Kind> kind = type.kind(axis);
  if (!kind || *kind != ir::Kind::Varying || type.dim(axis))
    return kind.has_value();
  const ir::AttrValue *word = program_.find(program_.insts[step].attrs, key);
  if (!word || word->form != ir::AttrForm::Kind ||
      word->as_kind().form != ir::WrittenKind::Form::Shard || word->as_kind().dim < 0)
    return false;
  const auto dim = static_cast<unsigned>(word->as_kind().dim);
  for (ir::AxisId other : type.sharded())
    if (type.dim(other) == dim)
      return false; // whose blocks are the inner ones is not said
  type.set_shard(axis, dim, 0);
  return true;
}

bool Sequences::follow(InstId step, ValueId from, ValueId to, Sequence &sequence) const {
  ir::TypeId before = result_.types[from.index], after = result_.types[to.index];
  auto sent = messages_.find(step.index);
  if (!before.valid() || !after.valid() || program_.find(program_.insts[step].attrs, "expert") ||
      (sent != messages_.end() && sent->second->combiner == ir::Combiner::Avg))
    return false;
  const ir::Type a = program_.types[before], b = program_.types[after];
  if (a.mesh() != b.mesh() || a.unknown || b.unknown)
    return false;
  ir::AxisSet touched = sent == messages_.end() ? ir::AxisSet() : sent->second->axes;
  for (ir::AxisId axis : a.claimed() | b.claimed())
    if (a.kind(axis) != b.kind(axis) || a.dim(axis) != b.dim(axis))
      touched |= axis;
  rules::TransitionOp op = rules::resolve_op(program_, program_.insts[step].op).transition;
  ir::Type end = b;
  for (ir::AxisId axis : touched) {
    if (!a.kind(axis) || !b.kind(axis))
      return false;
    if (!sequence.touched.contains(axis) && !place(step, "src", axis, sequence.source))
      return false;
    // An exchange of blocks within one dimension is no other cut of the same tensor.
    const ir::Type &begin = sequence.touched.contains(axis) ? sequence.target : sequence.source;
    if (!place(step, "dst", axis, end) || (begin.dim(axis) && begin.dim(axis) == end.dim(axis)))
      return false;
    const rules::Transition *row = rules::find_transition(op, *a.kind(axis), *b.kind(axis));
    if (!row || row->expert || row->composed)
      return false;
  }
  for (ir::AxisId axis : sequence.touched) // what earlier steps made of it
    if (!touched.contains(axis) && sequence.target.dim(axis) && !end.dim(axis))
      end.set_shard(axis, *sequence.target.dim(axis), sequence.target.order(axis));
  sequence.touched |= touched;
  sequence.target = end;
  sequence.to = to;
  sequence.steps.push_back(step);
  return true;
}

std::vector<Sequence> Sequences::run() {
  std::vector<Sequence> found;
  std::map<uint32_t, size_t> ending; // by the value that they end in
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    llvm::SmallVector<ValueId, 4> tensors = tensors_of(program_, InstId{i});
    if (rules::resolve_op(program_, inst.op).form != rules::OpForm::Transition ||
        tensors.size() != 1 || inst.result_count != 1 ||
        !result_.types[tensors.front().index].valid())
      continue;
    ValueId from = tensors.front();
    auto before = ending.find(from.index);
    Sequence next{.from = from,
                  .source = program_.types[result_.types[from.index]],
                  .target = program_.types[result_.types[from.index]]};
    const bool goes_on = before != ending.end() && uses_[from.index] == 1;
    if (goes_on && follow(InstId{i}, from, inst.result(0), found[before->second])) {
      ending[inst.result(0).index] = before->second;
    } else if (follow(InstId{i}, from, inst.result(0), next)) {
      ending[inst.result(0).index] = found.size();
      found.push_back(std::move(next));
    }
  }
  return found;
}

std::optional<plans::Request> Sequences::request(const Sequence &sequence) {
  rules::TensorInfo whole{program_.types.add(sequence.source), result_.shapes[sequence.from.index],
                          result_.sizes[sequence.from.index]};
  if (!whole.shape.valid() || whole.sizes.valid())
    return std::nullopt;
  plans::Request request{.source = whole.type,
                         .target = program_.types.add(sequence.target),
                         .shape = rules::global_shape(program_, sequence.source, whole),
                         .cap = plans::kNoCap,
                         .gradient = false};
  if (plans::refuse(program_, request) || !plans::can_be_planned(program_, request))
    return std::nullopt;
  return request;
}

} // namespace

std::vector<std::optional<int64_t>> cheapest_bytes(ir::Program &program, const CheckResult &result,
                                                   llvm::ArrayRef<CommCall> messages,
                                                   const plans::Topology &topology) {
  std::vector<std::optional<int64_t>> left;
  std::map<uint32_t, std::vector<size_t>> by_inst;
  for (size_t i = 0; i < messages.size(); ++i) {
    left.push_back(messages[i].bytes);
    by_inst[messages[i].inst.index].push_back(i);
  }
  plans::SearchBudget effort{.left = kEffort};
  plans::Planner planner(program, topology, &effort);
  Sequences sequences(program, result, messages);
  for (const Sequence &sequence : sequences.run()) {
    std::vector<size_t> sent;
    for (InstId step : sequence.steps)
      if (auto at = by_inst.find(step.index); at != by_inst.end())
        sent.insert(sent.end(), at->second.begin(), at->second.end());
    if (sent.empty() || effort.cut || !llvm::all_of(sent, [&](size_t i) { return left[i]; }))
      continue;
    std::optional<plans::Request> request = sequences.request(sequence);
    if (!request)
      continue;
    auto planned = static_cast<int64_t>(planner.plan(*request).bytes);
    int64_t whole = 0;
    for (size_t i : sent)
      whole += *left[i];
    if (planned >= whole)
      continue;
    for (size_t i : sent) {
      left[i] = std::min(*left[i], planned);
      planned -= *left[i];
    }
  }
  return left;
}

} // namespace spmd::checker
