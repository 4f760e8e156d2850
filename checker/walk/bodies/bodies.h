// Functions and regions, typed for the operands of one call. Internal to the checker.
#pragma once

#include "checker/walk/bodies/call_site.h"
#include "checker/walk/bodies/conditions.h"
#include "checker/walk/edits.h"
#include "checker/walk/state.h"
#include "checker/walk/undecided/undecided_kinds.h"

#include <functional>

namespace spmd::checker {

class Bodies {
public:
  using TypeInstructions = std::function<void(const ir::Body &)>;
  Bodies(WalkState &state, UndecidedKinds &undecided, Edits &edits, const Conditions &conditions,
         TypeInstructions type_instructions)
      : state_(state), program_(state.program), result_(state.result), undecided_(undecided),
        edits_(edits), conditions_(conditions), type_instructions_(std::move(type_instructions)) {}

  // The function that an attribute of the call names; none, and reported, if it names none.
  std::optional<ir::FunctionId> region(const CallSite &site, llvm::StringRef role);
  // True if so many values cross the boundary.
  bool counts(const CallSite &site, ir::FunctionId function, size_t params, size_t results);
  // The operands from `first` on as the function sees them: the claims of its parameters, and those
  // of a region's `in_types`, are compared.
  Args enter(const CallSite &site, ir::FunctionId function, size_t first);
  // Types the function for these operands, under the conditions around it; nothing is reported
  // until the body is reached.
  Round evaluate(ir::FunctionId function, llvm::ArrayRef<rules::TensorInfo> args);
  void reach(CallSite &site, const Round &round);
  // Moves what is known of bodies into the result of the check.
  void keep_typings();

private:
  // What a function, or a region's `in_types`, says of an operand.
  struct Declared {
    ir::TypeId type;
    ir::ShapeId shape, global_shape;
  };
  void cross(const CallSite &site, size_t operand, rules::TensorInfo &arg, const Declared &declared,
             const ir::Function &callee);
  void forget_shards(const CallSite &site, size_t operand, rules::TensorInfo &arg);
  Round opaque(const ir::Function &function, llvm::ArrayRef<rules::TensorInfo> args);
  void type_body(ir::FunctionId id, llvm::ArrayRef<rules::TensorInfo> args, TypedBody &typed);
  void keep_values(ir::FunctionId id, TypedBody &typed);

  WalkState &state_;
  ir::Program &program_;
  CheckResult &result_;
  UndecidedKinds &undecided_;
  Edits &edits_;
  const Conditions &conditions_;
  TypeInstructions type_instructions_;
};

} // namespace spmd::checker
