// Integers that number the rows of a block, such as `(rank - turn) % ranks * length + arange`: they
// say of which rank's block a program takes what it meets to be, as the mask of causal attention
// does.
#pragma once

#include "checker/gradual/micro_batches/rank_interpreter.h"

namespace spmd::checker {

class BlockNumbers {
public:
  // `checked`: of the program, for the shapes; blocks of the ranks of `axis`.
  BlockNumbers(ir::Program &program, const CheckResult &checked, ir::MeshId mesh, ir::AxisId axis);

  struct Block {
    unsigned dim;   // that is numbered
    int64_t length; // of it
    unsigned back;  // they are the numbers of the rank so many before
  };
  std::optional<Block> block(ir::ValueId value) const;

  // Notes what the result is.
  void learn(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
             ir::ValueId result);

private:
  struct Count { // by one along a dimension
    unsigned dim;
    llvm::SmallVector<int64_t, 8> first; // by rank
  };
  const Count *find(ir::ValueId value) const;
  std::optional<llvm::SmallVector<int64_t, 8>> number(llvm::ArrayRef<ir::ValueId> operands,
                                                      const rules::Slot &slot);
  std::optional<Count> added(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                             ir::ValueId result);
  std::optional<Count> moved(const rules::Application &app, ir::ValueId operand,
                             ir::ValueId result) const;
  std::optional<int64_t> extent(ir::ValueId value, unsigned dim) const;

  const ir::Program &program_;
  const CheckResult &checked_;
  RankInterpreter ranks_;
  llvm::DenseMap<uint32_t, Count> counts_; // by value
};

} // namespace spmd::checker
