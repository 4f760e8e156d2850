// Plans carried out on integers: a rank is a coordinate per axis and holds a tensor. Of steps only
// rows and words are read.
#pragma once

#include "rules/redistribute/request.h"
#include "tests/property/tensors.h"

namespace spmd::property {

// The ranks of the typed axes of a mesh.
class RankGrid {
public:
  RankGrid(const ir::Program &program, ir::MeshId mesh);

  size_t ranks() const { return ranks_; }
  size_t at(size_t rank, ir::AxisId axis) const {
    return rank / strides_[axis.index] % static_cast<size_t>(mesh_[axis].size());
  }
  // The ranks that differ from this one along the axes alone, the first axis outermost.
  std::vector<size_t> group(size_t rank, llvm::ArrayRef<ir::AxisId> axes) const;
  // This rank's place in that list.
  size_t place(size_t rank, llvm::ArrayRef<ir::AxisId> axes) const;

  // This rank's block of a tensor that the type cuts.
  Tensor block(const Tensor &whole, const ir::Type &type, size_t rank) const;
  // Data that uphold the type, and the tensor that they denote.
  std::pair<Ranks, Tensor> random(const ir::Type &type, const std::vector<int> &whole,
                                  std::mt19937 &random) const;
  // True if the data uphold the type and denote the tensor.
  bool denotes(const ir::Type &type, const Ranks &data, const Tensor &whole) const;
  // <x, g>, g of the dual type.
  int64_t pairing(const ir::Type &type, const Ranks &x, const Ranks &g) const;

  Ranks run(const rules::redistribute::Step &step, const Ranks &data) const;

private:
  Tensor cut(const Tensor &tensor, size_t dim, ir::AxisId axis, size_t rank) const;
  Ranks joined(const Ranks &data, size_t dim, ir::AxisId axis) const;

  const ir::Program &program_;
  const ir::Mesh &mesh_;
  std::array<size_t, ir::kMaxAxes> strides_{};
  size_t ranks_ = 1;
};

} // namespace spmd::property
