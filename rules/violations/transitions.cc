// The manual pages of the findings of transitions.h.
#include "rules/violations/transitions.h"

namespace spmd::rules {

constinit const DiagnosticInfo WrongSource::info = {
    .name = "wrong-source",
    .holds_for_inferred_cuts = true,
    .message = "`{op}` takes {operand} as {expected} on {axes}; it is {found}",
    .explain = R"(
A collective or conversion states what its operand is (`src`), since its backward depends on it,
and the operand is something else. The statement is never overridden by what was found: what the
program computes must not depend on the types. A partial value taken for replicate loses its sum;
a varying one taken for partial gives a sum of unrelated values. Either the word `src` is wrong,
or an op upstream made the operand of another kind than its author had in mind.

In a recorded step: what one rank hands out (`broadcast`) of a gradient that is pending leaves out
the batches of all other ranks. Sum it, or sum it to that rank first.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] V
%y = all_reduce %x { axis = tp, src = P, dst = R }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] V
%p = reinterpret %x { axis = tp, src = V, dst = P }
%y = all_reduce %p { axis = tp, src = P, dst = R }
)",
};

constinit const DiagnosticInfo ReduceOfReplicated::info = {
    .name = "reduce-of-replicated",
    .holds_for_inferred_cuts = true,
    .message = "`{op}` over {axes} of a value equal on all ranks {effect}",
    .explain = R"(
All ranks along the axis hold the same value, and a reduction adds these copies up: the result
is the value times the number of ranks. A loss or a gradient is scaled by it, and the factor
changes whenever the job is resized. Usually the reduction was needed once, before an op
upstream began to reduce by itself, or it runs over an axis too many. An average hides the
factor, but still pays for the communication.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] R
%s = all_reduce %x { axis = tp, src = P, dst = R }
%y = gelu %s
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] R
%y = gelu %x
)",
};

constinit const DiagnosticInfo NoTransition::info = {
    .name = "no-transition",
    .holds_for_inferred_cuts = true,
    .message = "`{op}` over {axes} cannot go from {src} to {dst}",
    .explain = R"(
No collective or conversion of this name goes from the one kind to the other. Each name stands for
one thing: convert keeps the value and never communicates, so it cannot complete a pending sum;
reinterpret keeps the bytes; a collective has fixed ends. Usually another name was meant (out of
partial there is all_reduce or reduce_scatter), or two steps are needed. `spmdlint explain NAME`
lists what a collective or conversion can do.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] P
%y = convert %x { axis = tp, src = P, dst = R }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] P
%y = all_reduce %x { axis = tp, src = P, dst = R }
)",
};

constinit const DiagnosticInfo ReducedWithoutOwner::info = {
    .name = "reduced-without-owner",
    .message = "`{op}` takes {operand} as reduced on {axes}, but no op upstream sums its gradient",
    .explain = R"(
Reduced is replicate with a promise: some op upstream sums the gradient, so nothing downstream has
to. Here a plain replicate value is taken as reduced, and no such op exists. The gradient would
stay a list of shares, and the parameter behind it would be updated with the share of one rank.
Make the value reduced where it becomes replicate: by an all_gather or all_reduce with that
result, or by a convert from I.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] R
%y = convert %x { axis = tp, src = R, dst = Reduced }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] I
%y = convert %x { axis = tp, src = I, dst = Reduced }
)",
};

constinit const DiagnosticInfo ExpertTransition::info = {
    .name = "expert-transition",
    .message = "`{op}` over {axes} from {src} to {dst} changes what the value or its gradient "
               "means",
    .explain = R"(
The types before and after fit, but the op changes what the value or its gradient means:
reinterpreting replicate as partial multiplies by the number of ranks, and a step from R to I
drops all shares of the gradient but one. It is wanted now and then, in code that does its own
scaling, and is a mistake nearly everywhere else. Mark the op with expert = true if that is what
it is for; otherwise convert, which keeps the value, is the usual intent.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] R
%y = reinterpret %x { axis = tp, src = R, dst = P }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] R
%y = convert %x { axis = tp, src = R, dst = P }
)",
};

constinit const DiagnosticInfo ReductionMismatch::info = {
    .name = "reduction-mismatch",
    .holds_for_inferred_cuts = true,
    .message = "`{op}` reduces by {asked} over {axes}; {operand} is a pending {combiner}",
    .explain = R"(
The operand awaits one combiner and the collective applies another: contributions to a maximum
are added up, or addends are compared. The result is a number of the right shape and of no
meaning. Usually the op that made the contributions was changed and its reduction was not, or
the default of the collective, a sum, was never replaced. An average is a sum with a known scale
and fits a pending sum.

In a recorded step the greatest addend of a gradient is a finding where parameters are made of it.
As a flag that only decides something, such as whether a step is left out, it is none.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] P(max) { requires_grad = false }
%y = all_reduce %x { axis = tp, op = sum, src = P, dst = R }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] P(max) { requires_grad = false }
%y = all_reduce %x { axis = tp, op = max, src = P(max), dst = R }
)",
};

constinit const DiagnosticInfo NonSumGradient::info = {
    .name = "non-sum-gradient",
    .message = "`{op}` by {combiner} over {axes} has no gradient, and {operand} needs one",
    .explain = R"(
A reduction by maximum, minimum, product or a logical operation has no gradient here, and its
operand needs one. A framework that differentiates it anyway sends the gradient to whatever rank
it likes, or drops it. The usual place is the maximum in a numerically stable softmax: it cancels
out of the result, so its gradient is zero and may be cut with a detach in front of the call.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = param f32[8] V
%y = all_reduce %x { axis = tp, op = max, src = V, dst = R }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = param f32[8] V
%d = detach %x
%y = all_reduce %d { axis = tp, op = max, src = V, dst = R }
)",
};

constinit const DiagnosticInfo Indivisible::info = {
    .name = "indivisible",
    .message = "`{op}` cuts dimension {dim} of extent {extent} into {divisor} equal pieces for "
               "{axes}, which does not divide",
    .explain = R"(
A dimension is to be cut into one equal piece per rank, and its extent is not a multiple of that
number, or is an expression that is not known to be one. (Of a tensor that is one on all ranks a
number that is no multiple is cut by the rule for uneven blocks.) The ranks would hold pieces of
different size, and a collective that expects equal ones reads beyond its buffers or hangs. Pad
the dimension, or give the sizes of the pieces with splits; for a symbol, state what it is a
multiple of.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[6] P
%y = reduce_scatter %x { axis = tp, src = P, dst = S(0) }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] P
%y = reduce_scatter %x { axis = tp, src = P, dst = S(0) }
)",
};

constinit const DiagnosticInfo AttributeMismatch::info = {
    .name = "attribute-mismatch",
    .message = "in `{op}`, attribute `{attribute}` must be {expected}",
    .explain = R"(
The op cannot be typed without this attribute, or it stands there in a form that it does not
have, out of range, or under a name that the op does not know, where a default would silently
take its place. The results are unknown, and what follows from them is not checked. A collective
needs the axis that it runs over, or a group; its words are kinds, one for all axes or a list
with one per axis; its combiner is one of sum, avg, max, min, prod, and, or, xor. Dimensions and
places count on one rank. What recorders pass on beside, such as a memory format, is left alone.
`spmdlint explain OP` lists the attributes of an op.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] P
%y = all_reduce %x { axis = tp, op = median, src = P, dst = R }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] P
%y = all_reduce %x { axis = tp, op = sum, src = P, dst = R }
)",
};

} // namespace spmd::rules
