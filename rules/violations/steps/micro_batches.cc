// The manual page of the finding of micro_batches.h.
#include "rules/violations/steps/micro_batches.h"

namespace spmd::rules {

constinit const DiagnosticInfo UnlikeParts::info = {
    .name = "unlike-parts",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .message = "ranks of {axes} take the {parts} parts of {operand} turn by turn, and part {part} "
               "enters the result in another way than others: {how}",
    .explain = R"(
A pipeline takes a micro-batch in each turn and hands it on from rank to rank. The result has to be
made of all micro-batches in the same way: each once, with its own target, in its own place. The
turns were followed rank by rank, and one of them is not. Either the loop has too few turns, so that
the last micro-batches never arrive; or turns count in which the last rank has no micro-batch yet;
or a target, or a row of the result, belongs to the micro-batch of another turn. What leaves rank
`n - 1` in turn `t` came in in turn `t - (n - 1)`: that is the number of its target, and it is none
before turn `n - 1`.

Only recorded steps without declarations are judged so, where the trace has the turns of a loop one
after the other, and numbers of turns and ranks alone say what a rank takes and what counts.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { pp = 2 }
%xs = input f32[3, 8] R
%rank = jax.axis_index { axis = pp }
%is_first = jax.eq %rank, 0
%is_last = jax.eq %rank, 1
%x0 = jax.slice %xs { start_indices = [0, 0], limit_indices = [1, 8] }
%h0 = jax.select_n %is_first, 0.0, %x0
%y0 = jax.mul %h0, 2.0
%m0 = ppermute %y0 { axis = pp, perm = [[0, 1]] }
%x1 = jax.slice %xs { start_indices = [1, 0], limit_indices = [2, 8] }
%h1 = jax.select_n %is_first, %m0, %x1
%y1 = jax.mul %h1, 2.0
%m1 = ppermute %y1 { axis = pp, perm = [[0, 1]] }
%x2 = jax.slice %xs { start_indices = [2, 0], limit_indices = [3, 8] }
%h2 = jax.select_n %is_first, %m1, %x2
%y2 = jax.mul %h2, 2.0
%all = jax.add %y1, %y2
%own = jax.select_n %is_last, 0.0, %all
%sum = jax.psum %own { axis = pp, dst = R }
output %sum
)",
    .right = R"(
trace { mode = gradual }
mesh m { pp = 2 }
%xs = input f32[3, 8] R
%rank = jax.axis_index { axis = pp }
%is_first = jax.eq %rank, 0
%is_last = jax.eq %rank, 1
%x0 = jax.slice %xs { start_indices = [0, 0], limit_indices = [1, 8] }
%h0 = jax.select_n %is_first, 0.0, %x0
%y0 = jax.mul %h0, 2.0
%m0 = ppermute %y0 { axis = pp, perm = [[0, 1]] }
%x1 = jax.slice %xs { start_indices = [1, 0], limit_indices = [2, 8] }
%h1 = jax.select_n %is_first, %m0, %x1
%y1 = jax.mul %h1, 2.0
%m1 = ppermute %y1 { axis = pp, perm = [[0, 1]] }
%x2 = jax.slice %xs { start_indices = [2, 0], limit_indices = [3, 8] }
%h2 = jax.select_n %is_first, %m1, %x2
%y2 = jax.mul %h2, 2.0
%m2 = ppermute %y2 { axis = pp, perm = [[0, 1]] }
%y3 = jax.mul %m2, 2.0
%first = jax.add %y1, %y2
%all = jax.add %first, %y3
%own = jax.select_n %is_last, 0.0, %all
%sum = jax.psum %own { axis = pp, dst = R }
output %sum
)",
};

} // namespace spmd::rules
