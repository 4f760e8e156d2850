// Tensors that are laid out behind one another in a flat one, as gradients in a bucket that is
// reduced at once: what is cut out of it again is what was put there, but for what was done to all
// of it.
#pragma once

#include "checker/check.h"

#include "rules/factors/factors.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

class Pieces {
public:
  // All elements of a tensor, or a run of them, in their order.
  struct Piece {
    ir::ValueId of;
    int64_t first = 0, length = 0;
  };
  // `checked`: of the program, for the shapes.
  Pieces(ir::Program &program, const CheckResult &checked);

  // What a value consists of; none if it is no such tensor.
  llvm::ArrayRef<Piece> of(ir::ValueId value) const;
  // The tensor of which it has all elements and no others.
  ir::ValueId whole(ir::ValueId value) const;
  bool same_shape(ir::ValueId a, ir::ValueId b) const { return shape(a) == shape(b); }
  // On these axes a collective has changed what a value consists of.
  ir::AxisSet changed(ir::ValueId value) const { return changed_.lookup(value.index); }

private:
  void instruction(ir::InstId id, rules::Rules &rules);
  void laid_out(ir::ValueId result, llvm::ArrayRef<ir::ValueId> operands);
  void cut_out(ir::ValueId result, ir::ValueId operand, int64_t first);
  ir::ShapeId shape(ir::ValueId value) const { return checked_.shapes[value.index]; }
  std::optional<int64_t> elements(ir::ValueId value) const;
  bool is_flat(ir::ValueId value) const;

  ir::Program &program_;
  const CheckResult &checked_;
  std::vector<std::vector<Piece>> pieces_; // by value
  llvm::DenseMap<uint32_t, ir::AxisSet> changed_;
};

} // namespace spmd::checker
