// Tensors go round: from a buffer that is released to the next one of that size.
#include "runtime/backends/cpu/tensors.h"

#include "runtime/tensor/packed.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

namespace spmd::runtime {

void BufferTensors::prepare(const Plan &plan, uint32_t ranks, Domain domain, bool check,
                            bool threads) {
  plan_ = &plan;
  threads_ = threads;
  ranks_ = ranks;
  domain_ = domain;
  check_ = check;
  slots_.clear();
  slots_.resize(plan.buffers.size() * ranks);
}

namespace {

// Of numbers NaN; of residues one that is not met by chance.
template <class T> T poison() {
  if constexpr (std::is_same_v<T, Residue>)
    return Residue::from_bits(0x0dd5eed0dd5eed00);
  else
    return T(std::numeric_limits<double>::quiet_NaN());
}

} // namespace

SharedTensor BufferTensors::fresh(BufferId id, RankId rank, Content content) {
  const Buffer &buffer = plan_->buffers[id];
  return fresh(buffer.dtype, buffer.on(rank), content);
}

std::unique_lock<std::mutex> BufferTensors::alone() {
  std::unique_lock<std::mutex> lock(keeping_, std::defer_lock);
  if (threads_)
    lock.lock();
  return lock;
}

BufferTensors::Shelf &BufferTensors::shelf(Size size) {
  if (!last_ || last_->first != size)
    last_ = &*kept_.try_emplace(size).first;
  return last_->second;
}

// One that was given back; null: there is none of that size.
SharedTensor BufferTensors::take(ir::DType dtype, const Dims &dims) {
  size_t form = domain_ == Domain::Field                          ? 2
                : ir::info(dtype).form == ir::DTypeClass::Complex ? 1
                                                                  : 0;
  std::unique_lock lock = alone();
  Shelf &kept = shelf({form, count(dims)});
  if (kept.empty())
    return nullptr;
  SharedTensor tensor = std::move(kept.back());
  kept.pop_back();
  --kept_count_;
  tensor->dtype = dtype;
  tensor->dims = dims;
  tensor->f32_cache.clear();
  tensor->has_packed = false;
  return tensor;
}

SharedTensor BufferTensors::fresh(ir::DType dtype, const Dims &dims, Content content) {
  SharedTensor tensor = take(dtype, dims);
  bool is_new = !tensor;
  if (is_new)
    tensor = std::make_shared<BufferTensor>(Tensor::make(dtype, dims, domain_));
  tensor->has_cells = true;
  tensor->visit([&](auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    cells.resize(static_cast<size_t>(count(dims)));
    if (content == Content::Anything ? check_ : !is_new)
      std::fill(cells.begin(), cells.end(), content == Content::Zeros ? T() : poison<T>());
  });
  return tensor;
}

SharedTensor BufferTensors::fresh_packed(ir::DType dtype, const Dims &dims, Content content) {
  SharedTensor tensor = take(dtype, dims);
  if (!tensor) {
    tensor = std::make_shared<BufferTensor>(Tensor::make(dtype, {0}, domain_));
    tensor->dims = dims;
  }
  tensor->has_cells = false;
  tensor->has_packed = true;
  tensor->packed.resize(static_cast<size_t>(count(dims)) * packed_size(dtype, domain_));
  // All ones are a NaN of every float, all zeros 0 of every type.
  if (content == Content::Zeros || check_)
    std::fill(tensor->packed.begin(), tensor->packed.end(), content == Content::Zeros ? 0 : -1);
  return tensor;
}

const char *BufferTensors::packed(BufferTensor &tensor) const {
  if (!tensor.has_packed) {
    tensor.packed.resize(static_cast<size_t>(tensor.size()) * packed_size(tensor.dtype, domain_));
    tensor.has_packed = pack(tensor, tensor.packed.data());
  }
  static constexpr char kNone = 0; // what has no elements has no address
  if (!tensor.has_packed)
    return nullptr;
  return tensor.packed.empty() ? &kNone : tensor.packed.data();
}

void BufferTensors::unpack_cells(BufferTensor &tensor) {
  tensor.visit([&](auto &cells) { cells.resize(static_cast<size_t>(tensor.size())); });
  unpack(tensor.packed.data(), tensor);
  tensor.has_cells = true;
}

// Takes it back from one rank.
void BufferTensors::give_back(SharedTensor &tensor) {
  SharedTensor last = std::move(tensor);
  tensor = nullptr;
  if (!last || last.use_count() > 1)
    return;
  // Enough for the widest step. Where there are more, most are of extents that are met no more.
  constexpr size_t kMostKept = 64;
  std::unique_lock lock = alone();
  if (kept_count_ == kMostKept * ranks_) {
    kept_.clear();
    last_ = nullptr;
    kept_count_ = 0;
  }
  ++kept_count_;
  shelf({last->cells.index(), last->size()}).push_back(std::move(last));
}

void BufferTensors::put(BufferId buffer, RankId rank, SharedTensor tensor) {
  SharedTensor &slot = slots_[index(buffer, rank)];
  give_back(slot);
  slot = std::move(tensor);
}

void BufferTensors::release(BufferId buffer, RankId rank) {
  give_back(slots_[index(buffer, rank)]);
}

void BufferTensors::clear() {
  for (SharedTensor &slot : slots_)
    give_back(slot);
  owners_.clear();
}

// NaN and zeros of either sign are distinguished.
static bool same_bits(const Tensor &a, const Tensor &b) {
  if (a.dtype != b.dtype || a.dims != b.dims || a.cells.index() != b.cells.index())
    return false;
  return a.visit([&](const auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    return cells.empty() ||
           std::memcmp(cells.data(), b.of<T>().data(), cells.size() * sizeof(T)) == 0;
  });
}

void BufferTensors::write(BufferId buffer, RankId rank, const Tensor &host) {
  // Copies lie near: of many ranks that are all different it is not worth to ask each.
  constexpr RankId kNear = 256;
  for (RankId other = rank; other-- > 0 && rank - other <= kNear;)
    if (const SharedTensor &theirs = tensor(buffer, other); theirs && same_bits(*theirs, host))
      return put(buffer, rank, theirs);
  SharedTensor own = fresh(buffer, rank, Content::Anything);
  static_cast<Tensor &>(*own) = host;
  put(buffer, rank, std::move(own));
}

llvm::Error BufferTensors::reads(BufferId id) {
  if (!check_ || plan_->buffers[id].bytes == 0)
    return llvm::Error::success();
  for (const auto &[offset, owner] : owners_)
    if (owner.buffer == id && owner.live)
      return llvm::Error::success();
  return make_error(fmt::format("the bytes of buffer {} are another's where it is read", id.index));
}

llvm::Error BufferTensors::writes(BufferId id) {
  const Buffer &buffer = plan_->buffers[id];
  if (!check_ || buffer.bytes == 0)
    return llvm::Error::success();
  int64_t first = buffer.offset, last = buffer.offset + buffer.bytes;
  for (const auto &[offset, owner] : owners_)
    if (owner.live && offset < last && first < owner.end && owner.buffer != id &&
        owner.buffer != buffer.in_place)
      return make_error(fmt::format("buffer {} is written over buffer {}, which is in use",
                                    id.index, owner.buffer.index));
  llvm::erase_if(owners_,
                 [&](const auto &each) { return each.first < last && first < each.second.end; });
  owners_.push_back({first, {last, id, true}});
  return llvm::Error::success();
}

void BufferTensors::releases(BufferId id) {
  for (auto &[offset, owner] : owners_)
    if (owner.buffer == id)
      owner.live = false;
}

} // namespace spmd::runtime
