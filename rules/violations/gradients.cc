// The manual pages of the findings of gradients.h.
#include "rules/violations/gradients.h"

#include <fmt/format.h>

#include <cmath>

namespace spmd::rules {

constinit const DiagnosticInfo UnreducedGradient::info = {
    .name = "unreduced-gradient",
    .holds_for_inferred_cuts = true,
    .message = "the gradient of {value} is still partial on {axes} when the optimizer reads it",
    .explain = R"(
Each rank along the axis holds one addend of the gradient, and nothing adds them up: the optimizer
of each rank would move its copy of the parameter by its own addend. Copies that start
equal drift apart, and what is saved is one of them. The parameter is replicate there, so its
gradient is partial by nature: a reduction belongs between backward and the step, as an op of the
program, as `sync` of the parameter where code outside of the program does it, or as the
transpose of the gather that made the parameter whole. The usual cause is a flag by which the
framework recognises such parameters, and which one of them lacks.
)",
    .wrong = R"(
mesh m { tp = 4 }
%x = input f32[8, 4@tp, 32]
%g = param f32[32] R@tp
%y = rms_norm %x, %g
%l = sum %y { dim = [0, 1, 2], partial = tp }
backward %l
%d = grad %g
step %g, %d
)",
    .right = R"(
mesh m { tp = 4 }
%x = input f32[8, 4@tp, 32]
%g = param f32[32] R@tp
%y = rms_norm %x, %g
%l = sum %y { dim = [0, 1, 2], partial = tp }
backward %l
%d = grad %g
%r = all_reduce %d { axis = tp, src = P, dst = R }
step %g, %r
)",
};

constinit const DiagnosticInfo OverreducedGradient::info = {
    .name = "overreduced-gradient",
    .holds_for_inferred_cuts = true,
    .message = "the gradient of {value} is {kind} on {axes}, where `sync` reduces it: no sum is "
               "pending there",
    .explain = R"(
The parameter states a reduction of its gradient over an axis on which no sum is pending. Where
the gradient is already the same on all ranks, summing it multiplies it by their number: the
parameter learns with another rate than all others, which depends on the size of the mesh. Where
the ranks hold different blocks of it, summing mixes the blocks. Take the axis out of `sync`. An
average of what is equal on all ranks changes nothing and is not reported.
)",
    .wrong = R"(
mesh m { tp = 4 }
%w = param f32[16] I@tp { sync = tp }
)",
    .right = R"(
mesh m { tp = 4 }
%w = param f32[16] R@tp { sync = tp }
)",
};

constinit const DiagnosticInfo GradientTypeMismatch::info = {
    .name = "gradient-type-mismatch",
    .holds_for_inferred_cuts = true,
    .message = "the gradient of {value} is {found}, and {needed} is needed",
    .explain = R"(
The type of a value fixes the type of its gradient: partial for replicate, replicate for partial,
invariant for invariant, and the same blocks for shards. Here a declaration, a backward that the
program contains, or what the optimizer is given says otherwise. Declared gradients are believed
by the code behind them: one that is called complete and is an addend is never summed, one that is
called partial and is complete is summed once too often. Either the declaration is wrong, or a
transition of the forward program has another `dst` than its backward was written for.
)",
    .wrong = R"(
mesh m { tp = 4 }
%x = input f32[8, 16] R@tp
%l = to_local %x { grad = R@tp }
)",
    .right = R"(
mesh m { tp = 4 }
%x = input f32[8, 16] R@tp
%l = to_local %x { grad = P@tp }
)",
};

constinit const DiagnosticInfo MissingVjp::info = {
    .name = "missing-vjp",
    .message = "`{op}`[ over {axes}] has no derivative by {operand}, which needs a gradient",
    .explain = R"(
The call is stated to have no derivative, or the operand stands where the op has none: as an index,
as a condition, or as an argument that its rule leaves out. What stands there depends on something
which is trained. The forward value is right; backward, the gradient ends here or skips the
communication that belongs to it, without an error. Call the differentiable form of the op, or say
that no gradient is wanted: detach the operand, or run the call where gradients are off.
)",
    .wrong = R"(
mesh m { tp = 4 }
%w = param f32[16@tp]
%p = sum %w { dim = [0], partial = tp }
%a = all_reduce %p { axis = tp, src = P, dst = I, vjp = none }
)",
    .right = R"(
mesh m { tp = 4 }
%w = param f32[16@tp]
%p = sum %w { dim = [0], partial = tp }
%a = all_reduce %p { axis = tp, src = P, dst = I }
)",
};

constinit const DiagnosticInfo ScaleMismatch::info = {
    .name = "scale-mismatch",
    .holds_for_inferred_cuts = true,
    .message = "{what}{value} has scale {found}, {other}: wrong by the factor {left}",
    .explain = R"(
The scale of a value is the factor by which its data differ from what is meant: a sum of the local
means of 4 ranks is 4 times the mean, an average over an axis of what should be summed is too
small by the size of the axis. Scales may be carried as long as they cancel. Here one does not:
two terms of a sum have different ones, or a value that carries one reaches a place where the
plain number is needed: a nonlinear function, the optimizer, a report. The loss or the gradient is
wrong by the factor that is left over, and so is the learning rate: by another one on another
mesh. Divide once, where the average is taken: `op = avg`, or `scale` by the sizes that are meant.
)",
    .wrong = R"(
mesh m { dp = 4 }
%x = input f32[16@dp, 8]
%p = mean %x { dim = [0, 1], partial = dp }
%l = all_reduce %p { axis = dp, src = P, dst = R }
report %l
)",
    .right = R"(
mesh m { dp = 4 }
%x = input f32[16@dp, 8]
%p = mean %x { dim = [0, 1], partial = dp }
%l = all_reduce %p { axis = dp, op = avg, src = P, dst = R }
report %l
)",
};

constinit const DiagnosticInfo SameBatch::info = {
    .name = "same-batch",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .message = "all ranks of {axes} have the same batch: {value} is equal on them, and so is every "
               "other input",
    .explain = R"(
Along this axis gradients are summed or averaged, since each rank is to train on samples of its own.
All ranks were run up to the step, and the tensors that they put into the model are equal. So each
of them computes the same gradient: the job is as slow as with all ranks, and as good as with one.
The usual reasons are a loader without DistributedSampler, the same seed for the data on every rank,
and a slice that does not depend on the rank.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 16] R
%w = param f32[4, 16] R
%y = linear %x, %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 16] V
%w = param f32[4, 16] R
%y = linear %x, %w
)",
};

constinit const DiagnosticInfo CopiesDiffer::info = {
    .name = "copies-differ",
    .holds_for_inferred_cuts = true,
    .message = "{value} differs along {axes}, and all ranks should apply the same update to it",
    .explain = R"(
The ranks along this axis ran up to the step. They have different values of the parameter there, and
these are not blocks of one tensor. Yet every rank updates it with the same values, for example with
a gradient that is summed or averaged over them. Such an update keeps copies equal that begin equal;
it never makes them so.

If they are to be copies of one parameter, each rank trains another model with the average of
gradients of different models. The usual reason is a layer that is added or initialized after the
model was wrapped, with a seed that depends on the rank. Wrap the model last, or broadcast its
parameters. A moving average that was copied from the model before its parameters were broadcast is
of the same kind.

If each rank is to have a parameter of its own, such as an expert, its gradient must not be summed
over the ranks.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 16] V
%w = param f32[4, 16] V { grad = P, step = R }
%y = linear %x, %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 16] V
%w = param f32[4, 16] R { grad = P, step = R }
%y = linear %x, %w
)",
};

constinit const DiagnosticInfo BuffersDiffer::info = {
    .name = "buffers-differ",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .message = "{value} differs along {axes}, which cuts none of its dimensions, and nothing "
               "writes to it: each rank computes with constants of its own",
    .explain = R"(
The ranks along this axis ran up to the step. They have different values of a buffer there that the
step reads and does not write, such as random features, a codebook or a table of statistics. It is
no block of one tensor: parameters that are equal on all ranks have the same dimensions. So each rank
trains the shared parameters for another model. The usual reason is a seed that depends on the rank,
and a broadcast of parameters that leaves buffers out. Broadcast the buffers as well, or draw them
with one seed.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 16] V
%shift = buffer f32[16] V { observed = (dp) }
%w = param f32[16, 16] R
%s = add %x, %shift
%y = linear %s, %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 16] V
%shift = buffer f32[16] R { observed = (dp) }
%w = param f32[16, 16] R
%s = add %x, %shift
%y = linear %s, %w
)",
};

constinit const DiagnosticInfo UnequalCounts::info = {
    .name = "unequal-counts",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .needs_no_types = true,
    .message = "`{op}` divides by a count that differs between ranks of {axes}: the mean of the "
               "ranks' means is not the mean of all samples",
    .explain = R"(
Each rank divides a sum over its own samples by their number, and the gradients of the quotients are
averaged over the ranks, or added up. The ranks that ran up to the step had different numbers:
tokens that are no padding, targets that are not ignored, samples in the last batch. So a sample of
a rank that has few of them weighs more than one of a rank that has many, and the gradient is not
that of the mean over all samples.

Add up the numbers over the ranks first (`all_reduce` of the count), divide the rank's own sum by
that, and multiply by the number of ranks where gradients are averaged, as DDP does.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 10] V
%t = input i64[8] V
%w = param f32[10] R { grad = P, step = R }
%p = mul %x, %w
%loss, %count = aten.nll_loss_forward.default %p, %t { reduction = 1, counts_differ = "dp" }
%g grad_of %loss = aten.ones_like.default %loss { bwd_of = %loss, phase = bwd }
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 10] V
%t = input i64[8] V
%w = param f32[10] R { grad = P, step = R }
%p = mul %x, %w
%loss, %count = aten.nll_loss_forward.default %p, %t { reduction = 1, counts_equal = "dp" }
%g grad_of %loss = aten.ones_like.default %loss { bwd_of = %loss, phase = bwd }
)",
};

constinit const DiagnosticInfo UnlikeSteps::info = {
    .name = "unlike-steps",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .needs_no_types = true,
    .message = "in the optimizer, `{op}` computes with {operand}, a number that differs between "
               "ranks of {axes}: they do not take the same step",
    .explain = R"(
The optimizer multiplies or divides by a number of the script, and the ranks that ran up to the step
had different ones. So the copies of a parameter are updated differently and move apart, or the
blocks of a parameter that is cut take steps of different lengths, which no one device would take.

The usual reasons: a scheduler that only one rank calls; the scale of a loss scaler that each rank
changes for itself; a factor for clipping from the norm of the rank's own gradients, or of those of
the parameters that it updates for the others.

Let all ranks compute the number from the same values: call the scheduler on each of them, add up
the squares of the norms over the ranks, agree on overflows (`all_reduce` with `op=MAX`).
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%g = input f32[8@dp]
%m = param f32[8@dp]
%rate = const f32[] V { requires_grad = false }
%step = aten.mul.Tensor %g, %rate { phase = opt }
%new aliases %m = aten.sub_.Tensor mut %m, %step { phase = opt }
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%g = input f32[8@dp]
%m = param f32[8@dp]
%rate = const f32[] R { requires_grad = false }
%step = aten.mul.Tensor %g, %rate { phase = opt }
%new aliases %m = aten.sub_.Tensor mut %m, %step { phase = opt }
)",
};

constinit const DiagnosticInfo AccumulatedMeans::info = {
    .name = "accumulated-means",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .message = "{passes} backward passes begin here, each from a mean, and their gradients are "
               "added up: nothing "
               "divides them by {passes}",
    .explain = R"(
A step takes its batch in several parts. The loss of each part is a mean over the samples of that
part, and the gradients of the parts are added up before the optimizer reads them. Their sum is the
gradient of the mean over the whole batch times the number of parts: the step is so many times too
long, and clipping and weight decay meet other gradients than they were set for.

Divide the loss of each part by the number of parts before `backward`, or the gradients once after
the last one.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 4] V
%z = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%p = mul %x, %w
%a = mean %p
%q = mul %z, %w
%b = mean %q
with { grad = false } {
  %ga grad_of %a = ones_like %a { bwd_of = %a, phase = bwd } at "train.py":9:5
  %ea = expand %ga { shape = [8, 4], bwd_of = %a, phase = bwd }
  %da = div %ea, 32.0 { bwd_of = %a, phase = bwd }
  %ma = mul %da, %x { bwd_of = %p, phase = bwd }
  %wa grad_of %w = sum %ma { dim = [0], bwd_of = %p, phase = bwd }
  %gb grad_of %b = ones_like %b { bwd_of = %b, phase = bwd } at "train.py":9:5
  %eb = expand %gb { shape = [8, 4], bwd_of = %b, phase = bwd }
  %db = div %eb, 32.0 { bwd_of = %b, phase = bwd }
  %mb = mul %db, %z { bwd_of = %q, phase = bwd }
  %wb grad_of %w = sum %mb { dim = [0], bwd_of = %q, phase = bwd }
  %sum = add %wa, %wb { phase = bwd }
  %all = all_reduce %sum { axis = dp, op = avg, phase = opt }
  %new aliases %w = sub_ mut %w, %all { phase = opt }
}
output state %new of %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 4] V
%z = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%p = mul %x, %w
%a = mean %p
%q = mul %z, %w
%b = mean %q
with { grad = false } {
  %ga grad_of %a = ones_like %a { bwd_of = %a, phase = bwd } at "train.py":9:5
  %ea = expand %ga { shape = [8, 4], bwd_of = %a, phase = bwd }
  %da = div %ea, 32.0 { bwd_of = %a, phase = bwd }
  %ma = mul %da, %x { bwd_of = %p, phase = bwd }
  %wa grad_of %w = sum %ma { dim = [0], bwd_of = %p, phase = bwd }
  %gb grad_of %b = ones_like %b { bwd_of = %b, phase = bwd } at "train.py":9:5
  %eb = expand %gb { shape = [8, 4], bwd_of = %b, phase = bwd }
  %db = div %eb, 32.0 { bwd_of = %b, phase = bwd }
  %mb = mul %db, %z { bwd_of = %q, phase = bwd }
  %wb grad_of %w = sum %mb { dim = [0], bwd_of = %q, phase = bwd }
  %sum = add %wa, %wb { phase = bwd }
  %mean = div %sum, 2.0 { phase = bwd }
  %all = all_reduce %mean { axis = dp, op = avg, phase = opt }
  %new aliases %w = sub_ mut %w, %all { phase = opt }
}
output state %new of %w
)",
};

constinit const DiagnosticInfo DroppedGradients::info = {
    .name = "dropped-gradients",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .message =
        "the gradients of {dropped} of {passes} backward passes that begin here reach no parameter",
    .explain = R"(
Several backward passes begin at one line, as for the parts of a batch. What some of them compute
never reaches a parameter: it is overwritten or thrown away before the optimizer reads it, most
often because the gradients are set to zero inside of the loop over the parts instead of once before
it. The step then learns from the last part alone.

Set gradients to zero once a step, before the first backward pass.

If no pass of a step reaches a parameter, the optimizer has other tensors than the model, such as
those that the model had before it was wrapped or cut: make the optimizer last.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 4] V
%z = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%p = mul %x, %w
%a = mean %p
%q = mul %z, %w
%b = mean %q
with { grad = false } {
  %ga grad_of %a = ones_like %a { bwd_of = %a, phase = bwd } at "train.py":9:5
  %ea = expand %ga { shape = [8, 4], bwd_of = %a, phase = bwd }
  %da = div %ea, 32.0 { bwd_of = %a, phase = bwd }
  %ma = mul %da, %x { bwd_of = %p, phase = bwd }
  %wa grad_of %w = sum %ma { dim = [0], bwd_of = %p, phase = bwd }
  %gb grad_of %b = ones_like %b { bwd_of = %b, phase = bwd } at "train.py":9:5
  %eb = expand %gb { shape = [8, 4], bwd_of = %b, phase = bwd }
  %db = div %eb, 32.0 { bwd_of = %b, phase = bwd }
  %mb = mul %db, %z { bwd_of = %q, phase = bwd }
  %wb grad_of %w = sum %mb { dim = [0], bwd_of = %q, phase = bwd }
  %all = all_reduce %wb { axis = dp, op = avg, phase = opt }
  %new aliases %w = sub_ mut %w, %all { phase = opt }
}
output state %new of %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%z = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%q = mul %z, %w
%b = mean %q
with { grad = false } {
  %gb grad_of %b = ones_like %b { bwd_of = %b, phase = bwd } at "train.py":9:5
  %eb = expand %gb { shape = [8, 4], bwd_of = %b, phase = bwd }
  %db = div %eb, 32.0 { bwd_of = %b, phase = bwd }
  %mb = mul %db, %z { bwd_of = %q, phase = bwd }
  %wb grad_of %w = sum %mb { dim = [0], bwd_of = %q, phase = bwd }
  %all = all_reduce %wb { axis = dp, op = avg, phase = opt }
  %new aliases %w = sub_ mut %w, %all { phase = opt }
}
output state %new of %w
)",
};

constinit const DiagnosticInfo UnseenCollective::info = {
    .name = "unseen-collective",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .message = "autograd does not see `{op}`: {operand} gets no gradient through it, although a "
               "loss depends on its result",
    .explain = R"(
A collective of `torch.distributed` moves data, and autograd does not know of it: its result is a
constant to the backward pass. Its operand depends on parameters, and a loss depends on its result,
so that a part of their gradient is missing, on each rank another one. Nothing fails, and the model
trains on what is left.

Use a collective that has a backward (`torch.distributed.nn.functional`,
`torch.distributed._functional_collectives` under autograd, or an `autograd.Function` of your own):
a gather sends gradients back with a `reduce_scatter`, an `all_to_all` with an `all_to_all`. If no
gradient is meant to pass, say so with `detach()`.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 16] V
%w = param f32[4, 16] R
%y = linear %x, %w
%all no_grad = all_gather %y { axis = dp, dim = 0 }
%t = transpose %all { dim0 = 0, dim1 = 1 }
%s = matmul %y, %t
%l = mean %s
%avg = all_reduce %l { axis = dp, op = avg }
output loss %avg
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 16] V
%w = param f32[4, 16] R
%y = linear %x, %w
%all = all_gather %y { axis = dp, dim = 0 }
%t = transpose %all { dim0 = 0, dim1 = 1 }
%s = matmul %y, %t
%l = mean %s
%avg = all_reduce %l { axis = dp, op = avg }
output loss %avg
)",
};

std::string describe_gradient_ratio(double ratio) {
  constexpr double kExact = 0.05, kMostRanks = 1e6;
  if (std::abs(ratio - 1) <= kExact)
    return "";
  if (ratio == 0)
    return "zero, and not";
  const double times = std::round(ratio), part = std::round(1 / ratio);
  if (times >= 2 && std::abs(ratio - times) <= kExact && times < kMostRanks)
    return fmt::format("{:.0f} times", times);
  if (part >= 2 && std::abs(1 / ratio - part) <= kExact && part < kMostRanks)
    return fmt::format("1/{:.0f} of", part);
  return "not";
}

constinit const DiagnosticInfo WrongGradient::info = {
    .name = "wrong-gradient",
    .holds_for_inferred_cuts = true,
    .message = "the gradient of {value} is {factor} the slope of the loss over all ranks",
    .explain = R"(
`spmd-trace record --confirm` ran all ranks up to the optimizer again and again, each time with one
parameter changed a little, on all ranks that have a copy or a block of it. The loss of all ranks
together then says what its gradient has to be. This one is something else, and the script by
itself, on one rank, has no such error.

All gradients may be multiplied by the same number: the mean over ranks for their sum, or a clip.
What is reported is a gradient that is off by another factor than most are, or by none that is
common.

The usual reasons: a sum over ranks is missing, or is made twice; it runs over the wrong group; the
backward of a collective is not its transpose, or autograd does not see the collective; the
gradients of experts, of shared or of replicated parameters are averaged as if they were copies; a
sum comes before the last backward has added to it.

A gradient that is meant to stop at a value (`detach`) on several ranks, and not on one, is reported
as well.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 16] V
%w = param f32[4, 16] R { grad = P, step = R, gradient_ratio = 0.25 }
%y = linear %x, %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 16] V
%w = param f32[4, 16] R { grad = P, step = R, gradient_ratio = 1 }
%y = linear %x, %w
)",
};

constinit const DiagnosticInfo UnlikeOneDevice::info = {
    .name = "unlike-one-device",
    .holds_for_inferred_cuts = true,
    .message = "{value}: {factor} what one device makes of the same data",
    .explain = R"(
`spmd-trace lint --confirm` ran it twice, on the same data: on all devices, and on one. Of a JAX
function, which is called with the same arguments, the results differ by more than rounding; of a
parameter, or of other state that goes in and comes out, it is the change that is compared. Of a
PyTorch script, whose first steps are run by all ranks and by a single one, it is the gradients that
an optimizer gets, or the updates; blocks of a parameter are compared with their places in it. A
factor that is a number of ranks points to a sum that is missing or made twice, or to a mean for a
sum. Where there is none, blocks are in the wrong place or in the wrong order, positions or labels
are those of another rank, or a mask is missing.

A program may mean to do otherwise on several devices: batch norm over the rows of one rank,
experts that drop what exceeds the room on one rank. Then suppress the finding there.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { dp = 8 }
unlike { value = "change of params['w']", ratio = 8 }
)",
    .right = R"(
trace { mode = gradual }
mesh m { dp = 8 }
%x = input f32[8, 16] V
)",
};

constinit const DiagnosticInfo CopiesDrift::info = {
    .name = "copies-drift",
    .holds_for_inferred_cuts = true,
    .message = "{value} was the same on all ranks of {axes} before {before}, and is not any more",
    .explain = R"(
The ranks along this axis ran up to the step, and on. They had one value of the parameter before
they took the step that is named, and had several after it. So each of them has updated its copy in its own way, and the
copies move apart with every step: the job trains several models at once, and what a checkpoint
keeps is one of them.

The usual reasons: the gradient is never summed over the ranks (the forward goes around the wrapper
of the model, the parameter is not in the list or bucket that is reduced, a backward passes the
gradient on without the sum that its forward calls for); it is summed after the optimizer has read
it; only some ranks update, and what they have is not sent to the others; or the ranks draw
different random numbers where they are to compute the same. Where a later step than the first is
named, look for what it does otherwise: micro-batches that are left over at the end of an epoch and
whose gradients nobody sums, a learning rate that each rank lowers by its own loss, a rank that
leaves a step out.

Sum the gradient before the step, or send the new value to all ranks after it. A parameter that is
meant to be each rank's own should begin as its own.

Of buffers, only those are reported by which the loss is computed, such as the centre of a
distillation loss that each rank moves by its own batch: average what it is moved by. Statistics
that a batch norm keeps are not.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 16] V
%w = param f32[4, 16] R { grad = P, step = R, drifted = dp }
%y = linear %x, %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 4 "data" }
%x = input f32[8, 16] V
%w = param f32[4, 16] R { grad = P, step = R }
%y = linear %x, %w
)",
};

} // namespace spmd::rules
