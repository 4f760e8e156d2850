// What all ranks of the cpu backend hold, buffer by buffer. Ranks share a tensor that is the same
// for them; what is held is never changed. Released tensors are kept for the next buffers: a step
// allocates nothing that an earlier run of it did not.
#pragma once

#include "runtime/plan/plan.h"
#include "runtime/tensor/f32_cache.h"

#include <map>
#include <memory>
#include <mutex>

namespace spmd::runtime {

struct BufferTensor : Tensor {
  explicit BufferTensor(Tensor tensor) : Tensor(std::move(tensor)) {}
  F32Cache f32_cache;
  // The elements in their declared type: made when they are first sent, or all that there is of
  // what was received. Either is kept until the tensor changes.
  std::vector<char> packed;
  bool has_packed = false, has_cells = true;
};
using SharedTensor = std::shared_ptr<BufferTensor>;

class BufferTensors {
public:
  // `check`: accesses are held against the offsets that the plan gives to buffers. `threads`:
  // several ask.
  void prepare(const Plan &plan, uint32_t ranks, Domain domain, bool check, bool threads);

  bool live(BufferId buffer, RankId rank) const { return stored(buffer, rank) != nullptr; }
  const Tensor &get(BufferId buffer, RankId rank) const { return *tensor(buffer, rank); }
  // The tensor that the rank holds, maybe with others; null: none.
  const SharedTensor &tensor(BufferId buffer, RankId rank) const {
    const SharedTensor &found = stored(buffer, rank);
    if (found)
      make_cells(*found);
    return found;
  }
  // The same, maybe without cells.
  const SharedTensor &stored(BufferId buffer, RankId rank) const {
    return slots_[index(buffer, rank)];
  }
  static void make_cells(BufferTensor &tensor) {
    if (!tensor.has_cells)
      unpack_cells(tensor);
  }
  // The packed elements of what somebody holds; null: a cell is no number of the type.
  const char *packed(BufferTensor &tensor) const;
  // A tensor of the extents that the buffer has on the rank, which nobody holds yet: of zeros, or
  // of anything (when accesses are checked: of what no program should meet). Threads may ask for
  // them at the same time.
  enum class Content : uint8_t { Zeros, Anything };
  SharedTensor fresh(BufferId buffer, RankId rank, Content content);
  // The same, of any extents; what nobody else has by then can be given back.
  SharedTensor fresh(ir::DType dtype, const Dims &dims, Content content);
  // Without cells: of packed elements, to be written by whoever asks.
  SharedTensor fresh_packed(ir::DType dtype, const Dims &dims, Content content);
  void give_back(SharedTensor &tensor);
  void put(BufferId buffer, RankId rank, SharedTensor tensor);
  // What another rank holds, if that has the same bits; else a copy.
  void write(BufferId buffer, RankId rank, const Tensor &host);
  void release(BufferId buffer, RankId rank);
  void clear(); // nobody holds anything

  // Of checks: an error where the bytes of a buffer are another's by now, or would be taken from
  // one that is still in use. Reads of a step come before its writes.
  llvm::Error reads(BufferId buffer);
  llvm::Error writes(BufferId buffer);
  void releases(BufferId buffer);

private:
  // The form of cells, and how many.
  using Size = std::pair<size_t, int64_t>;
  size_t index(BufferId buffer, RankId rank) const { return size_t(buffer.index) * ranks_ + rank; }

  const Plan *plan_ = nullptr;
  uint32_t ranks_ = 0;
  Domain domain_ = Domain::Declared;
  bool check_ = false, threads_ = false;
  std::vector<SharedTensor> slots_;
  using Shelf = std::vector<SharedTensor>;
  Shelf &shelf(Size size);
  static void unpack_cells(BufferTensor &tensor);
  SharedTensor take(ir::DType dtype, const Dims &dims);
  std::unique_lock<std::mutex> alone();

  std::map<Size, Shelf> kept_;                   // that nobody holds
  std::pair<const Size, Shelf> *last_ = nullptr; // asked for; the next is often of the same size
  size_t kept_count_ = 0;
  std::mutex keeping_;
  // By offset: up to where, whose bytes, and whether they are in use.
  struct Owner {
    int64_t end;
    BufferId buffer;
    bool live;
  };
  std::vector<std::pair<int64_t, Owner>> owners_;
};

} // namespace spmd::runtime
