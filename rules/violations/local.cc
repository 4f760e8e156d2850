// The manual pages of the findings of local.h.
#include "rules/violations/local.h"

namespace spmd::rules {

constinit const DiagnosticInfo PartialIntoNonlinear::info = {
    .name = "partial-into-nonlinear",
    .holds_for_inferred_cuts = true,
    .message = "`{op}` is not linear in {operand}, which is partial on {axes}: it would act on "
               "the addend of each rank, not on their sum",
    .explain = R"(
A value that is partial still awaits its sum: each rank holds one addend. A nonlinear function
of each addend, summed later, is not the function of the sum, so every rank goes on with a wrong
number, and no reduction downstream can mend it. Conditions and indices count as nonlinear, too.
Usually a reduction is missing behind the op that contracted a sharded dimension: a row-parallel
linear layer without its all_reduce or reduce_scatter.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%h = input f32[8, 16] P
%y = gelu %h
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%h = input f32[8, 16] P
%r = all_reduce %h { axis = tp, src = P, dst = R }
%y = gelu %r
)",
};

constinit const DiagnosticInfo PartialTimesPartial::info = {
    .name = "partial-times-partial",
    .holds_for_inferred_cuts = true,
    .message = "`{op}` multiplies {operand} by {other}, both partial on {axes}: products of "
               "addends do not sum to the product of the sums",
    .explain = R"(
Both factors are sums that are still pending: rank by rank the op multiplies one addend by
another. The product of two sums has a term for every pair of ranks, but only the pairs on one
rank are ever formed, so the sum of the results is not the product that was meant. One of the
two must be complete first; the result then stays partial and needs one reduction less. Squaring
a gradient before it was reduced is the usual case.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%a = input f32[8] P
%b = input f32[8] P
%y = mul %a, %b
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%a = input f32[8] P
%b = input f32[8] P
%r = all_reduce %b { axis = tp, src = P, dst = R }
%y = mul %a, %r
)",
};

constinit const DiagnosticInfo PartialPlusReplicate::info = {
    .name = "partial-plus-replicate",
    .holds_for_inferred_cuts = true,
    .message =
        "`{op}` adds {addend}, the same on all ranks of {axes}, to a pending sum ({operand}): it "
        "would be added once per rank",
    .explain = R"(
A term that is the same on every rank is added to addends of a pending sum. When the sum is
taken at last, that term is counted once per rank: n times in all. The gradient of the term is
wrong by the same factor. Usually a bias or a residual is added between a row-parallel linear
layer and its reduction. Either reduce first and add afterwards, or convert the term from
replicate to partial, so that one rank adds it and the others add zeros.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] P
%b = param f32[16] R
%y = add %x, %b
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] P
%b = param f32[16] R
%c = convert %b { axis = tp, src = R, dst = P }
%y = add %x, %c
)",
};

constinit const DiagnosticInfo PartialWithVarying::info = {
    .name = "partial-with-varying",
    .holds_for_inferred_cuts = true,
    .message = "`{op}` combines {operand}, partial on {axes}, with {other}, which differs between "
               "these ranks: the results would not sum to anything",
    .explain = R"(
One operand is an addend of a pending sum, the other is a list of unrelated values, one per
rank. A product pairs each addend with a different factor, so the sum of the products is no
product of the sum; a sum mixes a share of one value with a whole one. Neither result denotes
anything. If the varying operand is itself a set of addends, say so with a reinterpret from V to
P; otherwise reduce the partial one before the two meet.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] P
%v = input f32[8] V
%y = mul %x, %v
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] P
%v = input f32[8] V
%r = all_reduce %x { axis = tp, src = P, dst = R }
%y = mul %r, %v
)",
};

constinit const DiagnosticInfo InvariantMixed::info = {
    .name = "invariant-mixed",
    .holds_for_inferred_cuts = true,
    .message = "`{op}` mixes invariant {operand} with {kind} {other} on {axes}: {loss}",
    .explain = R"(
An invariant value counts once: its gradient must be the same on all ranks. The other operand
belongs to each rank on its own, so the gradient that flows back to the invariant one is only
the share of that rank, and the sum over the ranks is missing. Training then goes on with a
gradient that is too small and differs between ranks. A convert from I to R keeps the value as
it is and sums the gradient in backward: it is the input side of a column-parallel layer.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] I
%w = param f32[16, 8] V
%y = matmul %x, %w
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] I
%w = param f32[16, 8] V
%r = convert %x { axis = tp, src = I, dst = R }
%y = matmul %r, %w
)",
};

constinit const DiagnosticInfo PartialCombiner::info = {
    .name = "partial-combiner",
    .message = "`{op}` is applied to {operand} before its pending {combiner} over {axes} is taken",
    .explain = R"(
The operand awaits a maximum, a minimum or another combiner that is no sum. Nothing but the
collective that finishes it may touch such a value: an addition or a scaling of the
contributions does not pass through a maximum in general, and the gradient of the pending form
is not defined. Usually the reduction with the same combiner was meant to come directly behind
the op that made the contributions, as in a softmax over a sharded dimension.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%m = input f32[8] P(max) { requires_grad = false }
%y = neg %m
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%m = input f32[8] P(max) { requires_grad = false }
%r = all_reduce %m { axis = tp, op = max, src = P(max), dst = R }
%y = neg %r
)",
};

constinit const DiagnosticInfo NeedlessPartial::info = {
    .name = "needless-partial",
    .message = "`{op}` states partial on {axes}, but its result is {kind} there",
    .explain = R"(
The op says that its result is a pending sum, but it sums over nothing that differs between the
ranks: its operands are the same on all of them, or partial already. Taking the result as
partial would multiply it by the number of ranks when the sum is taken. The statement is right
only where each rank contracts its own part. Usually it was left behind when an operand stopped
being sharded, or it names the wrong axis.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] R
%w = param f32[16, 4] R
%y = matmul %x, %w { partial = tp }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] R
%w = param f32[16, 4] R
%y = matmul %x, %w
)",
};

constinit const DiagnosticInfo RandomDiverges::info = {
    .name = "random-diverges",
    .message = "`{op}` draws other random numbers on each rank of {axes}, where {operand} is "
               "{kind}",
    .explain = R"(
Each rank draws its own random numbers, but the data they meet is meant to be equal on the
ranks, or to be addends of one sum. After a dropout with different masks, values that were
copies of one another are not, and everything that is claimed about them is wrong from there on;
masks on addends drop parts of a sum instead of entries. Use a generator that is equal along the
axis: replicated data wants R, sharded data wants V.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] R
%r = rng V
%y = dropout %x, %r { p = 0.1 }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] R
%r = rng R
%y = dropout %x, %r { p = 0.1 }
)",
};

constinit const DiagnosticInfo ShardedRandomRepeats::info = {
    .name = "sharded-random-repeats",
    .message = "`{op}` draws the same random numbers on all ranks of {axes}, where {operand} "
               "differs",
    .explain = R"(
The ranks hold different parts of a tensor, but all of them draw the same random numbers. The
mask of one part is then repeated on every other part: the draw over the whole tensor is not
independent, and its statistics depend on how many ranks there are. Nothing crashes and losses
look plausible, which is why this stays unseen for long. Fork the state of the generator along
the axis, so that each rank draws for its own part.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] V
%r = rng R
%y = dropout %x, %r { p = 0.1 }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] V
%r = rng R
%s = fork %r { axis = tp }
%y = dropout %x, %s { p = 0.1 }
)",
};

} // namespace spmd::rules
