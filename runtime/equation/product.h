// Sums of products of strided arrays: what every term of an equation comes to. Two arrays with a
// common variable that is summed are a matrix product and go to OpenBLAS; all else is a loop nest.
#pragma once

#include "runtime/tensor/f32_cache.h"
#include "runtime/tensor/tensor.h"

#include <vector>

namespace spmd::runtime {

struct Loops {
  Strides extents; // per variable
  llvm::SmallVector<Strides, 4> inputs;
  Strides output;
};

// A place of more than one input is multiplied, a variable that the output lacks is summed. The
// order of the work is decided once; running it changes nothing, so threads share it.
class Product {
public:
  explicit Product(const Loops &loops);

  // True if a fresh output of so many elements is overwritten, whatever is in it.
  bool assigns(int64_t size) const { return covered_ == size; }
  // output += scale * sum. `fresh`: the output is zero, or anything if it is overwritten.
  // `single`: matrix products of doubles are carried out in float; `kept`: what inputs are as
  // floats, by input, or empty. True if all that the output holds now are floats.
  template <class T>
  bool run(llvm::ArrayRef<const T *> inputs, T scale, T *output, bool fresh, bool single,
           llvm::ArrayRef<F32Source> kept = {}) const;

private:
  // One loop: its extent, and the strides of the inputs and, last, of the output.
  struct Loop {
    int64_t extent;
    Strides strides;
  };
  using Nest = llvm::SmallVector<Loop, 6>; // outermost first
  // Variables that are one dimension of a matrix.
  struct Side {
    Strides extents;
    Strides a, b, output;
    int64_t size = 1;
    void add(int64_t extent, int64_t in_a, int64_t in_b, int64_t in_output);
  };
  struct Matrices {
    Side batch, rows, columns, inner;
  };
  struct Step {
    llvm::SmallVector<int, 4> inputs; // of the product, or ~i for the result of step i
    int64_t size = 0;                 // of its own result; 0: it adds to the output
    bool multiplies = false;          // matrices instead of the loop nest
    Nest nest;
    Matrices matrices;
  };

  void add_step(llvm::ArrayRef<int> ids, const Loops &loops, int64_t size);
  static Nest nest_of(const Loops &loops);
  static bool matrices_of(const Loops &loops, Matrices &out);
  // BLAS writes right into the output.
  static bool is_direct(const Matrices &matrices);
  void find_covered(const Loops &loops);

  template <class T>
  static void run_nest(const Nest &nest, llvm::ArrayRef<const T *> inputs, T scale, T *output,
                       bool assign);
  template <class T>
  static bool run_matrices(const Matrices &matrices, llvm::ArrayRef<const T *> inputs, T scale,
                           T *output, bool fresh, bool single, llvm::ArrayRef<F32Source> kept);

  llvm::SmallVector<Step, 2> steps_;
  bool empty_ = false;   // a loop that never runs
  int64_t covered_ = -1; // elements of the output, if they lie in one piece and each is assigned
};

// True unless a test wants the own loops in place of OpenBLAS.
bool uses_blas();
void set_uses_blas(bool value);

} // namespace spmd::runtime
