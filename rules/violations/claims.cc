// The manual pages of the findings of claims.h.
#include "rules/violations/claims.h"

namespace spmd::rules {

constinit const DiagnosticInfo ClaimMismatch::info = {
    .name = "claim-mismatch",
    .holds_for_inferred_cuts = true,
    .message = "{value} is {found}[ of shape {found_shape}], {claims} {claimed}[ of shape "
               "{claimed_shape}]",
    .explain = R"(
The program states a type for a value, or an op like `report` needs one, and another type follows
from the ops that made the value. One of the two is wrong: a statement that was copied from an
older version of the program, or an op upstream that does not do what its author believes. Readers
and code behind a boundary rely on stated types, so a false one spreads. Correct the statement, or
bring the value to that type before. On the axes named here the value counts as unknown from here
on, so that one mistake gives one finding.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] V
%y: f32[8, 16] R = gelu %x
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] V
%y: f32[8, 16] V = gelu %x
)",
};

constinit const DiagnosticInfo BoundaryMismatch::info = {
    .name = "boundary-mismatch",
    .message = "`{op}` passes {operand} to {function} as {found}[ of shape {found_shape}], "
               "declared {claimed}[ of shape {claimed_shape}]",
    .explain = R"(
A value enters a function, a kernel or a region with another type than the one declared for it
there. The body was written, and for a body without a listing it was trusted, under that
declaration: with a partial value where a complete one is declared it computes something else
than it says. Either a transition is missing in front of the call, or the declaration no longer
fits the body.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
func @norm(%i: f32[8, 16] R) {
  %n = softmax %i { dim = 1 }
  return %n
}
%x = input f32[8, 16] P
%y = call %x { body = @norm }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
func @norm(%i: f32[8, 16] R) {
  %n = softmax %i { dim = 1 }
  return %n
}
%x = input f32[8, 16] P
%r = all_reduce %x { axis = tp, src = P, dst = R }
%y = call %r { body = @norm }
)",
};

constinit const DiagnosticInfo BoundaryShape::info = {
    .name = "boundary-shape",
    .message = "the number of {what} of {function} is {declared}, `{op}` has {found}",
    .explain = R"(
A function declares a number of values that cross its boundary, and the call hands over another
number. Which claim belongs to which value is then open, so none is compared and the results are
unknown. For a region the same holds of the types stated for what leaves it: a tensor without
one would leave it with no claim at all. Usually a parameter was added on one side only.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
func @norm(%i: f32[8, 16] R) {
  %n = softmax %i { dim = 1 }
  return %n
}
%x = input f32[8, 16] R
%y = call %x, %x { body = @norm }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
func @norm(%i: f32[8, 16] R) {
  %n = softmax %i { dim = 1 }
  return %n
}
%x = input f32[8, 16] R
%y = call %x { body = @norm }
)",
};

constinit const DiagnosticInfo LossKind::info = {
    .name = "loss-kind",
    .holds_for_inferred_cuts = true,
    .message = "the loss {value} is {kind} on {axes}, so each rank would start a backward of its "
               "own; it must be invariant or partial",
    .explain = R"(
Backward starts from one number, and on this axis the loss is not one number that counts once. If
it is replicate, each rank starts a backward of its own and every gradient is counted once per
rank; if it is varying, each rank has a loss of its own, and the program does not state that they
are to be added. Reduce to invariant, or reinterpret the losses of the ranks as the addends of one
partial loss, which costs nothing.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%l = input f32[] V
output loss %l
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%l = input f32[] V
%p = reinterpret %l { axis = tp, src = V, dst = P }
output loss %p
)",
};

constinit const DiagnosticInfo MutationChangesType::info = {
    .name = "mutation-changes-type",
    .holds_for_inferred_cuts = true,
    .message = "`{op}` would change {operand} from {before} to {after} in place",
    .explain = R"(
An op writes into storage that others rely on, and what it writes has another type than what was
there: the content of a buffer that was the same on all ranks differs afterwards, for example.
Views of the storage, the parameter table and the next step still go by the old claim. Write the
result to a new value, or bring it to the type of the storage first. Storage that nobody else
refers to may change its type.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%b = buffer f32[16] R
%v = input f32[16] V { requires_grad = false }
%c aliases %b = add_ mut %b, %v
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%b = buffer f32[16] R
%v = input f32[16] V { requires_grad = false }
%c = add %b, %v
)",
};

constinit const DiagnosticInfo PartialState::info = {
    .name = "partial-state",
    .holds_for_inferred_cuts = true,
    .message = "`{op}` updates {value} with a value partial on {axes}: with an addend on each "
               "rank, not with the sum",
    .explain = R"(
A parameter, a buffer or the state of the optimizer is updated with a value that is still an
addend on each rank. The sum is never taken, since state is read again as what it was declared
to be, and the copies on the ranks drift apart from this step on. Running statistics of a
normalisation that were computed from a part of the batch are the usual case. Reduce before the
update.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%b = buffer f32[16] R
%p = input f32[16] P
store %b, %p
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%b = buffer f32[16] R
%p = input f32[16] P
%r = all_reduce %p { axis = tp, src = P, dst = R }
store %b, %r
)",
};

constinit const DiagnosticInfo StaleAlias::info = {
    .name = "stale-alias",
    .message = "`{op}` reads {operand}, whose storage was written since by {writer}",
    .explain = R"(
The operand is a name for storage, and elements of it were written after the name was made. In the
program that was traced it would see the new content; in single assignment it denotes the old one, and a run
would compute with a value that no longer exists. An exporter derives the other live names anew
behind a write, with an alias op of the new value and the old name. If the old content is meant,
it has to be copied before the write.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%b = buffer f32[16] R
%v aliases %b = reshape %b { shape = [4, 4] }
%c aliases %b = mul_ mut %b, 2.0
%y = neg %v
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%b = buffer f32[16] R
%v aliases %b = reshape %b { shape = [4, 4] }
%c aliases %b = mul_ mut %b, 2.0
%w aliases %c = alias %c, %v
%y = neg %w
)",
};

constinit const DiagnosticInfo UncheckedClaim::info = {
    .name = "unchecked-claim",
    .severity = Severity::Info,
    .message = "{value} is taken as {claimed} without proof",
    .explain = R"(
Checking is switched off here, or a claim replaces what was known, or a function without a body
states what it returns, or values that differ between the ranks of a local region are stated to
be addends of a sum, or to have another scale on its axes, as they leave it: the stated type is
taken as it stands. Nothing is proved about the value, and whatever follows from it is only as
good as the statement. That is legitimate for a custom kernel whose rule cannot be written as an
equation; it should stay rare and visible, which is why it is listed. A run with claims tested
tells whether the statement holds for the data at hand.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] R
with { check = false } {
  %y: f32[8, 16] R = gelu %x
}
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] R
%y: f32[8, 16] R = gelu %x
)",
};

} // namespace spmd::rules
