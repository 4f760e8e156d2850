// Each mistake is carried out on what is wanted, and compared within the bound of the comparison.
#include "runtime/judge/likely_mistake.h"

#include "ir/dialect/print_type.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <cmath>

namespace spmd::runtime {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;

namespace {

using Permutation = llvm::SmallVector<size_t, 8>;

bool is_nan(double cell) { return std::isnan(cell); }
bool is_nan(Complex cell) { return std::isnan(cell.real()) || std::isnan(cell.imag()); }
bool is_nan(Residue) { return false; }

class MistakeFinder {
public:
  MistakeFinder(const ir::Program &program, const Distribution &dist, const Observed &observed,
                const ReferenceValue &wanted, const Meaning &got)
      : program_(program), mesh_(program.meshes[dist.type().mesh()]), dist_(dist),
        observed_(observed), wanted_(wanted), got_(got) {}

  LikelyMistake run() const {
    for (auto guess : {&MistakeFinder::times, &MistakeFinder::one_part, &MistakeFinder::other_order,
                       &MistakeFinder::earlier, &MistakeFinder::poison})
      if (LikelyMistake made = (this->*guess)(); !made.text.empty())
        return made;
    return {};
  }

private:
  std::string name(AxisId axis) const {
    return ir::print_axes(program_, dist_.type().mesh(), axis);
  }
  // Within as much as the comparison allows anywhere, times how much larger the data are.
  bool same(const Tensor &a, const Tensor &b, double slack) const {
    if (a.dims != b.dims || a.cells.index() != b.cells.index())
      return false;
    if (a.is_modular())
      return a.cells == b.cells;
    return a.visit([&](const auto &cells) {
      using T = typename std::decay_t<decltype(cells)>::value_type;
      const std::vector<T> &others = b.of<T>();
      for (size_t i = 0; i < cells.size(); ++i)
        if constexpr (!std::is_same_v<T, Residue>)
          if (!(std::abs(cells[i] - others[i]) <= slack))
            return false;
      return true;
    });
  }
  bool same(const Meaning &a, const Meaning &b, double slack) const {
    if (a.per_rank != b.per_rank || a.pieces.size() != b.pieces.size())
      return false;
    for (size_t p = 0; p < a.pieces.size(); ++p)
      if (!same(a.pieces[p], b.pieces[p], slack))
        return false;
    return true;
  }
  double allowed() const {
    double largest = 0;
    for (const Tensor &piece : wanted_.meant->pieces)
      if (!piece.is_modular()) {
        const Tensor sizes = magnitudes(piece);
        for (double cell : sizes.of<double>())
          largest = std::max(largest, cell);
      }
    double slack = largest * 0x1p-20; // exact comparisons leave none; these are guesses
    if (wanted_.bound && !wanted_.exact)
      for (const Tensor &piece : wanted_.bound->pieces)
        for (double cell : piece.of<double>())
          slack = std::max(slack, cell);
    return slack;
  }

  LikelyMistake times() const {
    for (AxisId axis : mesh_.typed_axes()) {
      int64_t n = mesh_[axis].size();
      for (bool more : {true, false}) {
        Meaning mistaken = *wanted_.meant;
        for (Tensor &piece : mistaken.pieces)
          multiply(piece, more ? n : 1, more ? 1 : n);
        if (!same(got_, mistaken, allowed() * static_cast<double>(more ? n : 1)))
          continue;
        std::string text =
            more
                ? fmt::format("{} times the reference everywhere: counted once for each rank of {}",
                              n, name(axis))
                : fmt::format("1/{} of the reference everywhere: divided by the ranks of {} once "
                              "too often, or not summed over them",
                              n, name(axis));
        return {text, axis};
      }
    }
    return {};
  }

  // Each rank holds the own addend where the sum belongs.
  LikelyMistake one_part() const {
    for (size_t i = 0; i < wanted_.parts.size(); ++i)
      if (same(got_, wanted_.parts[i], allowed()))
        return {fmt::format("what addend {} of {} is alone: it was not summed over {}", i,
                            wanted_.parts.size(), text_of(wanted_.acted)),
                wanted_.acted};
    if (wanted_.parts.empty())
      return {};
    for (int64_t rank = 0; rank < dist_.ranks().size(); ++rank)
      if (!holds_own_part(rank))
        return {};
    return {fmt::format("the block of the own addend on each rank: it was not summed over {}",
                        text_of(wanted_.acted)),
            wanted_.acted};
  }
  std::string text_of(AxisSet axes) const {
    return ir::print_axes(program_, dist_.type().mesh(), axes);
  }
  bool holds_own_part(int64_t rank) const {
    const Tensor &held = observed_.tensors[static_cast<size_t>(rank)];
    Dims first = dist_.first_on(rank);
    return llvm::any_of(wanted_.parts, [&](const Meaning &part) {
      if (part.pieces.size() != 1 || part.pieces[0].dims != dist_.whole())
        return false;
      return same(block_of(part.pieces[0], first, held.dims), held, allowed());
    });
  }

  // Which block of the reference each position along the axis holds; none if one holds no block.
  std::optional<Permutation> order_along(AxisId axis) const {
    std::vector<Tensor> right = dist_.place(*wanted_.meant);
    auto n = static_cast<size_t>(mesh_[axis].size());
    Permutation order;
    for (size_t i = 0; i < n; ++i) {
      size_t from = 0;
      while (from < n && !holds(axis, i, from, right))
        ++from;
      if (from == n)
        return std::nullopt;
      order.push_back(from);
    }
    return order;
  }
  // Every rank at position `to` along the axis holds what belongs to position `from`.
  bool holds(AxisId axis, size_t to, size_t from, llvm::ArrayRef<Tensor> right) const {
    for (int64_t rank = 0; rank < dist_.ranks().size(); ++rank) {
      Grid::Coordinates at = dist_.ranks().coordinates(rank);
      if (at[axis.index] != static_cast<int64_t>(to))
        continue;
      at[axis.index] = static_cast<int64_t>(from);
      if (!same(observed_.tensors[static_cast<size_t>(rank)],
                right[static_cast<size_t>(dist_.ranks().position(at))], allowed()))
        return false;
    }
    return true;
  }

  LikelyMistake other_order() const {
    AxisSet cut = (dist_.type().of(Kind::Varying) | dist_.per_rank_axes()) & mesh_.typed_axes();
    if (dist_.type().scale != ir::ScaleId{0})
      return {};
    for (AxisId axis : cut) {
      std::optional<Permutation> order = order_along(axis);
      if (!order)
        continue;
      size_t n = order->size();
      size_t shift = order->front();
      bool shifted = shift != 0;
      for (size_t i = 0; i < n; ++i)
        shifted &= (*order)[i] == (i + shift) % n;
      if (shifted && (shift == 1 || shift == n - 1))
        return {fmt::format("shifted by one block along {}: each rank holds that of the {} one",
                            name(axis), shift == 1 ? "next" : "previous"),
                axis};
      Permutation sorted = *order;
      llvm::sort(sorted);
      if (std::unique(sorted.begin(), sorted.end()) == sorted.end())
        return {fmt::format("the blocks in another order along {}: {}", name(axis),
                            fmt::join(*order, ", ")),
                axis};
    }
    return {};
  }

  LikelyMistake earlier() const {
    for (const ReferenceValue::EarlierValue &value : wanted_.earlier)
      if (same(got_, *value.meant, 0))
        return {fmt::format("equal to {}: the step did nothing, or its result was overwritten",
                            value.name),
                {}};
    return {};
  }

  LikelyMistake poison() const {
    bool all = true;
    for (const Tensor &held : observed_.tensors)
      all &= held.size() > 0 && held.visit([](const auto &cells) {
        return llvm::all_of(cells, [](const auto &cell) { return is_nan(cell); });
      });
    if (all)
      return {"NaN everywhere: read from a buffer that was released, or that nothing wrote", {}};
    return {};
  }

  const ir::Program &program_;
  const ir::Mesh &mesh_;
  const Distribution &dist_;
  const Observed &observed_;
  const ReferenceValue &wanted_;
  const Meaning &got_;
};

} // namespace

LikelyMistake likely_mistake(const ir::Program &program, const Distribution &dist,
                             const Observed &observed, const ReferenceValue &wanted,
                             const Meaning &got) {
  return MistakeFinder(program, dist, observed, wanted, got).run();
}

} // namespace spmd::runtime
