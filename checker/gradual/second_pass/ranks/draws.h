// Random numbers that all ranks draw by one key, and what is made of them, such as a mask of
// dropout. Where each rank has its own block of a dimension for which they were drawn, the noise of
// one block is repeated in all others.
#pragma once

#include "checker/gradual/positions.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

class Draws {
public:
  explicit Draws(const CutPositions &positions) : positions_(positions) {}

  struct Repeated {
    uint32_t operand; // of the instruction
    ir::AxisSet axes;
  };
  // The operands of an equation row that were drawn as long as one block of what stands beside
  // them.
  llvm::SmallVector<Repeated, 1> repeated(const rules::Application &app,
                                          llvm::ArrayRef<ir::ValueId> operands) const;
  // Whether a value was drawn for a dimension of it, as long as the dimension is on one rank.
  bool are_drawn(ir::ValueId value, unsigned dim) const;
  // Notes for which dimensions the results were drawn.
  void learn(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
             llvm::ArrayRef<ir::ValueId> results);

private:
  using Classes = llvm::SmallVector<CutPositions::Class, 2>;

  const Classes *classes(ir::ValueId value) const;

  const CutPositions &positions_;
  llvm::DenseMap<uint32_t, Classes> drawn_; // by value
};

} // namespace spmd::checker
