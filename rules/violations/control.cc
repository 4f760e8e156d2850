// The manual pages of the findings of control.h.
#include "rules/violations/control.h"

namespace spmd::rules {

constinit const DiagnosticInfo CollectiveUnderVaryingControl::info = {
    .name = "collective-under-varying-control",
    .message =
        "`{op}` over {axes} is under a condition that differs between these ranks: those that "
        "reach it, or its backward, would wait for the others for ever",
    .explain = R"(
A branch or a loop is steered by a condition that differs between the ranks of this axis, and
inside it the ranks of that axis are to communicate. Those that took the branch wait for those
that did not, and the program hangs; a loop that runs more often on one rank than on another
hangs as well. While gradients flow, the same holds of a transition whose backward communicates,
such as invariant to replicate. Make the condition equal on all ranks first (reduce it by a
maximum or a logical or), or move the communication out of the branch.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
func @sum(%x: f32[8] P) {
  %y = all_reduce %x { axis = tp, src = P, dst = R }
  return %y
}
func @skip(%x: f32[8] P) {
  %y = zeros { shape = [8] }
  return %y
}
%c = input bool[] V
%x = input f32[8] P
%y = cond %c, %x { then = @sum, else = @skip }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
func @sum(%x: f32[8] P) {
  %y = all_reduce %x { axis = tp, src = P, dst = R }
  return %y
}
func @skip(%x: f32[8] P) {
  %y = zeros { shape = [8] }
  return %y
}
%c = input bool[] V
%x = input f32[8] P
%any = all_reduce %c { axis = tp, op = or, src = V, dst = R }
%y = cond %any, %x { then = @sum, else = @skip }
)",
};

constinit const DiagnosticInfo RanksDiverge::info = {
    .name = "rank-divergence",
    .message = "{call} of {ranks} meets {instead} of {others}",
    .explain = R"(
A recording ran all ranks and compared the collectives that they call, in order, in each group of
ranks. Here they part: one rank calls a collective that another one of its group does not call,
calls in another order, or calls with another shape, reduction or root. On devices the ranks wait
for each other for ever, or exchange bytes that do not belong together. Usually a collective is
under a condition that depends on the rank, on the data of the rank, or on the order of a set or a
dictionary. A `DistributedSampler` is compared as well: ranks whose samplers have other seeds or
epochs order the samples each in its own way, so that their parts overlap, and samples are missing.
The notes say how each side came there.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
diverge { call = "`all_reduce(f32[4], sum)`", ranks = "ranks 1, 2, 3", instead = "`broadcast(f32[4])` at train.py:9", others = "rank 0", stack = "train.py:7 in update, train.py:20", other_stack = "train.py:9 in update, train.py:20" }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[4] P
%y = all_reduce %x { axis = tp, src = P, dst = R }
)",
};

constinit const DiagnosticInfo BranchMismatch::info = {
    .name = "branch-mismatch",
    .message = "{result} is {found} in one branch, {other} in the other",
    .explain = R"(
The two branches of a condition leave the same result with different kinds. Whoever uses the
result has to treat it in one way, and for one of the branches that way is wrong: a sum that is
still pending would be used as complete, or a complete value summed again. Bring both branches
to one kind with a transition inside the branch that differs.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
func @full(%x: f32[8, 8] V) {
  %y = matmul %x, %x { partial = tp }
  return %y
}
func @half(%x: f32[8, 8] V) {
  return %x
}
%c = input bool[] R
%x = input f32[8, 8] V
%y = cond %c, %x { then = @full, else = @half }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
func @full(%x: f32[8, 8] V) {
  %y = matmul %x, %x { partial = tp }
  return %y
}
func @half(%x: f32[8, 8] V) {
  %y = reinterpret %x { axis = tp, src = V, dst = P }
  return %y
}
%c = input bool[] R
%x = input f32[8, 8] V
%y = cond %c, %x { then = @full, else = @half }
)",
};

constinit const DiagnosticInfo CarryMismatch::info = {
    .name = "carry-mismatch",
    .message = "carry {carry} of `{op}` enters a round as {enters} and leaves it as {leaves}",
    .explain = R"(
A loop hands a value from each round to the next, and one round changes its kind. The second
round then starts from something else than the first one did, and what the loop computes depends
on how often it runs. The change is not made up for silently: from invariant to varying it would
owe the gradient a sum over the ranks. Bring the value to the kind that leaves the loop before it
enters, or undo the change at the end of the body. A zero that starts an accumulator takes the
kind of what is added to it. A condition that differs between ranks makes each carry varying.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
func @round(%h: f32[8] I, %x: f32[8] V) {
  %r = reinterpret %h { axis = tp, src = I, dst = R }
  %y = mul %r, %x
  return %y
}
%h = input f32[8] I
%x = input f32[3, 8] V
%y = scan %h, %x { carry = 1, body = @round }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
func @round(%h: f32[8] V, %x: f32[8] V) {
  %y = mul %h, %x
  return %y
}
%h = input f32[8] I
%v = reinterpret %h { axis = tp, src = I, dst = V }
%x = input f32[3, 8] V
%y = scan %v, %x { carry = 1, body = @round }
)",
};

constinit const DiagnosticInfo VaryingChoice::info = {
    .name = "varying-choice",
    .message = "the condition of `{op}` differs between ranks of {axes}, where {result} is {kind}",
    .explain = R"(
The condition differs between the ranks of this axis, so each rank takes a result of its own
choice. Replicate and varying results become varying. A partial result does not: its addends
would come from different branches, and their sum is neither of the two. An invariant one does
not either: its gradient is taken to be equal on all ranks, and ranks that took another branch
contribute none. Nor does one that says which of its dimensions the axis cuts: it is one tensor,
and its pieces would come from two. Reduce the result before the branch, make the condition equal
on all ranks, or take both into a local region.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
func @twice(%x: f32[8] P) {
  %y = mul %x, 2
  return %y
}
func @once(%x: f32[8] P) {
  return %x
}
%c = input bool[] V
%x = input f32[8] P
%y = cond %c, %x { then = @twice, else = @once }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
func @twice(%x: f32[8] R) {
  %y = mul %x, 2
  return %y
}
func @once(%x: f32[8] R) {
  return %x
}
%c = input bool[] V
%x = input f32[8] P
%r = all_reduce %x { axis = tp, src = P, dst = R }
%y = cond %c, %r { then = @twice, else = @once }
)",
};

constinit const DiagnosticInfo PartialCondition::info = {
    .name = "partial-condition",
    .message = "the condition {value} of `{op}` is partial on {axes}: no rank has its value",
    .explain = R"(
A loop asks whether it goes on, and the answer is an addend of a sum that is still pending: it
means nothing on any one rank, and the ranks will not agree. Reduce the condition inside the
region that computes it, where every rank of the axis takes part.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
func @more(%n: f32[]) {
  return %n
}
func @step(%n: f32[]) {
  return %n
}
%n = input f32[] P
%y = while %n { cond = @more, body = @step }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
func @more(%n: f32[]) {
  %r = all_reduce %n { axis = tp, src = P, dst = R }
  return %r
}
func @step(%n: f32[]) {
  return %n
}
%n = input f32[] P
%y = while %n { cond = @more, body = @step }
)",
};

} // namespace spmd::rules
