// Optimizer steps and loss scaling. Lists of parameters are zipped.
#include "rules/ops/families.h"

namespace spmd::rules {

namespace {

constexpr OpDef kOptimizer[] = {
    {.name = "adam_step",
     .equation = "f(p[...], g[...], m[...], v[...], n?[]) -> [...]; m[...] + g[...] -> [...]; "
                 "f(v[...], g[...]) -> [...]", .each = true,
     .values = {{{"v", Values::Positive}, {"n", Values::Positive}}},
     .note = "the moments are linear in m and g"},
    {.name = "fused_adam",
     .equation = "f(p[...], g[...], m[...], v[...], n?[]) -> [...]; g[...] -> [...]; m[...] + "
                 "g[...] -> [...]; f(v[...], g[...]) -> [...]", .each = true,
     .values = {{{"v", Values::Positive}, {"n", Values::Positive}}},
     .note = "as adam_step; the gradient is written too"},
    {.name = "sgd_step", .equation = "p[...] + g[...] -> [...]; m?[...] + g[...] -> [...]",
     .each = true},
    {.name = "adagrad_step",
     .equation = "f(p[...], g[...], v[...]) -> [...]; f(v[...], g[...]) -> [...]", .each = true,
     .values = {{{"v", Values::Positive}}}},
    {.name = "unscale_check", .equation = "g[...] * f(s[]) -> [...]; f(g[!...]) -> []",
     .each = true,
     .values = {{{"s", Values::Positive}}}, .note = "the flag needs every gradient whole"},
    {.name = "update_scale", .equation = "s[] * f(n[], k[]) -> []; f(n[], k[]) -> []",
     .values = {{{"s", Values::Positive}}}},
};

} // namespace

llvm::ArrayRef<OpDef> optimizer_ops() { return kOptimizer; }

} // namespace spmd::rules
