// Reads what steps made as soon as they made it: buffers are used again. What was read is kept as
// long as a later step has it as an operand.
#include "runtime/judge/run/rank_values.h"

#include "runtime/tensor/bits_hash.h"

#include "ir/support/error.h"
#include "ir/support/store.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

RankValues::RankValues(const RunSetup &setup, RunReport &report)
    : setup_(setup), report_(report), values_(setup.plan.values.size()) {
  const JudgeOptions &options = setup.options;
  if (options.team && options.mode == CheckMode::Outputs)
    exchange_.emplace(ValueExchange::Setup{setup.program, setup.plan, setup.world, setup.backend,
                                           *options.team, ir::mix(options.seed, 0xF1A6E5),
                                           setup.exact()});
}

void RankValues::keep_until(llvm::ArrayRef<uint32_t> last_use) {
  for (size_t i = 0; i < last_use.size(); ++i)
    values_[i].last_use = last_use[i];
}

void RankValues::read_only(llvm::ArrayRef<uint32_t> executions) {
  const Plan &plan = setup_.plan;
  for (uint32_t e : executions)
    for (Span span : {plan.executions[e].operands, plan.executions[e].results})
      for (PlannedId id : plan.list(span))
        if (id.valid()) {
          wanted_.insert(id.index);
          values_[id.index].last_use = e;
        }
}

bool RankValues::is_read(PlannedId id) const {
  return setup_.options.mode != CheckMode::SampleCount || wanted_.contains(id.index);
}

llvm::Error RankValues::read(PlannedId id, bool may_be_absent) {
  const PlannedValue &value = setup_.plan.values[id];
  Entry &entry = values_[id.index];
  if (!entry.tensors.empty() || !value.buffer.valid() || !setup_.has_data(value.known) ||
      !is_read(id))
    return llvm::Error::success();
  for (RankId rank : setup_.world.ranks(setup_.program.types[value.known.type].mesh())) {
    entry.tensors.emplace_back();
    llvm::Error failed = setup_.backend.read(value.buffer, rank, entry.tensors.back());
    if (failed && may_be_absent) {
      llvm::consumeError(std::move(failed));
      entry.tensors.clear();
      break;
    }
    if (failed)
      return failed;
  }
  return llvm::Error::success();
}

llvm::Error RankValues::read_of_all(PlannedId id) {
  if (llvm::Error lost = by_fingerprints() ? exchange_->ask_for(id) : llvm::Error::success())
    return lost;
  return read(id);
}

void RankValues::note_latest(PlannedId id) { latest_[setup_.plan.values[id].value.index] = id; }

void RankValues::release(uint32_t e, llvm::ArrayRef<PlannedId> kept_to_the_end) {
  auto drop = [&](PlannedId id) {
    bool leaves = llvm::is_contained(kept_to_the_end, id);
    if (id.valid() && values_[id.index].last_use <= e && !leaves)
      values_[id.index] = {};
  };
  const Execution &execution = setup_.plan.executions[e];
  for (PlannedId id : setup_.plan.list(execution.operands))
    drop(id);
  for (PlannedId id : setup_.plan.list(execution.results))
    drop(id);
}

// --- what it means

const Meaning *RankValues::meaning(PlannedId id) {
  if (!setup_.options.judges)
    return nullptr;
  Entry &entry = values_[id.index];
  if (entry.meaning || entry.tensors.empty())
    return entry.meaning ? &*entry.meaning : nullptr;
  std::vector<const Tensor *> held;
  for (const Tensor &tensor : entry.tensors)
    held.push_back(&tensor);
  return meaning(id, held, dims_of(entry.tensors));
}

// Of what ranks hold.
const Meaning *RankValues::meaning(PlannedId id, llvm::ArrayRef<const Tensor *> held,
                                   llvm::ArrayRef<Dims> dims) {
  std::optional<Distribution> dist = distribution_of(id, dims);
  if (!dist)
    return nullptr;
  std::optional<Rational> scale =
      number_of(setup_.program, dist->type().scale, dist->type().mesh());
  std::optional<Meaning> &meaning = values_[id.index].meaning;
  meaning = dist->denote(held);
  for (Tensor &piece : meaning->pieces)
    multiply(piece, scale->second, scale->first);
  return &*meaning;
}

// Of a value that has a meaning, its scale included, where ranks hold tensors of these extents.
std::optional<Distribution> RankValues::distribution_of(PlannedId id, llvm::ArrayRef<Dims> held) {
  llvm::Expected<Distribution> dist =
      Distribution::make(setup_.program, setup_.plan.values[id].known);
  if (!dist) {
    report_.add_undecided(llvm::toString(dist.takeError()));
    return std::nullopt;
  }
  if (!number_of(setup_.program, dist->type().scale, dist->type().mesh()))
    return std::nullopt;
  for (size_t rank = 0; rank < held.size(); ++rank)
    if (held[rank] != dist->dims_on(static_cast<int64_t>(rank), held))
      return std::nullopt;
  return std::move(*dist);
}

std::vector<Dims> RankValues::extents(PlannedId id) const {
  const Entry &entry = values_[id.index];
  if (!entry.tensors.empty())
    return dims_of(entry.tensors);
  std::vector<Dims> dims;
  for (const Fingerprint &print : entry.fingerprints)
    dims.push_back(print.dims);
  return dims;
}

std::optional<Meaning> RankValues::zero_of(PlannedId id) {
  const std::vector<Dims> dims = extents(id);
  std::optional<Distribution> dist;
  if (dims.empty() || !(dist = distribution_of(id, dims)))
    return std::nullopt;
  Meaning zero{dist->per_rank_axes(), {}};
  for (int64_t p = 0; p < dist->per_rank_grid().size(); ++p) {
    const int64_t rank = dist->blocks_of(dist->per_rank_grid().coordinates(p)).front().front();
    zero.pieces.push_back(Tensor::make(
        dist->dtype(), dist->piece_dims(dims[static_cast<size_t>(rank)]), setup_.options.domain));
  }
  return zero;
}

std::optional<ir::AxisSet> RankValues::per_rank_axes(PlannedId id) {
  const std::vector<Dims> dims = extents(id);
  std::optional<Distribution> dist;
  if (dims.empty() || !(dist = distribution_of(id, dims)))
    return std::nullopt;
  return dist->per_rank_axes();
}

// --- where each rank is a process

llvm::Error RankValues::exchange_fingerprints(llvm::ArrayRef<PlannedId> ids) {
  std::vector<PlannedId> fresh;
  for (PlannedId id : ids) {
    bool has = id.valid() && setup_.plan.values[id].buffer.valid() &&
               setup_.has_data(setup_.plan.values[id].known);
    if (has && exchanged_.insert(id.index).second)
      fresh.push_back(id);
  }
  auto found = exchange_->fingerprints(fresh);
  if (!found)
    return found.takeError();
  for (size_t i = 0; i < fresh.size(); ++i)
    values_[fresh[i].index].fingerprints = std::move((*found)[i]);
  return llvm::Error::success();
}

bool RankValues::is_as_given(PlannedId id) {
  llvm::ArrayRef<Fingerprint> sent = fingerprints(id);
  if (sent.empty())
    return true;
  llvm::ArrayRef<RankId> ranks = exchange_->ranks_of(id);
  std::vector<size_t> positions(setup_.world.size());
  for (size_t i = 0; i < ranks.size(); ++i)
    positions[ranks[i]] = i;
  const auto &params = setup_.plan.params;
  auto param = static_cast<size_t>(llvm::find(params, id) - params.begin());
  std::vector<JudgeOptions::Given> given = setup_.options.given(param);
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

llvm::Error RankValues::answer() {
  return exchange_->answer([&](PlannedId id) { return read(id); });
}

llvm::Error RankValues::ask_for_nothing_more() {
  if (has_failed())
    return make_error(failure_);
  return by_fingerprints() ? exchange_->ask_for_nothing_more() : llvm::Error::success();
}

} // namespace spmd::runtime
