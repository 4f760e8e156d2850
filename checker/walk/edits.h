// Edits that are tried in memory: what they change is typed again and put back. Internal to the
// checker.
#pragma once

#include "checker/walk/state.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

// Some operands of an instruction are seen otherwise, or its attributes, or it is dropped.
struct Edit {
  ir::InstId inst;
  llvm::SmallVector<std::pair<uint32_t, rules::TensorInfo>, 1>
      operands;      // position, and what it is seen as
  ir::AttrsId attrs; // none: as they are
  // What makes the operands that, on its own attributes. Needed in a body, which is typed for each
  // call anew: there they are seen as what it gives for the operands of the call.
  ir::OpNameId mover = {};
  ir::AttrsId operand_attrs = {};
  bool drop = false; // the result is the operand; of a coalesced call: that of `member` is
  uint32_t member = 0;
  // A transition forward has its dual backward: where the program contains the backward, gradients
  // of the edited operands go through it.
  llvm::SmallVector<ir::ValueId, 1> gradients;
  ir::OpNameId dual_op;
  ir::AttrsId dual_attrs;
};

class Edits {
public:
  explicit Edits(WalkState &state) : state_(state), program_(state.program) {}

  void begin(const Edit &edit);
  void end(); // types and shapes are as they were before
  // Bodies that were typed so far are those without the edit.
  bool in_body() const { return !run_edited_.empty(); }
  ir::InstId first() const; // from which on instructions of the main body are asked for
  // True if the edit changes what the instruction takes, or is in what it runs.
  bool concerns(ir::InstId id) const;
  void retype(ir::InstId id, llvm::function_ref<void(ir::InstId)> type);
  bool changed(ir::ValueId value) const { return changed_.count(value.index); }

  // Of the edited instruction, whose operands are known. True if it is dropped.
  bool apply(ir::Inst &inst);
  // Of each instruction, whose results are known.
  void apply_dual_to_gradients(const ir::Inst &inst);
  void remember(ir::ValueId value) { undo_.push_back({value, state_.known(value)}); }
  // One transition applied to one operand; none if it is refused.
  std::optional<rules::TensorInfo> transition(ir::OpNameId op, ir::AttrsId attrs,
                                              ir::ContextId context, rules::TensorInfo operand);

private:
  struct Before {
    ir::ValueId value;
    rules::TensorInfo known;
  };
  bool touched(const ir::Inst &inst) const;
  std::vector<bool> functions_that_run(ir::InstId inst);
  bool runs_edited(const ir::Inst &inst) const;
  void edit_operands(const ir::Inst &inst);
  void drop(const ir::Inst &inst);

  WalkState &state_;
  ir::Program &program_;
  std::vector<Before> undo_;         // what the edit has changed so far
  llvm::DenseSet<uint32_t> changed_; // values that are known otherwise
  std::vector<bool> run_edited_;     // functions that run the edited instruction; empty: none does
  TypedBodies kept_bodies_;          // while others are typed with the edit
  // Per function, the functions that run it; found when an edit of a body is first tried.
  std::vector<llvm::SmallVector<ir::FunctionId, 2>> run_by_;
};

} // namespace spmd::checker
