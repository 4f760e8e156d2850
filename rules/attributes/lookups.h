// What a call picks by an index, and what it counts up: numbers that say which rows are meant.
#pragma once

#include "rules/application.h"

#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <utility>

namespace spmd::rules {

// Of which dimension of a table, the operand `table`, the operand `index` picks rows.
struct Pick {
  size_t table, index;
  unsigned dim;
};
llvm::SmallVector<Pick, 2> picks_of(const Application &app);
// The dimension of the result in which these rows lie: where the index picks among the first
// dimensions of a table, together with others, theirs that is as far from the end.
std::optional<unsigned> rows_of(const Application &app, const Pick &pick);
// Of a list of indices, an index for each dimension: the operand, and the dimension.
llvm::SmallVector<std::pair<size_t, unsigned>, 2> listed_indices(const Application &app);
// The dimension of the first operand that is named, if it is one.
std::optional<unsigned> dim_of_first(const Application &app);

// Whether the op makes numbers by counting.
bool counts_up(const ResolvedOp &op);
bool counts_by_one(const Application &app); // in steps of one
// The dimension along which it does.
unsigned counted_dim(const ir::Program &program, ir::AttrsId attrs);

} // namespace spmd::rules
