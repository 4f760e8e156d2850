// The manual pages of the findings of costs.h.
#include "rules/violations/commands/costs.h"

namespace spmd::rules {

constinit const DiagnosticInfo CancellingPair::info = {
    .name = "cancelling-pair",
    .severity = Severity::Warning,
    .drawn_by = ReportedBy::Report,
    .is_cost = true,
    .message = "`{op}` undoes `{first}` over {axes}[: {bytes byte} per rank are sent for "
               "nothing]",
    .explain = R"(
One collective gathers or moves the pieces, and this step gives each rank back what it had before:
the result is the operand of the first, with the same type on every axis. It happens where
one function ends in the form that others expect, and the next begins with its own. The fix drops
both and uses the operand. If the value in between is used elsewhere, it is not reported.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] S(0)
%y = all_gather %x { axis = tp, src = S(0), dst = R }
%z = convert %y { axis = tp, src = R, dst = S(0) }
%a = gelu %z
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] S(0)
%a = gelu %x
)",
};

constinit const DiagnosticInfo RepeatedCollective::info = {
    .name = "repeated-collective",
    .severity = Severity::Warning,
    .drawn_by = ReportedBy::Report,
    .is_cost = true,
    .message = "`{op}` over {axes} sends {value} a second time[: {bytes byte} per rank "
               "could be spared]",
    .explain = R"(
The same collective was called before, on the same value, with the same attributes, in the same
phase: its result is still there. A forward that is computed again in the backward gathers again by
design, to hold less in memory, and is not reported. The fix uses the first result.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] S(0)
%y = all_gather %x { axis = tp, src = S(0), dst = R }
%a = gelu %y
%z = all_gather %x { axis = tp, src = S(0), dst = R }
%b = mul %a, %z
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] S(0)
%y = all_gather %x { axis = tp, src = S(0), dst = R }
%a = gelu %y
%b = mul %a, %y
)",
};

constinit const DiagnosticInfo ReduceThenSlice::info = {
    .name = "reduce-then-slice",
    .severity = Severity::Warning,
    .drawn_by = ReportedBy::Report,
    .is_cost = true,
    .message = "`{op}` keeps a slice of what `{first}` summed over {axes}, and nothing needs"
               " the rest[: {bytes byte} per rank could be spared]",
    .explain = R"(
An all_reduce gives every rank the whole sum. Where each rank goes on with its own block alone,
reduce_scatter gives it that block and sends half as much. It is the step from tensor to sequence
parallelism. All uses of the sum have to be the slice; else it is not reported.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] P
%y = all_reduce %x { axis = tp, src = P, dst = R }
%z = convert %y { axis = tp, src = R, dst = S(0) }
%a = gelu %z
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] P
%z = reduce_scatter %x { axis = tp, src = P, dst = S(0) }
%a = gelu %z
)",
};

constinit const DiagnosticInfo GatherThenSlice::info = {
    .name = "gather-then-slice",
    .severity = Severity::Warning,
    .drawn_by = ReportedBy::Report,
    .is_cost = true,
    .message = "`{op}` keeps a slice of what `{first}` gathered over {axes}, and nothing "
               "needs the rest[: {bytes byte} per rank could be spared]",
    .explain = R"(
The tensor is gathered whole and cut along another dimension. all_to_all moves each block to where
it is needed, and sends as many times less as the axis has ranks. All uses of the gathered tensor
have to be the slice; else it is not reported.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] S(0)
%y = all_gather %x { axis = tp, src = S(0), dst = R }
%z = convert %y { axis = tp, src = R, dst = S(1) }
%a = gelu %z
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] S(0)
%z = all_to_all %x { axis = tp, src = S(0), dst = S(1) }
%a = gelu %z
)",
};

constinit const DiagnosticInfo FusableCollectives::info = {
    .name = "fusable-collectives",
    .severity = Severity::Warning,
    .drawn_by = ReportedBy::Report,
    .is_cost = true,
    .message = "`{op}` over {axes} follows `{first}` over {others}: one call over both would"
               " do[, and {bytes byte} per rank could be spared]",
    .explain = R"(
Two sums in a row, over axes that are orthogonal, are one sum over the ranks of both. One ring over
all of them sends less than two, and starts once; it adds in another order. The value in between
must have no other use.
)",
    .wrong = R"(
trace { mode = local }
mesh m { dp = 2, tp = 4 }
%x = input f32[8, 16] P@dp P@tp
%y = all_reduce %x { axis = tp, src = P, dst = R }
%z = all_reduce %y { axis = dp, src = P, dst = R }
%a = gelu %z
)",
    .right = R"(
trace { mode = local }
mesh m { dp = 2, tp = 4 }
%x = input f32[8, 16] P@dp P@tp
%z = all_reduce %x { axis = (dp, tp), src = P, dst = R }
%a = gelu %z
)",
};

constinit const DiagnosticInfo Overlappable::info = {
    .name = "overlappable",
    .severity = Severity::Info,
    .drawn_by = ReportedBy::Report,
    .is_cost = true,
    .message = "`{op}` over {axes} is needed at once, but {value} was ready before "
               "{count product} independent of it[: {bytes byte} per rank could be sent "
               "meanwhile]",
    .explain = R"(
The next operation takes the result, so the ranks wait for the network. The operand was ready
earlier, and products that do not depend on the collective run in between: started as soon as its
operand is there, without waiting, it is done by the time that it is needed. The fix moves the call
up; waiting for it later is up to the framework (`async_op=True`, a stream).
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] S(0)
%w = param f32[16, 16] R
%y = gelu %x
%a = matmul %x, %w
%z = all_gather %y { axis = tp, src = S(0), dst = R }
%b = neg %z
%c = neg %a
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] S(0)
%w = param f32[16, 16] R
%y = gelu %x
%z = all_gather %y { axis = tp, src = S(0), dst = R }
%a = matmul %x, %w
%b = neg %z
%c = neg %a
)",
};

} // namespace spmd::rules
