// All ranks in one process, in lockstep: a step is done by all of them before the next one begins,
// so nothing can hang. Work that is equal on several ranks is done once.
#include "runtime/backends/cpu/backend.h"
#include "ir/support/arrays.h"
#include "ir/support/error.h"

#include "runtime/backends/cpu/steps.h"
#include "runtime/backends/peers.h"
#include "runtime/tensor/packed.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

// --- data

llvm::Error CpuBackend::write(BufferId to, RankId rank, const Tensor &host) {
  const Buffer &buffer = plan_->buffers[to];
  SPMD_CHECK(world_->on(buffer.mesh, rank), "a rank that does not hold the buffer");
  if (host.dims != buffer.on(rank) || host.dtype != buffer.dtype)
    return make_error("data of other extents or another element type than the buffer has");
  if (!tensors_.live(to, rank) &&
      llvm::all_of(all_, [&](RankId r) { return !tensors_.live(to, r); }))
    if (llvm::Error error = tensors_.writes(to))
      return error;
  tensors_.write(to, rank, host);
  return llvm::Error::success();
}

llvm::Error CpuBackend::read(BufferId from, RankId rank, Tensor &host) {
  if (!tensors_.live(from, rank))
    return make_error(
        fmt::format("buffer {} holds nothing on rank {}", from.index, world_->number(rank)));
  host = tensors_.get(from, rank);
  return llvm::Error::success();
}

bool CpuBackend::restart(uint64_t seed) {
  options_.seed = seed;
  iterations_.clear();
  for (std::vector<Precomputed> &made : precomputed_)
    made.clear();
  tensors_.clear();
  return true;
}

// --- the run

CpuBackend::Ranks CpuBackend::on_mesh(ir::MeshId mesh, Ranks active,
                                      llvm::SmallVectorImpl<RankId> &kept) const {
  if (world_->ranks(mesh).size() == world_->size())
    return active;
  for (RankId rank : active)
    if (world_->on(mesh, rank))
      kept.push_back(rank);
  return kept;
}

// The path of a body in a loop counts iterations.
uint64_t CpuBackend::draws_of(const Compute &compute) const {
  llvm::SmallVector<uint32_t, 8> chain;
  for (uint32_t call = compute.call; call; call = plan_->calls[call].caller)
    chain.push_back(call);
  uint64_t path = 0;
  size_t depth = 0;
  for (uint32_t call : llvm::reverse(chain)) {
    const PlannedCall &made = plan_->calls[call];
    path = body_path(path, made.site, made.looped ? iterations_[depth++] : made.round);
  }
  return draw_op(path, compute.inst);
}

llvm::Error CpuBackend::check_access(llvm::ArrayRef<Use> reads, llvm::ArrayRef<Use> writes,
                                     Ranks ranks) {
  for (const Use &use : reads) {
    if (!tensors_.live(use.buffer, ranks[0]) &&
        world_->on(plan_->buffers[use.buffer].mesh, ranks[0]))
      return make_error(fmt::format("buffer {} is read where it holds nothing", use.buffer.index));
    if (llvm::Error error = tensors_.reads(use.buffer))
      return error;
  }
  for (const Use &use : writes)
    if (llvm::Error error = tensors_.writes(use.buffer))
      return error;
  return llvm::Error::success();
}

static uint64_t address(const SharedTensor &tensor) {
  return reinterpret_cast<uintptr_t>(tensor.get());
}

// What an op makes follows from its operands, where they and its results begin in the whole, and
// the stream of its random numbers.
void CpuBackend::deduplicate(const Compute &made, const PreparedStep &prepared, const Step &step,
                             Ranks ranks) {
  llvm::ArrayRef<Use> operands = plan_->used(made.operands), results = plan_->used(made.results);
  deduplication_.begin(2 + 2 * operands.size() + results.size());
  for (RankId rank : ranks) {
    const PreparedOp &op = prepared.on(rank);
    uint64_t *word = deduplication_.next().data();
    *word++ = reinterpret_cast<uintptr_t>(&op);
    *word++ = draw_stream(*world_, step.mesh, made.own_draws, rank);
    for (unsigned i = 0; i < operands.size(); ++i) {
      *word++ = op.reads(i) ? address(tensors_.tensor(operands[i].buffer, rank)) : 0;
      *word++ = block_class(operands[i], rank);
    }
    for (const Use &use : results)
      *word++ = block_class(use, rank);
  }
  deduplication_.end();
}

llvm::SmallVector<SharedTensor, 6> CpuBackend::read_by(const Compute &made, RankId rank) const {
  llvm::SmallVector<SharedTensor, 6> operands;
  for (const Use &use : plan_->used(made.operands))
    operands.push_back(tensors_.tensor(use.buffer, rank));
  return operands;
}

// What an earlier step made of the very same operands; null: nothing.
SharedTensor CpuBackend::take_ahead(uint32_t compute, const Compute &made, RankId rank) const {
  for (const Precomputed &each : precomputed_[compute])
    if (each.operands == read_by(made, rank))
      return each.result;
  return nullptr;
}

llvm::Error CpuBackend::compute_on(const Compute &made, const PreparedStep &prepared,
                                   const Step &step, RankId rank,
                                   llvm::MutableArrayRef<SharedTensor> results) {
  const PreparedOp &op = prepared.on(rank);
  llvm::SmallVector<TensorBlock, 8> args, result_blocks;
  auto held = [&](Use use, bool data) {
    const Buffer &buffer = plan_->buffers[use.buffer];
    TensorBlock made{nullptr, buffer.dtype, &buffer.on(rank)};
    if (data) {
      const SharedTensor &tensor = tensors_.tensor(use.buffer, rank);
      made.tensor = tensor.get(), made.f32_cache = &tensor->f32_cache;
    }
    if (const Block *at = block(use, rank))
      made.first = &at->first, made.whole = &at->whole;
    return made;
  };
  llvm::ArrayRef<Use> operands = plan_->used(made.operands), uses = plan_->used(made.results);
  for (unsigned i = 0; i < operands.size(); ++i)
    args.push_back(held(operands[i], op.reads(i)));
  llvm::SmallVector<Tensor, 2> tensors;
  for (unsigned i = 0; i < uses.size(); ++i) {
    result_blocks.push_back(held(uses[i], false));
    results[i] = tensors_.fresh(uses[i].buffer, rank, BufferTensors::Content::Anything);
    tensors.push_back(std::move(*results[i]));
  }
  llvm::SmallVector<const PreparedOp *, 2> together;
  for (size_t i = 0; i < prepared.ahead.size(); ++i) {
    const Compute &later = plan_->computes[prepared.ahead[i]];
    together.push_back(&prepared_steps_[prepared.ahead[i]].on(rank));
    SharedTensor &result = results[uses.size() + i];
    result = tensors_.fresh(plan_->used(later.results)[0].buffer, rank,
                            BufferTensors::Content::Anything);
    tensors.push_back(std::move(*result));
  }
  Draws draws{options_.seed, prepared.draws, draw_stream(*world_, step.mesh, made.own_draws, rank)};
  if (prepared.looped && made.inst.valid())
    draws.op = draws_of(made);
  if (llvm::Error error = op.run(args, result_blocks, tensors, options_.domain, draws, together))
    return error;
  for (unsigned i = 0; i < tensors.size(); ++i)
    static_cast<Tensor &>(*results[i]) = std::move(tensors[i]);
  return llvm::Error::success();
}

llvm::Error CpuBackend::compute(const Step &step, Ranks ranks) {
  const Compute &made = plan_->computes[step.index];
  const PreparedStep &prepared = prepared_steps_[step.index];
  deduplicate(made, prepared, step, ranks);
  llvm::ArrayRef<Use> uses = plan_->used(made.results);
  llvm::ArrayRef<uint32_t> firsts = deduplication_.firsts();
  const size_t wide = uses.size() + prepared.ahead.size();
  results_.assign(firsts.size() * wide, nullptr);
  std::vector<std::string> errors(prepared.threads ? firsts.size() : 0);
  auto one = [&](size_t i) -> llvm::Error {
    RankId rank = ranks[firsts[i]];
    llvm::MutableArrayRef<SharedTensor> own(results_.data() + i * wide, wide);
    if (!precomputed_[step.index].empty() && (own[0] = take_ahead(step.index, made, rank)))
      return llvm::Error::success();
    return compute_on(made, prepared, step, rank, own);
  };
  if (prepared.threads)
    workers_.run(firsts.size(), [&](size_t i) {
      if (llvm::Error error = one(i))
        errors[i] = llvm::toString(std::move(error));
    });
  for (size_t i = 0; !prepared.threads && i < firsts.size(); ++i)
    if (llvm::Error error = one(i))
      return error;
  for (const std::string &error : errors)
    if (!error.empty())
      return make_error(error);
  for (size_t i = 0; i < ranks.size(); ++i)
    for (size_t k = 0; k < uses.size(); ++k)
      tensors_.put(uses[k].buffer, ranks[i], results_[deduplication_.done_by()[i] * wide + k]);
  precomputed_[step.index].clear();
  for (size_t k = 0; k < prepared.ahead.size(); ++k) {
    precomputed_[prepared.ahead[k]].clear();
    for (size_t i = 0; i < firsts.size(); ++i)
      precomputed_[prepared.ahead[k]].push_back(
          {read_by(made, ranks[firsts[i]]), std::move(results_[i * wide + uses.size() + k])});
  }
  results_.clear();
  return llvm::Error::success();
}

// Forms that write every element.
static bool assigns(LocalStepForm form) {
  return form == LocalStepForm::TakeOwnSlice || form == LocalStepForm::Scale ||
         form == LocalStepForm::Copy || form == LocalStepForm::Receive ||
         form == LocalStepForm::TakeRow || form == LocalStepForm::StackRows;
}

// What a local step takes of the place of the rank in its group.
static uint64_t position_of(const LocalStep &local, uint32_t position) {
  switch (local.form) {
  case LocalStepForm::TakeOwnSlice:
  case LocalStepForm::PlaceOwn:
  case LocalStepForm::Coordinate:
    return position;
  case LocalStepForm::KeepOnRoot:
    return position == local.root;
  default:
    return 0;
  }
}

RankId CpuBackend::source_of(const LocalStep &made, Use operand, const Step &step,
                             RankId rank) const {
  if (made.form != LocalStepForm::Receive)
    return rank;
  Ranks ranks = world_->ranks(step.mesh);
  auto place = static_cast<size_t>(llvm::find(ranks, rank) - ranks.begin());
  return world_->ranks(plan_->buffers[operand.buffer].mesh)[place];
}

void CpuBackend::deduplicate(const LocalStep &made, const Step &step, Ranks ranks) {
  llvm::ArrayRef<Use> operands = plan_->used(made.operands);
  deduplication_.begin(3 + operands.size());
  for (RankId rank : ranks) {
    uint64_t *word = deduplication_.next().data();
    uint32_t position = made.group.valid() ? groups_[made.group.index].position(rank) : 0;
    bool all_zero = made.form == LocalStepForm::KeepOnRoot && position != made.root;
    *word++ = extents_class(made.result, rank);
    *word++ = position_of(made, position);
    *word++ =
        made.cut.valid() ? reinterpret_cast<uintptr_t>(plan_->cuts[made.cut].on(rank).data()) : 0;
    for (const Use &use : operands)
      *word++ =
          all_zero ? 0 : address(tensors_.stored(use.buffer, source_of(made, use, step, rank)));
  }
  deduplication_.end();
}

GroupPosition CpuBackend::position_in(const LocalStep &made, RankId rank) const {
  GroupPosition at;
  if (made.group.valid())
    at.position = groups_[made.group.index].position(rank);
  if (made.cut.valid())
    at.lengths = plan_->cuts[made.cut].on(rank);
  return at;
}

// What came from another process or, when it is cut into pieces, goes there: null for all else.
SharedTensor CpuBackend::moved_packed(const LocalStep &made, RankId rank) {
  llvm::ArrayRef<Use> operands = plan_->used(made.operands);
  const Buffer &buffer = plan_->buffers[made.result];
  const size_t bytes = packed_size(buffer.dtype, options_.domain);
  if (!options_.peers || !moves_elements(made.form) || !bytes)
    return nullptr;
  const SharedTensor &from = tensors_.stored(operands.front().buffer, rank);
  const bool hands_on = made.form == LocalStepForm::Copy && from->dtype == buffer.dtype;
  if (hands_on && from->dims == buffer.on(rank))
    return from;
  const bool sent = made.form == LocalStepForm::Split || !from->has_cells;
  if (from->dtype != buffer.dtype || !sent || !tensors_.packed(*from))
    return nullptr;
  SharedTensor result = tensors_.fresh_packed(buffer.dtype, buffer.on(rank),
                                              assigns(made.form) ? BufferTensors::Content::Anything
                                                                 : BufferTensors::Content::Zeros);
  move_packed(made, position_in(made, rank), bytes, *from, *result);
  return result;
}

SharedTensor CpuBackend::local_step_on(const LocalStep &made, const Step &step, RankId rank) {
  if (SharedTensor moved = moved_packed(made, rank))
    return moved;
  llvm::SmallVector<const Tensor *, 4> tensors;
  const Buffer &buffer = plan_->buffers[made.result];
  for (const Use &use : plan_->used(made.operands)) {
    const SharedTensor &from = tensors_.tensor(use.buffer, source_of(made, use, step, rank));
    bool copies = made.form == LocalStepForm::Copy || made.form == LocalStepForm::Receive;
    if (copies && from->dtype == buffer.dtype && from->dims == buffer.on(rank))
      return from;
    tensors.push_back(from.get());
  }
  using Content = BufferTensors::Content;
  SharedTensor result =
      tensors_.fresh(made.result, rank, assigns(made.form) ? Content::Anything : Content::Zeros);
  run_local_step(made, position_in(made, rank), tensors, *result, options_.domain);
  return result;
}

llvm::Error CpuBackend::local_step(const Step &step, Ranks ranks) {
  const LocalStep &made = plan_->local_steps[step.index];
  deduplicate(made, step, ranks);
  llvm::ArrayRef<uint32_t> firsts = deduplication_.firsts();
  results_.assign(firsts.size(), nullptr);
  auto one = [&](size_t i) { results_[i] = local_step_on(made, step, ranks[firsts[i]]); };
  if (is_worth_threads(Use{made.result, {}}))
    workers_.run(firsts.size(), one);
  else
    for (size_t i = 0; i < firsts.size(); ++i)
      one(i);
  for (size_t i = 0; i < ranks.size(); ++i)
    tensors_.put(made.result, ranks[i], results_[deduplication_.done_by()[i]]);
  results_.clear();
  return llvm::Error::success();
}

// Groups of which no rank came this way are left out; a group that is not complete would wait for
// ever.
llvm::Expected<llvm::SmallVector<uint32_t, 16>> CpuBackend::complete_groups(const Step &step,
                                                                            Ranks ranks) {
  const Groups &groups = groups_[plan_->communicates[step.index].group.index];
  llvm::SmallVector<uint32_t, 16> met(groups.count(), 0), complete;
  for (RankId rank : ranks)
    ++met[groups.group_of(rank)];
  for (uint32_t g = 0; g < met.size(); ++g) {
    if (met[g] == groups.size())
      complete.push_back(g);
    else if (met[g] > 0)
      return make_error(
          fmt::format("{} is reached by {} of {} ranks of a group: the predicates around it differ",
                      name_of(*program_, step), met[g], groups.size()));
  }
  return complete;
}

// Groups whose members, one by one, hold the same.
void CpuBackend::deduplicate(const Communicate &collective, const Groups &groups,
                             llvm::ArrayRef<uint32_t> which) {
  deduplication_.begin(3 * groups.size());
  for (uint32_t g : which) {
    uint64_t *word = deduplication_.next().data();
    for (RankId rank : groups[g]) {
      *word++ = address(tensors_.tensor(collective.operand, rank));
      *word++ = extents_class(collective.result, rank);
      *word++ = collective.counts.valid()
                    ? reinterpret_cast<uintptr_t>(plan_->cuts[collective.counts].on(rank).data())
                    : 0;
    }
  }
  deduplication_.end();
}

void CpuBackend::communicate_group(const Communicate &collective, Ranks members,
                                   llvm::MutableArrayRef<SharedTensor> results) {
  GroupTensors group;
  for (RankId rank : members) {
    group.operands.push_back(tensors_.tensor(collective.operand, rank));
    group.counts.push_back(collective.counts.valid() ? plan_->cuts[collective.counts].on(rank)
                                                     : llvm::ArrayRef<int64_t>());
  }
  group.perm = ir::as_array(plan_->numbers).slice(collective.perm.first, collective.perm.count);
  run_collective(collective, group, options_.domain, results,
                 [&](size_t position, BufferTensors::Content content) {
                   return tensors_.fresh(collective.result, members[position], content);
                 });
}

llvm::Error CpuBackend::communicate(const Step &step, Ranks ranks) {
  if (options_.peers)
    return communicate_with_peers(step);
  const Communicate &collective = plan_->communicates[step.index];
  const Groups &groups = groups_[collective.group.index];
  llvm::Expected<llvm::SmallVector<uint32_t, 16>> complete = complete_groups(step, ranks);
  if (!complete)
    return complete.takeError();
  deduplicate(collective, groups, *complete);
  llvm::ArrayRef<uint32_t> firsts = deduplication_.firsts();
  results_.assign(firsts.size() * groups.size(), nullptr);
  auto one = [&](size_t i) {
    communicate_group(collective, groups[(*complete)[firsts[i]]],
                      llvm::MutableArrayRef(results_.data() + i * groups.size(), groups.size()));
  };
  if (is_worth_threads({{collective.operand, {}}, {collective.result, {}}}))
    workers_.run(firsts.size(), one);
  else
    for (size_t i = 0; i < firsts.size(); ++i)
      one(i);
  for (size_t g = 0; g < complete->size(); ++g)
    for (size_t i = 0; i < groups.size(); ++i)
      tensors_.put(collective.result, groups[(*complete)[g]][i],
                   results_[deduplication_.done_by()[g] * groups.size() + i]);
  results_.clear();
  return llvm::Error::success();
}

llvm::Expected<bool> CpuBackend::holds(BufferId predicate, RankId rank) {
  const Tensor &tensor = tensors_.get(predicate, rank);
  if (!tensors_.live(predicate, rank) || tensor.size() != 1)
    return make_error("a predicate is one element");
  return tensor.visit([](const auto &cells) {
    return cells[0] != typename std::decay_t<decltype(cells)>::value_type();
  });
}

llvm::Error CpuBackend::branch(uint32_t index, Ranks ranks) {
  const Branch &made = plan_->branches[plan_->steps[index].index];
  llvm::SmallVector<RankId, 16> ways[2];
  for (RankId rank : ranks) {
    llvm::Expected<bool> yes = holds(made.predicate, rank);
    if (!yes)
      return yes.takeError();
    ways[*yes ? 0 : 1].push_back(rank);
  }
  if (!ways[0].empty())
    if (llvm::Error error = run_range({index + 1, made.then_end}, ways[0]))
      return error;
  if (!ways[1].empty())
    return run_range({made.then_end, made.else_end}, ways[1]);
  return llvm::Error::success();
}

llvm::Error CpuBackend::loop(uint32_t index, Ranks ranks) {
  const Loop &made = plan_->loops[plan_->steps[index].index];
  llvm::SmallVector<RankId, 16> left(ranks.begin(), ranks.end());
  iterations_.push_back(0);
  llvm::Error failed = llvm::Error::success();
  while (!left.empty() && !failed) {
    if ((failed = run_range({index + 1, made.cond_end}, left)))
      break;
    llvm::SmallVector<RankId, 16> more;
    for (RankId rank : left) {
      llvm::Expected<bool> yes = holds(made.predicate, rank);
      if (!yes)
        failed = llvm::joinErrors(std::move(failed), yes.takeError());
      else if (*yes)
        more.push_back(rank);
    }
    left = std::move(more);
    if (!failed && !left.empty() && iterations_.back() >= plan_->max_rounds)
      return iterations_.pop_back(),
             llvm::make_error<TooManyRounds>(plan_->steps[index].inst, plan_->max_rounds);
    if (!failed && !left.empty())
      failed = run_range({made.cond_end, made.body_end}, left);
    ++iterations_.back();
  }
  iterations_.pop_back();
  return failed;
}

llvm::Error CpuBackend::run_step(const Step &step, uint32_t index, Ranks active) {
  if (options_.peers && step.form == StepForm::LocalStep &&
      plan_->local_steps[step.index].form == LocalStepForm::Receive)
    return receive_from_peers(step);
  llvm::SmallVector<RankId, 16> kept;
  Ranks ranks = on_mesh(step.mesh, active, kept);
  if (ranks.empty())
    return llvm::Error::success();
  auto access = [&](llvm::ArrayRef<Use> reads, llvm::ArrayRef<Use> writes) {
    return options_.check_memory ? check_access(reads, writes, ranks) : llvm::Error::success();
  };
  switch (step.form) {
  case StepForm::Compute: {
    const Compute &made = plan_->computes[step.index];
    if (llvm::Error error = access(plan_->used(made.operands), plan_->used(made.results)))
      return error;
    return compute(step, ranks);
  }
  case StepForm::LocalStep: {
    const LocalStep &made = plan_->local_steps[step.index];
    if (llvm::Error error = access(plan_->used(made.operands), {{made.result, {}}}))
      return error;
    return local_step(step, ranks);
  }
  case StepForm::Communicate: {
    const Communicate &made = plan_->communicates[step.index];
    if (llvm::Error error = access({{made.operand, {}}}, {{made.result, {}}}))
      return error;
    return communicate(step, ranks);
  }
  case StepForm::Release:
    for (RankId rank : ranks)
      tensors_.release(plan_->releases[step.index].buffer, rank);
    if (options_.check_memory)
      tensors_.releases(plan_->releases[step.index].buffer);
    return llvm::Error::success();
  case StepForm::Branch:
    return branch(index, ranks);
  case StepForm::Loop:
    return loop(index, ranks);
  }
  return llvm::Error::success();
}

llvm::Error CpuBackend::run_range(StepRange range, Ranks active) {
  for (uint32_t i = range.first; i < range.last;) {
    const Step &step = plan_->steps[i];
    if (options_.peers)
      if (llvm::Error error = options_.peers->at(i))
        return error;
    if (deadline_ != kNoDeadline && std::chrono::steady_clock::now() > deadline_)
      return make_error(
          fmt::format("the deadline passed at step {}, {}", i, name_of(*program_, step)));
    if (llvm::Error error = run_step(step, i, active))
      return make_error(
          fmt::format("{}: {}", name_of(*program_, step), llvm::toString(std::move(error))));
    i = step_after(*plan_, i);
  }
  return llvm::Error::success();
}

llvm::Error CpuBackend::run(StepRange steps, Deadline deadline) {
  deadline_ = deadline;
  return run_range(steps, all_);
}

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions &options) {
  return std::make_unique<CpuBackend>(options);
}

} // namespace spmd::runtime
