// Losses: a mean over samples as written; attribute `reduction` drops the division or keeps the
// samples.
#include "rules/factors/factors.h"
#include "rules/ops/choices.h"
#include "rules/ops/families.h"

namespace spmd::rules {

namespace {

using enum Variant;

constexpr char kPointwiseLoss[] = "f(a[...], b[...]) /|...| -> []";

constexpr OpDef kLosses[] = {
    {.name = "mse_loss", .equation = kPointwiseLoss, .reduces = true},
    {.name = "l1_loss", .equation = kPointwiseLoss, .reduces = true},
    {.name = "smooth_l1_loss", .equation = kPointwiseLoss, .reduces = true},
    {.name = "huber_loss", .equation = kPointwiseLoss, .reduces = true},
    {.name = "soft_margin_loss", .equation = kPointwiseLoss, .reduces = true},
    {.name = "kl_div", .equation = kPointwiseLoss, .reduces = true,
     .values = {{{"b", Values::Positive}}}},
    {.name = "poisson_nll_loss", .equation = kPointwiseLoss, .reduces = true,
     .values = {{{"b", Values::Positive}}}},
    {.name = "binary_cross_entropy", .equation = "f(a[...], b[...], w?[...]) /|...| -> []",
     .reduces = true, .values = {{{"a", Values::Unit}, {"b", Values::Unit}}}},
    {.name = "binary_cross_entropy_with_logits",
     .equation = "f(a[...], b[...], w?[...], p?[...]) /|...| -> []", .reduces = true},
    {.name = "mse_loss_backward",
     .equation = "2 * g[] * a[...] /|...| - 2 * g[] * b[...] /|...| -> [...]",
     .factors = loss_backward_factors, .reduces = true, .note = "linear in the difference"},
    {.name = "smooth_l1_loss_backward", .equation = "g[] * f(a[...], b[...]) /|...| -> [...]",
     .factors = loss_backward_factors, .reduces = true},
    {.name = "huber_loss_backward", .equation = "g[] * f(a[...], b[...]) /|...| -> [...]",
     .factors = loss_backward_factors, .reduces = true},
    {.name = "soft_margin_loss_backward", .equation = "g[] * f(a[...], b[...]) /|...| -> [...]",
     .factors = loss_backward_factors, .reduces = true},
    {.name = "binary_cross_entropy_backward",
     .equation = "g[] * f(a[...], b[...], w?[...]) /|...| -> [...]",
     .factors = loss_backward_factors, .reduces = true},
    {.name = "cross_entropy", .variant = FromLogits,
     .equation = "f(z[n !v], @t[n :!v], w?[!v]) /|n| -> []",
     .dtype = DTypeRule::First, .choose = choose_cross_entropy, .reduces = true},
    {.name = "cross_entropy_soft", .variant = SoftTargets,
     .equation = "f(z[n !v], t[n !v], w?[!v]) /|n| -> []",
     .dtype = DTypeRule::First, .reduces = true, .note = "targets are probabilities of classes"},
    {.name = "cross_entropy_counted", .variant = FromLogits,
     .equation = "f(z[!n !v], @t[!n :!v], w?[!v]) -> []",
     .dtype = DTypeRule::First, .note = "a mean over what weights or ignored targets leave"},
    {.name = "linear_cross_entropy", .variant = ComputesLogits,
     .equation = "f(x[n !i], w[!v !i], @t[n :!v]) /|n| -> []",
     .dtype = DTypeRule::First, .reduces = true},
    {.name = "nll_loss",
     .equation = "- z[n !v] * @t[n :!v] * w?[!v] /|n| -> []; @t[n :!v] * @t[n] * w?[!v] -> "
                 "[]",
     .dtype = DTypeRule::First, .choose = choose_nll_loss, .reduces = true,
     .note = "linear in the log-probabilities; then the weight of all targets that count"},
    {.name = "nll_loss_counted",
     .equation = "- z[!n !v] * f(@t[!n :!v], w?[!v]) -> []; @t[!n :!v] * @t[!n] * w?[!v] -> []",
     .dtype = DTypeRule::First, .note = "a mean over what weights or ignored targets leave"},
    {.name = "nll_loss_backward", .variant = OfMean,
     .equation = "- g[n] * @t[n :!v] * w?[!v] * f(k?[]), #z[n !v] -> [n !v]",
     .dtype = DTypeRule::First, .factors = nll_loss_backward_factors,
     .choose = choose_nll_loss_backward},
    {.name = "nll_loss_backward_mean", .variant = OfMean,
     .equation = "- g[n] * @t[n :!v] * w?[!v] /|n|, #k?[], #z[n !v] -> [n !v]",
     .dtype = DTypeRule::First, .factors = nll_loss_backward_factors,
     .note = "each rank divides by the number of its own targets"},
    {.name = "nll_loss_backward_summed", .variant = OfSum,
     .equation = "- g[n] * @t[n :!v] * w?[!v], #k?[], #z[n !v] -> [n !v]",
     .dtype = DTypeRule::First, .factors = nll_loss_backward_factors,
     .note = "the weight of all targets counts in a mean alone"},
    {.name = "cross_entropy_backward", .variant = FromLogits,
     .equation = "g[] * f(z[n !v], @t[n :!v]) /|n| -> [n !v]",
     .dtype = DTypeRule::First, .factors = class_loss_backward_factors, .reduces = true},
    {.name = "margin_losses", .equation = "f(a[n !d], b?[n !d], y?[n], w?) /|n| -> []",
     .reduces = true},
    {.name = "multi_margin_loss_backward",
     .equation = "g[] * f(z[n !v], @t[n], w?[!v]) /|n| -> [n !v]",
     .dtype = DTypeRule::First, .factors = class_loss_backward_factors, .reduces = true},
    {.name = "multilabel_margin_loss",
     .equation = "f(z[... !v], @t[... !v]) /|...| -> []; f(@t[... !v]), #z -> [... !v]",
     .dtype = DTypeRule::First, .later_dtype = DTypeRule::First, .reduces = true,
     .note = "and which of the classes are targets"},
    {.name = "multilabel_margin_loss_backward",
     .equation = "g[] * f(z[... !v], @t[... !v], m[... !v]) /|...| -> [... !v]",
     .dtype = DTypeRule::First, .factors = multilabel_loss_backward_factors, .reduces = true},
    {.name = "ctc_losses",
     .equation = "f(x[!t n !c], @y, @l?[n], @m?[n]) -> [n]; f(x[!t n !c], @y, @l?[n], @m?[n]) -> "
                 "[n !t !s]", .dtype = DTypeRule::First, .factors = ctc_factors,
     .note = "one for each sequence, and the logarithms of what its paths add up to"},
    {.name = "ctc_losses_backward",
     .equation = "g[n] * f(x[!t n !c], @y, @l?[n], @m?[n], u[n], a[n !t !s]) -> [!t n !c]",
     .dtype = DTypeRule::First, .factors = ctc_backward_factors},
};

} // namespace

llvm::ArrayRef<OpDef> loss_ops() { return kLosses; }

} // namespace spmd::rules
