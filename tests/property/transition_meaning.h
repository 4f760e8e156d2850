// What a transition row means, written twice: on denotations, as spmd_types specifies each function
// (its DESIGN.md), and on ranks, as a backend carries out the row's collective and local step. The
// two know nothing of each other.
#pragma once

#include "rules/transitions/transition.h"
#include "tests/property/tensors.h"

namespace spmd::property {

// The attributes of one call.
struct Form {
  bool shard = false;         // V ends are S(dim), else a stack on dimension `dim`
  size_t dim = 0;             // all but all_to_all
  size_t split = 0, join = 0; // all_to_all: the dimension that is cut, the one that is made longer
  std::vector<int> lengths;   // of the pieces that S(i) is cut into; none: equal
  size_t root = 0;
  std::vector<std::optional<size_t>> sends_to; // collective_permute
};
// The same call read backwards.
Form inverse(const Form &form);

// What ranks mean together: one tensor, or a list with one per rank.
struct Meaning {
  bool list = false;
  Ranks pieces;
  friend bool operator==(const Meaning &, const Meaning &) = default;
};
Meaning denote(ir::Kind kind, const Ranks &ranks);

// The specification: from what the operand means to what the result means.
Meaning specify(const rules::Transition &row, const Form &form, size_t ranks, const Meaning &x);
// The execution. `average`: sums are divided by the number of ranks, or the data where there is
// none.
Ranks execute(const rules::Transition &row, const Form &form, const Ranks &x, bool average = false);
// The execution of the row's backward; of a composed row, of its parts, last first.
Ranks execute_backward(const rules::Transition &row, const Form &form, const Ranks &gradient,
                       bool average = false);

// Every call worth trying on tensors of this many dimensions.
std::vector<Form> forms_of(const rules::Transition &row, size_t ranks, size_t dims,
                           std::mt19937 &random);
// An operand shape on which the call is defined.
std::vector<int> shape_for(const rules::Transition &row, const Form &form, size_t ranks,
                           size_t dims);
// For messages: `all_gather(V, R)`.
std::string print(const rules::Transition &row);

} // namespace spmd::property
