// What a recorded backward starts from, and how the losses of several ranks make that of one
// device.
#pragma once

#include "checker/checked_program.h"

namespace spmd::runtime {

// Who says how losses combine along axes on which each rank has its own.
enum class LossChoice : uint8_t { Auto, Mean, Sum };
inline constexpr std::string_view kLossChoiceWords[] = {"auto", "mean", "sum"};

// One call of `backward`.
struct LossRoot {
  ir::ValueId loss;
  ir::ValueId seed; // its gradient, a constant; none: ones
  ir::MeshId mesh;
  // Local axes along which ranks have losses of their own: the loss of one device is the mean of
  // them, or their sum. On axes that types judge, types say it.
  ir::AxisSet mean, sum;
  ir::AxisSet assumed; // of those: nothing in the program tells which
};

// In the order of the program. Empty: no backward was recorded. An average over what each rank has
// of a cut dimension makes a mean, a sum a sum.
std::vector<LossRoot> recorded_losses(const checker::CheckedProgram &checked, LossChoice choice);

// `the loss %3 is the mean over dp of what the ranks have`; empty where ranks have one loss.
std::string print(const ir::Program &program, const LossRoot &root);

} // namespace spmd::runtime
