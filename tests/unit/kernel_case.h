// One instruction and tensors for it, as its kernel sees them; and what all gradients must be.
#pragma once

#include "checker/check.h"
#include "checker/operand_list.h"
#include "ir/input/input.h"
#include "rules/ops/registry.h"
#include "runtime/kernels/composed/commands.h"
#include "runtime/kernels/kernel.h"

#include <deque>
#include <optional>
#include <random>
#include <set>
#include <string>

namespace spmd::runtime {

class KernelCase {
public:
  // `inputs`: shapes, separated by `;`, of %0, %1, ...; `statement` defines the results. What does
  // not fit is in `problem`.
  KernelCase(const char *inputs, const std::string &statement);
  KernelCase(const KernelCase &) = delete;

  std::string problem;
  std::vector<Tensor> args, results; // results have the declared or inferred extents

  const rules::OpDef &row() const { return *use_->row; }
  const KernelDef *kernel() const { return find_kernel(use_->row->name); }
  KernelContext context(Domain domain = Domain::Declared) const {
    return {*app_, row(), binding_, map_, domain};
  }
  // Runs the kernel into `results`; the message of an error, else empty. What a device would do
  // instead has to give the same.
  std::string run();
  // The operand and the member that an argument stands for; none if it stands for nothing.
  struct Place {
    unsigned operand, member;
  };
  // The gradient of a tensor from those of the results (empty: none flows).
  llvm::Expected<std::vector<double>> vjp(unsigned operand, unsigned member,
                                          const std::vector<std::vector<double>> &gradients);
  // Those of several at once, by a kernel.
  llvm::Expected<std::vector<std::vector<double>>>
  vjps(const KernelDef &kernel, llvm::ArrayRef<Place> asked,
       const std::vector<std::vector<double>> &gradients);
  std::optional<Place> place_of(unsigned arg) const;

  // Empty, or how the kernel and the commands of a device for it differ; of a gradient by an
  // argument, from those of the results (empty: none flows).
  std::string device_problem();
  std::string device_problem(unsigned arg, const std::vector<std::vector<double>> &gradients,
                             const std::vector<double> &want);
  // Whether a device has commands for the call.
  bool has_commands();

private:
  std::vector<DeviceArray> array_args();
  // `room`: memory that the commands work with.
  bool lower(llvm::ArrayRef<DeviceArray> out, std::vector<double> &room,
             std::vector<Command> &commands);
  // By a scalar program, without stretched operands.
  std::string slopes_problem(unsigned arg, const std::vector<double> &gradient,
                             const std::vector<double> &want);
  Tensor &tensor_at(Place place) { return args[binding_[place.operand]->first + place.member]; }

  ir::ReadResult read_;
  rules::ResolvedOp op_;
  checker::OperandList operands_;
  llvm::SmallVector<rules::TensorInfo, 6> known_;
  llvm::SmallVector<rules::ResultClaim, 2> claims_;
  std::optional<rules::RowUse> use_;
  std::optional<rules::Application> app_;
  rules::Binding binding_;
  rules::FactorMap map_;
  std::deque<std::vector<char>> truths_; // of array_args
};

// The gradient by every float operand against central differences along three directions; empty if
// they agree within 1e-6, other ways to the same gradient too, and the table of ops gives it to
// what the results depend on; else what differs. `verified`: operands of the row for which it holds
// are added.
std::string gradient_problem(KernelCase &test, std::mt19937_64 &random,
                             std::set<std::string> *verified = nullptr);

} // namespace spmd::runtime
