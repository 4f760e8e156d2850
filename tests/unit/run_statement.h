// One statement of a program, run on tensors: what tests of kernels and equations have in common.
#pragma once

#include "runtime/equation/evaluate.h"

#include <random>
#include <string>
#include <vector>

namespace spmd::test {

using runtime::Dims;
using runtime::Domain;
using runtime::Tensor;

// Operands are `%0`, `%1`, ...; their types are separated by `;`: "f32[2, 3]; i64[3]".
class Statement {
public:
  // Results have the extents that rules tell, or those of `results`.
  explicit Statement(std::string inputs, std::string text, std::vector<Dims> results = {});

  size_t arg_count() const { return dims_.size(); }
  const Dims &dims(size_t arg) const { return dims_[arg]; }
  ir::DType dtype(size_t arg) const { return dtypes_[arg]; }
  const Dims &result_dims(size_t k) const { return result_dims_[k]; }
  ir::DType result_dtype(size_t k) const { return result_dtypes_[k]; }
  size_t result_count() const { return result_dims_.size(); }
  // Null: `problem` says why.
  const runtime::PreparedOp *prepared() const { return prepared_.get(); }
  const std::string &problem() const { return problem_; }

  // Random data: floats of order 1, integers from 0 below `below`, small ones in the field.
  std::vector<Tensor> draw(std::mt19937 &random, Domain domain, int64_t below = 4) const;
  // Empty, and `problem` says why, if it cannot be run.
  std::vector<Tensor> run(const std::vector<Tensor> &args, Domain domain,
                          const runtime::Draws &draws = {});

private:
  std::unique_ptr<ir::Program> program_;
  std::vector<Dims> dims_, result_dims_;
  std::vector<ir::DType> dtypes_, result_dtypes_;
  std::unique_ptr<runtime::PreparedOp> prepared_;
  rules::ResolvedOp op_;
  std::string problem_;
};

} // namespace spmd::test
