// The tape, read backwards.
#include "runtime/tensor/number.h"

namespace spmd::runtime {

Tape &Tape::here() {
  thread_local Tape tape;
  return tape;
}

void Tape::backward(std::vector<double> &gradient) const {
  // A number that nothing flows to passes nothing on, even where its derivative is infinite.
  for (size_t i = steps_.size(); i-- > 1;) {
    if (gradient[i] == 0)
      continue;
    const Step &step = steps_[i];
    if (step.a)
      gradient[step.a] += gradient[i] * step.da;
    if (step.b)
      gradient[step.b] += gradient[i] * step.db;
  }
}

} // namespace spmd::runtime
