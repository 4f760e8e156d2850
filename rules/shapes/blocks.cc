// Blocks of uneven shards: their lengths, and what a merged or a divided dimension has.
#include "rules/shapes/blocks.h"

#include "rules/shapes/checked.h"

#include "ir/mesh/symbols.h"

#include <fmt/format.h>

namespace spmd::rules {

using ir::Extent;

namespace {

using Numbers = BlockLengths;

std::optional<Numbers> numbers_of(const ir::Program &program, ir::AttrListId list) {
  Numbers numbers;
  for (const ir::AttrValue &item : program.lists[list].items) {
    if (item.form != ir::AttrForm::Integer)
      return std::nullopt;
    numbers.push_back(item.as_integer());
  }
  return numbers;
}

ir::AttrListId list_of(ir::Program &program, llvm::ArrayRef<int64_t> numbers) {
  ir::AttrList list;
  for (int64_t number : numbers)
    list.items.push_back(ir::AttrValue::integer(number));
  return program.lists.add(std::move(list));
}

// A division without a remainder; none if it is not known to be one.
std::optional<Extent> exact(Extent a, Extent b) {
  if (a == b)
    return Extent(1);
  if (b == Extent(1))
    return a;
  if (!a.is_number() || !b.is_number() || b.number() == 0 || a.number() % b.number())
    return std::nullopt;
  return Extent(a.number() / b.number());
}

} // namespace

std::optional<Blocks> blocks_of(ir::Program &program, llvm::ArrayRef<int64_t> lengths) {
  CheckedInt sum = 0;
  for (int64_t length : lengths)
    sum = sum + length;
  std::optional<Extent> global = sum.extent();
  if (!global)
    return std::nullopt;
  return Blocks(
      {0, *global, Extent(lengths.empty() ? 0 : lengths.front()), list_of(program, lengths)});
}

std::optional<BlockLengths> lengths_of(const ir::Program &program, const Blocks &blocks,
                                       int64_t ranks) {
  if (blocks.sizes().valid())
    return numbers_of(program, blocks.sizes());
  if (blocks.even() || !blocks.global().is_number() || !blocks.block().is_number() ||
      ranks > kMaxBlocks || ir::is_symbolic(program, ranks))
    return std::nullopt;
  Numbers sizes;
  int64_t left = blocks.global().number();
  for (int64_t k = 0; k < ranks; ++k) {
    sizes.push_back(std::min(left, blocks.block().number()));
    left -= sizes.back();
  }
  return sizes;
}

std::optional<Extent> times(ir::Program &program, Extent a, std::optional<Extent> b) {
  if (!b)
    return std::nullopt;
  if (a == Extent(1))
    return b;
  return *b == Extent(1) ? a : ir::combine(program.exprs, ir::Expr::Form::Multiply, a, *b);
}

std::optional<Blocks> divided(ir::Program &program, const Blocks &blocks, Extent inner) {
  if (blocks.even() || inner == Extent(1))
    return blocks;
  std::optional<Extent> global = exact(blocks.global(), inner);
  std::optional<Extent> block = exact(blocks.block(), inner);
  if (!blocks.sizes().valid())
    return global && block ? std::optional(Blocks({0, *global, *block, {}})) : std::nullopt;
  std::optional<Numbers> sizes = numbers_of(program, blocks.sizes());
  if (!sizes || !inner.is_number() || inner.number() == 0)
    return std::nullopt;
  for (int64_t &size : *sizes) {
    if (size % inner.number())
      return std::nullopt;
    size /= inner.number();
  }
  return blocks_of(program, *sizes);
}

std::optional<Blocks> multiplied(ir::Program &program, const Blocks &blocks, Extent inner) {
  if (blocks.even() || inner == Extent(1))
    return blocks;
  std::optional<Extent> global = times(program, blocks.global(), inner);
  std::optional<Extent> block = times(program, blocks.block(), inner);
  if (!blocks.sizes().valid())
    return global && block ? std::optional(Blocks({0, *global, *block, {}})) : std::nullopt;
  std::optional<Numbers> sizes = numbers_of(program, blocks.sizes());
  if (!sizes || !inner.is_number())
    return std::nullopt;
  for (int64_t &size : *sizes) {
    std::optional<Extent> grown = (CheckedInt(size) * inner.number()).extent();
    if (!grown)
      return std::nullopt;
    size = grown->number();
  }
  return blocks_of(program, *sizes);
}

std::optional<Blocks> joined(ir::Program &program, const Blocks &outer, int64_t outer_ranks,
                             const Blocks &inner, int64_t inner_ranks) {
  if (outer.even() && inner.even())
    return Blocks{};
  std::optional<Numbers> sizes = lengths_of(program, inner, inner_ranks);
  if (!outer.even() || !sizes || ir::is_symbolic(program, outer_ranks) ||
      outer_ranks > kMaxBlocks / std::max<int64_t>(inner_ranks, 1))
    return std::nullopt;
  Numbers all;
  for (int64_t k = 0; k < outer_ranks; ++k)
    all.append(*sizes);
  return blocks_of(program, all);
}

std::string print(const ir::Program &program, const Blocks &blocks) {
  if (blocks.even())
    return "even";
  auto text = [&](Extent extent) { return ir::print(extent, program.exprs, program.strings); };
  if (!blocks.sizes().valid())
    return fmt::format("{} of {}", text(blocks.block()), text(blocks.global()));
  std::string out;
  for (int64_t size : numbers_of(program, blocks.sizes()).value_or(Numbers()))
    out += fmt::format("{}{}", out.empty() ? "" : ", ", size);
  return out;
}

llvm::SmallVector<int64_t, 16> nested_starts(int64_t extent, llvm::ArrayRef<int64_t> sizes) {
  llvm::SmallVector<int64_t, 16> starts = {0, extent};
  for (int64_t size : sizes) {
    llvm::SmallVector<int64_t, 16> finer;
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      int64_t length = starts[i + 1] - starts[i], piece = (length + size - 1) / size;
      for (int64_t k = 0; k < size; ++k)
        finer.push_back(starts[i] + std::min(length, k * piece));
    }
    finer.push_back(extent);
    starts = std::move(finer);
  }
  return starts;
}

} // namespace spmd::rules
