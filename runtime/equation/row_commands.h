// What a row comes to on a device, where it is boxes that move, a function of numbers, or an
// equation that is the value. All other rows are computed on the host.
#pragma once

#include "runtime/kernels/composed/composition.h"
#include "runtime/kernels/kernel.h"

namespace spmd::runtime {

class ForwardRow;
class LoweredEquation;
namespace lowered {
struct Term;
}

struct RowCall {
  const KernelContext &context;
  const KernelDef *kernel;          // null: it has none
  const ForwardRow *forward;        // of a derived row
  const LoweredEquation *equation;  // null: it is not the value
  llvm::ArrayRef<DeviceArray> args; // as in Application::args
  llvm::ArrayRef<DeviceArray> results;
  StepScratch &scratch;
};
// The loops of a term, by variable, those that the result has first; the draft gets their extents
// and the strides of the result.
llvm::SmallVector<unsigned, 8> add_loops(const lowered::Term &term, LoopNestDraft &draft);
// Positions of the result that its loops go over.
int64_t covered_by(const LoopNestDraft &draft);
// A term whose result is of complex numbers, as loop nests of its real and its imaginary part.
// `fresh`: it is not added to what is there. False: it cannot be done.
bool lower_complex_term(const RowCall &call, const lowered::Term &term, const DeviceArray &out,
                        bool fresh, std::vector<Command> &commands);
// False: the device has no commands for it. Some may have been added then.
bool lower_row(const RowCall &call, std::vector<Command> &commands);

} // namespace spmd::runtime
