// Kernels as devices compute them (KernelDef::composed).
#pragma once

#include "runtime/kernels/composed/commands.h"

namespace spmd::runtime {

class Composition;

// The largest of each row, and the sum of exp(sign x - largest).
struct RowExponentials {
  DeviceArray most, sum;
  // `kept`: the extents of x, along rows 1.
  bool make(Composition &of, const DeviceArray &x, const Dims &kept, double sign);
};

bool composed_softmax(Composition &of);          // log_softmax, softmin
bool composed_softmax_backward(Composition &of); // log_softmax_backward
bool composed_layer_norm(Composition &of);       // rms_norm
bool composed_layer_norm_backward(Composition &of);
bool composed_extreme(Composition &of); // amax, amin
bool composed_sum_squares(Composition &of);
bool composed_logsumexp(Composition &of);

// attention.cc
bool composed_attention(Composition &of);
bool composed_attention_backward(Composition &of);

// indexing.cc
bool composed_gather(Composition &of); // its derivative too, and so with all that read by index
bool composed_index_select(Composition &of);
bool composed_embedding(Composition &of); // embedding_masked
bool composed_gather_masked(Composition &of);
bool composed_take(Composition &of);
bool composed_index(Composition &of);
bool composed_embedding_backward(Composition &of);
bool composed_selecting_backward(Composition &of);
bool composed_scatter(Composition &of);   // scatter_add
bool composed_lines(Composition &of);     // index_add, index_copy, index_fill
bool composed_index_put(Composition &of); // index_put_add
bool composed_one_hot(Composition &of);

// losses.cc
bool composed_class_loss(Composition &of); // cross_entropy, nll_loss; counted or not
bool composed_class_loss_backward(Composition &of);

// reductions.cc
bool composed_extreme_position(Composition &of); // max.dim, min.dim, argmax, argmin
bool composed_truth(Composition &of);            // all, any, count_nonzero
bool composed_norm(Composition &of);
bool composed_item(Composition &of);
bool composed_scan(Composition &of); // cumsum, cumprod

// grouped.cc
bool composed_grouped(Composition &of);
bool composed_grouped_backward(Composition &of);
bool composed_grouped_of_rows(Composition &of);

// products.cc
// A matrix per batch entry, row after row; `turned`: what is meant has their columns for rows.
struct Matrices {
  const DeviceArray *at;
  int64_t rows, columns;
  bool turned = false;
};
// factor a b, `adds`: to what is in `out`. False: a device multiplies no such elements.
bool add_matrices(Composition &of, int64_t batch, const Matrices &a, const Matrices &b,
                  const DeviceArray &out, double factor, bool adds);
bool composed_added_product(Composition &of); // addmm, baddbmm
bool composed_view_as_real(Composition &of);  // view_as_complex
bool composed_conj(Composition &of);
bool composed_sum_of_parts(Composition &of); // add, sub

// sorting.cc
bool composed_sort(Composition &of); // msort, topk, argsort

} // namespace spmd::runtime
