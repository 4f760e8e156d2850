// The manual pages of the findings of rings.h.
#include "rules/violations/steps/rings.h"

namespace spmd::rules {

constinit const DiagnosticInfo MixedBlocks::info = {
    .name = "mixed-blocks",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .needs_no_types = true,
    .collectives_only_silence = true,
    .message = "`{op}` joins blocks of different ranks of {axes}: {operand} is of the block from "
               "{found rank} back, and what it meets of that from {other} back",
    .explain = R"(
In ring attention, and wherever else blocks go round, each rank computes with the block that has
come to it: after k turns that of the rank k before it. All that belongs to the columns of this
block has to come from the same rank: values with their keys, a mask with the scores that it hides,
the gradient of a block with the addends to it from other ranks. Here they are of two ranks: one of
them was not sent on, was sent the other way round, or its owner is counted wrongly; what has come
after k turns to the next rank each is of `(rank - k) % ranks`.

The same holds of data that a rank sends away and makes nothing of itself: the rows that have come
in their place do not belong to its labels. And a gather puts the block of each rank in the place of
that rank, so that blocks which were sent on before it stand in another order than all else.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { x = 4 }
%q = input f32[8@x, 16]
%k = input f32[16, 8@x]
%v = input f32[8@x, 16]
%next = ppermute %k { axis = x, perm = [[0, 1], [1, 2], [2, 3], [3, 0]] }
%scores = matmul %q, %next
%weights = sigmoid %scores
%sum = matmul %weights, %v
)",
    .right = R"(
trace { mode = gradual }
mesh m { x = 4 }
%q = input f32[8@x, 16]
%k = input f32[16, 8@x]
%v = input f32[8@x, 16]
%next = ppermute %k { axis = x, perm = [[0, 1], [1, 2], [2, 3], [3, 0]] }
%with = ppermute %v { axis = x, perm = [[0, 1], [1, 2], [2, 3], [3, 0]] }
%scores = matmul %q, %next
%weights = sigmoid %scores
%sum = matmul %weights, %with
)",
};

constinit const DiagnosticInfo MissingBlock::info = {
    .name = "missing-block",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .needs_no_types = true,
    .collectives_only_silence = true,
    .message = "{operand} is made of blocks that go round {axes}, and `{op}` takes it as whole, "
               "but that from {missing rank} back is not among them",
    .explain = R"(
Blocks go round, and each rank adds up, or collects, what it computes with those that come to it.
After as many turns as there are ranks but one it has seen all of them. Here what it has is used as
a whole although the block of one rank is not in it: the loop ends a turn too early, or begins one
too late. On n ranks there are n - 1 messages and n blocks.

A window of attention that leaves out one rank's block on purpose is written in the same way:
suppress the finding there. Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { x = 3 }
%q = input f32[8@x, 16]
%k = input f32[16, 8@x]
%a = matmul %q, %k
%b = sigmoid %a
%c = sum %b { dim = 1 }
%next = ppermute %k { axis = x, perm = [[0, 1], [1, 2], [2, 0]] }
%d = matmul %q, %next
%e = sigmoid %d
%f = sum %e { dim = 1 }
%g = add %c, %f
%h = log %g
)",
    .right = R"(
trace { mode = gradual }
mesh m { x = 3 }
%q = input f32[8@x, 16]
%k = input f32[16, 8@x]
%a = matmul %q, %k
%b = sigmoid %a
%c = sum %b { dim = 1 }
%next = ppermute %k { axis = x, perm = [[0, 1], [1, 2], [2, 0]] }
%d = matmul %q, %next
%e = sigmoid %d
%f = sum %e { dim = 1 }
%g = add %c, %f
%last = ppermute %next { axis = x, perm = [[0, 1], [1, 2], [2, 0]] }
%h = matmul %q, %last
%i = sigmoid %h
%j = sum %i { dim = 1 }
%l = add %g, %j
%n = log %l
)",
};

constinit const DiagnosticInfo RepeatedBlock::info = {
    .name = "repeated-block",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .needs_no_types = true,
    .collectives_only_silence = true,
    .message = "`{op}` adds what is computed with the block from {twice rank} back on {axes} "
               "twice; the second time it is {operand}",
    .explain = R"(
Blocks go round, and each rank adds up what it computes with those that come to it. After as many
turns as there are ranks but one it has seen all of them; the next message brings its own one back.
Here the block of one rank is added a second time: the loop makes a turn too many, or what has come
was not sent on.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { x = 2 }
%q = input f32[8@x, 16]
%k = input f32[16, 8@x]
%a = matmul %q, %k
%b = sigmoid %a
%c = sum %b { dim = 1 }
%next = ppermute %k { axis = x, perm = [[0, 1], [1, 0]] }
%d = matmul %q, %k
%e = sigmoid %d
%f = sum %e { dim = 1 }
%g = add %c, %f
)",
    .right = R"(
trace { mode = gradual }
mesh m { x = 2 }
%q = input f32[8@x, 16]
%k = input f32[16, 8@x]
%a = matmul %q, %k
%b = sigmoid %a
%c = sum %b { dim = 1 }
%next = ppermute %k { axis = x, perm = [[0, 1], [1, 0]] }
%d = matmul %q, %next
%e = sigmoid %d
%f = sum %e { dim = 1 }
%g = add %c, %f
)",
};

constinit const DiagnosticInfo UnlikeScales::info = {
    .name = "unlike-scales",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .needs_no_types = true,
    .collectives_only_silence = true,
    .message = "{operand} is added to a sum over other blocks that go round {axes}, and they are "
               "not divided by the same exponential",
    .explain = R"(
A softmax over blocks that come one after another divides each of them by e to the power of the
greatest element so far, or of the logarithm of the sum so far. When a block brings a greater one,
what was added up before has to be multiplied by the exponential of the old one minus the new one,
numerator and denominator alike. Here two addends of one sum are divided by different numbers: one
of them was not rescaled, or by the wrong factor.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { x = 4 }
%q = input f32[8@x, 16]
%k = input f32[16, 8@x]
%a = matmul %q, %k
%b = amax %a { dim = 1, keepdim = true }
%c = sub %a, %b
%d = exp %c
%e = sum %d { dim = 1, keepdim = true }
%next = ppermute %k { axis = x, perm = [[0, 1], [1, 2], [2, 3], [3, 0]] }
%f = matmul %q, %next
%g = amax %f { dim = 1, keepdim = true }
%h = maximum %b, %g
%i = sub %f, %h
%j = exp %i
%l = sum %j { dim = 1, keepdim = true }
%n = add %e, %l
)",
    .right = R"(
trace { mode = gradual }
mesh m { x = 4 }
%q = input f32[8@x, 16]
%k = input f32[16, 8@x]
%a = matmul %q, %k
%b = amax %a { dim = 1, keepdim = true }
%c = sub %a, %b
%d = exp %c
%e = sum %d { dim = 1, keepdim = true }
%next = ppermute %k { axis = x, perm = [[0, 1], [1, 2], [2, 3], [3, 0]] }
%f = matmul %q, %next
%g = amax %f { dim = 1, keepdim = true }
%h = maximum %b, %g
%i = sub %f, %h
%j = exp %i
%l = sum %j { dim = 1, keepdim = true }
%o = sub %b, %h
%p = exp %o
%s = mul %e, %p
%n = add %s, %l
)",
};

constinit const DiagnosticInfo OwnMaximum::info = {
    .name = "own-maximum",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .needs_no_types = true,
    .collectives_only_silence = true,
    .message = "`{op}` adds up sums of exponentials over {axes}, and each rank has subtracted the "
               "greatest of its own exponents: these sums are not of one scale",
    .explain = R"(
An axis cuts the dimension of a softmax, such as the vocabulary of a cross entropy or the keys of an
attention. Each rank subtracts the greatest element of its own block before it takes exponentials,
which divides its sum by a number of its own. Sums that are divided by different numbers add up to
nothing. Take the greatest element of all ranks first (`all_reduce` with `max`, `pmax`), or multiply
each sum by the exponential of the own greatest element minus that of all ranks.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { tp = 4 }
%logits = input f32[6, 8@tp]
%top = amax %logits { dim = 1, keepdim = true }
%shifted = sub %logits, %top
%powers = exp %shifted
%sum = sum %powers { dim = 1, keepdim = true }
%total = all_reduce %sum { axis = tp, op = sum }
)",
    .right = R"(
trace { mode = gradual }
mesh m { tp = 4 }
%logits = input f32[6, 8@tp]
%top = amax %logits { dim = 1, keepdim = true }
%greatest = all_reduce %top { axis = tp, op = max }
%shifted = sub %logits, %greatest
%powers = exp %shifted
%sum = sum %powers { dim = 1, keepdim = true }
%total = all_reduce %sum { axis = tp, op = sum }
)",
};

constinit const DiagnosticInfo GradientOfOtherBlock::info = {
    .name = "gradient-of-other-block",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .needs_no_types = true,
    .message = "the gradient of {value} is that of the block from {found rank} back on {axes}, "
               "and not of that from {wanted} back",
    .explain = R"(
The gradient of a block that goes round is added up on its way: each rank adds its part and sends
it on. It has to come home, or to the rank that has the block: what was sent on k times in the
forward is sent back as often, or on until it has gone round. Here it ends one or more ranks too
early or too late, so each rank takes the gradient of another one's block. In a backward by hand
that rotates `dk` and `dv` with `k` and `v`, the last message is theirs: n of them on n ranks.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual, phase = joint }
mesh m { x = 4 }
%k = input f32[8@x, 16]
%next = ppermute %k { axis = x, perm = [[0, 1], [1, 2], [2, 3], [3, 0]] }
%g grad_of %next = mul %next, 2.0 { phase = bwd }
%h grad_of %k = ppermute %g { axis = x, phase = bwd, perm = [[0, 1], [1, 2], [2, 3], [3, 0]] }
output grad %h of %k
)",
    .right = R"(
trace { mode = gradual, phase = joint }
mesh m { x = 4 }
%k = input f32[8@x, 16]
%next = ppermute %k { axis = x, perm = [[0, 1], [1, 2], [2, 3], [3, 0]] }
%g grad_of %next = mul %next, 2.0 { phase = bwd }
%h grad_of %k = ppermute %g { axis = x, phase = bwd, perm = [[0, 3], [1, 0], [2, 1], [3, 2]] }
output grad %h of %k
)",
};

} // namespace spmd::rules
