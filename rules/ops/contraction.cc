// Contractions, convolutions and pools, and linear algebra on the last two dimensions.
#include "rules/ops/families.h"

namespace spmd::rules {

namespace {

constexpr OpDef kContraction[] = {
    {.name = "matmul", .equation = "a[... m k] * b[... k n] -> [... m n]",
     .factors = matmul_factors, .note = "a 1-d operand lacks m or n"},
    {.name = "mv", .equation = "a[m k] * b[k] -> [m]"},
    {.name = "dot", .equation = "a[k] * b[k] -> []"},
    {.name = "inner", .equation = "a[m k] * b[n k] -> [m n]", .factors = inner_factors},
    {.name = "outer", .equation = "a[m] * b[n] -> [m n]"},
    {.name = "kron", .equation = "a[m n] * b[!p !q] -> [(m p) (n q)]"},
    {.name = "cross", .equation = "a[... !d] * b[... !d] -> [... !d]", .placed = "d"},
    {.name = "vecdot", .equation = "a[... d] * b[... d] -> [...]", .placed = "d"},
    {.name = "einsum", .equation = "*a -> r", .factors = einsum_factors},
    {.name = "tensordot", .equation = "a * b -> r", .factors = tensordot_factors},
    {.name = "linear", .equation = "x[... i] * w[o i] + b?[o] -> [... o]"},
    {.name = "linear_backward",
     .equation = "g[... o] * w[o i] -> [... i]; g[... o] * x[... i] -> [o i]; g[... o] -> [o]"},
    {.name = "addmm", .equation = "c[m n] + a[m k] * b[k n] -> [m n]", .mut = "c"},
    {.name = "addmv", .equation = "c[m] + a[m k] * b[k] -> [m]", .mut = "c"},
    {.name = "addr", .equation = "c[m n] + a[m] * b[n] -> [m n]", .mut = "c"},
    {.name = "baddbmm", .equation = "c[b m n] + a[b m k] * d[b k n] -> [b m n]", .mut = "c"},
    {.name = "addbmm", .equation = "c[m n] + a[b m k] * d[b k n] -> [m n]", .mut = "c"},
    {.name = "bilinear", .equation = "a[... i] * w[o i j] * b[... j] + c?[o] -> [... o]"},
    {.name = "scores", .equation = "q[... h m k] * k[... n k] -> [... h m n]",
     .note = "one key per group of heads"},
    {.name = "expert_matmul", .equation = "x[m k] * w[e k n] -> [e m n]"},
    {.name = "grouped_mm", .equation = "x[!n k] * w[!e k m] * @o[!e] -> [!n m]",
     .note = "rows n are tied to experts by the offsets o"},
    {.name = "grouped_mm_backward",
     .equation = "g[!n m] * w[!e k m] * @o[!e] -> [!n k]; g[!n m] * x[!n k] * @o[!e] -> [!e k m]"},
    {.name = "cdist", .equation = "f(a[... m !k], b[... n !k]) -> [... m n]"},
    {.name = "convolution", .equation = "x[b i !h !w] * w[o i !r !s] + c?[o] -> [b o !p !q]",
     .factors = convolution_factors, .choose = choose_convolution},
    {.name = "convolution_grouped",
     .equation = "x[b (g i) !h !w] * w[(g o) i !r !s] + c?[(g o)] -> [b (g o) !p !q]",
     .factors = convolution_factors},
    {.name = "convolution_backward",
     .equation = "g[b o !p !q] * w[o i !r !s] -> [b i !h !w]; g[b o !p !q] * x[b i !h !w] -> [o i "
                 "!r !s]; g[b o !p !q] -> [o]", .factors = like_operands_factors},
    {.name = "avg_pool", .equation = "x[... !h !w] -> [... !p !q]", .factors = pool_factors},
    {.name = "avg_pool_backward", .equation = "g[... !p !q], #x[... !h !w] -> [... !h !w]"},
    {.name = "max_pool", .equation = "f(x[... !h !w]) -> [... !p !q], [... !p !q]",
     .factors = pool_factors, .later_dtype = DTypeRule::Index},
    {.name = "max_pool_backward",
     .equation = "g[... !p !q] * @i[... !p !q], #x[... !h !w] -> [... !h !w]"},
    {.name = "interpolate", .equation = "x[... !h !w] -> [... !p !q]", .factors = pool_factors},
    {.name = "im2col", .equation = "x[b i !h !w] -> [b (i !r !s) !p]"},
    {.name = "col2im", .equation = "x[b (i !r !s) !p] -> [b i !h !w]"},
    {.name = "grid_sample", .equation = "x[b i !h !w] * f(@g[b p q !d]) -> [b i p q]"},
    {.name = "inverse", .equation = "f(a[... !m !n]) -> [... !m !n]"},
    {.name = "cholesky", .equation = "f(a[... !m !n]) -> [... !m !n]"},
    {.name = "matrix_exp", .equation = "f(a[... !m !n]) -> [... !m !n]"},
    {.name = "pinv", .equation = "f(a[... !m !n]) -> [... !m !n]"},
    {.name = "matrix_power", .equation = "f(a[... !m !n]) -> [... !m !n]"},
    {.name = "det", .equation = "f(a[... !m !n]) -> [...]"},
    {.name = "logdet", .equation = "f(a[... !m !n]) -> [...]"},
    {.name = "slogdet", .equation = "f(a[... !m !n]) -> [...], [...]"},
    {.name = "solve", .equation = "f(a[... !m !n]) * b[... !n k] -> [... !m k]"},
    {.name = "triangular_solve", .equation = "f(a[... !m !n]) * b[... !n k] -> [... !m k]"},
    {.name = "cholesky_solve", .equation = "f(a[... !m !n]) * b[... !n k] -> [... !m k]"},
    {.name = "lu_solve", .equation = "f(a[... !m !n]) * b[... !n k] -> [... !m k]"},
    {.name = "svd", .equation = "f(a[... !m !n]) -> r*"},
    {.name = "qr", .equation = "f(a[... !m !n]) -> r*"},
    {.name = "eigh", .equation = "f(a[... !m !n]) -> r*"},
    {.name = "eig", .equation = "f(a[... !m !n]) -> r*"},
    {.name = "lu", .equation = "f(a[... !m !n]) -> r*"},
};

} // namespace

llvm::ArrayRef<OpDef> contraction_ops() { return kContraction; }

} // namespace spmd::rules
