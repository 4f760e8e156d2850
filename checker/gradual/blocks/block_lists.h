// Blocks that travel in lists: a gather of one tensor from each rank, whose members are put
// together along the dimension that the axis cuts; the parts of a block for each rank, exchanged
// and put together along it. By its dimensions such a collective moves what it does not cut; what
// comes of it is known where the list is put together again, in the order of the ranks.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

class BlockLists {
public:
  // What a value is of a tensor `of`: one of the parts into which it is split along `dim`, or all
  // of them behind one another (`member` -1); the same of what came from the ranks of `axes`.
  struct Part {
    enum class Form : uint8_t { Own, Gathered, Exchanged };
    Form form = Form::Own;
    ir::ValueId of;
    unsigned dim = 0; // not of what is gathered
    ir::AxisSet axes; // of what is gathered or exchanged
    int32_t member = -1;
  };
  // A list that was put together again.
  struct Joined {
    ir::ValueId of;
    ir::AxisSet axes;            // along which its members came
    unsigned at;                 // the dimension along which they are put together
    std::optional<unsigned> dim; // that the axes cut now; none: all ranks have the whole
    // Where `at` is now, and what `dim` was, where other axes may cut these as well.
    std::optional<std::pair<unsigned, unsigned>> moved;
  };

  // Notes what the result `index` of so many is, and returns what it joins.
  std::optional<Joined> follow(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                               ir::ValueId result, uint32_t index, uint32_t results);

private:
  const Part *part(ir::ValueId value) const;
  std::optional<Part> collected(const rules::Application &app,
                                llvm::ArrayRef<ir::ValueId> operands) const;
  std::optional<Part> member(const rules::Application &app, ir::ValueId operand, uint32_t index,
                             uint32_t results) const;
  std::optional<Part> all_members(const rules::Application &app,
                                  llvm::ArrayRef<ir::ValueId> operands) const;

  llvm::DenseMap<uint32_t, Part> parts_; // by value
};

} // namespace spmd::checker
