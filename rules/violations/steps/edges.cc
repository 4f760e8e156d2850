// The manual pages of the findings of edges.h.
#include "rules/violations/steps/edges.h"

namespace spmd::rules {

constinit const DiagnosticInfo MisplacedEdge::info = {
    .name = "misplaced-edge",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .collectives_only_silence = true,
    .message =
        "{operand} is the edge of a neighbour's block along {axes}, and `{op}` puts it where "
        "that block does not adjoin the rank's own",
    .explain = R"(
A stencil reads rows of the blocks on either side. What the rank before sends is the last rows of
its block, and it belongs in front of the rank's own; what the rank after sends is the first rows
of its block, and it belongs behind. Here the two are exchanged, or the wrong edge was sent. A
permutation `[i, i + 1]` brings each rank something of the rank before.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { x = 4 }
%u = input f32[8@x]
%last = jax.slice %u { start_indices = [7], limit_indices = [8] }
%before = ppermute %last { axis = x, perm = [[0, 1], [1, 2], [2, 3]] }
%wide = jax.concatenate %u, %before { dimension = 0 }
)",
    .right = R"(
trace { mode = gradual }
mesh m { x = 4 }
%u = input f32[8@x]
%last = jax.slice %u { start_indices = [7], limit_indices = [8] }
%before = ppermute %last { axis = x, perm = [[0, 1], [1, 2], [2, 3]] }
%wide = jax.concatenate %before, %u { dimension = 0 }
)",
};

constinit const DiagnosticInfo HalfOpenRing::info = {
    .name = "half-open-ring",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .collectives_only_silence = true,
    .message = "nobody sends {operand} to the rank at one end of {axes}, and on the other side of "
               "the block the first rank and the last one are neighbours",
    .explain = R"(
Edges of blocks go to both neighbours. One permutation is a ring, so that the first rank and the
last one are neighbours; the other one ends there, and the rank at its end gets zeros. The boundary
is then periodic on one side and open on the other. Write both permutations as rings, or neither.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { x = 4 }
%u = input f32[8@x]
%last = jax.slice %u { start_indices = [7], limit_indices = [8] }
%first = jax.slice %u { start_indices = [0], limit_indices = [1] }
%before = ppermute %last { axis = x, perm = [[0, 1], [1, 2], [2, 3]] }
%after = ppermute %first { axis = x, perm = [[1, 0], [2, 1], [3, 2], [0, 3]] }
%wide = jax.concatenate %before, %u, %after { dimension = 0 }
)",
    .right = R"(
trace { mode = gradual }
mesh m { x = 4 }
%u = input f32[8@x]
%last = jax.slice %u { start_indices = [7], limit_indices = [8] }
%first = jax.slice %u { start_indices = [0], limit_indices = [1] }
%before = ppermute %last { axis = x, perm = [[0, 1], [1, 2], [2, 3], [3, 0]] }
%after = ppermute %first { axis = x, perm = [[1, 0], [2, 1], [3, 2], [0, 3]] }
%wide = jax.concatenate %before, %u, %after { dimension = 0 }
)",
};

constinit const DiagnosticInfo EdgeOfOtherAxis::info = {
    .name = "edge-of-other-axis",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .collectives_only_silence = true,
    .message = "{operand} was sent along {axes}, and `{op}` puts it beside a block of a dimension "
               "that another axis cuts",
    .explain = R"(
A stencil reads rows of the blocks on either side, which the neighbours along the axis that cuts the
dimension have. Here an edge of a dimension is sent along an axis that cuts another one: what comes
is an edge of other columns, or of other rows, than those beside which it is put.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { y = 4, x = 4 }
%u = input f32[8@y, 8@x]
%last = jax.slice %u { start_indices = [0, 7], limit_indices = [8, 8] }
%before = ppermute %last { axis = y, perm = [[0, 1], [1, 2], [2, 3]] }
%wide = jax.concatenate %before, %u { dimension = 1 }
)",
    .right = R"(
trace { mode = gradual }
mesh m { y = 4, x = 4 }
%u = input f32[8@y, 8@x]
%last = jax.slice %u { start_indices = [0, 7], limit_indices = [8, 8] }
%before = ppermute %last { axis = x, perm = [[0, 1], [1, 2], [2, 3]] }
%wide = jax.concatenate %before, %u { dimension = 1 }
)",
};

constinit const DiagnosticInfo MissingEdge::info = {
    .name = "missing-edge",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .collectives_only_silence = true,
    .message = "`{op}` extends {operand} along a dimension that {axes} cuts, with rows that no "
               "neighbour has sent",
    .explain = R"(
On one device a dimension ends in two places only. There a stencil or a convolution gets rows of its
own, those of the other end, or zeros, and labels that are shifted by one get a number that says that
there is none. Of a dimension that an axis cuts each rank has a block, and the same program does this
at the border of every block, where the next row is that of a neighbour. Shift labels before they are
cut; send the edges of blocks to the neighbours (`ppermute`, `send` and `recv`), and fill up at the
two ends of the axis alone.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { x = 4 }
%u = input f32[8@x]
%last = jax.slice %u { start_indices = [7], limit_indices = [8] }
%first = jax.slice %u { start_indices = [0], limit_indices = [1] }
%wide = jax.concatenate %last, %u, %first { dimension = 0 }
)",
    .right = R"(
trace { mode = gradual }
mesh m { x = 4 }
%u = input f32[8@x]
%last = jax.slice %u { start_indices = [7], limit_indices = [8] }
%first = jax.slice %u { start_indices = [0], limit_indices = [1] }
%before = ppermute %last { axis = x, perm = [[0, 1], [1, 2], [2, 3], [3, 0]] }
%after = ppermute %first { axis = x, perm = [[1, 0], [2, 1], [3, 2], [0, 3]] }
%wide = jax.concatenate %before, %u, %after { dimension = 0 }
)",
};

constinit const DiagnosticInfo ShiftedBlock::info = {
    .name = "shifted-block",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .collectives_only_silence = true,
    .message = "`{op}` shifts {operand} within the block of each rank of {axes}: what stands at "
               "the border of two blocks does not meet its neighbour",
    .explain = R"(
Rows are put beside the rows behind them: tokens beside those that they are to predict, or the
values of a grid beside the next ones. An axis cuts that dimension, and each rank shifts its own
block. The last row of a block would meet the first one of the next rank, which no one has sent, so
that it is left out, or meets the first row of its own block. Shift before the tensor is cut, or send
the edges of blocks to the neighbours.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { cp = 4 }
%values = input f32[4, 8@cp]
%later = aten.slice.Tensor %values { dim = 1, start = 1 }
%now = aten.slice.Tensor %values { dim = 1, start = 0, end = -1 }
%change = aten.sub.Tensor %later, %now
)",
    .right = R"(
trace { mode = gradual }
mesh m { cp = 4 }
%values = input f32[4, 33] R
%later = aten.slice.Tensor %values { dim = 1, start = 1 }
%now = aten.slice.Tensor %values { dim = 1, start = 0, end = -1 }
%later.own = convert %later { axis = cp, dst = S(1) }
%now.own = convert %now { axis = cp, dst = S(1) }
%change = aten.sub.Tensor %later.own, %now.own
)",
};

constinit const DiagnosticInfo EdgeGradientKept::info = {
    .name = "edge-gradient-kept",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .needs_no_types = true,
    .message = "the gradient of {value} lacks what the neighbours along {axes} have computed of "
               "its edges: they do not send it back",
    .explain = R"(
A rank sends the edge of its block to a neighbour, which computes with it. What the neighbour finds
of the gradient of these rows belongs to the rank that sent them, which has to add it to the
gradient of its own block. Here it does not: the backward of the exchange is missing, or leaves out
one side.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual, phase = joint }
mesh m { x = 4 }
%u = input f32[8@x, 5]
%last = aten.slice.Tensor %u { dim = 0, start = 7, end = 8 }
%before = ppermute %last { axis = x, perm = [[0, 1], [1, 2], [2, 3], [3, 0]] }
%wide = aten.cat.default [%before, %u] { dim = 0 }
%rest = aten.slice.Tensor %wide { dim = 0, start = 0, end = 8 }
%dr grad_of %rest = mul %rest, 2.0 { phase = bwd }
%dw grad_of %wide = aten.slice_backward.default %dr { input_sizes = [9, 5], dim = 0, start = 0, end = 8, step = 1, bwd_of = %rest, phase = bwd }
%du grad_of %u = aten.slice.Tensor %dw { dim = 0, start = 1, end = 9, bwd_of = %wide, phase = bwd }
output grad %du of %u
)",
    .right = R"(
trace { mode = gradual, phase = joint }
mesh m { x = 4 }
%u = input f32[8@x, 5]
%last = aten.slice.Tensor %u { dim = 0, start = 7, end = 8 }
%before = ppermute %last { axis = x, perm = [[0, 1], [1, 2], [2, 3], [3, 0]] }
%wide = aten.cat.default [%before, %u] { dim = 0 }
%rest = aten.slice.Tensor %wide { dim = 0, start = 0, end = 8 }
%dr grad_of %rest = mul %rest, 2.0 { phase = bwd }
%dw grad_of %wide = aten.slice_backward.default %dr { input_sizes = [9, 5], dim = 0, start = 0, end = 8, step = 1, bwd_of = %rest, phase = bwd }
%own = aten.slice.Tensor %dw { dim = 0, start = 1, end = 9, bwd_of = %wide, phase = bwd }
%edge = aten.slice.Tensor %dw { dim = 0, start = 0, end = 1, bwd_of = %wide, phase = bwd }
%back = ppermute %edge { axis = x, perm = [[0, 3], [1, 0], [2, 1], [3, 2]], bwd_of = %before, phase = bwd }
%there = aten.slice_backward.default %back { input_sizes = [8, 5], dim = 0, start = 7, end = 8, step = 1, bwd_of = %last, phase = bwd }
%du grad_of %u = add %own, %there { bwd_of = %wide, phase = bwd }
output grad %du of %u
)",
};

} // namespace spmd::rules
