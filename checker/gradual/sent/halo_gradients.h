// Gradients of windows (windows.h): what a rank computes of the gradient of rows that a neighbour
// has sent belongs to that neighbour, which adds it to the edge of its own block. Only then is the
// gradient of a block complete.
#pragma once

#include "checker/gradual/sent/halo_windows.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

class HaloGradients {
public:
  HaloGradients(const ir::Program &program, const CheckResult &checked, const HaloWindows &windows)
      : program_(program), checked_(checked), windows_(windows) {}

  // Of whose rows a gradient has been made.
  enum Part : uint8_t { Own = 1, After = 2, Before = 4 };
  // A part of the gradient of a window, or of the block that it belongs to.
  struct Piece {
    ir::ValueId of;              // the window
    HaloWindows::Window window;  // it
    int64_t first = 0, last = 0; // rows, counted from the first one of the rank's block
    uint8_t parts = 0;           // none: an edge that is still to be sent
    bool wraps = false;          // if it was sent, around the ends of the axis, too
    bool proved = true;
    bool is_block() const { return first == 0 && last == window.rows; }
    bool is_complete() const { return is_block() && parts == needed(); }
    uint8_t needed() const {
      return uint8_t(Own | (window.last > window.rows ? Before : 0) |
                     (window.first < 0 ? After : 0));
    }
  };
  // A result that is an ordinary tensor: cut in a dimension, or to be summed.
  struct Known {
    ir::AxisId axis;
    std::optional<unsigned> dim;
    bool proved = false;
  };
  struct Result { // what is known may be a piece as well, with all that belongs to it
    std::optional<Piece> piece;
    std::optional<Known> known;
  };
  struct Facts {
    llvm::SmallVector<Result, 3> results;
    std::optional<uint32_t> misplaced; // an operand that is added to other rows than it is of
    ir::AxisId axis;
    const Known *known(uint32_t result) const {
      return result < results.size() && results[result].known ? &*results[result].known : nullptr;
    }
  };
  Facts infer(const ir::Inst &inst, const rules::Application &app,
              llvm::ArrayRef<ir::ValueId> operands, llvm::ArrayRef<ir::AxisSet> proved);
  void learn(const ir::Inst &inst, const rules::Application &app,
             llvm::ArrayRef<ir::ValueId> operands, const Facts &facts,
             llvm::ArrayRef<ir::AxisSet> proved);
  // The axes along which the gradient of a block lacks what neighbours have made of its edges.
  ir::AxisSet lacking(ir::ValueId gradient) const;

private:
  struct Step;
  const Piece *find(ir::ValueId value) const {
    const auto at = pieces_.find(value.index);
    return at == pieces_.end() ? nullptr : &at->second;
  }
  std::optional<int64_t> extent(ir::ValueId value, unsigned dim) const;
  void convolution(Step &step) const;
  void convolution_of_gradient(Step &step);
  llvm::SmallVector<ir::ValueId, 2> convolved_with(ir::ValueId weights);
  void scatter(Step &step) const;
  void slice(Step &step) const;
  void pad(Step &step) const;
  void send(Step &step) const;
  void add(Step &step) const;
  void write(Step &step) const;
  size_t rank_of(ir::ValueId value) const;
  void whole_gradient(Step &step) const;
  void finish(Step &step, uint32_t result, Piece piece) const;

  const ir::Program &program_;
  const CheckResult &checked_;
  const HaloWindows &windows_;
  llvm::DenseMap<uint32_t, Piece> pieces_; // by value
  // By what the weights of convolutions are made of: the windows that the forward convolves with
  // them. None: nobody has asked.
  std::optional<llvm::DenseMap<uint32_t, llvm::SmallVector<ir::ValueId, 2>>> convolved_;
  llvm::DenseSet<uint32_t> slices_; // values: gradients of blocks, in the place of these
};

} // namespace spmd::checker
