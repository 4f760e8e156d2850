// Attention of one head, forward and backward, on matrices wherever they lie: products by BLAS,
// softmax by own loops.
#pragma once

#include "runtime/kernels/kernel.h"
#include "runtime/loops/blas.h"

#include <vector>

namespace spmd::runtime {

// Frameworks whose heads stand behind the sequence: [batch, sequence, heads, width].
bool sequence_first(const KernelContext &context);
// Later keys are not looked at. Aligned: query i stands at key i; AlignedLast: the last query at
// the last key.
enum class Causal : uint8_t { No, Aligned, AlignedLast };
Causal causal_of(const KernelContext &context);
double attention_scale(const KernelContext &context, int64_t width);
// Attributes that change what is computed and that we do not know.
llvm::Error refused_attention(const KernelContext &context);
// A bias that the framework passes in a place that the row of the backward leaves out.
bool has_unnamed_bias(const KernelContext &context);

// q: s x d, k: t x d, v: t x e, and gradients of results.
struct Head {
  int64_t s = 0, t = 0, d = 0, e = 0;
  double scale = 1;
  MatrixView<double> q, k, v;
  // What is added to the scaled products, s x t; minus infinity: not looked at. Empty: nothing.
  std::vector<double> bias;
};

// Weights of all keys, s x t: exp(scores - log of their sum). `lse` (s): that log, asked for. A
// query that looks at no key has weights 0.
void attention_weights(const Head &head, std::vector<double> &weights, double *lse);
// The same from the log of the sum, for some of the keys.
void attention_weights_of(const Head &head, const double *lse, std::vector<double> &weights);

// Gradients of one head, added to what is there; null: not asked for.
struct HeadGradients {
  double *q = nullptr, *k = nullptr, *v = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  // That of the bias, s x t, which is put there and not added.
  std::vector<double> *bias = nullptr;
};
// `g`: gradient of the output, s x e. `inner` (s): the sum over all keys of weight times its
// gradient; null: these are all keys. `less` (s): the gradient of the log of the sum; null: 0.
void attention_gradients(const Head &head, const std::vector<double> &weights, MatrixView<double> g,
                         const double *inner, const double *less, const HeadGradients &to);

} // namespace spmd::runtime
