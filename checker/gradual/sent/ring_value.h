// What a rank holds of tensors whose blocks go round the ranks of an axis, as the keys and values
// of ring attention do: whose block a dimension is of, the sum over blocks of which ranks a value
// is, and what it is off by that cancels out later.
#pragma once

#include "ir/program.h"

#include "llvm/ADT/SmallVector.h"

#include <map>
#include <optional>
#include <vector>

namespace spmd::checker {

// Expressions that are computed alike from alike operands have one number, whatever ranks their
// blocks are of: what is added up over blocks has to be the same of each.
class Expressions {
public:
  using Id = uint32_t;
  enum Kind : uint32_t {
    Value, // that nothing is known of
    Literal,
    Number, // 1, or whatever is multiplied
    Op,
    Block,
    Rows, // the numbers of a dimension's elements
    All,  // the sum over the blocks of all ranks
    Sum,
    Negated,
    LogOf,
    Exponentials,
    Collected,
    Piece,
    Reshaped,
  };
  Id of(Kind kind, llvm::ArrayRef<uint64_t> parts);

private:
  std::map<std::vector<uint64_t>, Id> known_;
};

// A part of a dimension: elements inside of it, and how many positions of it there are.
struct DimRange {
  unsigned dim = 0;
  int64_t inner = 1, extent = 1;
  friend auto operator<=>(const DimRange &, const DimRange &) = default;
};

struct RingValue {
  // A dimension of which the rank has the block of the one that is so many ranks before it.
  struct Cut {
    DimRange at;
    unsigned back = 0;
    friend auto operator<=>(const Cut &, const Cut &) = default;
  };
  // An expression of these blocks; if it is summed, over those of a further tensor that so many
  // ranks before it have (bit i: i ranks).
  struct Term {
    Expressions::Id form;
    bool summed = false;
    uint64_t blocks = 0;
    friend bool operator==(const Term &, const Term &) = default;
  };
  // Numbers of the rank, one for each row, so often added to the value, or e to the power of them
  // multiplied with it. Of what the rank so many before it has made, if they were sent.
  struct Shift {
    Expressions::Id numbers;
    unsigned back = 0;
    int times = 1;
    llvm::SmallVector<DimRange, 4> at;
    friend bool operator==(const Shift &, const Shift &) = default;
  };

  // A dimension in which the blocks of all ranks lie behind one another, in the order in which they
  // have come.
  struct Collected {
    unsigned dim;
    int64_t length;                      // of a block
    llvm::SmallVector<unsigned, 8> back; // of which rank each is
    friend bool operator==(const Collected &, const Collected &) = default;
  };

  ir::AxisId axis;
  std::optional<Collected> collected;
  llvm::SmallVector<Cut, 2> cuts;
  llvm::SmallVector<Term, 2> terms; // none: zero, or nothing but shifts
  llvm::SmallVector<Shift, 2> shifts;
  bool added = false;   // shifts are added, not multiplied
  bool pure = false;    // nothing but shifts
  bool proved = true;   // all that the terms are made of is known
  bool uniform = false; // one number in all elements
  bool guessed = false; // in which order ranks have these blocks was assumed
  ir::InstId sent_by;   // the last to send it

  bool is_zero() const { return terms.empty() && !pure; }
  bool is_summed() const {
    for (const Term &term : terms)
      if (term.summed)
        return true;
    return false;
  }
  // One expression of blocks, and nothing else.
  bool is_plain() const { return !pure && shifts.empty() && terms.size() <= 1 && !is_summed(); }
  bool at_home() const {
    for (const Cut &cut : cuts)
      if (cut.back != 0)
        return false;
    return true;
  }
  // After each rank has sent it to the one so many behind itself, of `ranks` that are there.
  void turn(unsigned by, unsigned ranks, ir::InstId sent);
  // Blocks of two dimensions: of rows and columns.
  bool is_tile() const { return cuts.size() > 1; }
};

} // namespace spmd::checker
