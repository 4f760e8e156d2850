// Collectives: what the ranks of one group exchange. Sums are in the order of the ranks, in double
// or in the field, and rounded once.
#include "runtime/backends/cpu/steps.h"

#include "runtime/loops/row_loops.h"
#include "runtime/tensor/packed.h"

#include "ir/support/check.h"

#include <algorithm>
#include <cmath>

namespace spmd::runtime {
namespace {

using ir::Combiner;
using rules::Collective;

int64_t whole_number(double value) { return static_cast<int64_t>(value); }
int64_t whole_number(Residue value) { return value.number(); }

template <class T> T larger(T a, T b, bool most) {
  if constexpr (std::is_same_v<T, Complex>) {
    SPMD_CHECK(false, "complex numbers have no order");
  } else if constexpr (std::is_same_v<T, Residue>) {
    return (a.number() < b.number()) == most ? b : a;
  } else {
    if (std::isnan(a) || std::isnan(b))
      return std::isnan(a) ? a : b;
    return most ? std::max(a, b) : std::min(a, b);
  }
  return a;
}

template <class T> T of_bits(T a, T b, Combiner combiner) {
  if constexpr (std::is_same_v<T, Complex>) {
    SPMD_CHECK(false, "complex numbers have no bits");
    return a;
  } else {
    int64_t x = whole_number(a), y = whole_number(b);
    return T(combiner == Combiner::And ? x & y : combiner == Combiner::Or ? x | y : x ^ y);
  }
}

template <class T> T combined(T a, T b, Combiner combiner) {
  switch (combiner) {
  case Combiner::Sum:
  case Combiner::Avg:
    return a + b;
  case Combiner::Prod:
    return a * b;
  case Combiner::Max:
  case Combiner::Min:
    return larger(a, b, combiner == Combiner::Max);
  case Combiner::And:
  case Combiner::Or:
  case Combiner::Xor:
    break;
  }
  return of_bits(a, b, combiner);
}

template <class T> void divide(std::vector<T> &cells, size_t by, ir::DType dtype) {
  if constexpr (std::is_same_v<T, Residue>) {
    Residue inverse = Residue(static_cast<int64_t>(by)).inverse();
    for (T &cell : cells)
      cell *= inverse;
  } else {
    for (T &cell : cells)
      cell /= static_cast<double>(by);
    if constexpr (std::is_same_v<T, double>)
      if (!ir::differentiable(dtype))
        for (T &cell : cells)
          cell = std::trunc(cell);
  }
}

// As many elements as `result` has, combined in the order of the parts.
template <class T>
void reduce(const Communicate &collective, llvm::ArrayRef<const T *> parts, Domain domain,
            Tensor &result) {
  std::vector<T> &into = result.of<T>();
  const bool sums = collective.combiner == Combiner::Sum || collective.combiner == Combiner::Avg;
  constexpr size_t kBlock = 1024; // stays in the nearest cache
  for (size_t begin = 0; begin < into.size(); begin += kBlock) {
    size_t count = std::min(kBlock, into.size() - begin);
    T *to = into.data() + begin;
    if (parts.size() == 1)
      std::copy_n(parts[0] + begin, count, to);
    // The first two at once: what was just written is not read again.
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      const T *so_far = rank == 1 ? parts[0] + begin : to;
      const T *more = parts[rank] + begin;
      if (!sums)
        for (size_t i = 0; i < count; ++i)
          to[i] = combined(so_far[i], more[i], collective.combiner);
      else if constexpr (std::is_same_v<T, double>)
        add_rows(so_far, more, to, count);
      else
        for (size_t i = 0; i < count; ++i)
          to[i] = so_far[i] + more[i];
    }
  }
  if (collective.combiner == Combiner::Avg)
    divide(into, parts.size(), result.dtype);
  ir::DType dtype = result.dtype;
  if (collective.dtype != dtype) {
    result.dtype = collective.dtype;
    round_cells(result, domain);
    result.dtype = dtype;
  }
  round_cells(result, domain);
}

using Content = BufferTensors::Content;
using Fresh = llvm::function_ref<SharedTensor(size_t, Content)>;

template <class T> class CollectiveRun {
public:
  CollectiveRun(const Communicate &collective, const GroupTensors &group, Domain domain,
                llvm::MutableArrayRef<SharedTensor> results, Fresh fresh)
      : collective_(collective), group_(group), domain_(domain), results_(results), fresh_(fresh) {
    for (const SharedTensor &operand : group.operands)
      parts_.push_back(operand->of<T>().data());
  }
  void all_reduce();
  void reduce_scatter();
  void all_gather();
  void all_to_all();

private:
  size_t size() const { return group_.operands.size(); }
  const std::vector<T> &from(size_t i) const { return group_.operands[i]->template of<T>(); }
  std::vector<T> &to(size_t i) const { return results_[i]->template of<T>(); }
  // Elements of the piece that a rank has for, from or at a position.
  int64_t length(size_t rank, size_t position, int64_t all) const {
    llvm::ArrayRef<int64_t> counts = group_.counts[rank];
    return counts.empty() ? all / static_cast<int64_t>(size()) : counts[position];
  }
  // One result that all share.
  std::vector<T> &shared() {
    std::fill(results_.begin(), results_.end(), fresh_(0, Content::Anything));
    return to(0);
  }
  // A result for each.
  void own(Content content) {
    for (size_t i = 0; i < size(); ++i)
      results_[i] = fresh_(i, content);
  }

  const Communicate &collective_;
  const GroupTensors &group_;
  llvm::SmallVector<const T *, 8> parts_;
  Domain domain_;
  llvm::MutableArrayRef<SharedTensor> results_;
  Fresh fresh_;
};

template <class T> void CollectiveRun<T>::all_reduce() {
  shared();
  reduce<T>(collective_, parts_, domain_, *results_[0]);
}

template <class T> void CollectiveRun<T>::reduce_scatter() {
  own(Content::Anything);
  for (size_t rank = 0; rank < size(); ++rank) {
    reduce<T>(collective_, parts_, domain_, *results_[rank]);
    for (const T *&part : parts_)
      part += to(rank).size();
  }
}

template <class T> void CollectiveRun<T>::all_gather() {
  auto at = shared().begin();
  for (size_t rank = 0; rank < size(); ++rank)
    at = std::copy(from(rank).begin(), from(rank).end(), at);
}

template <class T> void CollectiveRun<T>::all_to_all() {
  own(Content::Zeros);
  std::vector<int64_t> filled(size(), 0);
  for (size_t sender = 0; sender < size(); ++sender) {
    int64_t first = 0, all = static_cast<int64_t>(from(sender).size());
    for (size_t receiver = 0; receiver < size(); ++receiver) {
      int64_t count = length(sender, receiver, all);
      std::copy_n(from(sender).begin() + first, count, to(receiver).begin() + filled[receiver]);
      first += count;
      filled[receiver] += count;
    }
  }
}

// A position that nothing is sent to gets zeros.
void permute(const GroupTensors &group, llvm::MutableArrayRef<SharedTensor> results, Fresh fresh) {
  for (size_t i = 0; i + 1 < group.perm.size(); i += 2)
    results[static_cast<size_t>(group.perm[i + 1])] =
        group.operands[static_cast<size_t>(group.perm[i])];
  for (size_t i = 0; i < results.size(); ++i)
    if (!results[i])
      results[i] = fresh(i, Content::Zeros);
}

} // namespace

void run_collective(const Communicate &collective, const GroupTensors &group, Domain domain,
                    llvm::MutableArrayRef<SharedTensor> results, Fresh fresh) {
  if (collective.collective == Collective::Permute)
    return permute(group, results, fresh);
  if (collective.collective == Collective::Broadcast)
    return std::fill(results.begin(), results.end(), group.operands[collective.root]);
  group.operands[0]->visit([&](const auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    CollectiveRun<T> run(collective, group, domain, results, fresh);
    switch (collective.collective) {
    case Collective::AllReduce:
      return run.all_reduce();
    case Collective::AllGather:
      return run.all_gather();
    case Collective::ReduceScatter:
      return run.reduce_scatter();
    case Collective::AllToAll:
      return run.all_to_all();
    default:
      SPMD_CHECK(false, "a collective that moves nothing");
    }
  });
}

// By blocks of cells that stay in the nearest cache.
static void reduce_packed(const Communicate &collective, llvm::ArrayRef<const char *> parts,
                          Domain domain, BufferTensor &result) {
  const auto all = static_cast<size_t>(result.size());
  const bool rounds_once = collective.dtype == result.dtype;
  if (collective.combiner == Combiner::Sum && parts.size() == 2 && rounds_once &&
      add_packed(result.dtype, parts[0], parts[1], result.packed.data(), all))
    return;
  constexpr size_t kBlock = 1024;
  const size_t element = packed_size(result.dtype, domain);
  const auto longest = static_cast<int64_t>(std::min(all, kBlock));
  std::vector<Tensor> blocks(parts.size() + 1, Tensor::make(result.dtype, {longest}, domain));
  for (size_t begin = 0; begin < all; begin += kBlock) {
    Tensor &sum = blocks.back();
    for (Tensor &block : blocks)
      block.visit([&](auto &cells) { cells.resize(std::min(kBlock, all - begin)); });
    for (size_t i = 0; i < parts.size(); ++i)
      unpack(parts[i] + begin * element, blocks[i]);
    sum.visit([&](const auto &cells) {
      using T = typename std::decay_t<decltype(cells)>::value_type;
      llvm::SmallVector<const T *, 8> from;
      for (const Tensor &block : llvm::ArrayRef(blocks).drop_back())
        from.push_back(block.of<T>().data());
      reduce<T>(collective, from, domain, sum);
    });
    const bool exact = pack(sum, result.packed.data() + begin * element);
    SPMD_CHECK(exact, "a sum that was rounded to its type is none of its numbers");
  }
}

void reduce_in_order(const Communicate &collective, llvm::ArrayRef<const char *> parts, bool packed,
                     Domain domain, BufferTensor &result) {
  if (packed)
    return reduce_packed(collective, parts, domain, result);
  result.visit([&](const auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    llvm::SmallVector<const T *, 8> from;
    for (const char *part : parts)
      from.push_back(reinterpret_cast<const T *>(part));
    reduce<T>(collective, from, domain, result);
  });
}

} // namespace spmd::runtime
