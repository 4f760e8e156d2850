// Derives a backward: the body and its roots; what an instruction adds is for the part that knows
// it.
#pragma once

#include "checker/backward/control.h"
#include "checker/backward/rows.h"
#include "checker/backward/transitions.h"

namespace spmd::checker {

class Deriver : BackwardBuilder, ReverseBody {
public:
  Deriver(BackwardState &state, llvm::ArrayRef<ValueId> wrt)
      : BackwardBuilder(state), rows_(state), transitions_(state), control_(state, *this),
        wrt_(wrt) {}

  std::optional<NoBackward> run();

private:
  using Gradients = BackwardBuilder::Gradients;

  bool reverse(llvm::ArrayRef<Inst> insts, llvm::ArrayRef<ValueId> wanted,
               Gradients &gradients) override;
  bool differentiate(const Inst &inst, Gradients &gradients);
  llvm::DenseSet<uint32_t> active(llvm::ArrayRef<Inst> insts, llvm::ArrayRef<ValueId> wanted);
  bool root(ValueId loss, const InsertionPoint &around);
  void ask_gradient(const Inst &inst);
  ValueId gradient_of(ValueId value, const InsertionPoint &around);
  bool is_asked(const ir::Param &param) const;
  std::vector<ValueId> asked() const;
  void add_outputs();

  RowBackward rows_;
  TransitionBackward transitions_;
  ControlBackward control_;
  llvm::ArrayRef<ValueId> wrt_; // see derive_backward()
  std::vector<Inst> forward_;   // of the program itself, so far
  Gradients gradients_;         // of the latest root
  ir::ScaleId root_scale_;
};

} // namespace spmd::checker
