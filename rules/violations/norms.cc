// The manual pages of the findings of norms.h.
#include "rules/violations/norms.h"

namespace spmd::rules {

constinit const DiagnosticInfo NormOvercount::info = {
    .name = "norm-overcount",
    .holds_for_inferred_cuts = true,
    .message = "`{op}` sums the squares of {operand} over {axes}, whose ranks all hold the same: "
               "they count once per rank",
    .explain = R"(
The norm of a list of gradients is the root of the sum of all squares. Where the parts of a
gradient are spread over an axis, their squares must be added up over it; where each rank holds
the whole gradient, adding up counts it once per rank. The norm is then too large, and gradients
are clipped that should not be, by an amount that depends on the size of the mesh. Take the norm
of those that are spread and of those that are not apart, and join the two by their squares.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%split = input f32[8, 16] V
%whole = input f32[16] R
%n = total_norm [%split, %whole] { axis = tp }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%split = input f32[8, 16] V
%whole = input f32[16] R
%a = total_norm [%split] { axis = tp }
%b = total_norm [%whole]
%n = hypot %a, %b
)",
};

constinit const DiagnosticInfo NormUndercount::info = {
    .name = "norm-undercount",
    .holds_for_inferred_cuts = true,
    .message = "`{op}` leaves out the blocks of {operand} that the other ranks of {axes} hold",
    .explain = R"(
The norm of a list of gradients is the root of the sum of all squares. This gradient is cut into
blocks along the axis, and the squares are not added up over it: each rank gets the norm of its
own block together with whatever the others of the list contribute. It is too small, it differs
between ranks, and so does the factor by which gradients are clipped: copies of one parameter
drift apart. Name the axis among those that are summed, or take the norm of such gradients apart
from the others and join the two by their squares.
)",
    .wrong = R"(
mesh m { tp = 4 }
%split = input f32[8, 16@tp]
%n = total_norm [%split]
)",
    .right = R"(
mesh m { tp = 4 }
%split = input f32[8, 16@tp]
%n = total_norm [%split] { axis = tp }
)",
};

} // namespace spmd::rules
