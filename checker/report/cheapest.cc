// Follows a tensor from transition to transition, as long as nothing else takes what is in between,
// and asks the planner for the way from the first type to the last.
#include "checker/report/cheapest.h"

#include "checker/definitions.h"

#include "rules/ops/registry.h"
#include "rules/shards/shards.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>

namespace spmd::checker {
namespace {

using ir::InstId;
using ir::ValueId;
namespace plans = rules::redistribute;

constexpr uint64_t kEffort = 20'000'000; // moves that all plans may look at, about two seconds

struct Sequence {
  ValueId from, to;
  std::vector<InstId> steps;
};

// Per value how much depends on it besides one transition; what is more than one use cannot go.
std::vector<unsigned> uses_of(const ir::Program &program) {
  std::vector<unsigned> uses(program.values.size());
  for (uint32_t i = 0; i < program.insts.size(); ++i)
    for (ValueId value : tensors_of(program, InstId{i}))
      ++uses[value.index];
  for (const ir::Output &output : program.outputs)
    uses[output.value.index] += 2;
  for (const ir::Value &value : program.values)
    for (ValueId other : {value.alias_of, value.grad_of})
      if (other.valid())
        uses[other.index] += 2;
  return uses;
}

std::vector<Sequence> sequences_of(const ir::Program &program) {
  std::vector<unsigned> uses = uses_of(program);
  std::vector<Sequence> found;
  std::map<uint32_t, size_t> ending; // by the value that they end in
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const ir::Inst &inst = program.insts[InstId{i}];
    llvm::SmallVector<ValueId, 4> tensors = tensors_of(program, InstId{i});
    if (rules::resolve_op(program, inst.op).form != rules::OpForm::Transition ||
        tensors.size() != 1 || inst.result_count != 1)
      continue;
    auto before = ending.find(tensors.front().index);
    size_t at = before == ending.end() || uses[tensors.front().index] != 1 ? found.size()
                                                                          : before->second;
    if (at == found.size())
      found.push_back({.from = tensors.front(), .to = {}, .steps = {}});
    found[at].to = inst.result(0);
    found[at].steps.push_back(InstId{i});
    ending[inst.result(0).index] = at;
  }
  return found;
}

// None where a plan says nothing of the sequence.
std::optional<plans::Request> request_of(ir::Program &program, const CheckResult &result,
                                         const Sequence &sequence) {
  ir::TypeId before = result.types[sequence.from.index], after = result.types[sequence.to.index];
  if (!before.valid() || !after.valid())
    return std::nullopt;
  const ir::Type source = program.types[before], target = program.types[after];
  if (source.mesh() != target.mesh() || source.unknown || target.unknown)
    return std::nullopt;
  for (ir::AxisId axis : program.meshes[source.mesh()].typed_axes()) {
    std::optional<ir::Kind> from = source.kind(axis), to = target.kind(axis);
    if (from.has_value() != to.has_value() ||
        (!from && source.either().contains(axis) != target.either().contains(axis)))
      return std::nullopt;
  }
  rules::Arg whole{before, result.shapes[sequence.from.index], result.sizes[sequence.from.index]};
  if (!whole.shape.valid())
    return std::nullopt;
  plans::Request request{.source = before,
                         .target = after,
                         .shape = rules::global_shape(program, source, whole),
                         .cap = plans::kNoCap,
                         .gradient = false};
  if (plans::refuse(program, request) || !plans::can_be_planned(program, request))
    return std::nullopt;
  return request;
}

} // namespace

std::vector<std::optional<int64_t>> cheapest_bytes(ir::Program &program, const CheckResult &result,
                                                   llvm::ArrayRef<Message> messages,
                                                   const plans::Topology &topology) {
  std::vector<std::optional<int64_t>> left;
  std::map<uint32_t, std::vector<size_t>> by_inst;
  for (size_t i = 0; i < messages.size(); ++i) {
    left.push_back(messages[i].bytes);
    by_inst[messages[i].inst.index].push_back(i);
  }
  plans::Effort effort{.left = kEffort};
  plans::Planner planner(program, topology, &effort);
  for (const Sequence &sequence : sequences_of(program)) {
    std::vector<size_t> sent;
    for (InstId step : sequence.steps)
      if (auto at = by_inst.find(step.index); at != by_inst.end())
        sent.insert(sent.end(), at->second.begin(), at->second.end());
    if (sent.empty() || effort.cut || !llvm::all_of(sent, [&](size_t i) { return left[i]; }))
      continue;
    std::optional<plans::Request> request = request_of(program, result, sequence);
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
