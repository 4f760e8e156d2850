// Normalisation: a function along the normalised dimensions, linear in weight and bias.
#include "rules/factors/factors.h"
#include "rules/ops/choices.h"
#include "rules/ops/families.h"

namespace spmd::rules {

namespace {

using enum Variant;

constexpr OpDef kNormalisation[] = {
    {.name = "softmax", .equation = "f(a[... !d]) -> [... !d]", .computes = Computes::Exponential,
     .placed = "d",
     .dtype = DTypeRule::Attribute},
    {.name = "log_softmax", .variant = Logarithm, .equation = "f(a[... !d]) -> [... !d]",
     .placed = "d",
     .dtype = DTypeRule::Attribute},
    {.name = "softmin", .variant = Negated, .equation = "f(a[... !d]) -> [... !d]", .placed = "d",
     .dtype = DTypeRule::Attribute},
    {.name = "normalize", .equation = "f(a[... !d]) -> [... !d]", .placed = "d",
     .default_dim = DefaultDim::Second},
    {.name = "softmax_backward", .equation = "g[... !d] * f(y[... !d]) -> [... !d]", .placed = "d",
     .values = {{{"y", Values::Unit}}}},
    {.name = "log_softmax_backward", .variant = Logarithm,
     .equation = "g[... !d] * f(y[... !d]) -> [... !d]",
     .placed = "d"},
    {.name = "gumbel_softmax", .equation = "f(a[... !d], ~) -> [... !d]", .placed = "d"},
    {.name = "layer_norm", .variant = LayerNorm,
     .equation = "f(x[... !d]) * w?[!d] + b?[!d] -> [... !d]", .spans = "d",
     .dtype = DTypeRule::First},
    {.name = "native_layer_norm", .variant = LayerNorm,
     .equation = "f(x[... !d]) * w?[!d] + b?[!d] -> [... !d]; x[... !d] /|d| -> [... 1]; f(x[... "
                 "!d]) -> [... 1]", .spans = "d", .dtype = DTypeRule::First},
    {.name = "native_layer_norm_backward", .variant = LayerNorm,
     .equation = "g[... !d] * f(x[... !d], u[... 1], s[... 1]) * w?[!d] -> [... !d]; g[... d] * "
                 "f(x[... d], u[... 1], s[... 1]) -> [d]; g[... d], #b?[d] -> [d]", .spans = "d",
     .dtype = DTypeRule::First},
    {.name = "rms_norm", .variant = RmsNorm, .equation = "f(x[... !d]) * w?[!d] -> [... !d]",
     .spans = "d",
     .dtype = DTypeRule::First},
    {.name = "fused_rms_norm", .variant = RmsNorm,
     .equation = "f(x[... !d]) * w?[!d] -> [... !d]; f(x[... !d]) -> [... 1]", .spans = "d",
     .dtype = DTypeRule::First},
    {.name = "fused_rms_norm_backward", .variant = RmsNorm,
     .equation = "g[... !d] * f(x[... !d], s[... 1]) * w?[!d] -> [... !d]; g[... d] * f(x[... d], "
                 "s[... 1]) -> [d]", .spans = "d", .dtype = DTypeRule::First},
    {.name = "group_norm", .variant = GroupNorm,
     .equation = "f(x[b (g !c) !...]) * w?[(g !c)] + b?[(g !c)] -> [b (g !c) !...]",
     .extents = group_extents},
    {.name = "native_group_norm", .variant = GroupNorm,
     .equation = "f(x[b (g !c) !...]) * w?[(g !c)] + b?[(g !c)] -> [b (g !c) !...]; x[b (g !c) "
                 "!...] /|c| /|...| -> [b g]; f(x[b (g !c) !...]) -> [b g]",
     .extents = group_extents},
    {.name = "group_norm_backward", .variant = GroupNorm,
     .equation = "g[b (n !c) !...] * f(x[b (n !c) !...], u[b n], s[b n]) * w?[(n !c)] -> [b (n "
                 "!c) !...]; g[b (n !c) ...] * f(x[b (n !c) ...], u[b n], s[b n]) -> [(n !c)]; "
                 "g[b (n !c) ...] -> [(n !c)]", .extents = group_extents},
    {.name = "batch_norm", .variant = BatchNorm,
     .equation = "f(x[!b c !...]) * w?[c] + k?[c] -> [!b c !...]",
     .dtype = DTypeRule::First, .choose = choose_batch_norm},
    {.name = "instance_norm", .variant = InstanceNorm,
     .equation = "f(x[b c !...]) * w?[c] + k?[c] -> [b c !...]",
     .dtype = DTypeRule::First},
    {.name = "batch_norm_inference",
     .equation = "x[b c ...] * f(v[c]) * w?[c] - u[c] * f(v[c]) * w?[c] + k?[c] -> [b c ...]",
     .dtype = DTypeRule::First},
    {.name = "batch_norm_backward", .variant = BatchNorm,
     .equation = "g[!b c !...] * f(x[!b c !...]) * w?[c] -> [!b c !...]; g[!b c !...] * f(x[!b c "
                 "!...]) -> [c]; g[b c ...] -> [c]", .dtype = DTypeRule::First},
    {.name = "cosine_similarity", .equation = "f(a[... !d], b[... !d]) -> [...]", .placed = "d",
     .default_dim = DefaultDim::Second},
    {.name = "weight_norm", .equation = "f(v[n !...]) * g[n] -> [n !...]",
     .factors = weight_norm_factors},
    {.name = "weight_norm_backward",
     .equation = "y[n !...] * f(v[n !...], s[n]) * g[n] -> [n !...]; y[n !...] * f(v[n !...], "
                 "s[n]) -> [n]", .factors = weight_norm_backward_factors,
     .note = "s: the norms of v"},
    {.name = "batch_norm_stats", .variant = BatchNorm, .equation = "f(x[!b c !...]) -> [c], [c]",
     .note = "the mean, and one over the deviation"},
    {.name = "batch_norm_joined_stats", .variant = BatchNorm,
     .equation = "f(m[!w c], s[!w c], n?[!w]), #x -> [c], [c]",
     .note = "those of all ranks together, by their counts n"},
    {.name = "batch_norm_by_stats", .variant = BatchNorm,
     .equation = "x[b c ...] * f(s[c]) * w?[c] - u[c] * f(s[c]) * w?[c] + k?[c] -> [b c ...]",
     .dtype = DTypeRule::First},
    {.name = "batch_norm_backward_sums", .variant = BatchNorm,
     .equation = "g[b c ...] -> [c]; g[b c ...] * f(x[b c ...], u[c]) -> [c]; g[b c ...] * "
                 "f(x[b c ...], u[c], s[c]) -> [c]; g[b c ...], #w? -> [c]"},
    {.name = "batch_norm_backward_by_sums", .variant = BatchNorm,
     .equation = "g[b c ...] * f(s[c]) * w?[c] - y[c] * f(s[c], n) * w?[c] - z[c] * "
                 "f(x[b c ...], u[c], s[c], n) * w?[c] -> [b c ...]"},
    {.name = "renorm", .equation = "f(a[!... d]) -> [!... d]", .placed = "d", .mut = "a"},
    {.name = "local_response_norm", .equation = "f(x[b !c ...]) -> [b !c ...]"},
};

} // namespace

llvm::ArrayRef<OpDef> normalisation_ops() { return kNormalisation; }

} // namespace spmd::rules
