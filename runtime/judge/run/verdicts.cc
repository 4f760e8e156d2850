// One finding is an error, the first; what is refuted after it may follow from it and is named
// there.
#include "runtime/judge/run/verdicts.h"

#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::ValueId;

// Of one value in several executions: the worst.
static Verdict worst(Verdict a, Verdict b) {
  constexpr Verdict kOrder[] = {Verdict::Refuted,    Verdict::Undecided,   Verdict::Blind,
                                Verdict::NotChecked, Verdict::ForwardOnly, Verdict::Upheld};
  for (Verdict verdict : kOrder)
    if (a == verdict || b == verdict)
      return verdict;
  return a;
}

Verdicts::Verdicts(const RunSetup &setup, RankValues &values, RunReport &report)
    : setup_(setup), values_(values), report_(report) {
  const ir::Program &program = setup.program;
  for (uint32_t i = 0; i < program.values.size(); ++i)
    if (ValueId of = program.values[ValueId{i}].grad_of; of.valid())
      gradient_of_[i] = of;
  for (const ir::Output &output : program.outputs)
    if (output.role == ir::OutputRole::Grad && output.of.valid())
      gradient_of_.try_emplace(output.value.index, output.of);
}

void Verdicts::judge_value(PlannedId id, const ReferenceValue &wanted, const std::string *missing,
                           AxisSet blind) {
  const PlannedValue &value = setup_.plan.values[id];
  if (!values_.has_any(id) || !setup_.options.judges || values_.has_failed())
    return;
  Observed observed{value.value, value.known, gradient_of(value.value), values_.tensors(id),
                    values_.fingerprints(id)};
  std::optional<Judgment> by_fingerprints;
  if (observed.tensors.empty() &&
      !(by_fingerprints = judge_fingerprints(setup_.program, observed, wanted, values_.key()))) {
    if (llvm::Error failed = values_.read_of_all(id))
      return values_.fail(std::move(failed));
    observed.tensors = values_.tensors(id);
  }
  Judgment judgment =
      by_fingerprints ? std::move(*by_fingerprints) : judge(setup_.program, observed, wanted);
  if (missing && judgment.undecided.empty())
    judgment.undecided = *missing;
  if (!judgment.undecided.empty())
    report_.add_undecided(
        fmt::format("{}: {}", ir::print_value(setup_.program, value.value), judgment.undecided));
  if (judgment.refuted)
    refute(observed, *judgment.refuted);
  for (ClaimVerdict claim : judgment.claims) {
    if (missing && claim.verdict == Verdict::Upheld)
      claim.verdict = Verdict::Undecided;
    if (claim.verdict == Verdict::Upheld && blind.contains(claim.axis))
      claim.verdict = Verdict::Blind;
    auto [at, fresh] = claims_.try_emplace(key_of(claim), report_.claims.size());
    if (fresh)
      report_.claims.push_back(claim);
    else
      report_.claims[at->second].verdict = worst(report_.claims[at->second].verdict, claim.verdict);
  }
}

// `whole`: not by the value alone.
void Verdicts::refute(const Observed &observed, const Refuted &refuted, bool whole) {
  const JudgeOptions &options = setup_.options;
  RunFacts facts{options.tier, options.seed, options.rerun, whole};
  if (refuted.drift) {
    report_.findings.push_back(finding_of(setup_.program, observed, refuted, facts));
    return;
  }
  std::string name = ir::print_value(setup_.program, observed.value);
  if (!first_) {
    first_ = report_.findings.size();
    first_value_ = observed.value;
    report_.findings.push_back(finding_of(setup_.program, observed, refuted, facts));
  } else if (observed.value != first_value_ && !llvm::is_contained(later_, name)) {
    later_.push_back(name);
  }
}

void Verdicts::refute_gradient(const RecordedGradient &wrong) {
  Observed observed{wrong.value, setup_.checked.known(wrong.value), wrong.of, {}};
  Refuted refuted;
  refuted.axes = wrong.axes;
  refuted.first = wrong.place;
  refuted.got = wrong.got;
  refuted.want = wrong.want;
  refuted.difference = wrong.difference;
  refuted.bound = wrong.bound;
  refuted.found = wrong.text;
  refuted.ranks = "all";
  refute(observed, refuted, true);
  const ir::Type &type = setup_.program.types[observed.known.type];
  const ir::Mesh &mesh = setup_.program.meshes[type.mesh()];
  for (AxisId axis : mesh.typed_axes()) {
    ClaimVerdict claim{
        wrong.value, type.mesh(),     axis, type.kind(axis), type.dim(axis).has_value(),
        true,        Verdict::Refuted};
    if (type.either().contains(axis))
      claim.kind = Kind::Replicate;
    auto [at, fresh] = claims_.try_emplace(key_of(claim), report_.claims.size());
    if (fresh)
      report_.claims.push_back(claim);
    else
      report_.claims[at->second].verdict = Verdict::Refuted;
  }
}

// R, Reduced and I are equivalent in forward: without their gradient they are not upheld.
void Verdicts::finish() {
  report_.gradients.recorded = !setup_.options.recorded.empty();
  for (ClaimVerdict &claim : report_.claims) {
    const ir::Type &type = setup_.program.types[setup_.checked.type(claim.value)];
    bool same = claim.kind == Kind::Replicate || claim.kind == Kind::Reduced ||
                claim.kind == Kind::Invariant;
    if (claim.verdict != Verdict::Upheld || claim.gradient || !same || type.gradient_free() ||
        type.either().contains(claim.axis))
      continue;
    claim.verdict = is_gradient_upheld(claim) ? Verdict::Upheld : Verdict::ForwardOnly;
  }
  if (first_)
    add_later_values(report_.findings[*first_], later_);
}

bool Verdicts::is_gradient_upheld(const ClaimVerdict &of) const {
  return llvm::any_of(report_.claims, [&](const ClaimVerdict &claim) {
    return claim.gradient && claim.axis == of.axis && claim.verdict == Verdict::Upheld &&
           gradient_of(claim.value) == of.value &&
           (setup_.options.recorded.empty() || upheld_gradients_.contains(claim.value.index));
  });
}

} // namespace spmd::runtime
