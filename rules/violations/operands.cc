// The manual pages of the findings of operands.h.
#include "rules/violations/operands.h"

namespace spmd::rules {

constinit const DiagnosticInfo MissingClaim::info = {
    .name = "missing-claim",
    .message = "`{op}` uses {operand}, whose kind on {axes} is not stated",
    .explain = R"(
Nothing states how the ranks of the axis hold this operand: as copies (R, I), as values of their
own (V, or 16@tp for a cut dimension), or as addends of a pending sum (P). A kind that is not
stated is not taken for replicate: the two most expensive mistakes, a missing reduction and a
superfluous one, look the same when kinds are guessed. The operand is reported at its first use
and not again. State its kind where it is declared. --permissive leaves such axes unknown instead,
and the last line of the output counts the values.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16]
%y = gelu %x
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] V
%y = gelu %x
)",
};

constinit const DiagnosticInfo UndecidedKind::info = {
    .name = "undecided-kind",
    .message = "{value} is the same on all ranks of {axes}; whether its gradient is, too (I), or "
               "is a pending sum (R), is not stated",
    .explain = R"(
The value is known to be equal on all ranks, but not whether its gradient is: R|I leaves that
open, as a framework does that knows one word for both. With R each rank has its own share of
the gradient and a sum is pending; with I the gradient is complete. A wrong guess scales
gradients by the number of ranks. State R or I, state the gradient as backward leaves it, or
declare that no gradient is needed.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%w = param f32[16] R|I
%y = neg %w
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%w = param f32[16] R|I { grad = P }
%y = neg %w
)",
};

constinit const DiagnosticInfo ShapeMismatch::info = {
    .name = "shape-mismatch",
    .message = "`{op}` needs {what} equal: {expected} and {found}",
    .explain = R"(
Two extents that the equation of the op joins are different on one rank. Shapes are local: they
count what a rank holds, not what all ranks hold together. The usual cause is therefore a size
taken from the whole tensor where the part is meant, or a tensor that was gathered on one side
of a contraction and not on the other. The declared shape of a result is compared with the one
that follows in the same way.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] R
%w = param f32[4, 8] R
%y = matmul %x, %w
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] R
%w = param f32[16, 8] R
%y = matmul %x, %w
)",
};

constinit const DiagnosticInfo OperandMismatch::info = {
    .name = "operand-mismatch",
    .message = "`{op}` takes {expected}; {found}",
    .explain = R"(
The operands do not fit the row of the op table: there are too few of them, too many, one has a
name that the op does not know, or a list stands where a tensor is expected. The op is then not
typed at all and its results are unknown, so nothing that follows from them is checked. Usually
an exporter has dropped or reordered an argument, or the spelling of another overload was used.
`spmdlint ops NAME` prints the equation with its operands.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] R
%y = matmul %x
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] R
%w = param f32[16, 4] R
%y = matmul %x, %w
)",
};

} // namespace spmd::rules
