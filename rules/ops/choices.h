// Spellings that mean several ops and choose by operands and attributes (rules/README.md). Each
// function answers with the name of a row, or nothing where the row stands as it is.
#pragma once

#include <string_view>

namespace spmd::rules {

struct Application;

// `div` with `rounding_mode`.
std::string_view choose_division(const Application &app);
// `pow` with exponent 1 or 2.
std::string_view choose_power(const Application &app);
// `max`, `min` of two tensors or with `dim`.
std::string_view choose_maximum(const Application &app);
std::string_view choose_minimum(const Application &app);
// `to` and `convert_element_type` by the element type asked for.
std::string_view choose_cast(const Application &app);
// `sum`, `cumsum` of float data with an integer `dtype`: each addend is rounded.
std::string_view choose_sum(const Application &app);
// `select_n` with more than two cases.
std::string_view choose_select(const Application &app);
// `operator.setitem` with indices or with a slice.
std::string_view choose_setitem(const Application &app);
// A mean with class weights or an `ignore_index` of the program's own; targets that are
// probabilities.
std::string_view choose_cross_entropy(const Application &app);
std::string_view choose_nll_loss(const Application &app);
std::string_view choose_nll_loss_backward(const Application &app);
// `attention` with `is_causal` or `enable_gqa`. Causal: which keys a query looks at depends on its
// place, so that queries are whole.
std::string_view choose_attention(const Application &app);
std::string_view choose_grouped_attention(const Application &app);
std::string_view choose_fused_attention(const Application &app);
std::string_view choose_attention_backward(const Application &app);
// `scatter_reduce` with reduce = sum.
std::string_view choose_scatter_reduce(const Application &app);
// `index` by a Boolean mask, `index_put` with `accumulate`.
std::string_view choose_index(const Application &app);
std::string_view choose_index_put(const Application &app);
// `batch_norm` by `training`.
std::string_view choose_batch_norm(const Application &app);
// `dropout` with p = 0 or outside training.
std::string_view choose_dropout(const Application &app);
// `repeat_interleave` with a tensor of counts.
std::string_view choose_repeat_interleave(const Application &app);
// The backward of a recurrent layer, by the gradients that there are.
std::string_view choose_recurrent_backward(const Application &app);
// `grouped_mm` of two matrices: the rows of each expert are summed.
std::string_view choose_grouped_mm(const Application &app);
// `convolution` with `groups`.
std::string_view choose_convolution(const Application &app);

} // namespace spmd::rules
