// Numbers that a program counts up, and what it makes of them, such as the rows of a table
// of positions. They are the same on all ranks; where each rank has its own block of the dimension
// that they number, all blocks are numbered as the first one is. So are the first elements of
// a tensor that all ranks have, as many as each rank has in its block.
#pragma once

#include "checker/gradual/positions.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

class Numbering {
public:
  // `checked`: of the program, for the shapes.
  Numbering(const ir::Program &program, const CutPositions &positions, const CheckResult &checked);

  struct Repeated {
    uint32_t operand; // of the instruction
    ir::AxisSet axes;
  };
  // The operands of an equation row that number blocks of others in the same way.
  llvm::SmallVector<Repeated, 1> repeated(const rules::Application &app,
                                          llvm::ArrayRef<ir::ValueId> operands,
                                          llvm::ArrayRef<ir::ValueId> results) const;
  // Whether the value numbers this dimension of it.
  bool numbers(ir::ValueId value, unsigned dim) const;
  // Whether the value is an answer about such numbers, such as which of them are below zero.
  bool is_answer(ir::ValueId value) const { return asked_.contains(value.index); }
  // Notes what the results number.
  void learn(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
             llvm::ArrayRef<ir::ValueId> results);

private:
  // A dimension that is numbered. Where its first elements were taken: how many of all.
  struct Count {
    CutPositions::Class cls;
    int64_t counted = 0;
    std::optional<int64_t> all;
    bool operator==(const Count &) const = default;
  };
  using Counts = llvm::SmallVector<Count, 1>;
  bool is_taken_alike(const ir::Param &param) const;
  const Counts *numbers(ir::ValueId value) const;
  std::optional<std::pair<unsigned, int64_t>> first_part(const rules::Application &app,
                                                         ir::ValueId result) const;
  bool answers(ir::ValueId value) const;
  bool has(ir::ValueId value, CutPositions::Class cls) const;

  const ir::Program &program_;
  const CutPositions &positions_;
  const CheckResult &checked_;
  llvm::DenseMap<uint32_t, Counts> counted_; // by value: the dimensions that it numbers
  llvm::DenseSet<uint32_t> asked_;           // values: answers about such numbers
};

} // namespace spmd::checker
