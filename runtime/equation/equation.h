// One row carried out from its equation alone, on doubles, complex numbers and residues. For
// residues everything that an equation leaves open is filled in by fixed pseudo-random choices:
// f(...) is a hash of all that it is given, a linear map along whole factors has hashed
// coefficients, a condition weighs its term by a hash of its value. What holds for them holds for
// no reason that is special to one op.
#pragma once

#include "runtime/kernels/kernel.h"
#include "runtime/tensor/f32_cache.h"

#include <memory>

namespace spmd::runtime {

namespace lowered {
struct ResultPlan;
}

// True if the equation alone says what the row does: it has no function, no random numbers, no
// condition but one-hot ones, and no linear map along whole factors.
bool is_value(const rules::OpDef &row);

// How products of matrices of doubles are carried out.
struct Precision {
  bool single = false; // in float
  llvm::ArrayRef<F32Cache *> kept =
      {}; // by argument, what it is as floats, or null; empty: none is
};

// An equation laid out for operands and results of certain extents.
class LoweredEquation {
public:
  // Extents per tensor of the application, and per result. `modular`: it will be run on residues.
  // An error: the equation is not the value, or extents do not fit.
  static llvm::Expected<std::unique_ptr<LoweredEquation>> lower(const KernelContext &context,
                                                                llvm::ArrayRef<Dims> args,
                                                                llvm::ArrayRef<Dims> results,
                                                                bool modular);
  ~LoweredEquation();
  // Results hold anything. True if all that they hold now are floats.
  template <class T> bool run(const Call<T> &call, const Precision &precision) const;
  // Per result (lowering.h).
  llvm::ArrayRef<lowered::ResultPlan> results() const;

private:
  struct Plan;
  explicit LoweredEquation(std::unique_ptr<Plan> plan);
  std::unique_ptr<Plan> plan_;
};

} // namespace spmd::runtime
