// The manual pages of the findings of returned.h.
#include "rules/violations/steps/returned.h"

namespace spmd::rules {

constinit const DiagnosticInfo CrossedGradient::info = {
    .name = "crossed-gradient",
    .holds_for_inferred_cuts = true,
    .message = "the gradient that comes back is that of {other}, and is taken for that of {value}",
    .explain = R"(
A stage of a pipeline sends what it computes of several micro-batches to the next one, and receives their gradients.
Each gradient belongs to the micro-batch whose result was sent. Here a backward pass goes on with the gradient of
another micro-batch: the two stages work through their micro-batches in different orders. Shapes agree, the loss may
even fall, and what the stage learns is wrong.

Run the backward passes of all stages in one order, most often that of the forward passes: a queue, not a stack.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 2 "data" }
%x = input f32[8, 4] V
%z = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%a = mul %x, %w
%b = mul %z, %w
%ra = wait %a                       // another stage receives the first micro-batch
%rb = wait %b
%la = sum %ra
%lb = sum %rb
with { grad = false } {
  %ga grad_of %la = ones_like %la { bwd_of = %la, phase = bwd }
  %da grad_of %ra = expand %ga { shape = [8, 4], bwd_of = %la, phase = bwd }
  %gb grad_of %lb = ones_like %lb { bwd_of = %lb, phase = bwd }
  %db grad_of %rb = expand %gb { shape = [8, 4], bwd_of = %lb, phase = bwd }
  %ea grad_of %a = wait %db { phase = bwd }
  %eb grad_of %b = wait %da { phase = bwd }
  %ma = mul %ea, %x { bwd_of = %a, phase = bwd }
  %wa grad_of %w = sum %ma { dim = [0], bwd_of = %a, phase = bwd }
  %mb = mul %eb, %z { bwd_of = %b, phase = bwd }
  %wb grad_of %w = sum %mb { dim = [0], bwd_of = %b, phase = bwd }
  %sum = add %wa, %wb { phase = bwd }
  %all = all_reduce %sum { axis = dp, op = sum, phase = opt }
  %new aliases %w = sub_ mut %w, %all { phase = opt }
}
output state %new of %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 2 "data" }
%x = input f32[8, 4] V
%z = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%a = mul %x, %w
%b = mul %z, %w
%ra = wait %a
%rb = wait %b
%la = sum %ra
%lb = sum %rb
with { grad = false } {
  %ga grad_of %la = ones_like %la { bwd_of = %la, phase = bwd }
  %da grad_of %ra = expand %ga { shape = [8, 4], bwd_of = %la, phase = bwd }
  %gb grad_of %lb = ones_like %lb { bwd_of = %lb, phase = bwd }
  %db grad_of %rb = expand %gb { shape = [8, 4], bwd_of = %lb, phase = bwd }
  %ea grad_of %a = wait %da { phase = bwd }
  %eb grad_of %b = wait %db { phase = bwd }
  %ma = mul %ea, %x { bwd_of = %a, phase = bwd }
  %wa grad_of %w = sum %ma { dim = [0], bwd_of = %a, phase = bwd }
  %mb = mul %eb, %z { bwd_of = %b, phase = bwd }
  %wb grad_of %w = sum %mb { dim = [0], bwd_of = %b, phase = bwd }
  %sum = add %wa, %wb { phase = bwd }
  %all = all_reduce %sum { axis = dp, op = sum, phase = opt }
  %new aliases %w = sub_ mut %w, %all { phase = opt }
}
output state %new of %w
)",
};

constinit const DiagnosticInfo UnusedGradient::info = {
    .name = "unused-gradient",
    .holds_for_inferred_cuts = true,
    .message = "the gradient of {value}, which another stage sends back, is not used: this "
               "backward begins with something else",
    .explain = R"(
A stage of a pipeline sends its result to the next one, which sends the gradient of it back. The backward of the stage
has to begin with this gradient. Here it is received and dropped, and the backward begins with something else, such as
the ones of `y.sum().backward()`. The stage then trains to make its results small, whatever the loss is.

Give `backward` what was received: `y.backward(gradient)`.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 2 "data" }
%x = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%a = mul %x, %w
%ra = wait %a                       // another stage receives it
%la = sum %ra
with { grad = false } {
  %ga grad_of %la = ones_like %la { bwd_of = %la, phase = bwd }
  %da grad_of %ra = expand %ga { shape = [8, 4], bwd_of = %la, phase = bwd }
  %ea = wait %da { phase = bwd }
  %ones grad_of %a = ones_like %a { bwd_of = %a, phase = bwd }
  %ma = mul %ones, %x { bwd_of = %a, phase = bwd }
  %wa grad_of %w = sum %ma { dim = [0], bwd_of = %a, phase = bwd }
  %all = all_reduce %wa { axis = dp, op = sum, phase = opt }
  %new aliases %w = sub_ mut %w, %all { phase = opt }
}
output state %new of %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 2 "data" }
%x = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%a = mul %x, %w
%ra = wait %a
%la = sum %ra
with { grad = false } {
  %ga grad_of %la = ones_like %la { bwd_of = %la, phase = bwd }
  %da grad_of %ra = expand %ga { shape = [8, 4], bwd_of = %la, phase = bwd }
  %ea grad_of %a = wait %da { phase = bwd }
  %ma = mul %ea, %x { bwd_of = %a, phase = bwd }
  %wa grad_of %w = sum %ma { dim = [0], bwd_of = %a, phase = bwd }
  %all = all_reduce %wa { axis = dp, op = sum, phase = opt }
  %new aliases %w = sub_ mut %w, %all { phase = opt }
}
output state %new of %w
)",
};

constinit const DiagnosticInfo UnreturnedGradient::info = {
    .name = "unreturned-gradient",
    .holds_for_inferred_cuts = true,
    .message = "the stage that receives {value} computes its gradient and does not send it back",
    .explain = R"(
A stage of a pipeline sends several tensors to the next one, such as a hidden state and the input of a skip connection.
The next stage makes a gradient of each of them. Here it sends the gradients of some of them back, and this one is left
where it is. The parameters that have made the tensor learn nothing from what the next stage does with it.

Send the gradient back, and let the backward of the stage begin with all of them:
`torch.autograd.backward([hidden, skip], [hidden_grad, skip_grad])`. Where no gradient is wanted, send a tensor for which
the next stage asks none: without `requires_grad_()`.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 2 "data" }
%x = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%a = mul %x, %w
%b = tanh %a
%ra = wait %a                       // another stage receives both
%rb = wait %b
%m = mul %ra, %rb
%l = sum %m
with { grad = false } {
  %gl grad_of %l = ones_like %l { bwd_of = %l, phase = bwd }
  %gm grad_of %m = expand %gl { shape = [8, 4], bwd_of = %l, phase = bwd }
  %ga grad_of %ra = mul %gm, %rb { bwd_of = %m, phase = bwd }
  %gb grad_of %rb = mul %gm, %ra { bwd_of = %m, phase = bwd }
  %ea grad_of %a = wait %ga { phase = bwd }
  %ma = mul %ea, %x { bwd_of = %a, phase = bwd }
  %wa grad_of %w = sum %ma { dim = [0], bwd_of = %a, phase = bwd }
  %all = all_reduce %wa { axis = dp, op = sum, phase = opt }
  %new aliases %w = sub_ mut %w, %all { phase = opt }
}
output state %new of %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 2 "data" }
%x = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%a = mul %x, %w
%ra = wait %a
%l = sum %ra
with { grad = false } {
  %gl grad_of %l = ones_like %l { bwd_of = %l, phase = bwd }
  %ga grad_of %ra = expand %gl { shape = [8, 4], bwd_of = %l, phase = bwd }
  %ea grad_of %a = wait %ga { phase = bwd }
  %ma = mul %ea, %x { bwd_of = %a, phase = bwd }
  %wa grad_of %w = sum %ma { dim = [0], bwd_of = %a, phase = bwd }
  %all = all_reduce %wa { axis = dp, op = sum, phase = opt }
  %new aliases %w = sub_ mut %w, %all { phase = opt }
}
output state %new of %w
)",
};

constinit const DiagnosticInfo OverwrittenMessage::info = {
    .name = "overwritten-message",
    .holds_for_inferred_cuts = true,
    .message = "the backward reads {other}, where its forward has read {value}, which was received "
               "into the same memory",
    .explain = R"(
A stage of a pipeline receives what the stage before it has computed of several micro-batches, and autograd keeps what
the backward passes will need. A message that is received into the memory of an earlier one overwrites that; autograd
does not see it, as it sees other writes. So the backward of the first micro-batch multiplies its gradient with what
was received for the last one, and the gradients of this stage are wrong.

Receive each micro-batch into memory of its own (`torch.empty` in the loop), or into a copy.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 2 "data" }
%x = input f32[8, 4] V
%z = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%a = wait %x                        // a stage receives the first micro-batch
%la = mul %a, %w
%b = wait %z                        // and the second one
%lb = mul %b, %w
%sa = sum %la
%sb = sum %lb
with { grad = false } {
  %ga grad_of %sa = ones_like %sa { bwd_of = %sa, phase = bwd }
  %da grad_of %la = expand %ga { shape = [8, 4], bwd_of = %sa, phase = bwd }
  %ma = mul %da, %b { bwd_of = %la, phase = bwd }
  %wa grad_of %w = sum %ma { dim = [0], bwd_of = %la, phase = bwd }
  %gb grad_of %sb = ones_like %sb { bwd_of = %sb, phase = bwd }
  %db grad_of %lb = expand %gb { shape = [8, 4], bwd_of = %sb, phase = bwd }
  %mb = mul %db, %b { bwd_of = %lb, phase = bwd }
  %wb grad_of %w = sum %mb { dim = [0], bwd_of = %lb, phase = bwd }
  %sum = add %wa, %wb { phase = bwd }
  %all = all_reduce %sum { axis = dp, op = sum, phase = opt }
  %new aliases %w = sub_ mut %w, %all { phase = opt }
}
output state %new of %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 2 "data" }
%x = input f32[8, 4] V
%z = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%a = wait %x                        // a stage receives the first micro-batch
%la = mul %a, %w
%b = wait %z                        // and the second one
%lb = mul %b, %w
%sa = sum %la
%sb = sum %lb
with { grad = false } {
  %ga grad_of %sa = ones_like %sa { bwd_of = %sa, phase = bwd }
  %da grad_of %la = expand %ga { shape = [8, 4], bwd_of = %sa, phase = bwd }
  %ma = mul %da, %a { bwd_of = %la, phase = bwd }
  %wa grad_of %w = sum %ma { dim = [0], bwd_of = %la, phase = bwd }
  %gb grad_of %sb = ones_like %sb { bwd_of = %sb, phase = bwd }
  %db grad_of %lb = expand %gb { shape = [8, 4], bwd_of = %sb, phase = bwd }
  %mb = mul %db, %b { bwd_of = %lb, phase = bwd }
  %wb grad_of %w = sum %mb { dim = [0], bwd_of = %lb, phase = bwd }
  %sum = add %wa, %wb { phase = bwd }
  %all = all_reduce %sum { axis = dp, op = sum, phase = opt }
  %new aliases %w = sub_ mut %w, %all { phase = opt }
}
output state %new of %w
)",
};

constinit const DiagnosticInfo TiedCopiesDrift::info = {
    .name = "tied-copies-drift",
    .holds_for_inferred_cuts = true,
    .message = "{value} has a copy on another stage, which was equal before the first step, and is "
               "not any more",
    .explain = R"(
Two stages of a pipeline have one parameter: the first stage looks words up in a table, the last one computes logits
with the same table. Both began with the same numbers and have other ones now, because each updates its copy with the
part of the gradient that it has computed itself. The model that is trained has two tables, and what a checkpoint
keeps is one of them.

Sum the gradient over the stages that have a copy, before the optimizer reads it, and keep the state of the optimizer
equal on them.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 2 "data", pp = 1 }
%x = input f32[8, 4] V@dp
%w = param f32[4] R@dp "table" { grad = P@dp, step = R@dp, drifted = pp }
%y = mul %x, %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 2 "data", pp = 1 }
%x = input f32[8, 4] V@dp
%w = param f32[4] R@dp "table" { grad = P@dp, step = R@dp }
%y = mul %x, %w
)",
};

constinit const DiagnosticInfo UnclearedGradient::info = {
    .name = "uncleared-gradient",
    .holds_for_inferred_cuts = true,
    .message = "the gradient of {value} is added to the one of the step before, and the optimizer "
               "reads their sum",
    .explain = R"(
Autograd adds a gradient to the one that a parameter has. The one of the step before is still there when this step
adds its own: gradients are not cleared between the steps. The optimizer follows the sum of all gradients so far, which
grows from step to step.

Call `optimizer.zero_grad()` once a step, before the first backward pass or after the update.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 2 "data" }
%x = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%old grad_of %w = buffer f32[4] ? "w.grad"
%a = mul %x, %w
%l = sum %a
with { grad = false } {
  %gl grad_of %l = ones_like %l { bwd_of = %l, phase = bwd }
  %da = expand %gl { shape = [8, 4], bwd_of = %l, phase = bwd }
  %ma = mul %da, %x { bwd_of = %a, phase = bwd }
  %wa grad_of %w = sum %ma { dim = [0], bwd_of = %a, phase = bwd }
  %sum aliases %old = add_ mut %old, %wa { phase = bwd }
  %new aliases %w = sub_ mut %w, %sum { phase = opt }
}
output state %new of %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 2 "data" }
%x = input f32[8, 4] V
%w = param f32[4] R { grad = P@dp, step = R@dp }
%old grad_of %w = buffer f32[4] ? "w.grad"
%a = mul %x, %w
%l = sum %a
with { grad = false } {
  %clear aliases %old = zero_ mut %old
  %gl grad_of %l = ones_like %l { bwd_of = %l, phase = bwd }
  %da = expand %gl { shape = [8, 4], bwd_of = %l, phase = bwd }
  %ma = mul %da, %x { bwd_of = %a, phase = bwd }
  %wa grad_of %w = sum %ma { dim = [0], bwd_of = %a, phase = bwd }
  %sum aliases %clear = add_ mut %clear, %wa { phase = bwd }
  %all = all_reduce %sum { axis = dp, op = sum, phase = opt }
  %new aliases %w = sub_ mut %w, %all { phase = opt }
}
output state %new of %w
)",
};

constinit const DiagnosticInfo RepeatedGradient::info = {
    .name = "repeated-gradient",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .message = "one backward is in the gradient of {value} {times} times as often as another: what "
               "was added up is added up again",
    .explain = R"(
Autograd adds the gradients of several backward passes, such as those of micro-batches, into one tensor. That tensor is
summed over ranks, or over the copies of a tied weight, after each of them, although it still has the sum of those
before: both copies have it, and it is added to itself. The first micro-batch counts most, and the last one once.

Sum once, after the last backward pass.
)",
    .wrong = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 1 }
%x = input f32[8, 4] R
%w = param f32[4] R
%a = mul %x, %w
with { grad = false } {
  %da = ones_like %a { phase = bwd }
  %m1 = mul %da, %x { phase = bwd }
  %g1 grad_of %w = sum %m1 { dim = [0], bwd_of = %a, phase = bwd }
  %m2 = mul %m1, 0.5 { phase = bwd }
  %g2 grad_of %w = sum %m2 { dim = [0], bwd_of = %a, phase = bwd }
  %first = add %g1, %g2 { phase = bwd }
  %m3 = mul %m1, 0.25 { phase = bwd }
  %g3 grad_of %w = sum %m3 { dim = [0], bwd_of = %a, phase = bwd }
  %here = add %first, %g3 { phase = bwd }
  %sum = add %here, %first { phase = bwd }
  %new aliases %w = sub_ mut %w, %sum { phase = opt }
}
output state %new of %w
)",
    .right = R"(
trace { mode = gradual, phase = step }
mesh m { dp = 1 }
%x = input f32[8, 4] R
%w = param f32[4] R
%a = mul %x, %w
with { grad = false } {
  %da = ones_like %a { phase = bwd }
  %m1 = mul %da, %x { phase = bwd }
  %g1 grad_of %w = sum %m1 { dim = [0], bwd_of = %a, phase = bwd }
  %m2 = mul %m1, 0.5 { phase = bwd }
  %g2 grad_of %w = sum %m2 { dim = [0], bwd_of = %a, phase = bwd }
  %first = add %g1, %g2 { phase = bwd }
  %m3 = mul %m1, 0.25 { phase = bwd }
  %g3 grad_of %w = sum %m3 { dim = [0], bwd_of = %a, phase = bwd }
  %sum = add %first, %g3 { phase = bwd }
  %new aliases %w = sub_ mut %w, %sum { phase = opt }
}
output state %new of %w
)",
};

} // namespace spmd::rules
