// The manual pages of the findings of positions.h.
#include "rules/violations/steps/positions.h"

namespace spmd::rules {

constinit const DiagnosticInfo RepeatedPositions::info = {
    .name = "repeated-positions",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .message = "{operand} is that of the first block on every rank of {axes}, and `{op}` puts it "
               "beside a dimension of which each rank has its own block",
    .explain = R"(
Numbers that a program counts up, such as `arange(n)`, say where elements lie. Each rank has its
own block of a dimension here, and all ranks number their blocks in the same way: the second
block begins at 0 again. Position tables and rotary angles are then those of the first block
everywhere, and labels of a contrastive loss name the samples of the first rank. Begin at the
offset of the rank's block: `arange(n) + rank * n`. So it is with the first rows of a tensor that
all ranks have, and with a mask that an optimizer has cut out at one place on all ranks, where each
of them updates its own block of the parameters.

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

constinit const DiagnosticInfo RepeatedDraws::info = {
    .name = "repeated-draws",
    .severity = Severity::Warning,
    .holds_for_inferred_cuts = true,
    .message = "{operand} was drawn by one key on all ranks of {axes}, and `{op}` puts it beside a "
               "dimension of which each rank has its own block",
    .explain = R"(
The numbers are a function of the key, which does not differ between the ranks. They were drawn for
as many elements as one rank has in its block: the mask or the noise of the first block is repeated
in all others, samples of different ranks are no longer independent, and one device would draw
others. Give each rank a key of its own (`jax.random.fold_in(key, lax.axis_index("dp"))`, or keys
that are split outside of the shard_map and cut as the data are), or draw for the whole dimension
and take the part of the rank.

Only recorded steps without declarations are judged so, and only numbers that a key makes.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { dp = 4 }
%x = input f32[8@dp, 16]
%key = input u32[] R
%bits: u32[8, 16] = jax.random_bits %key { bit_width = 32, shape = [8, 16] }
%noise = jax.convert_element_type %bits { new_dtype = "f32" }
%y = jax.mul %x, %noise
)",
    .right = R"(
trace { mode = gradual }
mesh m { dp = 4 }
%x = input f32[8@dp, 16]
%key = input u32[] R
%rank = jax.axis_index { axis = dp }
%own = jax.random_fold_in %key, %rank
%bits: u32[8, 16] = jax.random_bits %own { bit_width = 32, shape = [8, 16] }
%noise = jax.convert_element_type %bits { new_dtype = "f32" }
%y = jax.mul %x, %noise
)",
};

} // namespace spmd::rules
