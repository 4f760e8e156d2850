// What JAX calls our ops: the primitives of jaxprs, operands by position, parameters as attributes.
// `jax.` is written only where others mean something else by the name.
#include "rules/factors/factors.h"
#include "rules/ops/choices.h"
#include "rules/ops/spellings.h"

#include <string>

namespace spmd::rules {

namespace {

using enum Variant;


constexpr Synonyms kSynonyms[] = {
    // Pointwise.
    {.op = "identity", .spellings = "layout_constraint sharding_constraint jax.name jax.copy"},
    {.op = "cast", .spellings = "reduce_precision", .variant = ReducedPrecision},
    {.op = "bitwise_left_shift", .spellings = "shift_left"},
    {.op = "bitwise_right_shift", .spellings = "shift_right_arithmetic"},
    {.op = "bitwise_right_shift", .spellings = "shift_right_logical", .variant = LogicalShift},
    {.op = "where", .spellings = "jax.select"},
    {.op = "sqrt", .spellings = "cbrt", .variant = CubeRoot},
    {.op = "erfinv", .spellings = "erf_inv"},
    {.op = "isfinite", .spellings = "is_finite"},
    {.op = "bitwise_not", .spellings = "not"},
    {.op = "bitwise_not", .spellings = "population_count", .variant = CountsBits},
    {.op = "bitwise_not", .spellings = "clz", .variant = LeadingZeros},
    {.op = "i0e", .spellings = "bessel_i0e"},
    {.op = "i1e", .spellings = "bessel_i1e"},
    {.op = "igamma", .spellings = "igamma_grad_a random_gamma_grad"},
    {.op = "betainc", .spellings = "regularized_incomplete_beta"},
    {.op = "maximum", .spellings = "jax.max"},
    {.op = "minimum", .spellings = "jax.min"},
    {.op = "floor_divide", .spellings = "mulhi", .variant = UpperHalf},
    {.op = "eq", .spellings = "eq_to", .variant = TotalOrder},
    {.op = "le", .spellings = "le_to", .variant = TotalOrder},
    {.op = "lt", .spellings = "lt_to", .variant = TotalOrder},
    // Linear algebra.
    {.op = "pivots_to_permutation", .spellings = "lu_pivots_to_permutation"},
    {.op = "qr", .spellings = "geqrf", .variant = Reflectors},
    {.op = "svd", .spellings = "schur hessenberg tridiagonal"},
    // Layout.
    {.op = "reshape", .spellings = "collapse"},
    // Creation and random numbers.
    {.op = "constant", .spellings = "empty2", .variant = Empty},
    {.op = "constant", .spellings = "iota_2x32_shape", .variant = Counter},
};

constexpr Alias kAliases[] = {
    // Pointwise.
    {.spelling = "optimization_barrier", .op = "identity", .order = "a...", .each = true},
    {.spelling = "device_put", .op = "identity", .order = "a...", .each = true},
    {.spelling = "select_n", .op = "where", .order = "c y x...", .choose = choose_select},
    {.spelling = "jax.clamp", .op = "clamp", .order = "lo a hi"},
    // Contraction and linear algebra.
    {.spelling = "dot_general", .op = "einsum", .order = "a...", .factors = dot_general_factors},
    {.spelling = "scaled_dot", .op = "einsum", .order = "a...", .factors = unknown_factors},
    {.spelling = "scaled_matmul_wrapper",
     .op = "einsum",
     .order = "a...",
     .factors = unknown_factors},
    {.spelling = "ragged_dot", .op = "grouped_mm", .order = "x w o", .variant = BlockSizes},
    {.spelling = "ragged_dot_general",
     .op = "grouped_mm",
     .order = "x w o",
     .factors = unknown_factors, .variant = BlockSizes},
    {.spelling = "conv_general_dilated",
     .op = "convolution",
     .order = "x w",
     .factors = conv_general_dilated_factors},
    {.spelling = "conv_general_dilated_patches", .op = "im2col", .factors = unknown_factors,
     .variant = AnyLayout},
    {.spelling = "reduce_window_sum", .op = "avg_pool", .factors = reduce_window_factors},
    {.spelling = "reduce_window_max", .op = "max_pool", .factors = reduce_window_factors},
    {.spelling = "reduce_window_min", .op = "max_pool", .factors = reduce_window_factors,
     .variant = Smallest},
    {.spelling = "reduce_window", .op = "function", .order = "a..."},
    {.spelling = "select_and_scatter_add",
     .op = "max_pool_backward",
     .order = "g i",
     .factors = unknown_factors, .variant = RecomputesMaxima},
    {.spelling = "select_and_gather_add",
     .op = "max_pool_backward",
     .order = "g i",
     .factors = unknown_factors, .variant = RegathersAtMaxima},
    {.spelling = "select_and_scatter", .op = "function", .order = "a..."},
    {.spelling = "ffi_call", .op = "function", .order = "a..."},
    {.spelling = "pure_callback", .op = "function", .order = "a..."},
    {.spelling = "io_callback", .op = "function", .order = "a..."},
    {.spelling = "pallas_call", .op = "function", .order = "a..."},
    {.spelling = "geqp3", .op = "function", .order = "a..."},
    {.spelling = "cholesky_update", .op = "function", .order = "a..."},
    // Reduction.
    {.spelling = "jax.reduce", .op = "function", .order = "a...", .factors = lax_reduce_factors},
    // Layout.
    {.spelling = "broadcast_in_dim", .op = "expand", .factors = broadcast_in_dim_factors},
    {.spelling = "expand_dims", .op = "reshape", .factors = expand_dims_factors},
    {.spelling = "jax.concatenate", .op = "cat", .order = "a..."},
    {.spelling = "jax.stack", .op = "stack", .order = "a..."},
    {.spelling = "jax.slice", .op = "slice", .factors = lax_slice_factors,
     .variant = StridedStarts},
    {.spelling = "dynamic_slice",
     .op = "slice",
     .order = "a i...",
     .factors = dynamic_slice_factors, .variant = StartOperands},
    {.spelling = "dynamic_index_in_dim", .op = "slice", .order = "a i",
     .factors = unknown_factors, .variant = OneStartOperand},
    {.spelling = "dynamic_update_slice",
     .op = "slice_scatter",
     .order = "a s i...",
     .factors = dynamic_update_slice_factors, .variant = StartOperands},
    {.spelling = "jax.pad", .op = "constant_pad", .order = "a v", .factors = lax_pad_factors},
    {.spelling = "jax.fft", .op = "fft_fft", .factors = lax_fft_factors},
    // Indexing.
    {.spelling = "jax.gather", .op = "index", .order = "a i", .factors = lax_gather_factors},
    {.spelling = "jax.scatter", .op = "scatter", .order = "a i s", .factors = lax_scatter_factors},
    {.spelling = "scatter-add",
     .op = "scatter_add",
     .order = "a i s",
     .factors = lax_scatter_add_factors},
    {.spelling = "scatter-sub",
     .op = "scatter_add",
     .order = "a i s",
     .factors = lax_scatter_add_factors, .variant = Subtracts},
    {.spelling = "jax.scatter_add",
     .op = "scatter_add",
     .order = "a i s",
     .factors = lax_scatter_add_factors},
    {.spelling = "jax.scatter_sub",
     .op = "scatter_add",
     .order = "a i s",
     .factors = lax_scatter_add_factors, .variant = Subtracts},
    {.spelling = "scatter-max",
     .op = "scatter_reduce",
     .order = "a i s",
     .factors = lax_scatter_factors, .variant = Largest},
    {.spelling = "scatter-min",
     .op = "scatter_reduce",
     .order = "a i s",
     .factors = lax_scatter_factors, .variant = Smallest},
    {.spelling = "scatter-mul",
     .op = "scatter_reduce",
     .order = "a i s",
     .factors = lax_scatter_factors, .variant = Multiplies},
    {.spelling = "jax.scatter_max",
     .op = "scatter_reduce",
     .order = "a i s",
     .factors = lax_scatter_factors, .variant = Largest},
    {.spelling = "jax.scatter_min",
     .op = "scatter_reduce",
     .order = "a i s",
     .factors = lax_scatter_factors, .variant = Smallest},
    {.spelling = "jax.scatter_mul",
     .op = "scatter_reduce",
     .order = "a i s",
     .factors = lax_scatter_factors, .variant = Multiplies},
    {.spelling = "jax.sort", .op = "sort_together", .order = "a..."},
    // Attention.
    {.spelling = "dot_product_attention",
     .op = "attention",
     .order = "q k v m n",
     .factors = unknown_factors, .variant = StatedLayout},
    {.spelling = "dot_product_attention_fwd",
     .op = "attention_fused",
     .order = "q k v m n - - - - -",
     .factors = unknown_factors, .variant = StatedLayout},
    {.spelling = "dot_product_attention_fwd_wrapper",
     .op = "attention_fused",
     .order = "q k v m n - - - - -",
     .factors = unknown_factors, .variant = StatedLayout},
    {.spelling = "dot_product_attention_bwd",
     .op = "attention_backward",
     .order = "q k v - - - - - - - l o g",
     .factors = unknown_factors, .variant = StatedLayout},
    {.spelling = "dot_product_attention_bwd_wrapper",
     .op = "attention_backward",
     .order = "q k v - - - - - - - l o g",
     .factors = unknown_factors, .variant = StatedLayout},
    // Creation and random numbers.
    {.spelling = "random_bits", .op = "drawn_by_keys", .dtype = ir::DType::U32, .variant = Bits},
    {.spelling = "random_split", .op = "drawn_by_keys", .dtype = ir::DType::U32, .variant = Bits},
    {.spelling = "random_seed", .op = "next_key", .dtype = ir::DType::U32, .variant = Bits},
    {.spelling = "random_clone", .op = "next_key", .dtype = ir::DType::U32, .variant = Bits},
    {.spelling = "random_fold_in", .op = "next_key", .dtype = ir::DType::U32, .variant = Bits},
    {.spelling = "random_wrap", .op = "key_of_words", .dtype = ir::DType::U32, .variant = Bits},
    {.spelling = "random_unwrap", .op = "words_of_key", .dtype = ir::DType::U32, .variant = Bits},
    {.spelling = "rng_bit_generator", .op = "random", .order = "~", .factors = unknown_factors,
     .variant = Bits},
    {.spelling = "rng_uniform", .op = "random", .order = "- -", .factors = unknown_factors,
     .variant = UniformBetween},
    {.spelling = "threefry2x32", .op = "random_key", .order = "k...", .variant = Threefry},
    {.spelling = "threefry4x32", .op = "random_key", .order = "k..."},
    {.spelling = "philox2x32", .op = "random_key", .order = "k..."},
    {.spelling = "philox4x32", .op = "random_key", .order = "k..."},
    {.spelling = "random_gamma", .op = "poisson", .order = "~ p", .variant = Gamma},
};

// Primitives that are called as our op is, and those that are not.
constexpr std::string_view kSame =
    " abs acos acosh add argmax argmin asin asinh atan atan2 atanh ceil conj cos cosh cummax "
    "cummin "
    "cumprod cumsum digamma div eq erf erfc exp exp2 expm1 floor ge gt igamma igammac imag le "
    "lgamma "
    "log log1p lt mul ne neg nextafter pow real reshape round rsqrt sign sin sinh sort sqrt square "
    "sub tan tanh ";
constexpr Synonyms kWords[] = {
    {.op = "sigmoid", .spellings = "logistic"},
    {.op = "maximum", .spellings = "max"},
    {.op = "minimum", .spellings = "min"},
    {.op = "erfinv", .spellings = "erf_inv"},
    {.op = "isfinite", .spellings = "is_finite"},
    {.op = "where", .spellings = "select_n"},
    {.op = "clamp", .spellings = "clamp"},
    {.op = "detach", .spellings = "stop_gradient"},
    {.op = "cast", .spellings = "convert_element_type"},
    {.op = "bitwise_and", .spellings = "and"},
    {.op = "bitwise_or", .spellings = "or"},
    {.op = "bitwise_xor", .spellings = "xor"},
    {.op = "bitwise_not", .spellings = "not"},
    {.op = "fmod", .spellings = "rem"},
    {.op = "sum", .spellings = "reduce_sum"},
    {.op = "amax", .spellings = "reduce_max"},
    {.op = "amin", .spellings = "reduce_min"},
    {.op = "prod", .spellings = "reduce_prod"},
    {.op = "logcumsumexp", .spellings = "cumlogsumexp"},
    {.op = "cat", .spellings = "concatenate"},
    {.op = "flip", .spellings = "rev"},
    {.op = "matmul", .spellings = "dot_general"},
    {.op = "linear", .spellings = "dot_general"},
    {.op = "identity", .spellings = "copy"},
};

} // namespace

std::string_view jax_word(std::string_view op) {
  for (const Synonyms &row : kWords)
    if (row.op == op)
      return row.spellings;
  size_t at = kSame.find(" " + std::string(op) + " ");
  return at == std::string_view::npos ? std::string_view() : kSame.substr(at + 1, op.size());
}

llvm::ArrayRef<Alias> jax_aliases() { return kAliases; }
llvm::ArrayRef<Synonyms> jax_synonyms() { return kSynonyms; }

} // namespace spmd::rules
