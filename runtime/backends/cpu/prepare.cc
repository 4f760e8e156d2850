// What is decided before the run: kernels, groups, blocks, and which ranks see the same of them.
#include "ir/support/arrays.h"
#include "ir/support/error.h"
#include "runtime/backends/cpu/backend.h"

#include "runtime/backends/peers.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

CpuBackend::Key CpuBackend::key_of(const Compute &compute, RankId rank) const {
  Key key = {compute.op.index, compute.attrs.index, compute.slots.count};
  for (uint32_t i = 0; i < compute.slots.count; ++i) {
    const rules::Slot &slot = plan_->slots[compute.slots.first + i];
    key.insert(key.end(), {uint64_t(slot.form) | uint64_t(slot.first) << 8 |
                               uint64_t(slot.count) << 24 | uint64_t(slot.literal.form) << 40,
                           slot.literal.bits, slot.name.index});
  }
  for (Span span : {compute.operands, compute.results}) {
    key.push_back(span.count);
    for (const Use &use : plan_->used(span)) {
      const Buffer &buffer = plan_->buffers[use.buffer];
      key.push_back(uint64_t(buffer.dtype) | uint64_t(buffer.on(rank).size()) << 8);
      key.insert(key.end(), buffer.on(rank).begin(), buffer.on(rank).end());
    }
  }
  return key;
}

llvm::Expected<const PreparedOp *> CpuBackend::prepare_op(const Compute &compute, RankId rank) {
  std::unique_ptr<PreparedOp> &known = prepared_[key_of(compute, rank)];
  if (known)
    return known.get();
  llvm::SmallVector<ir::DType, 4> dtypes[2];
  llvm::SmallVector<Dims, 4> dims[2];
  for (unsigned side = 0; side < 2; ++side)
    for (const Use &use : plan_->used(side ? compute.results : compute.operands)) {
      const Buffer &buffer = plan_->buffers[use.buffer];
      dtypes[side].push_back(buffer.dtype);
      dims[side].push_back(buffer.on(rank));
    }
  llvm::ArrayRef<rules::Slot> slots =
      ir::as_array(plan_->slots).slice(compute.slots.first, compute.slots.count);
  llvm::Expected<std::unique_ptr<PreparedOp>> made =
      runtime::prepare(*program_, rules_->resolve(compute.op), compute.attrs, slots, dtypes[0],
                       dims[0], dtypes[1], dims[1]);
  if (!made)
    return made.takeError();
  if (llvm::Error error = (*made)->check(options_.domain))
    return error;
  known = std::move(*made);
  return known.get();
}

// Ranks of equal `key(rank)` get one number.
template <class Key>
static std::vector<uint32_t> classes_of(llvm::ArrayRef<RankId> ranks, uint32_t size, Key key) {
  std::map<std::vector<int64_t>, uint32_t> known;
  std::vector<uint32_t> classes(size, 0);
  for (RankId rank : ranks)
    classes[rank] = known.try_emplace(key(rank), static_cast<uint32_t>(known.size())).first->second;
  return classes;
}

void CpuBackend::classify() {
  for (uint32_t p = 0; p < plan_->placements.size(); ++p)
    block_classes_.push_back(classes_of(
        world_->ranks(plan_->placements[PlacementId{p}].mesh()), world_->size(), [&](RankId rank) {
          const Block &block = blocks_[p][rank];
          std::vector<int64_t> key;
          for (const Dims *each : {&block.dims, &block.first, &block.whole})
            key.insert(key.end(), each->begin(), each->end());
          return key;
        }));
  for (const Buffer &buffer : plan_->buffers.all()) {
    extents_classes_.emplace_back();
    if (buffer.dims.size() > 1)
      extents_classes_.back() =
          classes_of(world_->ranks(buffer.mesh), world_->size(), [&](RankId rank) {
            return std::vector<int64_t>(buffer.on(rank).begin(), buffer.on(rank).end());
          });
  }
}

// Below this many elements a step is done sooner than threads are woken.
constexpr int64_t kWorthThreads = 1 << 15;

bool CpuBackend::is_worth_threads(llvm::ArrayRef<Use> uses) const {
  int64_t bytes = 0;
  for (const Use &use : uses)
    bytes += plan_->buffers[use.buffer].bytes;
  return bytes / 4 * static_cast<int64_t>(all_.size()) >= kWorthThreads;
}

llvm::Error CpuBackend::prepare_compute(const Compute &compute, ir::MeshId mesh) {
  PreparedStep prepared;
  bool uniform = true;
  for (Span span : {compute.operands, compute.results})
    for (const Use &use : plan_->used(span))
      uniform &= plan_->buffers[use.buffer].dims.size() == 1;
  llvm::SmallVector<RankId, 16> kept;
  Ranks own = on_mesh(mesh, all_, kept);
  for (RankId rank : uniform ? own.take_front(1) : own) {
    llvm::Expected<const PreparedOp *> op = prepare_op(compute, rank);
    if (!op)
      return op.takeError();
    prepared.ops.resize(uniform ? 1 : world_->size());
    prepared.ops[uniform ? 0 : rank] = *op;
  }
  for (uint32_t call = compute.call; call; call = plan_->calls[call].caller)
    prepared.looped |= plan_->calls[call].looped;
  prepared.draws =
      compute.inst.valid() ? draw_op(plan_->calls[compute.call].path, compute.inst) : 0;
  prepared.threads = is_worth_threads(plan_->used(compute.operands)) ||
                     is_worth_threads(plan_->used(compute.results));
  prepared_steps_[static_cast<size_t>(&compute - plan_->computes.data())] = std::move(prepared);
  return llvm::Error::success();
}

// Gradients of one op stand near each other. Where control does not flow on as the steps stand,
// what was made ahead goes unused.
void CpuBackend::find_ahead() {
  constexpr size_t kNear = 32;
  // Attributes and slots, which is how a key begins after the op.
  auto call_of = [&](const Compute &compute) {
    Key key = key_of(compute,
                     world_->ranks(plan_->buffers[plan_->used(compute.results)[0].buffer].mesh)[0]);
    key.resize(3 + 3 * compute.slots.count);
    key.erase(key.begin());
    return key;
  };
  auto goes_with = [&](uint32_t a, uint32_t b) {
    const std::vector<const PreparedOp *> &x = prepared_steps_[a].ops, &y = prepared_steps_[b].ops;
    return x.size() == 1 && y.size() == 1 && x[0]->goes_with(*y[0], options_.domain);
  };
  auto same_operands = [&](uint32_t a, uint32_t b) {
    const Compute &x = plan_->computes[a], &y = plan_->computes[b];
    llvm::ArrayRef<Use> own = plan_->used(x.operands), theirs = plan_->used(y.operands);
    return std::equal(own.begin(), own.end(), theirs.begin(), theirs.end(),
                      [](const Use &i, const Use &j) { return i.buffer == j.buffer; }) &&
           call_of(x) == call_of(y);
  };
  llvm::ArrayRef<Step> steps(plan_->steps);
  llvm::BitVector taken(static_cast<unsigned>(plan_->computes.size()));
  for (; !steps.empty(); steps = steps.drop_front()) {
    const Step &at = steps.front();
    if (at.form != StepForm::Compute || taken[at.index])
      continue;
    for (const Step &next : steps.drop_front().take_front(kNear))
      if (next.form == StepForm::Compute && next.mesh == at.mesh && !taken[next.index] &&
          goes_with(at.index, next.index) && same_operands(at.index, next.index)) {
        taken.set(next.index);
        prepared_steps_[at.index].ahead.push_back(next.index);
      }
  }
}

llvm::Error CpuBackend::prepare(ir::Program &program, const Plan &plan, const World &world) {
  program_ = &program;
  plan_ = &plan;
  world_ = &world;
  rules_ = std::make_unique<rules::Rules>(program);
  for (const Communicator &each : plan.communicators.all())
    groups_.push_back(world.groups(each.mesh, each.axes));
  for (const Placement &place : plan.placements.all()) {
    std::vector<Block> &blocks = blocks_.emplace_back(world.size());
    for (RankId rank : world.ranks(place.mesh()))
      blocks[rank] = place.block(world, rank);
  }
  classify();
  for (RankId rank = 0; rank < world.size(); ++rank)
    if (!options_.peers || rank == options_.peers->rank())
      all_.push_back(rank);
  if (options_.peers)
    if (llvm::Error error = options_.peers->prepare(plan, world))
      return error;
  tensors_.prepare(plan, world.size(), options_.domain, options_.check_memory,
                   options_.threads > 1);
  prepared_steps_.resize(plan.computes.size());
  for (const Step &step : plan.steps)
    if (step.form == StepForm::Compute)
      if (llvm::Error error = prepare_compute(plan.computes[step.index], step.mesh))
        return make_error(
            fmt::format("{}: {}", name_of(*program_, step), llvm::toString(std::move(error))));
  find_ahead();
  precomputed_.resize(plan.computes.size());
  return llvm::Error::success();
}

} // namespace spmd::runtime
