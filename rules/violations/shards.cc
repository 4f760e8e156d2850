// The manual pages of the findings of shards.h.
#include "rules/violations/shards.h"

namespace spmd::rules {

constinit const DiagnosticInfo UnstatedPartial::info = {
    .name = "unstated-partial",
    .message = "`{op}` sums over dimension {dim} of {operand}, which is sharded on {axes}: the "
               "result is partial there, and the op does not state it",
    .explain = R"(
A dimension over which the op sums is cut into shards. Each rank sums its own shard only, so that
what the ranks hold are addends of the result. That is fine, and communicates nothing, but it
must be meant: a partial that nobody expects is the usual origin of a surprising all_reduce, or
of a missing one. State it with `partial` on the op, or gather the dimension first. Under
--infer-partial it is taken as stated.
)",
    .wrong = R"(
mesh m { tp = 4 }
%x = input f32[8, 16@tp]
%w = param f32[16@tp, 64]
%y = matmul %x, %w
)",
    .right = R"(
mesh m { tp = 4 }
%x = input f32[8, 16@tp]
%w = param f32[16@tp, 64]
%y = matmul %x, %w { partial = tp }
)",
};

constinit const DiagnosticInfo SpecMismatch::info = {
    .name = "spec-mismatch",
    .message = "`{op}` takes {operand} sharded on {axes} in dimension {dim}, but {other} does not "
               "shard its dimension {other_dim} there",
    .explain = R"(
The equation of the op walks along one dimension in both operands. In one of them each rank holds
its own block of that dimension, in the other it does not: it holds the whole of it, or blocks of
another dimension. A rank would combine elements that do not belong together, and where extents
happen to agree nothing fails. Gather the sharded operand, or cut the other one in the same way.
)",
    .wrong = R"(
mesh m { tp = 4 }
%x = input f32[8, 16@tp]
%y = input f32[8@tp, 16]
%z = add %x, %y
)",
    .right = R"(
mesh m { tp = 4 }
%x = input f32[8, 16@tp]
%y = input f32[8, 16@tp]
%z = add %x, %y
)",
};

constinit const DiagnosticInfo UnwholeDimension::info = {
    .name = "unwhole-dimension",
    .message = "`{op}` needs dimension {dim} of {operand} whole; it is sharded on {axes}",
    .explain = R"(
The op looks at all of the dimension at once: it normalises along it, sorts it, takes its maximum,
cuts it or joins something to it. Of a shard it would compute something else, for instance a
softmax that sums to one on each rank. Gather the dimension before, shard another one, or write
the op as a chain that exchanges what is needed (a maximum, a sum). The mark ! in the equation
that `spmdlint ops` prints names such dimensions.
)",
    .wrong = R"(
mesh m { tp = 4 }
%x = input f32[8, 16@tp]
%y = softmax %x { dim = 1 }
)",
    .right = R"(
mesh m { tp = 4 }
%x = input f32[8@tp, 16]
%y = softmax %x { dim = 1 }
)",
};

constinit const DiagnosticInfo AxisUsedTwice::info = {
    .name = "axis-used-twice",
    .message = "the result of `{op}` would be sharded twice on {axes}: by dimension {dim} of "
               "{operand} and dimension {other_dim} of {other}",
    .explain = R"(
Both operands are sharded on the axis, in dimensions that are different ones of the op. Rank k
would combine block k of one with block k of the other; all other pairs of blocks are computed
nowhere. Together the ranks hold the diagonal of a grid of blocks, not the result. Gather one of
the operands on this axis.
)",
    .wrong = R"(
mesh m { tp = 4 }
%x = input f32[8@tp, 16]
%w = param f32[16, 64@tp]
%y = matmul %x, %w
)",
    .right = R"(
mesh m { tp = 4 }
%x = input f32[8@tp, 16]
%w = param f32[16, 64] R
%y = matmul %x, %w
)",
};

constinit const DiagnosticInfo ShardOrderUnknown::info = {
    .name = "shard-order-unknown",
    .message = "`{op}` joins a dimension that {operand} shards on ({order}) and {other} on "
               "({other_order}), outermost first",
    .explain = R"(
Several axes cut one dimension into blocks, and the operands number these blocks in different
orders. Shapes are equal, yet the same rank holds other elements of the two: [12@(dp,tp)] and
[12@(tp,dp)] agree on the first and the last rank only. Redistribute one operand into the order of
the other; where one operand is sharded on an axis more than the other, gather that axis.
)",
    .wrong = R"(
mesh m { dp = 2, tp = 4 }
%x = input f32[8@(dp,tp), 16]
%y = input f32[8@(tp,dp), 16]
%z = add %x, %y
)",
    .right = R"(
mesh m { dp = 2, tp = 4 }
%x = input f32[8@(dp,tp), 16]
%y = input f32[8@(dp,tp), 16]
%z = add %x, %y
)",
};

constinit const DiagnosticInfo NoSpec::info = {
    .name = "no-spec",
    .message = "{value} is varying on {axes}, but no dimension says how the pieces join",
    .explain = R"(
In a global program every value stands for one tensor, and a value that differs between ranks must
say which of its dimensions is cut. This one was taken out of that world, by to_local, by a local
region, or by its declaration, and now meets a sharded value, or leaves the program. State how
its pieces join with from_local or on the result of the local region, or keep working in the
region.
)",
    .wrong = R"(
mesh m { tp = 4 }
%x = input f32[8, 16@tp]
%l = to_local %x
%y = add %l, %x
)",
    .right = R"(
mesh m { tp = 4 }
%x = input f32[8, 16@tp]
%l = to_local %x
%g = from_local %l { type = f32[8, 16@tp] }
%y = add %g, %x
)",
};

constinit const DiagnosticInfo StridedShard::info = {
    .name = "strided-shard",
    .message = "`{op}` would leave the shards of dimension {dim} of {operand} on {axes} in "
               "pieces, not in one block per rank",
    .explain = R"(
Dimensions are merged in row-major order, and one that is not the leading part of the merge is
sharded. The elements that a rank holds would be spread over the merged dimension with gaps, which
no partition spec can say: a shard is one block. Merge without the sharded dimension, move it in
front before the merge, or gather it.
)",
    .wrong = R"(
mesh m { tp = 4 }
%x = input f32[8, 16@tp]
%y = reshape %x { shape = [128] }
)",
    .right = R"(
mesh m { tp = 4 }
%x = input f32[8@tp, 16]
%y = reshape %x { shape = [128] }
)",
};

constinit const DiagnosticInfo StridedUneven::info = {
    .name = "strided-uneven",
    .message = "`{op}` splits dimension {dim} of {operand}, whose blocks on {axes} are uneven, "
               "between block boundaries",
    .explain = R"(
A dimension that is sharded into blocks of different size is split in two, and some block ends in
the middle of what becomes one index of the leading part. That index would be held by two ranks.
With even blocks a split is exact, and so it is where every block holds a multiple of the inner
extent. Pad the dimension so that it is, or gather it.
)",
    .wrong = R"(
mesh m { tp = 4 }
%x = input f32[4@tp] of [15]
%y = reshape %x { shape = [2, 2] }
)",
    .right = R"(
mesh m { tp = 4 }
%x = input f32[4@tp]
%y = reshape %x { shape = [2, 2] }
)",
};

constinit const DiagnosticInfo UnevenShard::info = {
    .name = "uneven-shard",
    .message = "`{op}` weighs the shards of dimension {dim} of {operand} on {axes} equally, but "
               "they differ in size",
    .explain = R"(
The op divides by the number of elements that a rank holds, and ranks hold different numbers of
them. The average of their averages is not the average: elements of a small shard count for more.
Sum first, and divide by the whole number once the sums are joined.
)",
    .wrong = R"(
mesh m { tp = 4 }
%x = input f32[4@tp] of [14]
%y = mean %x { dim = [0], partial = tp }
)",
    .right = R"(
mesh m { tp = 4 }
%x = input f32[4@tp] of [14]
%y = sum %x { dim = [0], partial = tp }
)",
};

constinit const DiagnosticInfo UnevenList::info = {
    .name = "uneven-list",
    .severity = Severity::Warning,
    .message = "`{op}` takes the parts of dimension {dim} of {operand} on {axes} as tensors of "
               "their own, but they differ in size: only one size is checked",
    .explain = R"(
Inside of a local region, and after `to_local`, what each rank holds is a tensor of its own, and
all ranks run the same ops on it. Its shape is checked once, as the rank has it that was recorded;
blocks of different size have several shapes. What fits on that rank may not fit on another: a sum
with another value is stretched or refused there, and a collective over the axis waits for bytes
that never come. Pad the dimension to a multiple of the ranks, gather it, or keep the axis out of
the region: outside, the sizes of the blocks are followed. If the ops between `to_local` and
`from_local` fit blocks of any size, suppress this where it stands.
)",
    .wrong = R"(
mesh m { dp = 2 }
%x = input f32[2@dp, 4] of [3, 4]
%y = to_local %x
)",
    .right = R"(
mesh m { dp = 2 }
%x = input f32[2@dp, 4] of [4, 4]
%y = to_local %x
)",
};

constinit const DiagnosticInfo NoShardRule::info = {
    .name = "no-shard-rule",
    .message = "`{op}` has no sharding rule for {operand} on {axes}",
    .explain = R"(
What the op does is defined on what one rank holds, not on the tensor that all ranks hold together:
what becomes of its dimensions is not known, it is a kernel about which nothing is known, or it
stacks, unbinds or exchanges what the ranks hold without saying which dimension is cut. Use the form
that names the dimension, S(i), teach the op with a rule, or call it in a local region and state how
the result joins.
)",
    .wrong = R"(
mesh m { tp = 4 }
%x = input f32[8, 16@tp]
%y = all_gather %x { axis = tp, src = V, dst = R }
)",
    .right = R"(
mesh m { tp = 4 }
%x = input f32[8, 16@tp]
%y = all_gather %x { axis = tp, src = S(1), dst = R }
)",
};

constinit const DiagnosticInfo NotInnermost::info = {
    .name = "not-innermost",
    .message = "`{op}` runs over {axes}, which is not the innermost axis on dimension {dim} of "
               "{operand}: that is sharded on ({order}), outermost first",
    .explain = R"(
Several axes shard one dimension, the outer one into large blocks and the inner one each of these
again. A collective over the outer axis joins every n-th small block: the result has the right
shape and the wrong order of elements. Gather or exchange the innermost axis first, or state the
whole target with redistribute.
)",
    .wrong = R"(
mesh m { dp = 2, tp = 4 }
%x = input f32[2@(dp,tp), 8]
%y = all_gather %x { axis = dp, src = S(0), dst = R }
)",
    .right = R"(
mesh m { dp = 2, tp = 4 }
%x = input f32[2@(dp,tp), 8]
%y = all_gather %x { axis = tp, src = S(0), dst = R }
)",
};

constinit const DiagnosticInfo WrongDimension::info = {
    .name = "wrong-dimension",
    .message = "`{op}` names dimension {stated} on {axes}; {operand} is sharded on dimension "
               "{found}",
    .explain = R"(
The collective joins blocks along one dimension, and the operand is cut along another. The result
would have a plausible shape and its elements in the wrong places. Functional collectives of
PyTorch always mean dimension 0; where the exporter keeps the reshapes around them, those move the
blocks to where they belong, and a shard of another dimension must be moved before.
)",
    .wrong = R"(
mesh m { tp = 4 }
%x = input f32[8, 16@tp]
%y = all_gather %x { axis = tp, src = S(0), dst = R }
)",
    .right = R"(
mesh m { tp = 4 }
%x = input f32[8, 16@tp]
%y = all_gather %x { axis = tp, src = S(1), dst = R }
)",
};

constinit const DiagnosticInfo MixedPolicy::info = {
    .name = "mixed-policy",
    .message = "`{op}` runs over {local}, which is local here, and over {axes}, which is global",
    .explain = R"(
One collective runs over axes of which some are local here and some global. On the local ones it
works on what each rank holds, on the global ones on the tensor that the ranks hold together; no
single meaning covers both. Make two calls of it, one per kind of axis, or enlarge the local
region.
)",
    .wrong = R"(
mesh m { dp = 2, tp = 4 }
%x = input f32[8, 16@tp] P@dp
local (dp) {
  %y = all_reduce %x { axis = (dp, tp), src = P, dst = R }
}
)",
    .right = R"(
mesh m { dp = 2, tp = 4 }
%x = input f32[8, 16@tp] P@dp
local (dp) {
  %y = all_reduce %x { axis = dp, src = P, dst = R }
}
)",
};

constinit const DiagnosticInfo SpecNotRemappable::info = {
    .name = "spec-not-remappable",
    .message = "dimension {dim} of {operand} is sharded on ({spec}), which cannot be written with "
               "the axes of mesh {mesh}",
    .explain = R"(
A tensor is seen on another mesh over the same ranks. Its blocks stay where they are, so the axes
that shard a dimension must be, in the same order, axes of the other mesh: an axis of the new mesh
may join several of the old ones only where they stand next to each other, outer one first.
Redistribute on the old mesh into an order that the new one can say.
)",
    .wrong = R"(
mesh s { ep = 8 }
mesh m { dp = 2, tp = 4 }
%x = input f32[2@(tp,dp), 8]
%y = reinterpret_mesh %x { mesh = s }
)",
    .right = R"(
mesh s { ep = 8 }
mesh m { dp = 2, tp = 4 }
%x = input f32[2@(dp,tp), 8]
%y = reinterpret_mesh %x { mesh = s }
)",
};

} // namespace spmd::rules
