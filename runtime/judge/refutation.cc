// The kind on the axes in question says which finding it is; of gradients there is one.
#include "runtime/judge/refutation.h"

#include "rules/violations/commands/runs.h"

#include "checker/program_queries.h"

#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

namespace {

constexpr size_t kLaterShown = 8;

std::string found_text(const Refuted &refuted) {
  return refuted.form == Refuted::Form::RanksDiffer ? "its ranks hold different data"
                                                    : "what they hold is not the reference value";
}

std::string gradient_text(const Refuted &refuted) {
  if (!refuted.found.empty())
    return refuted.found;
  if (refuted.form == Refuted::Form::RanksDiffer)
    return "its ranks hold different data";
  switch (refuted.kind.value_or(ir::Kind::Replicate)) {
  case ir::Kind::Partial:
    return "the sum is not the reference gradient";
  case ir::Kind::Varying:
    return "the pieces are not those of the reference gradient";
  default:
    return "what each rank holds is not the reference gradient";
  }
}

// What was measured; null where nothing was.
template <class... Kinds> rules::Measured *measured_among(rules::Violation &violation) {
  rules::Measured *found = nullptr;
  auto look = [&](auto *kind) { found = kind ? &kind->measured : found; };
  (look(violation.as<Kinds>()), ...);
  return found;
}
rules::Measured *measured_of(rules::Violation &violation) {
  return measured_among<rules::ReplicateRefuted, rules::InvariantRefuted, rules::ShardRefuted,
                        rules::PartialRefuted, rules::GradientRefuted, rules::ReplicasDrift>(
      violation);
}

rules::Violation violation_of(const ir::Program &program, const Observed &observed,
                              const Refuted &refuted, rules::Measured measured) {
  ir::ValueId value = observed.value;
  if (refuted.form == Refuted::Form::Shape)
    return rules::ShapeRefuted{value, refuted.got, refuted.want, refuted.ranks};
  if (refuted.drift)
    return rules::ReplicasDrift{value, refuted.axes, std::move(measured)};
  if (observed.gradient_of.valid())
    return rules::GradientRefuted{value, observed.gradient_of, gradient_text(refuted), refuted.axes,
                                  std::move(measured)};
  const ir::Type &type = program.types[observed.known.type];
  switch (refuted.kind.value_or(ir::Kind::Replicate)) {
  case ir::Kind::Partial: {
    ir::Combiner combiner = type.combiner(refuted.axes.first());
    std::string joined = combiner == ir::Combiner::Sum ? "sum" : std::string(word(combiner));
    return rules::PartialRefuted{value, std::move(joined), refuted.axes, std::move(measured)};
  }
  case ir::Kind::Varying:
    return rules::ShardRefuted{value, refuted.axes, std::move(measured)};
  case ir::Kind::Invariant:
    return rules::InvariantRefuted{value, found_text(refuted), refuted.axes, std::move(measured)};
  default:
    return rules::ReplicateRefuted{value, found_text(refuted), refuted.axes, std::move(measured)};
  }
}

} // namespace

checker::Place place_of(const ir::Program &program, ir::ValueId value) {
  for (uint32_t i = 0; i < program.params.size(); ++i)
    if (program.params[i].value == value)
      return {checker::Place::Form::Param, i};
  if (ir::InstId inst = checker::defining_inst(program, value); inst.valid())
    return checker::Place::inst(inst);
  // A parameter of a function: reported at the function.
  for (uint32_t f = 0; f < program.functions.size(); ++f)
    for (const ir::FunctionParam &param : program.functions[ir::FunctionId{f}].params)
      if (param.value == value)
        return {checker::Place::Form::Function, f};
  return {checker::Place::Form::File, 0};
}

checker::Finding finding_of(const ir::Program &program, const Observed &observed,
                            const Refuted &refuted, const RunFacts &facts) {
  rules::Measured measured;
  measured.ranks = refuted.ranks;
  measured.first = refuted.first;
  measured.got = refuted.got;
  measured.want = refuted.want;
  measured.difference = refuted.difference;
  measured.bound = refuted.bound;
  measured.tier = std::string(kTierWords[static_cast<unsigned>(facts.tier)]);
  measured.seed = static_cast<int64_t>(facts.seed);
  measured.guess = refuted.guess;
  if (!facts.rerun.empty() && facts.whole)
    measured.rerun = facts.rerun;
  else if (!facts.rerun.empty())
    measured.rerun =
        fmt::format("{} --until={}", facts.rerun, ir::print_value(program, observed.value));
  return {violation_of(program, observed, refuted, std::move(measured)),
          place_of(program, observed.value)};
}

void add_later_values(checker::Finding &finding, llvm::ArrayRef<std::string> later) {
  if (later.empty())
    return;
  std::string text = fmt::format("{}", fmt::join(later.take_front(kLaterShown), ", "));
  if (later.size() > kLaterShown)
    text += fmt::format(" and {} more", later.size() - kLaterShown);
  if (rules::Measured *measured = measured_of(finding.violation))
    measured->later = std::move(text);
}

} // namespace spmd::runtime
