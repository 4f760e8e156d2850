// Norms of blocks. The root of the sum of a rank's own squares is no addend of the norm of the
// whole, but its square is one: `norm(block) ** 2`, summed over the ranks, is `norm(whole) ** 2`.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

// Whether an instruction gives the squares of its first operand, or its square root.
bool squares(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands);
bool takes_root(const rules::Application &app);

class Norms {
public:
  explicit Norms(ir::Program &program);

  // Axes on which a value is such a root; those of them on which values that are equal on all ranks
  // were counted with it.
  struct Root {
    ir::AxisSet axes, mixed;
  };
  Root root(ir::ValueId value) const { return roots_.lookup(value.index); }

  // One result of an instruction.
  struct Facts {
    Root root, square;    // it is a root, or the square of one
    uint32_t operand = 0; // of which `left_out` and `counted` speak
    ir::AxisSet left_out; // a root enters as if it were the norm of the whole
    ir::AxisSet counted;  // what is equal on all ranks is added up over them
    double shares = 1;    // it was divided by the root of so many
    bool squares = false; // of a rank's own elements, or added up of such
  };
  Facts infer(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands, unsigned result,
              ir::ValueId value) const;
  // `addends`: the axes along which the value is a sum that is not added up yet.
  void learn(ir::ValueId value, const Facts &facts, ir::AxisSet addends);
  // The axes on which the instruction takes the root of squares that are not added up yet, and
  // makes nothing else of it than these squares again.
  ir::AxisSet rooted(const rules::Application &app, ir::ValueId operand, ir::ValueId result) const;

private:
  double shares(ir::ValueId value) const {
    auto at = shares_.find(value.index);
    return at == shares_.end() ? 1 : at->second;
  }
  void reduce(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands, unsigned result,
              Facts &facts) const;

  bool adds_squares(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands) const;

  llvm::DenseMap<uint32_t, Root> roots_, squares_;    // by value
  llvm::DenseMap<uint32_t, ir::AxisSet> own_squares_; // by value: of Facts::squares, its addends
  llvm::DenseMap<uint32_t, double> shares_;           // by value
  llvm::DenseSet<uint32_t> only_squared_;             // values
};

} // namespace spmd::checker
