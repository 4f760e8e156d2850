// An op on the tensors of one rank, or of one device: the row that an instruction means, made ready
// for the extents at hand, then run as often as needed. The plan, the CPU backend and the reference
// interpreter all compute through this; it knows no mesh and moves nothing between ranks.
#pragma once

#include "runtime/kernels/composed/composition.h"
#include "runtime/kernels/kernel.h"
#include "runtime/tensor/f32_cache.h"

#include <memory>

namespace spmd::runtime {

// A tensor, and of what it is a block. Null `tensor`: its data are not needed (an operand of
// RefRole::ShapeOnly).
struct TensorBlock {
  const Tensor *tensor = nullptr;
  ir::DType dtype = ir::DType::Unknown;
  const Dims *dims = nullptr;                    // of the block
  const Dims *first = nullptr, *whole = nullptr; // null: it is the whole
  F32Cache *f32_cache = nullptr; // where its elements are kept as floats; null: nowhere
};

// Of one op of a program: what its random numbers are a hash of, besides positions in the whole.
struct Draws {
  uint64_t seed = 0, op = 0, stream = 0;
};

// Ready for operands and results of certain extents. Running changes nothing: threads share it.
class PreparedOp {
public:
  ~PreparedOp();
  // `results`: of the right extents and dtype; they may hold anything. `result_blocks`: of what
  // they are; empty: they are the whole. An error says what a kernel cannot do. `together`: ops
  // that go with it, for the same operands; their results follow the own ones.
  llvm::Error run(llvm::ArrayRef<TensorBlock> args, llvm::ArrayRef<TensorBlock> result_blocks,
                  llvm::MutableArrayRef<Tensor> results, Domain domain, const Draws &draws,
                  llvm::ArrayRef<const PreparedOp *> together = {}) const;
  // True for gradients of one op that cost less together, if their operands and attributes are the
  // same.
  bool goes_with(const PreparedOp &other, Domain domain) const;
  // What running it in this domain would say before it looks at any data: there is no kernel.
  llvm::Error check(Domain domain) const;
  // The same on a device: commands are added. False: some of it only a kernel can do, and nothing
  // is added.
  bool lower(llvm::ArrayRef<DeviceArray> args, llvm::ArrayRef<DeviceArray> results,
             StepScratch &scratch, std::vector<Command> &commands) const;
  // False for operands that only give extents: they may be gone when it runs.
  bool reads(unsigned arg) const;

private:
  friend llvm::Expected<std::unique_ptr<PreparedOp>>
  prepare(ir::Program &, const rules::ResolvedOp &, ir::AttrsId, llvm::ArrayRef<rules::Slot>,
          llvm::ArrayRef<ir::DType>, llvm::ArrayRef<Dims>, llvm::ArrayRef<ir::DType>,
          llvm::ArrayRef<Dims>);
  struct State;
  explicit PreparedOp(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// `op`: of form Equation. `slots` as rules take them; dtypes and extents per tensor operand and per
// result. The program is only interned into. An error: operands that the row does not take.
llvm::Expected<std::unique_ptr<PreparedOp>>
prepare(ir::Program &program, const rules::ResolvedOp &op, ir::AttrsId attrs,
        llvm::ArrayRef<rules::Slot> slots, llvm::ArrayRef<ir::DType> arg_dtypes,
        llvm::ArrayRef<Dims> arg_dims, llvm::ArrayRef<ir::DType> result_dtypes,
        llvm::ArrayRef<Dims> result_dims);

} // namespace spmd::runtime
