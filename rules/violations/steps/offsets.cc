// The manual pages of the findings of offsets.h.
#include "rules/violations/steps/offsets.h"

namespace spmd::rules {

constinit const DiagnosticInfo BlockOffset::info = {
    .name = "block-offset",
    .holds_for_inferred_cuts = true,
    .message = "the index begins {found} further on each rank of {axes}, but each rank has {rows} "
               "rows of the table",
    .explain = R"(
A table, such as an embedding or the logits of a vocabulary, is cut by rows: each rank has its own
block and looks up `ids - start` in it, where `start` is the first row that it has. Here `start`
does not grow by the number of rows from one rank to the next. Some rows are then looked up by two
ranks or by none, and others give what belongs to another row. Compute the offset from the block
that the rank has: `start = rank * table.shape[0]`.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { tp = 4 }
%table = param f32[8@tp, 16]
%ids = input i64[4, 5] R
%rank = axis_index { axis = tp }
%start = mul %rank, 7
%local = sub %ids, %start
%row = aten.embedding.default %table, %local
)",
    .right = R"(
trace { mode = gradual }
mesh m { tp = 4 }
%table = param f32[8@tp, 16]
%ids = input i64[4, 5] R
%rank = axis_index { axis = tp }
%start = mul %rank, 8
%local = sub %ids, %start
%row = aten.embedding.default %table, %local
)",
};

constinit const DiagnosticInfo ForeignRows::info = {
    .name = "foreign-rows",
    .holds_for_inferred_cuts = true,
    .message = "each rank of {axes} adds {operand} to its own rows, including what belongs to the "
               "rows of other ranks: nothing sets that to zero",
    .explain = R"(
A table, or a gradient, is cut by rows, and each rank adds something to those of its own rows that
an index names: `index = ids - start`. An index outside of the block is moved into it, by `clamp` or
by a mask, and what is added is the same on all ranks. Then a row gets its own and, on each rank,
what belongs to other ranks as well. The backward of a cross entropy over a split vocabulary does
this where the one-hot target is subtracted on every rank. Multiply what is added by the mask of the
rows that the rank has.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { tp = 4 }
%probs = input f32[6, 8@tp]
%ids = input i64[6, 1] R
%rank = axis_index { axis = tp }
%start = mul %rank, 8
%local = sub %ids, %start
%index = aten.clamp.default %local { min = 0, max = 7 }
%one = aten.full.default { size = [6, 1], fill_value = -1.0 }
%grad = aten.scatter_add.default %probs, %index, %one { dim = 1 }
)",
    .right = R"(
trace { mode = gradual }
mesh m { tp = 4 }
%probs = input f32[6, 8@tp]
%ids = input i64[6, 1] R
%rank = axis_index { axis = tp }
%start = mul %rank, 8
%local = sub %ids, %start
%low = aten.ge.Scalar %local, 0
%high = aten.lt.Scalar %local, 8
%inside = aten.logical_and.default %low, %high
%index = aten.clamp.default %local { min = 0, max = 7 }
%own = aten._to_copy.default %inside { dtype = f32 }
%one = aten.neg.default %own
%grad = aten.scatter_add.default %probs, %index, %one { dim = 1 }
)",
};

constinit const DiagnosticInfo WideMask::info = {
    .name = "wide-mask",
    .holds_for_inferred_cuts = true,
    .collectives_only_silence = true,
    .message = "the mask of {operand} also keeps what was looked up for rows that a rank of {axes} "
               "does not have",
    .explain = R"(
Each rank looks up its own rows of a table by `index = ids - start` and sets the rest to zero, so
that the sum over ranks has each row once. The mask asks less than that: one of its ends is missing,
or lies beyond the block. For what lies there the index was moved into the block, and the rank gives
some row of its own that nobody asked for, beside the right one of another rank. Both ends count:
`(ids >= start) & (ids < start + rows)`.

Only recorded steps without declarations are judged so.
)",
    .wrong = R"(
trace { mode = gradual }
mesh m { tp = 4 }
%table = input f32[8@tp, 16]
%ids = input i64[6] R
%rank = axis_index { axis = tp }
%start = mul %rank, 8
%local = sub %ids, %start
%kept = aten.ge.Scalar %local, 0
%index = aten.clamp.default %local { min = 0, max = 7 }
%rows = aten.embedding.default %table, %index
%mask = aten.unsqueeze.default %kept { dim = 1 }
%own = aten.mul.Tensor %rows, %mask
%sum = all_reduce %own { axis = tp, op = sum }
)",
    .right = R"(
trace { mode = gradual }
mesh m { tp = 4 }
%table = input f32[8@tp, 16]
%ids = input i64[6] R
%rank = axis_index { axis = tp }
%start = mul %rank, 8
%local = sub %ids, %start
%low = aten.ge.Scalar %local, 0
%high = aten.lt.Scalar %local, 8
%kept = aten.logical_and.default %low, %high
%index = aten.clamp.default %local { min = 0, max = 7 }
%rows = aten.embedding.default %table, %index
%mask = aten.unsqueeze.default %kept { dim = 1 }
%own = aten.mul.Tensor %rows, %mask
%sum = all_reduce %own { axis = tp, op = sum }
)",
};

} // namespace spmd::rules
