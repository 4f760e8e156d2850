// The manual page of the finding of positions.h.
#include "rules/violations/steps/positions.h"

namespace spmd::rules {

constinit const DiagnosticInfo RepeatedPositions::info = {
    .name = "repeated-positions",
    .severity = Severity::Warning,
    .by_meaning = true,
    .message = "{operand} counts from the same number on every rank of {axes}, and `{op}` puts it "
               "beside a dimension of which each rank has its own block",
    .explain = R"(
Numbers that a program counts up, such as `arange(n)`, say where elements lie. Each rank has its
own block of a dimension here, and all ranks number their blocks in the same way: the second
block begins at 0 again. Position tables and rotary angles are then those of the first block
everywhere, and labels of a contrastive loss name the samples of the first rank. Begin at the
offset of the rank's block: `arange(n) + rank * n`.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { cp = 4 }
%tokens = input f32[16, 512@cp, 64]
%table = param f32[2048, 64] R
%positions = aten.arange.default { end = 512 }
%angles = aten.embedding.default %table, %positions
%x = aten.add.Tensor %tokens, %angles
)",
    .right = R"(
trace { mode = gradual }
mesh m { cp = 4 }
%tokens = input f32[16, 512@cp, 64]
%table = param f32[2048, 64] R
%all = aten.arange.default { end = 2048 }
%positions = convert %all { axis = cp, dst = S(0) }
%angles = aten.embedding.default %table, %positions
%x = aten.add.Tensor %tokens, %angles
)",
};

} // namespace spmd::rules
