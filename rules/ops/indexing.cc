// Indexing: `@i[.. :d]` is a one-hot tensor whose last factor is d.
#include "rules/ops/families.h"

namespace spmd::rules {

namespace {

constexpr char kScatter[] = "a[... !d] * @i[... !e :!d] + s[... !e] * @i[... !e :!d] -> [... !d]";

constexpr OpDef kIndexing[] = {
    {.name = "index_select", .equation = "a[... !d] * @i[e :!d] -> [... e]", .placed = "d e",
     .default_dim = DefaultDim::First, .dtype = DTypeRule::First},
    {.name = "repeat_interleave_counts", .equation = "a[... !d] * @i[e :!d] -> [... e]",
     .dtype = DTypeRule::First, .factors = unknown_factors,
     .note = "the number of elements depends on the counts"},
    {.name = "gather", .equation = "a[... !d] * @i[... e :!d] -> [... e]", .placed = "d e",
     .dtype = DTypeRule::First, .rest_from = "i"},
    {.name = "embedding", .equation = "t[!v c] * @i[... :!v] -> [... c]",
     .dtype = DTypeRule::First},
    {.name = "embedding_masked", .equation = "t[v c] * @i[... :v] -> [... c]",
     .dtype = DTypeRule::First, .note = "ids are global; each rank answers for its own block"},
    {.name = "embedding_dense_backward", .equation = "g[... c] * @i[... :!v] -> [!v c]",
     .dtype = DTypeRule::First, .extents = weight_count_extents},
    {.name = "embedding_bag", .equation = "t[!v c] * @i[!n :!v] * @o[!b] -> [!b c]",
     .dtype = DTypeRule::First},
    {.name = "gather_masked", .equation = "a[... d] * @i[... :d] -> [...]", .placed = "d",
     .dtype = DTypeRule::First, .note = "the owner of the entry answers, others give 0"},
    {.name = "index", .equation = "a[!...] * @*i -> r", .dtype = DTypeRule::First,
     .factors = index_factors, .choose = choose_index},
    {.name = "take", .equation = "a[!...] * @i[e] -> [e]", .dtype = DTypeRule::First,
     .factors = take_factors},
    {.name = "scatter_add", .equation = "a[... !d] + s[... e] * @i[... e :!d] -> [... !d]",
     .placed = "d e", .dtype = DTypeRule::First, .rest_from = "a", .mut = "a"},
    {.name = "index_add", .equation = "a[... !d] + s[... e] * @i[e :!d] -> [... !d]",
     .placed = "d e", .dtype = DTypeRule::First, .mut = "a"},
    {.name = "scatter", .equation = kScatter, .placed = "d e", .dtype = DTypeRule::First,
     .from_attr = "s value", .rest_from = "a", .mut = "a", .zero_drops_term = true},
    {.name = "put", .equation = kScatter, .placed = "d e", .dtype = DTypeRule::First,
     .from_attr = "s value", .rest_from = "a", .mut = "a", .zero_drops_term = true},
    {.name = "index_copy",
     .equation = "a[... !d] * @i[!e :!d] + s[... !e] * @i[!e :!d] -> [... !d]", .placed = "d e",
     .dtype = DTypeRule::First, .from_attr = "s value", .mut = "a", .zero_drops_term = true},
    {.name = "index_fill",
     .equation = "a[... !d] * @i[!e :!d] + s[... !e] * @i[!e :!d] -> [... !d]", .placed = "d e",
     .dtype = DTypeRule::First, .from_attr = "s value", .mut = "a", .zero_drops_term = true},
    {.name = "index_put", .equation = "a[!...] * @*i + s * @*i -> r", .dtype = DTypeRule::First,
     .factors = index_put_factors, .choose = choose_index_put, .mut = "a"},
    {.name = "index_put_add", .equation = "a[!...] + s * @*i -> r", .dtype = DTypeRule::First,
     .factors = index_put_factors, .mut = "a"},
    {.name = "scatter_reduce", .equation = "f(a[... !d], s[... !e], @i[... !e :!d]) -> [... !d]",
     .placed = "d e", .dtype = DTypeRule::First, .choose = choose_scatter_reduce, .rest_from = "a",
     .mut = "a"},
    {.name = "masked_select", .equation = "a[!...] * @m[!...] -> [?n]", .dtype = DTypeRule::First,
     .factors = unknown_factors, .note = "the number of elements depends on the data"},
    {.name = "masked_scatter", .equation = "a[!...] * @m[!...] + s[!n] * @m[!...] -> [!...]",
     .dtype = DTypeRule::First, .factors = like_first_factors, .mut = "a"},
    {.name = "nonzero", .equation = "f(a[!...]) -> [?n]", .dtype = DTypeRule::Index,
     .factors = unknown_factors, .gradient = false},
    {.name = "argwhere", .equation = "f(a[!...]) -> [?n]", .dtype = DTypeRule::Index,
     .factors = unknown_factors, .gradient = false},
    {.name = "unique", .equation = "f(a[!...]) -> [?n]", .later_dtype = DTypeRule::Index,
     .gradient = false},
    {.name = "one_hot", .equation = "@i[... :!v] -> [... !v]", .dtype = DTypeRule::Index,
     .extents = class_count_extents, .gradient = false},
    {.name = "topk", .equation = "f(a[... !d]) -> [... !e], [... !e]", .placed = "d e",
     .extents = topk_extents, .later_dtype = DTypeRule::Index},
    {.name = "sort", .equation = "f(a[... !d]) -> [... !d], [... !d]", .placed = "d",
     .later_dtype = DTypeRule::Index},
    {.name = "argsort", .equation = "f(a[... !d]) -> [... !d]", .placed = "d",
     .dtype = DTypeRule::Index, .gradient = false},
    {.name = "msort", .equation = "f(a[... !d]) -> [... !d]", .placed = "d",
     .default_dim = DefaultDim::First},
    {.name = "kthvalue", .equation = "f(a[... !d]) -> [...], [...]", .placed = "d",
     .later_dtype = DTypeRule::Index},
    {.name = "value_selecting_backward", .equation = "g[... e] * @i[... e :!d] -> [... !d]",
     .placed = "d e", .factors = sized_factors},
    {.name = "searchsorted", .equation = "f(b[... d], x[... e]) -> [... e]",
     .dtype = DTypeRule::Index, .gradient = false, .note = "blocks of a sorted sequence add up"},
    {.name = "bucketize", .equation = "f(b[d], x[...]) -> [...]", .dtype = DTypeRule::Index,
     .gradient = false},
    {.name = "isin", .equation = "f(a[...], b[!e]) -> [...]", .dtype = DTypeRule::Boolean,
     .gradient = false},
};

} // namespace

llvm::ArrayRef<OpDef> indexing_ops() { return kIndexing; }

} // namespace spmd::rules
