// Lengths of blocks stay in the shortest form that says them: evenly, the first block and the rest
// as it comes, or each length.
#include "rules/transitions/blocks.h"

#include "rules/shapes/blocks.h"
#include "rules/shapes/extent_facts.h"

#include "ir/mesh/symbols.h"
#include "ir/support/arrays.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <numeric>

namespace spmd::rules {
namespace {

using ir::AxisId;
using ir::Extent;

constexpr int64_t kMostBlocks = 1 << 16; // that are ever listed

int64_t sum_of(llvm::ArrayRef<int64_t> lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t(0));
}

std::string print_lengths(llvm::ArrayRef<int64_t> lengths) {
  constexpr size_t kShown = 16;
  std::string text;
  for (int64_t length : lengths.take_front(kShown))
    text += fmt::format("{}{}", text.empty() ? "" : ", ", length);
  return fmt::format("[{}{}]", text, lengths.size() > kShown ? ", ..." : "");
}

// Whether blocks are as long as the first one until no element is left.
bool follow_first(llvm::ArrayRef<int64_t> lengths) {
  int64_t left = sum_of(lengths);
  for (int64_t length : lengths) {
    if (length != std::min(left, lengths.front()))
      return false;
    left -= length;
  }
  return true;
}

} // namespace

int64_t BlockMoves::ranks_of(llvm::ArrayRef<AxisId> axes) const {
  int64_t ranks = 1;
  for (AxisId axis : axes)
    if (__builtin_mul_overflow(ranks, mesh_[axis].size(), &ranks))
      return INT64_MAX;
  return ranks;
}

std::string BlockMoves::print(Extent extent) const {
  return ir::print(extent, program_.exprs, program_.strings);
}

int64_t BlockMoves::own_block(llvm::ArrayRef<AxisId> axes) const {
  int64_t offset = program_.rank.value_or(mesh_.offset) - mesh_.offset, block = 0;
  if (offset < 0)
    return 0; // recorded on a rank that is not on the mesh
  for (AxisId axis : axes)
    for (ir::Atom atom : mesh_[axis].layout)
      block = block * atom.size + offset / atom.stride % atom.size;
  return block;
}

std::optional<BlockMoves::Lengths> BlockMoves::lengths_of(const BlockDim &dim,
                                                          int64_t blocks) const {
  if (blocks > kMostBlocks || ir::is_symbolic(program_, blocks))
    return std::nullopt;
  Lengths lengths;
  if (!dim.uneven) {
    if (!dim.local || !dim.local->is_number())
      return std::nullopt;
    lengths.assign(static_cast<size_t>(blocks), dim.local->number());
    return lengths;
  }
  if (dim.uneven->sizes.valid()) {
    for (const ir::AttrValue &item : program_.lists[dim.uneven->sizes].items)
      lengths.push_back(item.as_integer());
    return static_cast<int64_t>(lengths.size()) == blocks ? std::optional(lengths) : std::nullopt;
  }
  if (!dim.uneven->global.is_number() || !dim.uneven->block.is_number())
    return std::nullopt;
  int64_t left = dim.uneven->global.number();
  for (int64_t i = 0; i < blocks; ++i) {
    lengths.push_back(std::min(left, dim.uneven->block.number()));
    left -= lengths.back();
  }
  return lengths;
}

void BlockMoves::set(BlockDim &dim, llvm::ArrayRef<int64_t> lengths) {
  dim.local = Extent(lengths[static_cast<size_t>(own_block(dim.axes))]);
  dim.uneven.reset();
  if (llvm::all_of(lengths, [&](int64_t length) { return length == lengths.front(); }))
    return;
  ir::UnevenDim uneven;
  uneven.global = Extent(sum_of(lengths));
  uneven.block = Extent(lengths.front());
  if (!follow_first(lengths)) {
    ir::AttrList list;
    for (int64_t length : lengths)
      list.items.push_back(ir::AttrValue::integer(length));
    uneven.sizes = program_.lists.add(std::move(list));
  }
  dim.uneven = uneven;
}

BlockMoves::Problem BlockMoves::join(BlockDim &dim, unsigned count,
                                     std::optional<llvm::ArrayRef<int64_t>> lengths) {
  int64_t blocks = ranks_of(dim.axes);
  int64_t n = ranks_of(ir::as_array(dim.axes).take_back(count));
  std::optional<Lengths> before;
  if (lengths || dim.uneven)
    before = lengths_of(dim, blocks);
  if (lengths && before)
    for (size_t first = 0; first < before->size(); first += lengths->size()) {
      llvm::ArrayRef<int64_t> group = ir::as_array(*before).slice(first, lengths->size());
      if (group != *lengths)
        return {Problem::Form::Lengths, print_lengths(*lengths), print_lengths(group), ""};
    }
  dim.axes.resize(dim.axes.size() - count);
  if (!dim.uneven) {
    if (lengths)
      dim.local = Extent(sum_of(*lengths));
    else if (dim.local)
      dim.local = product(program_, *dim.local, ir::rank_extent(program_, n));
    return {};
  }
  if (dim.axes.empty()) {
    dim.local = dim.uneven->global;
    dim.uneven.reset();
    return {};
  }
  if (before) {
    Lengths joined;
    for (size_t first = 0; first < before->size(); first += static_cast<size_t>(n))
      joined.push_back(sum_of(ir::as_array(*before).slice(first, static_cast<size_t>(n))));
    set(dim, joined);
    return {};
  }
  std::optional<Extent> block;
  if (!dim.uneven->sizes.valid())
    block = product(program_, dim.uneven->block, ir::rank_extent(program_, n));
  dim.local = own_block(dim.axes) == 0 ? block : std::nullopt;
  if (block)
    dim.uneven->block = *block;
  else
    dim.uneven.reset();
  return {};
}

BlockMoves::Problem BlockMoves::cut_stated(BlockDim &dim, llvm::ArrayRef<AxisId> axes,
                                           llvm::ArrayRef<int64_t> lengths, int64_t outer) {
  std::optional<Lengths> before = lengths_of(dim, outer);
  for (int64_t length : before.value_or(Lengths{}))
    if (length != sum_of(lengths))
      return {Problem::Form::Lengths, std::to_string(sum_of(lengths)), std::to_string(length), ""};
  dim.axes.append(axes.begin(), axes.end());
  int64_t blocks = 0;
  if (__builtin_mul_overflow(outer, static_cast<int64_t>(lengths.size()), &blocks) ||
      blocks > kMostBlocks || ir::is_symbolic(program_, outer)) {
    dim.local = std::nullopt;
    dim.uneven.reset();
    return {};
  }
  Lengths all;
  for (int64_t i = 0; i < outer; ++i)
    all.append(lengths.begin(), lengths.end());
  set(dim, all);
  return {};
}

BlockMoves::Problem BlockMoves::cut_evenly(BlockDim &dim, llvm::ArrayRef<AxisId> axes, int64_t n) {
  Problem problem;
  if (dim.local) {
    Extent ranks = ir::rank_extent(program_, n);
    std::optional<Extent> piece = exact_quotient(program_, *dim.local, ranks);
    if (!piece) {
      problem = {Problem::Form::Indivisible, "", "", print(*dim.local)};
      if (!dim.local->is_number() || !ranks.is_number())
        piece = quotient(program_, *dim.local, ranks);
    }
    dim.local = piece;
  }
  dim.axes.append(axes.begin(), axes.end());
  return problem;
}

BlockMoves::Problem BlockMoves::cut(BlockDim &dim, llvm::ArrayRef<AxisId> axes,
                                    std::optional<llvm::ArrayRef<int64_t>> lengths) {
  int64_t outer = ranks_of(dim.axes), n = ranks_of(axes);
  if (lengths && lengths->empty())
    return {};
  if (lengths)
    return cut_stated(dim, axes, *lengths, outer);
  bool divides = !dim.uneven &&
                 (!dim.local || exact_quotient(program_, *dim.local, ir::rank_extent(program_, n)));
  if (!divides)
    if (std::optional<Lengths> ruled = ruled_lengths(dim, axes, outer)) {
      dim.axes.append(axes.begin(), axes.end());
      set(dim, *ruled);
      return {};
    }
  if (!dim.uneven)
    return cut_evenly(dim, axes, n);
  std::string extent = dim.local ? print(*dim.local) : "?";
  dim.axes.append(axes.begin(), axes.end());
  dim.local = std::nullopt;
  dim.uneven.reset();
  return {Problem::Form::Indivisible, "", "", std::move(extent)};
}

std::optional<BlockMoves::Lengths>
BlockMoves::ruled_lengths(const BlockDim &dim, llvm::ArrayRef<AxisId> axes, int64_t outer) const {
  int64_t blocks = 0;
  bool listed = !__builtin_mul_overflow(outer, ranks_of(axes), &blocks) && blocks <= kMostBlocks &&
                !ir::is_symbolic(program_, blocks);
  std::optional<Lengths> before = listed ? lengths_of(dim, outer) : std::nullopt;
  if (!before)
    return std::nullopt;
  llvm::SmallVector<int64_t, 4> counts;
  for (AxisId axis : axes)
    counts.push_back(mesh_[axis].size());
  Lengths after;
  for (int64_t length : *before) {
    llvm::SmallVector<int64_t, 16> starts = nested_starts(length, counts);
    for (size_t i = 0; i + 1 < starts.size(); ++i)
      after.push_back(starts[i + 1] - starts[i]);
  }
  return after;
}

} // namespace spmd::rules
