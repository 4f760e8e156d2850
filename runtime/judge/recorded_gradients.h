// Gradients that a program was recorded with, held against the derivative of its forward. Both are
// what the reference has for them, in double on one device: whether ranks hold what the reference
// has is judged step by step.
#pragma once

#include "runtime/judge/losses.h"
#include "runtime/reference/run.h"

namespace spmd::runtime {

// One gradient of the main body.
struct RecordedGradient {
  ir::ValueId value, of;
  enum class Form : uint8_t { Upheld, Wrong, NotCompared } form = Form::NotCompared;
  std::string text; // Wrong: what it is instead; NotCompared: why it was not compared
  // Wrong: the element that is furthest off, and the largest difference with what rounding
  // explains.
  std::string place, got, want, difference, bound;
  ir::AxisSet axes; // Wrong: along which the losses of ranks were combined
};

// Those that the program marks, the outputs that are gradients of parameters, and what writes of
// the optimizer read of them. `run`: of the whole program, from `params`; `replaced`: as of
// ReferenceRun::replace_values.
std::vector<RecordedGradient> compare_recorded(Reference &reference, ReferenceRun &run,
                                               const Meanings &params,
                                               const llvm::DenseMap<uint32_t, Meaning> &replaced,
                                               llvm::ArrayRef<LossRoot> roots);

} // namespace spmd::runtime
