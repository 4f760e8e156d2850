// Views and layout: each op is one linear map of positions; its column `factors` names the map of
// dimensions.
#include "rules/factors/factors.h"
#include "rules/ops/choices.h"
#include "rules/ops/families.h"

namespace spmd::rules {

namespace {

constexpr char kMap[] = "a -> r";

constexpr OpDef kLayout[] = {
    {.name = "reshape", .equation = kMap, .factors = reshape_factors},
    {.name = "view_as", .equation = "a, #b -> r", .factors = view_as_factors},
    {.name = "permute_dims", .equation = kMap, .factors = permute_factors},
    {.name = "expand", .equation = kMap, .factors = expand_factors,
     .own_dims = OpDef::OwnDims::Attribute},
    {.name = "expand_as", .equation = "a, #b -> r", .factors = expand_as_factors,
     .own_dims = OpDef::OwnDims::Attribute, .note = "shards come from the shape_only"},
    {.name = "repeat", .equation = kMap, .factors = repeat_factors},
    {.name = "repeat_interleave", .equation = "a[... d] -> [... (d r)]", .placed = "d",
     .default_dim = DefaultDim::All, .extents = repeat_interleave_extents,
     .choose = choose_repeat_interleave},
    {.name = "cat", .equation = "+a -> r", .factors = cat_factors,
     .own_dims = OpDef::OwnDims::Proportional,
     .note = "a direct sum: all members partial, or none"},
    {.name = "stack", .equation = "+a[...] -> r", .factors = stack_factors},
    {.name = "block_diag", .equation = "+a[!m !n] -> [!p !q]", .factors = unknown_factors},
    {.name = "split", .equation = "a -> r*", .factors = split_factors,
     .own_dims = OpDef::OwnDims::Proportional},
    {.name = "slice", .equation = "a * @*i? * @j? -> r", .factors = slice_factors,
     .own_dims = OpDef::OwnDims::Proportional, .note = "i, j: a start and an end that are tensors"},
    {.name = "slice_backward", .equation = "g -> r", .factors = slice_backward_factors,
     .own_dims = OpDef::OwnDims::Proportional},
    {.name = "slice_scatter", .equation = "a + s * @*i? * @j? -> r",
     .factors = slice_scatter_factors, .mut = "a", .own_dims = OpDef::OwnDims::Proportional},
    {.name = "flip", .equation = "a[... !d] -> [... !d]", .placed = "d",
     .default_dim = DefaultDim::All},
    {.name = "roll", .equation = "a[... !d] -> [... !d]", .placed = "d",
     .default_dim = DefaultDim::All},
    {.name = "rot90", .equation = "a[... !d] -> [... !d]", .placed = "d",
     .default_dim = DefaultDim::All},
    {.name = "constant_pad", .equation = "a + v -> r", .dtype = DTypeRule::First,
     .factors = pad_factors, .from_attr = "v value", .zero_drops_term = true},
    {.name = "reflection_pad", .equation = "a[... !d] -> [... !e]", .factors = pad_factors},
    {.name = "replication_pad", .equation = "a[... !d] -> [... !e]", .factors = pad_factors},
    {.name = "reflection_pad_backward", .equation = "g[... !e], #a[... !d] -> [... !d]",
     .factors = pad_backward_factors, .new_elements = true},
    {.name = "replication_pad_backward", .equation = "g[... !e], #a[... !d] -> [... !d]",
     .factors = pad_backward_factors, .new_elements = true},
    {.name = "circular_pad", .equation = "a[... !d] -> [... !e]", .factors = pad_factors},
    {.name = "tril", .equation = "a[... !m !n] -> [... !m !n]", .mut = "a"},
    {.name = "triu", .equation = "a[... !m !n] -> [... !m !n]", .mut = "a"},
    {.name = "diagonal", .equation = "a[... !m !n] -> [... !d]", .factors = unknown_factors},
    {.name = "diag_embed", .equation = "a[... !d] -> [... !d !d]", .factors = unknown_factors},
    {.name = "unfold", .equation = "a[... !d] -> [... !p !r]", .placed = "d p",
     .extents = unfold_extents},
    {.name = "unfold_backward", .equation = "g[... !p !r] -> [... !d]",
     .factors = unfold_backward_factors, .new_elements = true},
    {.name = "as_strided", .variant = Variant::Strided, .equation = "a[!...] -> [!...]",
     .factors = sized_whole_factors},
    {.name = "pixel_shuffle", .equation = "a[... (c !r !s) h w] -> [... c (h !r) (w !s)]",
     .extents = pixel_extents},
    {.name = "pixel_unshuffle", .equation = "a[... c (h !r) (w !s)] -> [... (c !r !s) h w]",
     .extents = pixel_extents},
    {.name = "channel_shuffle", .equation = "a[b (g !c) ...] -> [b (!c !g) ...]",
     .extents = group_extents},
    {.name = "view_as_real", .equation = "a[...] -> [... !two]", .dtype = DTypeRule::Real,
     .extents = pair_extents},
    {.name = "view_as_complex", .equation = "a[... !two] -> [...]", .dtype = DTypeRule::Complex},
    {.name = "meshgrid", .equation = "a[m], #b[k] -> [m k]; b[k], #a[m] -> [m k]"},
    {.name = "fft_fft", .equation = "a[... !d] -> [... !e]", .placed = "d e",
     .factors = unknown_factors, .new_elements = true},
    {.name = "fft_ifft", .equation = "a[... !d] -> [... !e]", .placed = "d e",
     .factors = unknown_factors, .new_elements = true},
    {.name = "fft_rfft", .equation = "a[... !d] -> [... !e]", .placed = "d e",
     .factors = unknown_factors, .new_elements = true},
    {.name = "fft_irfft", .equation = "a[... !d] -> [... !e]", .placed = "d e",
     .factors = unknown_factors, .new_elements = true},
    {.name = "fft_fftn", .equation = "a[... !d] -> [... !e]", .placed = "d e",
     .factors = unknown_factors, .new_elements = true},
};

} // namespace

llvm::ArrayRef<OpDef> layout_ops() { return kLayout; }

} // namespace spmd::rules
