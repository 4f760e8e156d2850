// The backward of branches and loops: bodies of their own, made of the backward of their bodies.
#pragma once

#include "checker/backward/builder.h"

namespace spmd::checker {

// Takes gradients back through the instructions of a body, from the last to the first.
class ReverseBody {
public:
  using Gradients = llvm::DenseMap<uint32_t, llvm::SmallVector<ValueId, 2>>;
  virtual bool reverse(llvm::ArrayRef<Inst> insts, llvm::ArrayRef<ValueId> wanted,
                       Gradients &gradients) = 0;

protected:
  ~ReverseBody() = default;
};

class ControlBackward : BackwardBuilder {
public:
  ControlBackward(BackwardState &state, ReverseBody &body) : BackwardBuilder(state), body_(body) {}

  bool through_cond(const Inst &inst, llvm::ArrayRef<ValueId> results, Gradients &gradients);
  bool through_scan(const Inst &inst, llvm::ArrayRef<ValueId> results, Gradients &gradients);

private:
  struct BodyCopy {
    std::vector<Inst> insts;
    llvm::SmallVector<ValueId, 8> params, results; // results: none where a number is given back
  };
  // A branch whose backward is put together.
  struct CondParts {
    llvm::ArrayRef<ValueId> args;              // of both branches
    llvm::ArrayRef<ValueId> results;           // their gradients
    llvm::SmallVector<ValueId, 8> wanted = {}; // operands that have a gradient
    InsertionPoint inside;
  };
  std::optional<AttrValue> reverse_branch(const CondParts &cond, ir::FunctionId side);
  ValueId branch_gradient(const CondParts &cond, const BodyCopy &body, Gradients &inner,
                          ValueId value);
  // A scan whose backward is put together.
  struct ScanParts {
    const Inst &inst;
    llvm::ArrayRef<ValueId> args;    // constants, carries, what is taken apart
    llvm::ArrayRef<ValueId> results; // gradients of the results
    ir::FunctionId forward;
    std::string name; // of its body
    size_t consts, carries;
    InsertionPoint around, inside;
    llvm::SmallVector<ValueId, 8> stacks = {}; // the carries that rounds began with, the last first
    BodyCopy body = {};                        // for the backward
    // Positions of the operands that have a gradient.
    llvm::SmallVector<size_t, 8> const_positions = {}, carry_positions = {}, x_positions = {};
    llvm::SmallVector<ValueId, 8> wanted_params = {};                 // their parameters
    llvm::SmallVector<ValueId, 8> carried_params = {}, y_params = {}; // of the body back
    llvm::SmallVector<ValueId, 8> handed = {};                        // operands of the scan back

    llvm::ArrayRef<ValueId> xs() const { return args.drop_front(consts + carries); }
  };
  bool save_carries(ScanParts &scan);
  void find_positions(ScanParts &scan);
  bool collect_scan_operands(ScanParts &scan);
  std::optional<ir::FunctionId> reverse_iteration(const ScanParts &scan);
  llvm::SmallVector<ValueId, 8> round_back(const ScanParts &scan, Gradients &inner);
  bool emit_backward_scan(const ScanParts &scan, ir::FunctionId backward, Gradients &gradients);
  std::optional<ir::Extent> trip_count(const ScanParts &scan) const;
  ValueId put_flipped(ValueId value, const InsertionPoint &around);
  bool draws(ir::FunctionId id);
  BodyCopy copy_body(ir::FunctionId id);
  ValueId parameter(const rules::TensorInfo &like, std::string stem);
  ir::FunctionId add_function(std::string stem, llvm::ArrayRef<ValueId> params, NewBody body,
                              llvm::ArrayRef<ValueId> results);
  llvm::SmallVector<ValueId, 4> put_call(rules::Boundary call, llvm::ArrayRef<ValueId> operands,
                                         ir::AttrsId attrs, llvm::ArrayRef<rules::TensorInfo> made,
                                         const InsertionPoint &around, const std::string &stem);

  ReverseBody &body_;
};

} // namespace spmd::checker
