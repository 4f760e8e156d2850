// A kernel as a few formulas over whole tensors, each of which a device does in one loop nest: what
// a row comes to there whose function is not of one element alone.
#pragma once

#include "runtime/kernels/composed/commands.h"
#include "runtime/kernels/kernel.h"

#include <deque>

namespace spmd::runtime {

// Memory for what is made on the way; asked for anew for each step.
struct StepScratch {
  SpmdAddress data = 0;
  uint64_t bytes = 0; // that the steps so far need at most
  // A command reads an operand after another one wrote a result: they must not be the same memory.
  bool reads_late = false;
};

// Part of a tensor, seen from the loops of a loop nest.
struct Strided {
  DeviceArray at;
  Strides strides; // in elements, per loop
  int64_t offset = 0;
};

class Composition {
public:
  // `gradients`: of a derivative, per result of the row; null where none flows. `by`: the operand
  // that is derived by, whose gradient is result 0.
  Composition(const KernelContext &context, llvm::ArrayRef<DeviceArray> args,
              llvm::ArrayRef<DeviceArray> results, llvm::ArrayRef<const DeviceArray *> gradients,
              std::optional<unsigned> by, StepScratch &scratch, std::vector<Command> &commands);

  const KernelContext &context;
  const std::optional<unsigned> by; // none: the row itself

  // Null if no tensor stands there.
  const DeviceArray *operand(std::string_view name, unsigned member = 0) const;
  bool is_by(std::string_view name) const;
  const DeviceArray *result(size_t place) const {
    return place < results_.size() ? &results_[place] : nullptr;
  }
  // Result 0, which begins as operand `name` is: it lies there already, or is copied there.
  const DeviceArray &initialised_with(std::string_view name);
  // The one gradient that flows, which is that of result `place`; null if it is not.
  const DeviceArray *only_gradient(size_t place) const;
  DeviceArray temporary(llvm::ArrayRef<int64_t> dims, ir::DType dtype = ir::DType::F64);
  // Numbers that are their positions: 0, 1, 2, ... along dimension `dim` of so many.
  DeviceArray positions(size_t rank, size_t dim, int64_t extent);
  // Complex numbers as real ones, with a last dimension of two. Formulas are of real numbers alone.
  DeviceArray pairs(const DeviceArray &tensor);
  // The same elements with other extents, of which there are as many.
  DeviceArray as(const DeviceArray &tensor, llvm::ArrayRef<int64_t> dims);
  // Extents of which those named are 1.
  static Dims without(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<unsigned> along);

  // The formula is of the elements of `inputs` that meet at each place of extents `over`; all
  // tensors are stretched to these from the right. What `out` lacks of them is combined, then
  // divided. False: a device cannot do it.
  using Formula = llvm::function_ref<TracedNumber(llvm::ArrayRef<TracedNumber>)>;
  bool make(const DeviceArray &out, llvm::ArrayRef<int64_t> over,
            llvm::ArrayRef<DeviceArray> inputs, Formula formula, SpmdCombiner combiner = kSpmdSum,
            double divisor = 1);
  // The same over loops of so many iterations, as strides say. Loops along which `out` does not
  // move are combined.
  bool make_along(llvm::ArrayRef<int64_t> extents, const Strided &out,
                  llvm::ArrayRef<Strided> inputs, Formula formula, SpmdCombiner combiner = kSpmdSum,
                  double divisor = 1);
  // Elements of `from`, entries of `index` times `stride` further on; 0 where these are outside of
  // [0, extent).
  bool fetch(llvm::ArrayRef<int64_t> extents, const Strided &out, const Strided &from,
             const Strided &index, int64_t stride, int64_t extent);
  bool fill(const DeviceArray &out, double number);
  // Elements of one dtype, between two dense tensors of the same view.
  bool copy(llvm::ArrayRef<int64_t> extents, const Strided &from, const Strided &to);
  void add(const Command &command) { commands_.push_back(command); }
  // U32, rows x length: SpmdSort.
  DeviceArray sorted(const DeviceArray &keys, int64_t rows, int64_t length, int64_t row_stride,
                     int64_t stride, bool descending);
  // Entries go to the rows that `numbers` (whole numbers, one each) says: SpmdScatter, whose form,
  // row numbers, order and elements are made here.
  void scatter(SpmdScatterForm form, const DeviceArray &numbers, const DeviceArray &from,
               const DeviceArray &to, SpmdScatter made);
  // Once all is made: results that were made elsewhere go to where they belong.
  bool finish();

private:
  llvm::ArrayRef<DeviceArray> args_;
  llvm::SmallVector<DeviceArray, 3> results_; // where they are made
  llvm::ArrayRef<DeviceArray> wanted_;        // where they belong
  llvm::ArrayRef<const DeviceArray *> gradients_;
  StepScratch &scratch_;
  std::vector<Command> &commands_;
  uint64_t used_ = 0;
  std::deque<Dims> dims_;
};

// Where a tensor stretched to `over` from the right has its elements.
inline Strided stretched(const DeviceArray &tensor, llvm::ArrayRef<int64_t> over) {
  return {tensor, strides_over(*tensor.dims, over), 0};
}
bool add_along(const ScalarProgram &program, llvm::ArrayRef<int64_t> extents, const Strided &out,
               llvm::ArrayRef<Strided> inputs, SpmdCombiner combiner, double divisor,
               std::vector<Command> &commands);
// The program over all iterations of `over`: input k of it is inputs[k]. As with Composition::make.
bool add_stretched(const ScalarProgram &program, llvm::ArrayRef<int64_t> over,
                   llvm::ArrayRef<DeviceArray> inputs, const DeviceArray &out,
                   SpmdCombiner combiner, double divisor, std::vector<Command> &commands);

} // namespace spmd::runtime
