// Ops at the edges of the typed world, one row each: claims, random states, gradients, effects,
// meshes, other stages (rules/README.md). Calls and loops are listed here and typed by the
// checker, which owns bodies.
#pragma once

#include "rules/application.h"

namespace spmd::rules {

// What the results of a boundary op hold.
enum class BoundaryData : uint8_t {
  Own,     // numbers of their own
  Same,    // what the first operand holds
  Altered, // that, scaled or as another view
  Norms,   // the root of the sum of the squares of its operands, or them scaled by it
  State,   // none: the state of a generator of random numbers
  None,
};

// What else a boundary op does, as bits.
constexpr uint8_t kWritesOperand = 1;         // it writes its first operand
constexpr uint8_t kResultsOutliveProgram = 2; // its results can be read when the program has ended
constexpr uint8_t kHasSideEffects = 4;        // it does something where it has no results

struct BoundaryOp {
  Boundary op;
  uint8_t operands; // tensors that it needs at least
  // Results are unknown on entry.
  void (*apply)(const Application &app, Outcome &out);
  std::string_view manual;     // one line: `spmdlint explain`
  std::string_view attributes; // as attributes.cc lists them
  BoundaryData data = BoundaryData::Own;
  uint8_t effects = 0; // kWritesOperand, kResultsOutliveProgram, kHasSideEffects
  // Of the gradient. `Same` data hand it on; `backward`, `grad` and `step` are what asks for
  // gradients; all others have none.
  bool own_backward = false;

  std::string_view name() const { return boundary_name(op); }
};
// One that the checker types, because it owns bodies.
struct CallOp {
  Boundary op;
  std::string_view manual, attributes;

  std::string_view name() const { return boundary_name(op); }
};

// The results of one that rules type. Its attributes have been checked, and all results forgotten.
void apply_boundary(const Application &app, Outcome &out);

llvm::ArrayRef<BoundaryOp> boundary_ops();
llvm::ArrayRef<CallOp> call_ops();

// In violations of these rules an invalid ValueId stands for the first operand of the instruction:
// rules do not know the names of values.

} // namespace spmd::rules
