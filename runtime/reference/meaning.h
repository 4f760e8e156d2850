// What the ranks of a mesh mean together by what they hold of one value, and back: the column
// "denotation" of the kinds. Everything that judges a claim reads data through this; nothing here
// is shared with what plans or carries out a program.
#pragma once

#include "runtime/reference/blocks.h"

#include "rules/apply.h"

#include "llvm/Support/Error.h"

namespace spmd::runtime {

using Rational = std::pair<int64_t, int64_t>; // numerator, denominator

// Whole tensors, one for each coordinate on the axes on which each rank has its own: V without a
// dimension, or nothing is known. In row-major order, axes in mesh order.
struct Meaning {
  ir::AxisSet per_rank;
  std::vector<Tensor> pieces;
};

// The typed axes of a mesh and their extents, and positions in row-major order over some of them.
class Grid {
public:
  Grid() = default;
  Grid(const ir::Mesh &mesh, ir::AxisSet axes);

  ir::AxisSet axes() const { return axes_; }
  llvm::ArrayRef<int64_t> extents() const { return extents_; }
  int64_t size() const { return count(extents_); }
  // Coordinates of a position, by AxisId::index; 0 on axes that are not of the grid.
  using Coordinates = std::array<int64_t, ir::kMaxAxes>;
  Coordinates coordinates(int64_t position) const;
  int64_t position(const Coordinates &at) const;

private:
  ir::AxisSet axes_;
  Dims extents_;
};

// At the first coordinate on all of these axes.
bool is_first(const Grid::Coordinates &at, ir::AxisSet axes);

// How one value lies on the ranks of its mesh. Ranks are counted in row-major order over the axes.
class Distribution {
public:
  // An error names what is no number: an extent that is an expression, a shape that is not known.
  static llvm::Expected<Distribution> make(const ir::Program &program,
                                           const rules::TensorInfo &value);

  const ir::Type &type() const { return type_; }
  ir::DType dtype() const { return dtype_; }
  ir::AxisSet per_rank_axes() const { return per_rank_.axes(); }
  const Grid &ranks() const { return ranks_; }
  const Grid &per_rank_grid() const { return per_rank_; }
  // True if only data tell some extent, which no axis cuts: each piece has its own.
  bool open() const;
  // Extents of what one rank holds, and where that begins in the whole. Open ones are those of the
  // first rank that holds the same piece. `held`: what each rank has.
  Dims dims_on(int64_t rank, llvm::ArrayRef<Dims> held) const;
  Dims first_on(int64_t rank) const;
  // Extents of what is meant, of each piece; kOpen where it is open.
  static constexpr int64_t kOpen = -1;
  Dims whole() const;

  // Extents of one piece, of which the first rank holds a block of these.
  Dims piece_dims(const Dims &first) const;
  // What makes up one piece, at a coordinate of per_rank_grid(): for each block the ranks whose
  // addends are summed; one where nothing is pending.
  using Addends = llvm::SmallVector<int64_t, 4>;
  std::vector<Addends> blocks_of(Grid::Coordinates at) const;
  // Whether what is pending is added up, not compared or multiplied.
  bool adds_up() const;

  // Of data as they are, one tensor for each rank. Of axes on which all hold the same, the first
  // coordinate counts. Extents are as declared: compare them before.
  Meaning denote(llvm::ArrayRef<const Tensor *> held) const;
  // The same of the absolute values: sums of magnitudes for P.
  Meaning denote_magnitudes(llvm::ArrayRef<const Tensor *> held) const;
  // Data that mean this. Of a sum the first rank holds all.
  std::vector<Tensor> place(const Meaning &meaning) const;

private:
  struct Dimension {
    llvm::SmallVector<ir::AxisId, 2> axes; // that cut it, outermost first
    llvm::SmallVector<int64_t, 8> starts;  // of the blocks, and the end of the last one; none: open
  };
  size_t block_at(const Dimension &dim, const Grid::Coordinates &at) const;
  int64_t stride_of(ir::AxisId axis) const;
  Dims dims_at(const Grid::Coordinates &at) const;
  Dims first_at(const Grid::Coordinates &at) const;
  // What is meant at one coordinate of per_rank_grid(); sums over `pending` axes from the first
  // one on.
  Tensor joined(llvm::ArrayRef<const Tensor *> held, Grid::Coordinates at,
                llvm::ArrayRef<ir::AxisId> pending) const;
  Tensor assembled(llvm::ArrayRef<const Tensor *> held, Grid::Coordinates at) const;

  ir::Type type_;
  ir::DType dtype_ = ir::DType::Unknown;
  Grid ranks_, per_rank_, shards_;
  llvm::SmallVector<ir::AxisId, 2> pending_;
  std::array<int64_t, ir::kMaxAxes> sizes_{};
  llvm::SmallVector<Dimension, 5> dims_;
};

// The extents of each.
std::vector<Dims> dims_of(llvm::ArrayRef<Tensor> tensors);

// The axes on which each rank has a value of its own.
ir::AxisSet per_rank_axes(const ir::Program &program, const ir::Type &type);

// What is meant by a value seen as of another type, as a claim, a region or another mesh over the
// same ranks sees it.
Meaning reframed(const ir::Program &program, const Meaning &meaning, const Distribution &from,
                 const Distribution &to);

// The ranks of a mesh, by position in row-major order over its typed axes.
std::vector<int64_t> ranks_of_mesh(const ir::Mesh &mesh);

// A scale as a number; none where a symbol in it has no value, or it leaves the integers.
std::optional<Rational> number_of(ir::Program &program, ir::ScaleId scale, ir::MeshId mesh);

} // namespace spmd::runtime
