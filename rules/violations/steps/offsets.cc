// The manual page of the finding of offsets.h.
#include "rules/violations/steps/offsets.h"

namespace spmd::rules {

constinit const DiagnosticInfo BlockOffset::info = {
    .name = "block-offset",
    .by_meaning = true,
    .message = "the index begins {found} further on each rank of {axes}, and each rank has {rows} "
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

} // namespace spmd::rules
