// Axes whose sizes are symbols. In layouts each symbol is a prime of its own that divides no size
// in numbers: products of sizes are equal, and divide one another, as they do for every value. What
// is computed from sizes of axes is read back as an extent, and printed with its symbols.
#pragma once

#include "ir/program.h"

#include <optional>
#include <string>

namespace spmd::ir {

// What stands for a size or a stride in a layout of `mesh`, which is being read. None, with what is
// wrong.
std::optional<int64_t> symbol_prime(Program &program, const Mesh &mesh, Extent size,
                                    std::string &error);
// Whether a product of sizes, or of strides, depends on a symbol.
bool is_symbolic(const Program &program, int64_t ranks);
bool is_symbolic(const Program &program, const Mesh &mesh);
// Such a product as an extent.
Extent rank_extent(Program &program, int64_t ranks);
std::string print_ranks(const Program &program, int64_t ranks);
// The largest value that is known of a product; none if a symbol in it has no `max`.
std::optional<int64_t> most_ranks(const Program &program, int64_t ranks);

// The number that a size counts as where a number is needed: of a symbol its `hint`, else the least
// value above one rank. And an extent with these numbers in it.
int64_t assumed_ranks(const Program &program, int64_t ranks);
Extent assumed(Program &program, Extent extent);
// `dp = 2, tp = 8`: what symbols in sizes count as.
std::string print_assumed(const Program &program);

// As finish(), which says nothing of numbers that are none. Strides that the program states must
// hold for every value of the symbols.
std::string finish_mesh(const Program &program, Mesh &mesh);

} // namespace spmd::ir
