// The manual pages of the findings of implicit.h.
#include "rules/violations/commands/implicit.h"

namespace spmd::rules {

constinit const DiagnosticInfo ImplicitRedistribute::info = {
    .name = "implicit-redistribute",
    .severity = Severity::Info,
    .drawn_by = ReportedBy::Elaborate,
    .message = "`{op}` needs operand {operand} as {wanted}, {value} is {found}: {forward} bytes "
               "forward, {backward} backward, {collectives}[, for {shared}] ({reason})",
    .explain = R"(
An op in a region `with { implicit = true }` does not accept an operand as it is, and `spmdlint
elaborate` has brought it to another type first. The values are right, and nobody has written down
that there is communication, how much, or what the gradient does on the way back. To avoid it,
state the redistribution where the value is made, once for all its uses, or give the value the
type that its uses need. To accept it, suppress the finding. `--redistribute=warn|error` and
`--redistribute-limit=BYTES`, forward and backward together, make a gate of it.

    mesh m { tp = 4 }
    %x = input f32[8, 16@tp]
    with { implicit = true } {
      %y = softmax %x { dim = 1 }      // 1536 bytes forward
    }

The same, stated:

    %w = redistribute %x { axis = tp, src = S(1), dst = R }
    %y = softmax %w { dim = 1 }
)",
};

} // namespace spmd::rules
