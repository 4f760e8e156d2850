// The manual pages of the findings of coverage.h.
#include "rules/violations/coverage.h"
#include "rules/violations/symbols.h"

namespace spmd::rules {

constinit const DiagnosticInfo UnknownOp::info = {
    .name = "unknown-op",
    .message = "no rule for `{op}`, so its results are unknown[, and so are those of {behind} "
               "behind it][; nearest is `{nearest}`]",
    .explain = R"(
No row of the op table and no transition has this name, also not under another spelling, so
nothing is known of the result: it is unknown, and whatever depends on it is not checked. The last
line of the output counts such ops and values. In a recorded step without declarations this is a
note, with the number of ops behind it whose results are unknown for it: the rest of the step is
judged as ever, and no gradient that depends on it counts as proved. In a program that declares its
types it is an error. Besides a misspelling this is mostly a custom
kernel. Teach it with an equation, or with the name of an op that it behaves like, in the rules of
the program; `spmdlint ops` lists what is known.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] R
%y = gelu_gate %x
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
rule gelu_gate = "f(a[...]) -> [...]"
suppress assumed-rule { reason = "own kernel" }
%x = input f32[8, 16] R
%y = gelu_gate %x
)",
};

constinit const DiagnosticInfo ImplicitCast::info = {
    .name = "implicit-cast",
    .severity = Severity::Info,
    .message = "`{op}` marks {operand} varying on {axes} implicitly, as LTensor does",
    .explain = R"(
LTensor takes the union of the variant sets of all operands: one that is in neither set of an
axis becomes variant there by a mark_varying that nobody wrote. Its backward sums the gradient
over the axis, and here that is so: the cast is reinterpret(I, V), which the program runs with.
An operand in the reduced set needs none, since R with V is V and its gradient stays pending
for its owner; one rule for both, as LTensor has it, counts the gradient of one of them
once for each rank. It is listed because the sum costs a collective in backward: where the
operand is used often, mark it once, or make it reduced.
)",
    .wrong = R"(
trace { mode = local, dialect = ltensor }
mesh m { dp = 2 }
%x = input f32[8, 16] variant={dp} reduced={}
%w = param f32[8, 16] variant={} reduced={}
%y = mul %x, %w
)",
    .right = R"(
trace { mode = local, dialect = ltensor }
mesh m { dp = 2 }
%x = input f32[8, 16] variant={dp} reduced={}
%w = param f32[8, 16] variant={} reduced={}
%v = mark_varying %w { axis = dp }
%y = mul %x, %v
)",
};

constinit const DiagnosticInfo AssumedRule::info = {
    .name = "assumed-rule",
    .severity = Severity::Info,
    .message = "the rule of `{op}` is the program's own and is believed: {equation}",
    .explain = R"(
The program brings its own rule for this op, and the checker takes it on trust: what is reported
about the results is right only if the equation says what the kernel does. A factor that is
nonlinear in truth and linear in the equation lets a pending sum pass where it must not. It is
listed once per op, so that a reviewer can compare the equation with the kernel. An op that is
common deserves a row of its own in the table.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
rule mylib.swiglu = "f(g[...]) * u[...] -> [...]"
%g = input f32[8, 16] V
%u = input f32[8, 16] V
%y = mylib.swiglu %g, %u
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%g = input f32[8, 16] V
%u = input f32[8, 16] V
%s = silu %g
%y = mul %s, %u
)",
};

constinit const DiagnosticInfo UndecidedExtents::info = {
    .name = "undecided-extents",
    .severity = Severity::Info,
    .message = "`{op}` needs {what} equal, and nothing says whether {left} and {right} are",
    .explain = R"(
Two extents must be equal, or a division without a rest (an extent of `s % 4` that must be 0),
and what the program declares of their symbols leaves it open: for some values the program is
right, for others it is not. Nothing is refused; what follows is judged as if they were equal. It
is reported once for all comparisons that the same statement would decide, at the first of them.
Where extents are equal by construction, write them with one symbol, or one as an expression over
the other. Where a symbol has one value, declare it as `min` and `max`; where it is a multiple of
a number, as `multiple_of`. Facts that keep the two apart (`max` of one below `min` of the other)
make it a shape-mismatch. Sizes that depend on data stay open: a run tells.
)",
    .wrong = R"(
mesh m { tp = 2 }
symbol s { min = 1, max = 64 }
symbol t { min = 1, max = 64 }
%x = input f32[s@tp, 8]
%y = input f32[t@tp, 8]
%z = add %x, %y
)",
    .right = R"(
mesh m { tp = 2 }
symbol s { min = 1, max = 64 }
%x = input f32[s@tp, 8]
%y = input f32[s@tp, 8]
%z = add %x, %y
)",
};

constinit const DiagnosticInfo UnusedSuppression::info = {
    .name = "unused-suppression",
    .severity = Severity::Warning,
    .message = "suppression of {finding} matches nothing",
    .explain = R"(
A finding is accepted here, and there is none of that name at that place. Either it was
repaired, or the scope or the location no longer fits the program. An entry that matches nothing
is dangerous: it will swallow the next finding of that kind, which may be a new mistake. Delete
it, or correct its scope.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
suppress partial-into-nonlinear { reason = "logged only" }
%x = input f32[8] R
%y = gelu %x
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] R
%y = gelu %x
)",
};

constinit const DiagnosticInfo ExpiredSuppression::info = {
    .name = "expired-suppression",
    .severity = Severity::Warning,
    .message = "suppression of {finding} expired on {date}",
    .explain = R"(
A finding was accepted until a date that has passed. From that day on the entry has no effect,
and the findings that it covered are reported again. The date was a promise to repair the
program; the entry is kept in view until somebody either does so and deletes it, or decides anew
and moves the date.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
suppress partial-into-nonlinear { reason = "until the new kernel", until = "2020-01-31" }
%x = input f32[8] R
%y = gelu %x
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] R
%y = gelu %x
)",
};

constinit const DiagnosticInfo MalformedSuppression::info = {
    .name = "malformed-suppression",
    .severity = Severity::Error,
    .drawn_by = ReportedBy::Report,
    .message = "this comment accepts nothing: {problem}",
    .explain = R"(
A comment `# spmd: ignore[NAME] reason` in a Python source accepts the findings of that name on its
line, or, where it stands alone, on the next line of code. Names are separated by commas. It has to
name findings that there are, and to say why they are accepted: whoever reads the line later cannot
ask the checker. A comment without a name would accept whatever is found there one day.
)",
};

constinit const DiagnosticInfo SourceChanged::info = {
    .name = "source-changed",
    .severity = Severity::Warning,
    .drawn_by = ReportedBy::Report,
    .message = "{path} changed since the trace was recorded, so its lines are not quoted",
    .explain = R"(
The trace states a hash for this source file, and the file below the source root has another
one: it was edited after the trace was recorded, or it belongs to another commit. Line numbers
of findings would point at the wrong lines, so its lines are not quoted, and the program line is
printed instead. Record the trace again, or point --source-root at the version that was traced.
)",
};

} // namespace spmd::rules
