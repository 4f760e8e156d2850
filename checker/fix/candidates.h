// The repairs of one finding that are tried. Internal to the checker.
#pragma once

#include "checker/fix/fix.h"
#include "checker/fix/search.h"

#include "ir/mesh/symbols.h"
#include "rules/transitions/transition.h"
#include "rules/violations/gradients.h"

namespace spmd::checker {

// Tries every repair and keeps what holds.
class Candidates {
public:
  Candidates(FixState &state, FixSearch &search)
      : state_(state), program_(state.program), search_(search) {}

  llvm::SmallVector<Fix, kMaxFixes> run();

private:
  const ir::Mesh &mesh() const { return program_.meshes[mesh_id()]; }
  ir::MeshId mesh_id() const { return program_.contexts[search_.inst.context].mesh; }
  // Sizes that are symbols give no price.
  bool symbolic() const { return ir::is_symbolic(program_, mesh()); }
  static bool keeps_value(const rules::Transition &row);
  std::string axes_text(ir::AxisSet axes) const;
  int64_t rank_count() const; // along the axes of the finding
  std::optional<ir::Kind> kind_of(uint32_t operand) const;
  ir::AttrsId words(std::optional<ir::WrittenKind> src, ir::WrittenKind dst);
  void add_price(Fix &fix, const rules::Transition &row, const rules::TensorInfo &before,
                 const rules::TensorInfo &after) const;

  // Transitions on results and on operands.
  void on_gradient(const rules::GradientTypeMismatch &wrong);
  void after(rules::TransitionOp op, rules::Collective collective,
             std::optional<ir::WrittenKind> src, ir::WrittenKind dst, ir::ValueId made,
             bool changes);
  void redistributed();
  void innermost();
  void offer(const std::optional<Move> &move);
  void sum_operand(uint32_t operand);
  void on_operand(uint32_t operand);
  llvm::SmallVector<uint32_t, 1> all_invariant() const;
  void with_layouts(const rules::Transition &row, llvm::ArrayRef<uint32_t> operands);
  bool with_sizes(const rules::Transition &row, llvm::ArrayRef<uint32_t> operands,
                  ir::WrittenKind src, ir::WrittenKind dst);
  llvm::SmallVector<unsigned, 6> dims_to_try(unsigned rank) const;
  bool sharded_here(const rules::Transition &row, ir::ValueId value, unsigned dim) const;
  bool try_row(const rules::Transition &row, llvm::ArrayRef<uint32_t> operands, ir::WrittenKind src,
               ir::WrittenKind dst, ir::AttrsId attrs = {}, llvm::StringRef then = "");
  void add_backward(Edit &edit, const rules::Transition &row, ir::ValueId value);

  // A random state of the ranks' own, another scale.
  void fork_generator();
  void rescale();

  // Attributes of the instruction, or without it.
  bool try_attrs(ir::AttrsId attrs, std::string text, bool changes_value);
  void attributes();
  ir::AxisSet stated_partial(ir::AttrsId attrs) const;
  void drop_partial(ir::AttrsId attrs);
  void state_partial(ir::AttrsId attrs);
  void state_and_reduce(ir::AttrsId attrs, const std::string &stated);
  bool reduce_result(const rules::Transition &row, ir::WrittenKind dst, ir::AttrsId attrs,
                     const std::string &stated, const rules::TensorInfo &partial);
  void name_dimension(ir::AttrsId attrs, int64_t dim);
  void drop_inst(uint32_t operand);

  FixState &state_;
  ir::Program &program_;
  FixSearch &search_;
  llvm::SmallVector<Fix, kMaxFixes> found_;
};

} // namespace spmd::checker
