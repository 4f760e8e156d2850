// One term of an equation, laid out: loops over variables, which are the factors of the
// application. A factor that is whole and outside of f is two variables, joined by a linear map:
// one on the side of the operands, one on that of the result.
#pragma once

#include "runtime/equation/equation.h"
#include "runtime/equation/product.h"
#include "runtime/tensor/scratch.h"

#include <vector>

namespace spmd::runtime::lowered {

struct Variable {
  uint8_t factor = 0;
  bool of_result = false; // only of a joined one
  bool joined = false;
  int64_t extent = 1;
};

// Entries of a condition that point along `target`: positions there, or -1.
struct Index {
  uint32_t arg = 0;
  unsigned target = 0; // variable
  Strides strides;     // as its entries lie
  Strides read;        // of its positions, as they are looked up
  int64_t size = 0;    // of these
  int64_t extent = 0;  // of the target
  bool whole = false;  // entries count from the start of what is at hand
  bool held = false;   // a tensor tells of which block the target is: an operand or a result
  bool in_result = false;
  unsigned tensor = 0, dim = 0;
};

// An argument of f: a hash per place of what f is given there, whole dimensions folded.
struct FunctionArgument {
  bool draws = false; // random numbers
  uint32_t arg = 0;
  llvm::SmallVector<std::pair<int64_t, int64_t>, 4> folded; // extent, stride
  Strides strides;                                          // of the data, along variables
  Strides read;                                             // of the hashes
  int64_t size = 0;
};
struct Function {
  uint64_t seed = 0;
  llvm::SmallVector<FunctionArgument, 4> arguments;
};

// An array that is multiplied.
struct Source {
  enum class Form : uint8_t {
    Operand,
    Weight,   // a hash of each entry of a condition
    Function, // f
    Draws,    // random numbers
    Hit,      // 1 where an index points into what is at hand
  };
  enum class Keeps : uint8_t { Hash, True, False }; // Weight: entries for which it is 1, else 0
  Form form = Form::Operand;
  Keeps keeps = Keeps::Hash;
  uint32_t arg = 0;         // Operand, Weight
  unsigned part = 0;        // Function, Hit: which one
  Strides strides;          // as the data lie
  Strides read;             // as the product reads them
  int64_t size = 0;         // Function: of the data
  uint64_t seed = 0;        // Weight: of the hash
  bool is_gathered = false; // it is looked up, not read as it lies
  int64_t gathered = 0;     // number of elements then
};

// The pairs of whole positions that a linear map joins: all of them, or, where these were too many,
// some for each place of each tensor.
struct Edges {
  unsigned variable = 0;                       // that counts them
  int64_t count = 0;                           // 0: no map
  llvm::SmallVector<unsigned, 4> joined;       // variables that are looked up
  std::vector<std::vector<int64_t>> positions; // of each of these, per edge
  std::vector<uint64_t> hashes;                // per edge
  std::vector<Residue> coefficients;           // empty: f has them
};

struct Term {
  int64_t integer = 1, divisor = 1;
  double number = 1;   // instead of operands
  Residue residue = 1; // the same
  Strides extents;     // per variable; 1 of those looked up
  llvm::SmallVector<Index, 1> indices;
  llvm::SmallVector<Function, 1> functions;
  llvm::SmallVector<Source, 4> sources;
  Edges edges;
  Strides result;          // as it lies
  Strides product_strides; // as the product makes it, before it is scattered
  bool scatters = false;
  int64_t product_size = 0;
  std::optional<Product> product;
  // Random numbers are drawn per place of a result, or of an operand that has its extents.
  bool draws_by_arg = false;
  uint32_t draws_at = 0;
};

// Positions along a variable that are read from a table.
struct Lookup {
  unsigned variable;
  const int64_t *positions;
  const Strides *strides; // of the table
};

// Visits a dense array of strides `dense` over variables of `extents`, run by run, beside an array
// of strides `strides` of which some variables are looked up: visit(first of the dense array, place
// of the other, its step, length). Places that are not there are left out.
template <class Visit>
void walk(const Strides &extents, const Strides &dense, const Strides &strides,
          llvm::ArrayRef<Lookup> lookups, Visit visit) {
  llvm::SmallVector<unsigned, 8> loops;
  for (unsigned v = 0; v < extents.size(); ++v)
    if (dense[v] && extents[v] > 1)
      loops.push_back(v);
    else if (dense[v] && extents[v] == 0)
      return;
  llvm::sort(loops, [&](unsigned a, unsigned b) { return dense[a] > dense[b]; });
  llvm::SmallVector<Lookup, 4> used;
  for (const Lookup &lookup : lookups)
    if (strides[lookup.variable])
      used.push_back(lookup);
  bool run_varies = false;
  if (!loops.empty())
    for (const Lookup &lookup : used)
      run_varies |= (*lookup.strides)[loops.back()] != 0;
  int64_t length = 1, step = 0;
  if (!loops.empty() && !run_varies) {
    length = extents[loops.back()];
    step = strides[loops.back()];
    loops.pop_back();
  }
  Strides place(loops.size(), 0), tables(used.size(), 0);
  int64_t first = 0, direct = 0;
  while (true) {
    int64_t at = direct;
    bool there = true;
    for (size_t i = 0; i < used.size(); ++i) {
      int64_t found = used[i].positions[tables[i]];
      there &= found >= 0;
      at += found * strides[used[i].variable];
    }
    if (there)
      visit(first, at, step, length);
    size_t l = loops.size();
    for (; l-- > 0;) {
      unsigned v = loops[l];
      bool more = ++place[l] < extents[v];
      int64_t steps = more ? 1 : 1 - extents[v];
      first += steps * dense[v];
      direct += steps * strides[v];
      for (size_t i = 0; i < used.size(); ++i)
        tables[i] += steps * (*used[i].strides)[v];
      if (more)
        break;
      place[l] = 0;
    }
    if (l == size_t(-1))
      return;
  }
}

// Hashes: of 64 bits each, well mixed.
uint64_t mix(uint64_t hash, uint64_t more);
uint64_t hash_of(std::string_view text);
// Of the attributes that say what a function is; not of how its operands are typed.
uint64_t hash_of(const ir::Program &program, ir::AttrsId attrs);

// Chooses the edges of a map; `sets`: of joined variables that tensors have. `seed`: of the row.
void choose_edges(llvm::ArrayRef<Variable> variables, llvm::ArrayRef<uint64_t> labels,
                  std::vector<llvm::SmallVector<unsigned, 4>> sets, uint64_t seed, Edges &edges);
// The values of f over its variables. `draws`: random numbers, if it takes any.
void call_function(const Term &term, const Function &function, const Source &source,
                   const Call<Residue> &call, const Residue *draws, Residue *values);
// Random numbers per element of a tensor that is a block of `view`.
void draw(const Call<Residue> &call, const View<const Residue> &view, Residue *values);

// Adds the term to the result. `fresh`: what the result holds counts as zero. `divides`: by the
// divisor of the term. True if the result was made anew of floats.
template <class T>
bool run_term(const Term &term, const Call<T> &call, const View<T> &result, bool fresh,
              bool divides, const Precision &precision);

} // namespace spmd::runtime::lowered
