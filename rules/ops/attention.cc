// Attention and rotary embeddings. Keys are whole, except in the backward: it is given the log of
// the sum, and is pointwise in the keys. Grouped: several heads of queries look at one of keys.
#include "rules/factors/factors.h"
#include "rules/ops/choices.h"
#include "rules/ops/families.h"

namespace spmd::rules {

namespace {

using enum Variant;

constexpr OpDef kAttention[] = {
    {.name = "attention",
     .equation = "f(q[... h s !d], k[... h !t !d], m?[... h s !t], n?[... h s !t]) * v[... h !t "
                 "e] -> [... h s e]", .choose = choose_attention},
    {.name = "attention_causal", .variant = Causal,
     .equation = "f(q[... h !s !d], k[... h !t !d], m?[... h !s !t], n?[... h !s !t]) * v[... h "
                 "!t e] -> [... h !s e]"},
    {.name = "attention_grouped",
     .equation = "f(q[... (j g) s !d], k[... j !t !d], m?[... (j g) s !t], n?[... (j g) s !t]) "
                 "* v[... j !t e] -> [... (j g) s e]", .choose = choose_grouped_attention},
    {.name = "attention_grouped_causal", .variant = Causal,
     .equation = "f(q[... (j g) !s !d], k[... j !t !d], m?[... (j g) !s !t], n?[... (j g) !s "
                 "!t]) * v[... j !t e] -> [... (j g) !s e]"},
    {.name = "attention_varlen", .variant = PackedSequences,
     .equation = "f(q[!s h !d], k[!t h !d], @m?[!b], @n?[!b]) * v[!t h e] -> [!s h e]",
     .factors = unknown_factors,
     .note = "sequences joined to one; m and n are their bounds"},
    {.name = "attention_fused",
     .equation = "f(q[b h s !d], k[b h !t !d], m?[b h s !t], n?[b h s !t]) * v[b h !t e] -> [b "
                 "h s e]; f(q[b h s !d], k[b h !t !d], m?[b h s !t], n?[b h s !t]) -> [b h s]",
     .choose = choose_fused_attention},
    {.name = "attention_fused_causal", .variant = Causal,
     .equation = "f(q[b h !s !d], k[b h !t !d], m?[b h !s !t], n?[b h !s !t]) * v[b h !t e] -> "
                 "[b h !s e]; f(q[b h !s !d], k[b h !t !d], m?[b h !s !t], n?[b h !s !t]) -> [b "
                 "h !s]"},
    {.name = "attention_fused_grouped",
     .equation = "f(q[b (j r) s !d], k[b j !t !d], m?[b (j r) s !t], n?[b (j r) s !t]) * v[b j"
                 " !t e] -> [b (j r) s e]; f(q[b (j r) s !d], k[b j !t !d], m?[b (j r) s !t], "
                 "n?[b (j r) s !t]) -> [b (j r) s]"},
    {.name = "attention_fused_grouped_causal", .variant = Causal,
     .equation = "f(q[b (j r) !s !d], k[b j !t !d], m?[b (j r) !s !t], n?[b (j r) !s !t]) * "
                 "v[b j !t e] -> [b (j r) !s e]; f(q[b (j r) !s !d], k[b j !t !d], m?[b (j r) "
                 "!s !t], n?[b (j r) !s !t]) -> [b (j r) !s]"},
    {.name = "attention_backward",
     .equation = "g[b h s e] * v[b h t e] * f(q[b h s !d], k[b h t !d], l[b h s]) + g[b h s e] * "
                 "o[b h s e] * f(q[b h s !d], k[b h t !d], l[b h s]) -> [b h s !d]; g[b h s e] * "
                 "v[b h t e] * f(q[b h s !d], k[b h t !d], l[b h s]) + g[b h s e] * o[b h s e] * "
                 "f(q[b h s !d], k[b h t !d], l[b h s]) -> [b h t !d]; g[b h s e] * f(q[b h s "
                 "!d], k[b h t !d], l[b h s]) -> [b h t e]",
     .choose = choose_attention_backward,
     .note = "keys may be sharded: the log of the sum is given"},
    {.name = "attention_backward_causal", .variant = Causal,
     .equation = "g[b h !s e] * v[b h !t e] * f(q[b h !s !d], k[b h !t !d], l[b h !s]) + g[b h "
                 "!s e] * o[b h !s e] * f(q[b h !s !d], k[b h !t !d], l[b h !s]) -> [b h !s !d];"
                 " g[b h !s e] * v[b h !t e] * f(q[b h !s !d], k[b h !t !d], l[b h !s]) + g[b h "
                 "!s e] * o[b h !s e] * f(q[b h !s !d], k[b h !t !d], l[b h !s]) -> [b h !t !d];"
                 " g[b h !s e] * f(q[b h !s !d], k[b h !t !d], l[b h !s]) -> [b h !t e]"},
    {.name = "attention_backward_grouped",
     .equation = "g[b (j r) s e] * v[b j t e] * f(q[b (j r) s !d], k[b j t !d], l[b (j r) s]) "
                 "+ g[b (j r) s e] * o[b (j r) s e] * f(q[b (j r) s !d], k[b j t !d], l[b (j "
                 "r) s]) -> [b (j r) s !d]; g[b (j r) s e] * v[b j t e] * f(q[b (j r) s !d], "
                 "k[b j t !d], l[b (j r) s]) + g[b (j r) s e] * o[b (j r) s e] * f(q[b (j r) s"
                 " !d], k[b j t !d], l[b (j r) s]) -> [b j t !d]; g[b (j r) s e] * f(q[b (j r)"
                 " s !d], k[b j t !d], l[b (j r) s]) -> [b j t e]"},
    {.name = "attention_backward_grouped_causal", .variant = Causal,
     .equation = "g[b (j r) !s e] * v[b j !t e] * f(q[b (j r) !s !d], k[b j !t !d], l[b (j r) "
                 "!s]) + g[b (j r) !s e] * o[b (j r) !s e] * f(q[b (j r) !s !d], k[b j !t !d],"
                 " l[b (j r) !s]) -> [b (j r) !s !d]; g[b (j r) !s e] * v[b j !t e] * f(q[b (j"
                 " r) !s !d], k[b j !t !d], l[b (j r) !s]) + g[b (j r) !s e] * o[b (j r) !s e]"
                 " * f(q[b (j r) !s !d], k[b j !t !d], l[b (j r) !s]) -> [b j !t !d]; g[b (j "
                 "r) !s e] * f(q[b (j r) !s !d], k[b j !t !d], l[b (j r) !s]) -> [b j !t e]"},
    {.name = "rope",
     .equation = "x[... s h !d] * c[s !d] + x[... s h !d] * n[s !d] -> [... s h !d]",
     .own_dims = OpDef::OwnDims::Proportional, .note = "linear in x and jointly in the tables"},
};

} // namespace

llvm::ArrayRef<OpDef> attention_ops() { return kAttention; }

} // namespace spmd::rules
