// Reads what steps made as soon as they made it: buffers are used again. What was read is kept as
// long as a later step has it as an operand.
#include "runtime/judge/judged_run.h"

#include "runtime/judge/bounds.h"
#include "runtime/judge/gradient_carriers.h"
#include "runtime/judge/last_uses.h"
#include "runtime/judge/recorded_gradients.h"
#include "runtime/judge/value_exchange.h"
#include "runtime/tensor/bits_hash.h"

#include "ir/support/check.h"
#include "ir/support/error.h"
#include "ir/support/store.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace spmd::runtime {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::ValueId;

namespace {

// Of one value in several executions: the worst.
Verdict worst(Verdict a, Verdict b) {
  constexpr Verdict kOrder[] = {Verdict::Refuted,    Verdict::Undecided,   Verdict::Blind,
                                Verdict::NotChecked, Verdict::ForwardOnly, Verdict::Upheld};
  for (Verdict verdict : kOrder)
    if (a == verdict || b == verdict)
      return verdict;
  return a;
}

uint64_t key_of(const ClaimVerdict &claim) {
  return uint64_t(claim.value.index) << 8 | claim.axis.index;
}

// What was read of one value, and what it means.
struct ReadValue {
  std::vector<Tensor> held;
  std::vector<Fingerprint> fingerprints; // in place of the data
  std::optional<Meaning> meaning;        // divided by its scale; none: its scale has no value
  uint32_t last_use = 0;                 // execution
};

class Runner {
public:
  Runner(checker::CheckedProgram &checked, const Plan &plan, const World &world, Backend &backend,
         const JudgeOptions &options)
      : checked_(checked), program_(checked.tables()), plan_(plan), world_(world),
        backend_(backend), options_(options),
        reference_(checked, options.domain == Domain::Field ? Domain::Field : Domain::F64,
                   options.seed),
        bounds_(reference_, options.domain, options.order), kept_(plan.values.size()) {
    if (options.team && options.mode == CheckMode::Outputs)
      exchange_.emplace(ValueExchange::Setup{program_, plan, world, backend, *options.team,
                                             ir::mix(options.seed, 0xF1A6E5), exact()});
    reference_.take_sizes(options.sizes);
    reference_.limit_rounds(plan.max_rounds);
    std::vector<uint32_t> last = last_uses(program_, plan_, reference_);
    for (size_t i = 0; i < last.size(); ++i)
      kept_[i].last_use = last[i];
  }

  llvm::Expected<RunReport> run() {
    find_gradients();
    if (options_.mode == CheckMode::Drawn)
      read_what_was_drawn();
    if (options_.mode != CheckMode::Off)
      if (llvm::Error failed = inputs())
        return llvm::Expected<RunReport>(std::move(failed));
    if (llvm::Error failed = steps())
      return llvm::Expected<RunReport>(std::move(failed));
    if (options_.mode != CheckMode::Off && options_.mode != CheckMode::Drawn && !stopped_)
      if (llvm::Error failed = end_to_end())
        return llvm::Expected<RunReport>(std::move(failed));
    settle();
    return std::move(report_);
  }

private:
  bool stepwise() const { return is_stepwise(options_.mode); }
  bool exact() const { return options_.domain == Domain::Field || options_.tier == Tier::Integer; }

  // Gradients as the program names them, and as its outputs do.
  void find_gradients() {
    for (uint32_t i = 0; i < program_.values.size(); ++i)
      if (ValueId of = program_.values[ValueId{i}].grad_of; of.valid())
        gradient_of_[i] = of;
    for (const ir::Output &output : program_.outputs)
      if (output.role == ir::OutputRole::Grad && output.of.valid())
        gradient_of_.try_emplace(output.value.index, output.of);
    ends_.assign(plan_.outputs.begin(), plan_.outputs.end());
    for (const Plan::Stepped &stepped : plan_.stepped)
      ends_.push_back(stepped.gradient);
  }
  ValueId gradient_of(ValueId value) const { return gradient_of_.lookup(value.index); }

  // Operands and results of these steps alone, until the last of them that has them.
  void read_what_was_drawn() {
    ends_.clear();
    for (uint32_t e : options_.drawn)
      for (Span span : {plan_.executions[e].operands, plan_.executions[e].results})
        for (PlannedId id : plan_.list(span))
          if (id.valid()) {
            needed_.insert(id.index);
            kept_[id.index].last_use = e;
          }
  }
  bool is_read(PlannedId id) const {
    return options_.mode != CheckMode::Drawn || needed_.contains(id.index);
  }
  // Whether a step is judged, or makes what is read.
  bool matters(uint32_t e, const Execution &execution) const {
    return sampled(e) || llvm::any_of(plan_.list(execution.results),
                                      [&](PlannedId id) { return id.valid() && is_read(id); });
  }

  bool has_data(const rules::Arg &known) const {
    return known.type.valid() && known.shape.valid() && program_.shapes[known.shape].ranked;
  }

  // `may_be_absent`: of a body that may not have run.
  llvm::Error read(PlannedId id, bool may_be_absent = false) {
    const PlannedValue &value = plan_.values[id];
    ReadValue &kept = kept_[id.index];
    if (!kept.held.empty() || !value.buffer.valid() || !has_data(value.known) || !is_read(id))
      return llvm::Error::success();
    for (RankId rank : world_.ranks(program_.types[value.known.type].mesh())) {
      kept.held.emplace_back();
      llvm::Error failed = backend_.read(value.buffer, rank, kept.held.back());
      if (failed && may_be_absent) {
        llvm::consumeError(std::move(failed));
        kept.held.clear();
        break;
      }
      if (failed)
        return failed;
    }
    return llvm::Error::success();
  }

  // Null where it means nothing that we know.
  const Meaning *meaning(PlannedId id) {
    if (!options_.judges)
      return nullptr;
    ReadValue &kept = kept_[id.index];
    if (kept.meaning || kept.held.empty())
      return kept.meaning ? &*kept.meaning : nullptr;
    std::vector<const Tensor *> held;
    for (const Tensor &tensor : kept.held)
      held.push_back(&tensor);
    return meaning(id, held, dims_of(kept.held));
  }
  // Of what ranks hold.
  const Meaning *meaning(PlannedId id, llvm::ArrayRef<const Tensor *> held,
                         llvm::ArrayRef<Dims> dims) {
    std::optional<Distribution> dist = distribution_of(id, dims);
    if (!dist)
      return nullptr;
    std::optional<Rational> scale = number_of(program_, dist->type().scale, dist->type().mesh());
    std::optional<Meaning> &meaning = kept_[id.index].meaning;
    meaning = dist->denote(held);
    for (Tensor &piece : meaning->pieces)
      multiply(piece, scale->second, scale->first);
    return &*meaning;
  }

  // Of a value that has a meaning, its scale included, where ranks hold tensors of these extents.
  std::optional<Distribution> distribution_of(PlannedId id, llvm::ArrayRef<Dims> held) {
    llvm::Expected<Distribution> dist = Distribution::make(program_, plan_.values[id].known);
    if (!dist) {
      note_undecided(llvm::toString(dist.takeError()));
      return std::nullopt;
    }
    if (!number_of(program_, dist->type().scale, dist->type().mesh()))
      return std::nullopt;
    for (size_t rank = 0; rank < held.size(); ++rank)
      if (held[rank] != dist->dims_on(static_cast<int64_t>(rank), held))
        return std::nullopt;
    return std::move(*dist);
  }

  llvm::Error inputs() {
    if (by_fingerprints())
      if (llvm::Error failed = take_fingerprints(plan_.params))
        return failed;
    if (by_fingerprints() && !options_.judges)
      return send_what_is_asked_for();
    for (PlannedId id : plan_.params) {
      if (!id.valid())
        continue;
      if (!by_fingerprints() || !were_given(id))
        if (llvm::Error failed = read_of_all(id))
          return failed;
      const Meaning *own = meaning(id);
      latest_[plan_.values[id].value.index] = id;
      Expected wanted;
      // An input is what it is; only copies can be wrong.
      wanted.meant = kept_[id.index].held.empty() ? nullptr : own;
      wanted.exact = true;
      record(id, wanted, nullptr);
      params_.push_back(own ? *own : Meaning());
      if (by_fingerprints()) // nothing reads it again
        kept_[id.index].meaning.reset();
    }
    return ask_for_nothing_more();
  }

  // --- where each rank is a process

  bool by_fingerprints() const { return exchange_.has_value(); }
  llvm::Error send_what_is_asked_for() {
    return exchange_->answer([&](PlannedId id) { return read(id); });
  }

  // On rank 0 those of all ranks, of each value that was not exchanged before.
  llvm::Error take_fingerprints(llvm::ArrayRef<PlannedId> ids) {
    std::vector<PlannedId> fresh;
    for (PlannedId id : ids) {
      bool has = id.valid() && plan_.values[id].buffer.valid() && has_data(plan_.values[id].known);
      if (has && exchanged_.insert(id.index).second)
        fresh.push_back(id);
    }
    auto found = exchange_->fingerprints(fresh);
    if (!found)
      return found.takeError();
    for (size_t i = 0; i < fresh.size(); ++i)
      kept_[fresh[i].index].fingerprints = std::move((*found)[i]);
    return llvm::Error::success();
  }

  // True if all ranks hold what they were given of an input, which is made once more, here.
  bool were_given(PlannedId id) {
    llvm::ArrayRef<Fingerprint> sent = kept_[id.index].fingerprints;
    if (sent.empty())
      return true;
    llvm::ArrayRef<RankId> ranks = exchange_->ranks_of(id);
    std::vector<size_t> positions(world_.size());
    for (size_t i = 0; i < ranks.size(); ++i)
      positions[ranks[i]] = i;
    auto param = static_cast<size_t>(llvm::find(plan_.params, id) - plan_.params.begin());
    std::vector<JudgeOptions::Given> given = options_.given(param);
    std::vector<const Tensor *> held(ranks.size());
    std::vector<Dims> dims(ranks.size());
    for (const JudgeOptions::Given &part : given) {
      const uint64_t bits = bits_hash(part.tensor);
      for (RankId rank : part.ranks) {
        const size_t at = positions[rank];
        if (!sent[at].there || sent[at].bits != bits)
          return false;
        held[at] = &part.tensor;
        dims[at] = part.tensor.dims;
      }
    }
    meaning(id, held, dims);
    return true;
  }

  // Of who judges: the data of all ranks.
  llvm::Error read_of_all(PlannedId id) {
    if (llvm::Error lost = by_fingerprints() ? exchange_->ask_for(id) : llvm::Error::success())
      return lost;
    return read(id);
  }
  llvm::Error ask_for_nothing_more() {
    if (!failed_.empty())
      return make_error(failed_);
    return by_fingerprints() ? exchange_->ask_for_nothing_more() : llvm::Error::success();
  }

  llvm::Error steps() {
    uint32_t done = 0;
    auto run_to = [&](uint32_t last) -> llvm::Error {
      if (last <= done)
        return llvm::Error::success();
      StepRange range{done, last};
      done = last;
      report_.steps = last;
      return backend_.run(range, options_.deadline);
    };
    std::vector<Arrival> arrivals = stepwise() ? arrivals_in_bodies() : std::vector<Arrival>();
    auto next = arrivals.begin();
    auto up_to = [&](uint32_t last) -> llvm::Error {
      for (; next != arrivals.end() && next->step < last; ++next) {
        if (llvm::Error failed = run_to(next->step))
          return failed;
        if (llvm::Error failed = read(next->id, /*may_be_absent=*/true))
          return failed;
      }
      return run_to(last);
    };
    for (uint32_t e = 0; options_.mode != CheckMode::Off && e < plan_.executions.size(); ++e) {
      const Execution &execution = plan_.executions[e];
      const bool taken = is_taken(execution);
      if (execution.nested || (stepwise() ? !matters(e, execution) : !taken))
        continue;
      if (llvm::Error failed =
              stepwise() ? run_and_read(execution, up_to) : read_results(execution, up_to))
        return failed;
      if (taken && options_.mode != CheckMode::Drawn)
        take(plan_.list(execution.results)[0]);
      if (!stepwise())
        continue;
      if (sampled(e) && options_.judges)
        judge_step(execution);
      release(e, execution);
      if (is_last(execution) || (options_.goes_on && !options_.goes_on(e, plan_.executions.size())))
        return stopped_ = true, llvm::Error::success();
    }
    return up_to(plan_.all().last);
  }

  // What bodies take is made by no instruction, and gone after the last one that needs it: it is
  // read just before the first one that does.
  struct Arrival {
    uint32_t step;
    PlannedId id;
  };
  std::vector<Arrival> arrivals_in_bodies() const {
    std::vector<Arrival> arrivals;
    for (const Execution &execution : plan_.executions)
      if (!execution.nested && plan_.calls[execution.call].site.valid())
        for (PlannedId id : plan_.list(execution.operands))
          if (id.valid() && is_read(id))
            arrivals.push_back({execution.steps.first, id});
    llvm::stable_sort(arrivals, [](const Arrival &a, const Arrival &b) { return a.step < b.step; });
    return arrivals;
  }

  // A statement that nobody can check, on what takes no part in gradients: the reference goes on
  // from what the ranks have.
  bool is_taken(const Execution &execution) {
    const ir::Inst &inst = program_.insts[execution.inst];
    if (execution.call != 0 || inst.result_count != 1 ||
        reference_.resolve(inst.op).boundary != rules::Boundary::MutateType ||
        !program_.types[checked_.type(inst.first_result)].gradient_free())
      return false;
    const PlannedCall &call = plan_.calls[execution.call];
    return reference_.takes_addends(execution.inst, {call.typing, call.path});
  }
  void take(PlannedId id) {
    if (const Meaning *own = id.valid() ? meaning(id) : nullptr) {
      ValueId value = plan_.values[id].value;
      taken_[value.index] = *own;
      if (!stepwise()) // which says it of the step
        note_undecided(fmt::format("{}: what each rank holds of a sum is taken as it is",
                                   ir::print_value(program_, value)));
    }
  }

  llvm::Error run_and_read(const Execution &execution,
                           llvm::function_ref<llvm::Error(uint32_t)> up_to) {
    const bool inside = plan_.calls[execution.call].site.valid();
    if (llvm::Error failed = inside ? up_to(execution.steps.first) : llvm::Error::success())
      return failed;
    for (PlannedId id : plan_.list(execution.operands))
      if (llvm::Error failed = id.valid() ? read(id, inside) : llvm::Error::success())
        return failed;
    return read_results(execution, up_to);
  }
  // What nobody reads is gone before the last step of the instruction that made it.
  llvm::Error read_results(const Execution &execution,
                           llvm::function_ref<llvm::Error(uint32_t)> up_to) {
    const bool inside = plan_.calls[execution.call].site.valid();
    llvm::ArrayRef<PlannedId> made = plan_.list(execution.results);
    llvm::SmallVector<PlannedId, 2> results(made.begin(), made.end());
    llvm::sort(results, [&](PlannedId a, PlannedId b) {
      return plan_.values[a].until < plan_.values[b].until;
    });
    for (PlannedId id : results) {
      const PlannedValue &value = plan_.values[id];
      if (llvm::Error failed =
              up_to(std::min(execution.steps.last, std::max(value.from, value.until))))
        return failed;
      if (llvm::Error failed = read(id, inside))
        return failed;
      if (value.value.valid())
        latest_[value.value.index] = id;
    }
    return up_to(execution.steps.last);
  }

  bool sampled(uint32_t e) const {
    if (options_.mode == CheckMode::Drawn)
      return std::binary_search(options_.drawn.begin(), options_.drawn.end(), e);
    return options_.mode == CheckMode::All ||
           ir::mix(options_.seed + 1, e) % std::max(options_.share, 1u) == 0;
  }
  bool is_last(const Execution &execution) const {
    return options_.until.valid() && llvm::any_of(plan_.list(execution.results), [&](PlannedId id) {
             return plan_.values[id].value == options_.until;
           });
  }

  void release(uint32_t e, const Execution &execution) {
    auto drop = [&](PlannedId id) {
      bool leaves = llvm::is_contained(ends_, id);
      if (id.valid() && kept_[id.index].last_use <= e && !leaves)
        kept_[id.index] = {};
    };
    for (PlannedId id : plan_.list(execution.operands))
      drop(id);
    for (PlannedId id : plan_.list(execution.results))
      drop(id);
  }

  void note_undecided(std::string reason) {
    if (!llvm::is_contained(report_.undecided, reason))
      report_.undecided.push_back(std::move(reason));
  }

  // The square of one step: what its results mean against what the reference makes of what its
  // operands mean.
  void judge_step(const Execution &execution) {
    ++report_.judged;
    const PlannedCall &call = plan_.calls[execution.call];
    BodySite site{call.typing, call.path};
    llvm::ArrayRef<PlannedId> operands = plan_.list(execution.operands),
                              results = plan_.list(execution.results);
    Meaning nothing;
    std::vector<const Meaning *> meant;
    for (PlannedId id : operands) {
      const Meaning *own = meaning(id);
      meant.push_back(own ? own : &nothing);
      if (own || !has_data(plan_.values[id].known))
        continue;
      std::string reason = fmt::format("{}, an operand, was not read or has no meaning",
                                       ir::print_value(program_, plan_.values[id].value));
      for (PlannedId result : results)
        record(result, {}, &reason);
      return;
    }
    llvm::Expected<Meanings> want =
        is_alias(program_, execution.inst) ? content_of_storage(execution.inst, site)
        : sent_to(program_, reference_, execution).valid()
            ? received(execution)
            : ReferenceRun(reference_).run_inst(execution.inst, site, meant);
    if (!want) {
      std::string reason = llvm::toString(want.takeError());
      for (PlannedId id : results)
        record(id, {}, &reason);
      return;
    }
    // What a body made was judged there, step by step; here it has passed the boundary.
    rules::Boundary body = reference_.resolve(program_.insts[execution.inst].op).boundary;
    bool passed =
        reference_.resolve(program_.insts[execution.inst].op).form == rules::OpForm::Call &&
        !exact() && body != rules::Boundary::Cond && body != rules::Boundary::While;
    StepWant step(*want);
    explain_step(execution, site, step);
    for (unsigned r = 0; r < results.size(); ++r) {
      Expected wanted;
      if (!passed && r < want->size() && !(*want)[r].pieces.empty())
        wanted.meant = &(*want)[r];
      wanted.exact = exact();
      if (r < step.bounds.size() && !step.bounds[r].pieces.empty())
        wanted.bound = &step.bounds[r];
      wanted.acted = step.acted;
      if (r < step.reductions.size())
        wanted.parts = step.reductions[r].parts;
      for (PlannedId id : operands)
        if (const Meaning *own = meaning(id))
          wanted.earlier.push_back({ir::print_value(program_, plan_.values[id].value), own});
      bool blind = r < step.reductions.size() && step.reductions[r].axes && wanted.meant &&
                   (wanted.exact || wanted.bound) &&
                   is_blind(*wanted.meant, wanted.exact ? nullptr : wanted.bound, wanted.parts,
                            ranks_along(step.reductions[r].axes, plan_.values[results[r]]));
      record(results[r], wanted, nullptr, blind ? step.reductions[r].axes : AxisSet());
    }
  }

  llvm::Expected<Meanings> content_of_storage(ir::InstId alias, BodySite site) {
    auto known = [&](ValueId value) -> const Meaning * {
      auto at = latest_.find(value.index);
      return at == latest_.end() ? nullptr : meaning(at->second);
    };
    llvm::Expected<Meaning> made = ReferenceRun(reference_).run_alias(alias, site, known);
    if (!made)
      return made.takeError();
    Meanings results;
    results.push_back(std::move(*made));
    return results;
  }

  llvm::Expected<Meanings> received(const Execution &execution) {
    ValueId sent = sent_to(program_, reference_, execution);
    auto at = latest_.find(sent.index);
    const Meaning *own = at == latest_.end() ? nullptr : meaning(at->second);
    if (!own)
      return make_error("what was sent was not read, or has no meaning");
    llvm::Expected<Meaning> made = reference_.received(
        checked_.known(sent), checked_.known(program_.insts[execution.inst].first_result), *own);
    if (!made)
      return made.takeError();
    Meanings results;
    results.push_back(std::move(*made));
    return results;
  }

  struct StepWant {
    explicit StepWant(const Meanings &want) : want(want) {}
    const Meanings &want;
    Meanings bounds;
    std::vector<Reduction> reductions;
    AxisSet acted;
  };

  int64_t ranks_along(AxisSet axes, const PlannedValue &value) const {
    return Grid(program_.meshes[program_.types[value.known.type].mesh()], axes).size();
  }

  void explain_step(const Execution &execution, BodySite site, StepWant &step) {
    if (reference_.resolve(program_.insts[execution.inst].op).form == rules::OpForm::Call)
      return;
    auto seen = reference_.see(execution.inst, site);
    if (!seen) {
      llvm::consumeError(seen.takeError());
      return;
    }
    step.acted = acted_axes(**seen);
    llvm::SmallVector<llvm::ArrayRef<Tensor>, 6> operands, results;
    for (PlannedId id : plan_.list(execution.operands))
      operands.push_back(kept_[id.index].held);
    for (PlannedId id : plan_.list(execution.results))
      results.push_back(kept_[id.index].held);
    StepData data{operands, results};
    bool read = llvm::all_of(plan_.list(execution.operands), [&](PlannedId id) {
      return meaning(id) || !has_data(plan_.values[id].known);
    });
    for (PlannedId id : plan_.list(execution.results))
      read &= meaning(id) != nullptr;
    if (!read)
      return;
    for (unsigned r = 0; r < results.size(); ++r)
      step.reductions.push_back(reduction_of(reference_, **seen, site, data, r));
    if (exact())
      return;
    llvm::Expected<Meanings> bounds = bounds_.of(**seen, execution.inst, site, data);
    if (bounds)
      step.bounds = std::move(*bounds);
    else
      note_undecided(llvm::toString(bounds.takeError()));
  }

  // Judges what was read of a value. `reason`: why the reference has nothing for it.
  void record(PlannedId id, const Expected &wanted, const std::string *reason, AxisSet blind = {}) {
    const PlannedValue &value = plan_.values[id];
    const ReadValue &kept = kept_[id.index];
    if ((kept.held.empty() && kept.fingerprints.empty()) || !options_.judges || !failed_.empty())
      return;
    Observed observed{value.value, value.known, gradient_of(value.value), kept.held,
                      kept.fingerprints};
    std::optional<Judgment> settled;
    if (kept.held.empty() &&
        !(settled = judge_fingerprints(program_, observed, wanted, exchange_->key()))) {
      if (llvm::Error failed = read_of_all(id)) {
        failed_ = llvm::toString(std::move(failed));
        return;
      }
      observed.held = kept.held;
    }
    Judgment judgment = settled ? std::move(*settled) : judge(program_, observed, wanted);
    if (reason && judgment.undecided.empty())
      judgment.undecided = *reason;
    if (!judgment.undecided.empty())
      note_undecided(
          fmt::format("{}: {}", ir::print_value(program_, value.value), judgment.undecided));
    if (judgment.refuted)
      refute(observed, *judgment.refuted);
    for (ClaimVerdict claim : judgment.claims) {
      if (reason && claim.verdict == Verdict::Upheld)
        claim.verdict = Verdict::Undecided;
      if (claim.verdict == Verdict::Upheld && blind.contains(claim.axis))
        claim.verdict = Verdict::Blind;
      auto [at, fresh] = claims_.try_emplace(key_of(claim), report_.claims.size());
      if (fresh)
        report_.claims.push_back(claim);
      else
        report_.claims[at->second].verdict =
            worst(report_.claims[at->second].verdict, claim.verdict);
    }
  }

  // `whole`: not by the value alone.
  void refute(const Observed &observed, const Refuted &refuted, bool whole = false) {
    RunFacts facts{options_.tier, options_.seed, options_.rerun, whole};
    if (refuted.drift) {
      report_.findings.push_back(finding_of(program_, observed, refuted, facts));
      return;
    }
    std::string name = ir::print_value(program_, observed.value);
    if (!first_) {
      first_ = report_.findings.size();
      first_value_ = observed.value;
      report_.findings.push_back(finding_of(program_, observed, refuted, facts));
    } else if (observed.value != first_value_ && !llvm::is_contained(later_, name)) {
      later_.push_back(name);
    }
  }

  // The whole program on one device, from what its inputs mean.
  llvm::Error end_to_end() {
    if (by_fingerprints())
      if (llvm::Error failed = take_fingerprints(ends_))
        return failed;
    for (PlannedId id : ends_)
      if (id.valid() && !by_fingerprints())
        if (llvm::Error failed = read(id))
          return failed;
    if (!options_.judges)
      return by_fingerprints() ? send_what_is_asked_for() : llvm::Error::success();
    for (PlannedId id : plan_.outputs)
      if (id.valid())
        add_to_digest(kept_[id.index]);
    judge_ends();
    return ask_for_nothing_more();
  }

  void add_to_digest(const ReadValue &value) {
    for (const Fingerprint &print : value.fingerprints)
      report_.digest = ir::mix(report_.digest, print.bits);
    for (size_t rank = 0; value.fingerprints.empty() && rank < value.held.size(); ++rank)
      report_.digest = ir::mix(report_.digest, bits_hash(value.held[rank]));
  }

  void judge_ends() {
    if (llvm::any_of(params_, [](const Meaning &meaning) { return meaning.pieces.empty(); }))
      return note_undecided("an input holds nothing that has a meaning");
    ReferenceRun run(reference_);
    run.take(taken_);
    if (llvm::Error failed = run.run(params_)) {
      std::string reason = llvm::toString(std::move(failed));
      for (PlannedId id : ends_)
        if (id.valid() && !stepwise())
          record(id, {}, &reason);
      return note_undecided(std::move(reason));
    }
    for (PlannedId id : ends_)
      if (id.valid())
        judge_end(id, run.find(plan_.values[id].value));
    if (options_.recorded.empty())
      judge_gradients(run);
    else if (options_.tier == Tier::Real)
      judge_recorded(run);
  }

  void judge_recorded(ReferenceRun &run) {
    GradientReport &gradients = report_.gradients;
    for (const RecordedGradient &each :
         compare_recorded(reference_, run, params_, taken_, options_.recorded)) {
      if (each.form == RecordedGradient::Form::NotCompared) {
        gradients.left.push_back({each.value, each.text});
        continue;
      }
      ++gradients.compared;
      if (each.form == RecordedGradient::Form::Wrong) {
        refute_recorded(each);
        continue;
      }
      derived_.insert(each.value.index);
      if (!each.text.empty())
        gradients.zero.push_back(each.value);
    }
  }
  void refute_recorded(const RecordedGradient &wrong) {
    Observed observed{wrong.value, checked_.known(wrong.value), wrong.of, {}};
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
    const ir::Type &type = program_.types[observed.known.type];
    const ir::Mesh &mesh = program_.meshes[type.mesh()];
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

  // What went through many steps: exact, or for steps to judge.
  void judge_end(PlannedId id, const Meaning *want) {
    if (!want || (!exact() && stepwise()))
      return;
    Expected wanted;
    wanted.meant = want;
    wanted.exact = exact();
    record(id, wanted, nullptr);
  }

  // The derivative of what the program means against the gradients that the run left.
  void judge_gradients(ReferenceRun &run) {
    ValueId loss = find_loss();
    if (!loss.valid() || !exact())
      return;
    // What `step` reads may be a gradient times what the program computes: a norm, a number of
    // tokens.
    for (const SteppedGradient &stepped : stepped_gradients(reference_, run))
      gradient_of_.try_emplace(stepped.value.index, stepped.param);
    llvm::SmallVector<PlannedId, 8> found;
    llvm::SmallVector<ValueId, 8> of;
    for (PlannedId id : ends_)
      if (id.valid() && gradient_of(plan_.values[id].value).valid() &&
          !llvm::is_contained(found, id)) {
        found.push_back(id);
        of.push_back(gradient_of(plan_.values[id].value));
      }
    if (found.empty())
      return;
    llvm::Expected<Meanings> gradients = run.gradients(loss, of);
    if (!gradients)
      return note_undecided("the reference gradient: " + llvm::toString(gradients.takeError()));
    for (size_t i = 0; i < found.size(); ++i) {
      Meaning &want = (*gradients)[i];
      if (want.pieces.empty()) {
        // None flows: zero everywhere.
        std::optional<Meaning> zero = zero_of(found[i]);
        if (!zero)
          continue;
        want = std::move(*zero);
      }
      if (combines_losses(found[i], want))
        judge_end(found[i], &want);
    }
  }

  std::vector<Dims> dims_held(PlannedId id) const {
    const ReadValue &kept = kept_[id.index];
    if (!kept.held.empty())
      return dims_of(kept.held);
    std::vector<Dims> dims;
    for (const Fingerprint &print : kept.fingerprints)
      dims.push_back(print.dims);
    return dims;
  }
  // Zeros of the form that a value has; none: it means nothing that we know.
  std::optional<Meaning> zero_of(PlannedId id) {
    const std::vector<Dims> dims = dims_held(id);
    std::optional<Distribution> dist;
    if (dims.empty() || !(dist = distribution_of(id, dims)))
      return std::nullopt;
    Meaning zero{dist->lists(), {}};
    for (int64_t p = 0; p < dist->list_grid().size(); ++p) {
      const int64_t rank = dist->blocks_of(dist->list_grid().coordinates(p)).front().front();
      zero.pieces.push_back(Tensor::make(
          dist->dtype(), dist->piece_dims(dims[static_cast<size_t>(rank)]), options_.domain));
    }
    return zero;
  }
  // The axes on which a value is a list; none: it means nothing that we know.
  std::optional<AxisSet> lists_held(PlannedId id) {
    const std::vector<Dims> dims = dims_held(id);
    std::optional<Distribution> dist;
    if (dims.empty() || !(dist = distribution_of(id, dims)))
      return std::nullopt;
    return dist->lists();
  }

  // What `step` reads is of the loss of one device. False, and said: nobody knows which that is.
  bool combines_losses(PlannedId id, Meaning &want) {
    if (llvm::none_of(plan_.stepped, [&](const Plan::Stepped &s) { return s.gradient == id; }))
      return true;
    const PlannedValue &value = plan_.values[id];
    const ir::Type &type = program_.types[value.known.type];
    std::optional<AxisSet> lists = lists_held(id);
    bool pending = !(type.of(Kind::Partial) - type.zero()).empty();
    if (!lists || pending || *lists != want.lists)
      return true; // its contract sums it
    AxisSet mean, assumed;
    for (const LossRoot &root : options_.derived)
      mean |= root.mean, assumed |= root.assumed;
    if (mean.empty() && assumed.empty())
      return true;
    if (assumed || options_.derived.size() > 1) {
      note_undecided(fmt::format("{}: nothing tells whether the loss of one device is the mean of "
                                 "those of the ranks or their sum (--losses)",
                                 ir::print_value(program_, value.value)));
      return false;
    }
    int64_t ranks = Grid(program_.meshes[options_.derived.front().mesh], mean).size();
    for (Tensor &piece : want.pieces)
      multiply(piece, 1, ranks);
    return true;
  }

  // The loss output, or the value whose gradient the backward starts with as ones.
  ValueId find_loss() {
    for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
      const ir::Inst &inst = program_.insts[ir::InstId{i}];
      const rules::ResolvedOp &op = reference_.resolve(inst.op);
      if (inst.result_count != 1 || !op.row || op.row->constant == rules::OpDef::Constant::No)
        continue;
      llvm::ArrayRef<ir::Operand> operands = program_.blocks[inst.operands];
      if (operands.size() == 1 && operands[0].is_value() &&
          program_.values[inst.first_result].grad_of == operands[0].as_value())
        return operands[0].as_value();
    }
    return {};
  }

  // R, Reduced and I are equivalent in forward: without their gradient they are not upheld.
  void settle() {
    report_.gradients.recorded = !options_.recorded.empty();
    for (ClaimVerdict &claim : report_.claims) {
      const ir::Type &type = program_.types[checked_.type(claim.value)];
      bool same = claim.kind == Kind::Replicate || claim.kind == Kind::Reduced ||
                  claim.kind == Kind::Invariant;
      if (claim.verdict != Verdict::Upheld || claim.gradient || !same || type.gradient_free() ||
          type.either().contains(claim.axis))
        continue;
      claim.verdict = gradient_upheld(claim) ? Verdict::Upheld : Verdict::ForwardOnly;
    }
    if (first_)
      tell_later(report_.findings[*first_], later_);
  }
  bool gradient_upheld(const ClaimVerdict &of) const {
    return llvm::any_of(report_.claims, [&](const ClaimVerdict &claim) {
      return claim.gradient && claim.axis == of.axis && claim.verdict == Verdict::Upheld &&
             gradient_of(claim.value) == of.value &&
             (options_.recorded.empty() || derived_.contains(claim.value.index));
    });
  }

  checker::CheckedProgram &checked_;
  ir::Program &program_;
  const Plan &plan_;
  const World &world_;
  Backend &backend_;
  const JudgeOptions &options_;
  Reference reference_;
  Bounds bounds_;
  std::vector<ReadValue> kept_;
  llvm::DenseMap<uint32_t, PlannedId> latest_; // by ValueId: what was made of it last
  Meanings params_;
  llvm::DenseMap<uint32_t, Meaning> taken_; // by ValueId
  llvm::DenseMap<uint32_t, ValueId> gradient_of_;
  std::vector<PlannedId> ends_; // what is there when all is done: outputs, and what `step` reads
  llvm::DenseMap<uint64_t, size_t> claims_;
  RunReport report_;
  llvm::DenseSet<uint32_t> needed_;       // by PlannedId: what is read where steps are drawn
  std::optional<ValueExchange> exchange_; // with ranks that are processes, for inputs and outputs
  llvm::DenseSet<uint32_t> exchanged_;    // by PlannedId: of which ranks have sent fingerprints
  std::string failed_;                    // why data of other ranks cannot be had
  llvm::DenseSet<uint32_t> derived_;      // by ValueId: recorded gradients that are the derivative
  std::optional<size_t> first_;           // into RunReport::findings
  ValueId first_value_;
  std::vector<std::string> later_;
  bool stopped_ = false;
};

} // namespace

uint64_t RunReport::count(Verdict verdict) const {
  return static_cast<uint64_t>(
      llvm::count_if(claims, [&](const ClaimVerdict &claim) { return claim.verdict == verdict; }));
}

bool RunReport::refuted() const {
  return count(Verdict::Refuted) > 0 || llvm::any_of(findings, [](const checker::Finding &finding) {
           return finding.severity() == rules::Severity::Error;
         });
}

llvm::Expected<RunReport> run_judged(checker::CheckedProgram &program, const Plan &plan,
                                     const World &world, Backend &backend,
                                     const JudgeOptions &options) {
  return Runner(program, plan, world, backend, options).run();
}

// Of several seeds: what was left once was left.
static void join_gradients(GradientReport &into, GradientReport more) {
  bool had = into.compared || !into.left.empty(), has = more.compared || !more.left.empty();
  if (!had) {
    into = std::move(more);
    return;
  }
  if (!has)
    return;
  for (GradientReport::NotCompared &left : more.left)
    if (llvm::none_of(into.left, [&](const auto &each) { return each.value == left.value; })) {
      into.left.push_back(std::move(left));
      into.compared -= into.compared > 0;
    }
}

void join_reports(RunReport &into, RunReport more) {
  llvm::DenseMap<uint64_t, size_t> known;
  for (size_t i = 0; i < into.claims.size(); ++i)
    known[key_of(into.claims[i])] = i;
  for (const ClaimVerdict &claim : more.claims) {
    auto [at, fresh] = known.try_emplace(key_of(claim), into.claims.size());
    if (fresh)
      into.claims.push_back(claim);
    else
      into.claims[at->second].verdict = joined(into.claims[at->second].verdict, claim.verdict);
  }
  auto is_error = [](const checker::Finding &finding) {
    return finding.severity() == rules::Severity::Error;
  };
  bool refuted = llvm::any_of(into.findings, is_error);
  for (checker::Finding &finding : more.findings)
    if (!refuted || !is_error(finding))
      into.findings.push_back(std::move(finding));
  for (std::string &reason : more.undecided)
    if (!llvm::is_contained(into.undecided, reason))
      into.undecided.push_back(std::move(reason));
  join_gradients(into.gradients, std::move(more.gradients));
  into.steps = std::max(into.steps, more.steps);
  into.judged += more.judged;
  into.digest = ir::mix(into.digest, more.digest);
}

} // namespace spmd::runtime
