// Products of matrices by cuBLASLt. An algorithm is asked for once per form of a product.
#pragma once

#include "runtime/device/interface.h"

#include <cublasLt.h>

#include <array>
#include <map>

namespace spmd::nccl {

class Matrices {
public:
  // On the device of this thread.
  SpmdStatus open();
  SpmdStatus close();
  // `taken` is false, and nothing is queued, where the library has no way for these elements and
  // strides.
  SpmdStatus queue(const SpmdMatrices &matrices, cudaStream_t stream, bool &taken);

private:
  // What an algorithm depends on, number by number.
  using Form = std::array<int64_t, 17>;
  struct Product {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, out = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
    bool exists = false;
  };
  SpmdStatus choose(const Form &form, Product &made);

  // Of as many bytes as the library asks for on its newer devices.
  static constexpr uint64_t kWorkspaceBytes = uint64_t(32) << 20;
  cublasLtHandle_t library_ = nullptr;
  void *workspace_ = nullptr;
  std::map<Form, Product> products_;
};

} // namespace spmd::nccl
