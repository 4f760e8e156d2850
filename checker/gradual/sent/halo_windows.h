// Halo exchange: a rank sends the edge rows of its block to a neighbour, which joins them to its
// own block before a stencil or a convolution. Each such tensor is a window of a dimension, counted
// from the first row of the rank's own block.
#pragma once

#include "checker/check.h"

#include "rules/apply.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

// The first element of a dimension that a slice takes, if that is a number.
std::optional<int64_t> first_taken(const rules::Application &app, unsigned dim);
// By how many ranks a permutation moves what each has, and whether around the ends of the axis. Of
// two ranks each is ahead of the other as well as behind it: `of_two` is the way that is meant.
std::optional<std::pair<int64_t, bool>> shift_of(const rules::Application &app, int64_t ranks,
                                                 int64_t of_two);

class HaloWindows {
public:
  // `checked`: of the program, for the shapes.
  HaloWindows(const ir::Program &program, const CheckResult &checked)
      : program_(program), checked_(checked) {}

  struct Window {
    ir::AxisId axis;             // that cuts the dimension
    unsigned dim = 0;            // of the tensor
    int64_t first = 0, last = 0; // its first row, and the one behind its last
    int64_t rows = 0;            // how many a rank has of its own
    bool sent = false;           // by a neighbour
    bool wraps = false;          // the first rank and the last one are neighbours
    bool any_order = false;      // of rows that may stand in any order, as those of a batch
    ir::AxisSet astray;          // along which it was sent, where these do not cut the dimension
    bool is_block() const { return last - first == rows; }
  };
  enum class Fault : uint8_t {
    None,
    Order,   // what stands beside a block does not adjoin it
    Ends,    // at one end of the axis a block comes around, at the other one none does
    Axis,    // it was sent along an axis that does not cut the dimension
    Missing, // rows stand beside a block, or in the place of some of it, that no neighbour has sent
    Shifted, // within the block, whose first rows come behind its last ones
  };
  struct Facts {
    std::optional<Window> window;
    Fault fault = Fault::None;
    uint32_t operand = 0; // that is at fault
    ir::AxisSet axes;
    ir::AxisSet blocks() const { // along which the result is a block, whose rows may be shifted
      return window && window->is_block() ? ir::AxisSet(window->axis) : ir::AxisSet();
    }
  };
  Facts infer(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
              ir::ValueId result) const;
  ir::AxisSet axes(ir::ValueId value) const {
    const auto at = windows_.find(value.index);
    return at == windows_.end() ? ir::AxisSet() : at->second.axis | at->second.astray;
  }
  // Along which a value is a part of a block, or more than one: other ops than these do not know
  // which rows it has.
  ir::AxisSet parts(ir::ValueId value) const {
    const auto at = windows_.find(value.index);
    const bool rows = at == windows_.end() || at->second.is_block() || at->second.any_order;
    return rows ? ir::AxisSet() : at->second.axis;
  }
  bool empty() const { return windows_.empty(); }
  const Window *find(ir::ValueId value) const {
    const auto at = windows_.find(value.index);
    return at == windows_.end() ? nullptr : &at->second;
  }
  void learn(ir::ValueId value, const Facts &facts) {
    if (facts.window)
      windows_.insert({value.index, *facts.window});
  }

private:
  std::optional<int64_t> extent(ir::ValueId value, unsigned dim) const;
  std::optional<Window> taken(const rules::Application &app, ir::ValueId operand,
                              ir::ValueId result) const;
  std::optional<Window> sent(const rules::Application &app, ir::ValueId operand) const;
  std::optional<Window> convolved(const rules::Application &app, ir::ValueId operand,
                                  ir::ValueId result) const;
  std::optional<Window> convolved_by_place(const rules::Application &app, Window window,
                                           ir::ValueId result) const;
  std::optional<Window> convolved_by_one(const rules::Application &app, ir::ValueId operand,
                                         ir::ValueId result) const;
  std::optional<Window> joined_beside(llvm::ArrayRef<ir::ValueId> operands, unsigned dim) const;
  std::optional<Window> copied(ir::ValueId operand) const;
  bool is_part_of(ir::ValueId value, ir::ValueId whole) const;
  Facts joined_to_own(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                      unsigned dim) const;
  Facts shifted(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                unsigned dim) const;
  Facts rolled(const rules::Application &app) const;
  Facts padded(const rules::Application &app, ir::ValueId operand, ir::ValueId result) const;
  Facts joined(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands) const;

  const ir::Program &program_;
  const CheckResult &checked_;
  llvm::DenseMap<uint32_t, Window> windows_; // by value
};

} // namespace spmd::checker
