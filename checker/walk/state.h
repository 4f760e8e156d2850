// What the parts of the walk share: the program, what is known of each value so far, the
// instruction at which the walk is, and where findings go. Internal to the checker.
#pragma once

#include "checker/check.h"
#include "checker/operand_list.h"
#include "checker/walk/body_result.h"
#include "checker/walk/inference.h"
#include "checker/walk/storage.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace spmd::rules {
struct ScaleMismatch;
}

namespace spmd::checker {

struct Edit;

using Args = llvm::SmallVector<rules::TensorInfo, 8>;

class WalkState {
public:
  WalkState(ir::Program &program, const CheckOptions &options, CheckResult &result);

  // --- what is known of values ---

  rules::TensorInfo known(ir::ValueId value) const {
    return {result.types[value.index], result.shapes[value.index], result.sizes[value.index]};
  }
  void learn(ir::ValueId value, const rules::TensorInfo &arg) {
    result.types[value.index] = arg.type;
    result.shapes[value.index] = arg.shape;
    result.sizes[value.index] = arg.sizes;
  }
  void learn_type(ir::ValueId value, ir::TypeId type) { result.types[value.index] = type; }
  // A parameter, a buffer or state of the optimizer.
  bool is_persistent(ir::ValueId value) const { return value.valid() && kept[value.index]; }
  bool gradient_free(const ir::Value &value, bool by_rule) const;

  // --- types ---

  ir::TypeId intern(const ir::Type &type) { return program.types.add(type); }
  // On these axes partition specs are no matter here. Regions make axes of their own mesh local.
  ir::AxisSet local_axes(ir::MeshId mesh, ir::ContextId context) const;
  // A claim as it is judged at a place: without the specs of axes that are local there.
  ir::Type seen(ir::TypeId declared, ir::ContextId context) const;
  // A type on another mesh over the same ranks.
  ir::Type remapped_to(const ir::Type &type, ir::MeshId mesh);
  ir::TypeId on_axes(const ir::Type &type, ir::AxisSet axes);
  // On one axis alone, as if the value were of that kind there.
  ir::TypeId as_kind(ir::Type type, ir::AxisId axis, ir::Kind kind);

  // --- findings ---

  void report(Place place, rules::Violation violation, uint32_t application = ~0u);
  // Rules do not know the names of values: where they leave one out, the first operand is meant.
  rules::Violation named(rules::Violation violation) const;
  // True if the last instruction of the body_result is this one and something is wrong with it.
  bool was_reported(ir::InstId id) const;

  ir::Program &program;
  const CheckOptions &options;
  CheckResult &result;
  rules::Rules rules;
  Storage storage;
  std::vector<bool> kept; // per value: see is_persistent
  // The instruction that is being typed.
  OperandList operands;
  Args args;
  llvm::SmallVector<rules::ResultClaim, 4> claims;
  BodyResult main;
  BodyResult *body_result = &main; // of the body that is being typed
  TypedBodies bodies;
  bool recording = true;          // false once a completed check is only retyped
  const Edit *edit = nullptr;     // while retyping
  Inference *inference = nullptr; // none unless the program is judged without declarations

private:
  bool scale_was_reported(Place place, const rules::ScaleMismatch &wrong);

  llvm::DenseMap<uint32_t, Place> first_scale_; // by root of a storage: where first
  mutable std::vector<uint32_t> local_axes_;    // per context, and per mesh; none until asked
};

} // namespace spmd::checker
