// Counts over the types that a check left behind; one pass over the values, no second judgment.
#include "checker/check_coverage.h"

#include "checker/gradual/step/returned.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/ops/op.h"
#include "rules/violations/gradients.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <map>

namespace spmd::checker {

using ir::AxisSet;

namespace {

// Whether a type leaves the kind open on some axis, asked once per type.
class OpenTypes {
public:
  explicit OpenTypes(const ir::Program &program) : program_(program) {}

  bool operator()(ir::TypeId id) {
    if (id.index >= known_.size())
      known_.resize(program_.types.size());
    Answer &answer = known_[id.index];
    if (answer == Answer::NotAsked) {
      const ir::Type &type = program_.types[id];
      ir::AxisSet axes = program_.meshes[type.mesh()].typed_axes();
      bool open = !((axes & type.unknown) | (axes - type.claimed())).empty();
      answer = open ? Answer::Open : Answer::Known;
    }
    return answer == Answer::Open;
  }

private:
  enum class Answer : uint8_t { NotAsked, Known, Open };
  const ir::Program &program_;
  std::vector<Answer> known_;
};

void count_values(const ir::Program &program, const CheckResult &result, CheckCoverage &judged) {
  OpenTypes open(program);
  for (ir::TypeId type : result.types) {
    if (!type.valid())
      continue; // in code that nothing calls
    ++judged.values;
    judged.unknown_values += open(type);
  }
}

// A body that was typed has a type for each of its values.
bool is_reached(const ir::Program &program, const CheckResult &result, const ir::Body &body) {
  for (uint32_t i = body.first.index; i < body.last.index; ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    if (inst.result_count)
      return result.types[inst.first_result.index].valid();
  }
  return true;
}

uint64_t count_unchecked(const ir::Program &program) {
  llvm::SmallVector<bool, 4> off;
  for (uint32_t i = 0; i < program.contexts.size(); ++i)
    off.push_back(
        !program.contexts[ir::ContextId{static_cast<decltype(ir::ContextId::index)>(i)}].check);
  if (!llvm::is_contained(off, true))
    return 0;
  return static_cast<uint64_t>(llvm::count_if(
      program.insts.all(), [&](const ir::Inst &inst) { return off[inst.context.index]; }));
}

// What is not proved on an axis, by the name of the axis, and all that it is made of.
using Unproved = std::map<std::string, std::pair<AxisSet, llvm::BitVector>>;

void count_proof(const ir::Program &program, const CheckResult &result, ir::ValueId value,
                 CheckCoverage &judged, Unproved &unproved) {
  const ir::Mesh &mesh = program.meshes[program.types[result.types[value.index]].mesh()];
  for (ir::AxisId axis : mesh.typed_axes()) {
    std::string name = program.strings[mesh[axis].name].str();
    auto at = llvm::find_if(judged.proofs, [&](const auto &each) { return each.axis == name; });
    if (at == judged.proofs.end()) {
      judged.proofs.push_back({.axis = name});
      at = std::prev(judged.proofs.end());
    }
    const bool proved = proved_axes(result, value).contains(axis);
    at->proved += proved;
    auto &[axes, values] = unproved[name];
    values.resize(program.values.size());
    axes |= axis;
    if (!proved)
      values.set(value.index);
  }
}

// Memory that holds nothing yet: what is written there is another question.
bool is_empty(const ir::Program &program, const Place &place) {
  return place.form == Place::Form::Inst &&
         op_of(program, place.as_inst()).variant() == rules::Variant::Empty;
}

// Where the first of what they are made of was lost, rather in an instruction than where it is
// declared.
void find_lost(const ir::Program &program, const CheckResult &result, CheckCoverage &judged,
               Unproved &unproved) {
  for (CheckCoverage::Proof &proof : judged.proofs) {
    auto &[axes, values] = unproved[proof.axis];
    if (values.none())
      continue;
    add_needed(program, values, [](ir::InstId) { return false; });
    std::optional<unsigned> best;
    for (const auto &[axis, place] : result.lost) {
      const bool inst = place.form == Place::Form::Inst;
      bool needed = !inst && place.form == Place::Form::Param &&
                    values.test(program.params[place.index].value.index);
      if (inst)
        for (uint32_t r = 0; r < program.insts[place.as_inst()].result_count; ++r)
          needed |= values.test(program.insts[place.as_inst()].result(r).index);
      const unsigned order = (needed && !is_empty(program, place) ? 0 : 2) + !inst;
      if (axes.contains(axis) && (!best || order < *best))
        best = order, proof.lost = place;
    }
  }
}

// A parameter that is written counts where all that its new value was made of is known.
void count_proofs(const ir::Program &program, const CheckResult &result, CheckCoverage &judged) {
  Unproved unproved;
  const llvm::BitVector in_stages = proved_in_stages(program, result);
  CheckCoverage::Proof stages{.axis = "stages"};
  for (const ir::Output &output : program.outputs) {
    const ir::Param *param = output.of.valid() ? program.find_param(output.of) : nullptr;
    if (!param || param->role != ir::Role::Param ||
        (output.role != ir::OutputRole::State && output.role != ir::OutputRole::Grad))
      continue;
    ++judged.trained;
    judged.confirmed +=
        param->gradient_ratio && rules::describe_gradient_ratio(*param->gradient_ratio).empty();
    count_proof(program, result, output.value, judged, unproved);
    stages.proved += !in_stages.empty() && in_stages.test(output.value.index);
  }
  if (!in_stages.empty() && judged.trained)
    judged.proofs.push_back(std::move(stages));
  if (!judged.trained)
    for (const ir::Output &output : program.outputs) {
      ++judged.results;
      count_proof(program, result, output.value, judged, unproved);
    }
  find_lost(program, result, judged, unproved);
}

} // namespace

// What a rank has numbered by itself is no block of what one device computes.
ir::AxisSet proved_axes(const CheckResult &result, ir::ValueId value) {
  return result.proved[value.index] & ~result.own[value.index];
}

CheckCoverage check_coverage(const ir::Program &program, const CheckResult &result) {
  CheckCoverage judged;
  count_values(program, result, judged);
  if (result.gradual)
    count_proofs(program, result, judged);
  for (const ir::Function &function : program.functions)
    if (!function.opaque && !is_reached(program, result, function.body))
      judged.uncalled_ops += function.body.size();
  judged.unchecked_ops = count_unchecked(program);
  const CheckStats &stats = result.stats;
  judged.typed_ops = stats.ops - std::min(stats.ops, stats.unknown_ops + judged.unchecked_ops);
  judged.boundary = !program.outputs.empty() ||
                    llvm::any_of(program.params, [](const auto &p) { return p.grad.stated; });
  judged.one_rank = llvm::all_of(program.meshes.all(),
                                 [](const ir::Mesh &mesh) { return mesh.typed_axes().empty(); });
  return judged;
}

std::string why_nothing(const CheckCoverage &judged, const CheckStats &stats) {
  if (stats.ops == 0 && judged.uncalled_ops)
    return "all its ops are in functions that nothing calls";
  if (stats.ops == 0)
    return "the program has no ops";
  if (judged.unchecked_ops == 0)
    return "none of its ops has a rule";
  if (judged.unchecked_ops >= stats.ops)
    return "checking is off for all its ops";
  return fmt::format("of its {} ops, {} have no rule, and checking is off for {}", stats.ops,
                     stats.unknown_ops, judged.unchecked_ops);
}

} // namespace spmd::checker
