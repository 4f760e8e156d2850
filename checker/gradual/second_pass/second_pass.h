// The second pass of a program without declarations (gradual.h): what is known of an instruction
// beyond what its rule says of whole tensors, which findings hold whatever is unknown, and what is
// proved. The walk calls it at each instruction; where the program declares its types there is
// none.
#pragma once

#include "checker/gradual/blocks/alone.h"
#include "checker/gradual/blocks/extremes.h"
#include "checker/gradual/blocks/lists.h"
#include "checker/gradual/blocks/lookups.h"
#include "checker/gradual/blocks/numbering.h"
#include "checker/gradual/blocks/offsets.h"
#include "checker/gradual/blocks/own_logs.h"
#include "checker/gradual/blocks/rooted.h"
#include "checker/gradual/blocks/routed.h"
#include "checker/gradual/blocks/selected.h"
#include "checker/gradual/gradual.h"
#include "checker/gradual/norms.h"
#include "checker/gradual/sent/edge_gradients.h"
#include "checker/gradual/sent/rings.h"
#include "checker/gradual/sent/windows.h"
#include "checker/walk/state.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

class SecondPass final : public Inference {
public:
  explicit SecondPass(WalkState &state); // its result has the first pass

  void declare(ir::ValueId value, const ir::Type &type) override;
  ir::AxisSet drifted(const ir::Param &buffer, const ir::Type &type) const override;
  ir::Type with_cuts(ir::ValueId value, const ir::Type &type) const override {
    return gradual_.known(value, type, {});
  }

  void begin(const ir::Inst &inst, const rules::ResolvedOp &op) override;
  void bind(const ir::Inst &inst, const rules::Application &app) override;
  std::optional<rules::Outcome> restated(const ir::Inst &inst,
                                         const rules::Application &app) override;
  void judge(ir::InstId id, const rules::Application &app) override;
  void complete(ir::InstId id, const ir::Inst &inst, uint32_t index, ir::Type &type) override;

  bool admits(Place place, rules::Violation &violation) override;
  bool stands_on_inference(Place place, const rules::Violation &violation) const override {
    return gradual_.stands_on_inference(place, violation);
  }

private:
  struct Mean { // what ranks divided by their own counts, and where these differ
    ir::InstId by;
    ir::AxisSet axes, uneven;
  };
  bool has_taken(const ir::Param &param, const ir::Type &type, ir::AxisId axis) const;
  ir::AxisSet axes_in(const ir::Inst &inst, llvm::StringRef key) const;
  void take_counts(const ir::Inst &inst, const rules::ResolvedOp &op);
  void add_to_means(const rules::ResolvedOp &op);
  void add_alone(const ir::Inst &inst, const rules::ResolvedOp &op);
  void follow_means(ir::InstId id, ir::ValueId value, uint32_t index);
  void scale_zeros();
  void take_cleared(const rules::ResolvedOp &op);
  void find_unread(const rules::Application &app);
  void find_parts(const rules::Application &app);
  void take_offset_operands(const rules::Application &app);
  void take_own_numbers(const rules::Application &app);
  void keep_known_cuts(const rules::OpDef *row, ir::ValueId value, const ir::Type &before,
                       ir::Type &type);
  void judge_part_of_own(ir::InstId id, const rules::Application &app);
  void judge_selected(const rules::Application &app);
  void judge_window(ir::InstId id, const rules::Application &app);
  void judge_edge_gradient(ir::InstId id, const rules::Application &app);
  void follow_ring(const ir::Inst &inst, const rules::Application &app);
  void judge_ring(ir::InstId id, const rules::Application &app);
  void judge_gradient_block(ir::InstId id);
  void keep_scale_of_blocks(const rules::ResolvedOp &op, ir::Type &type) const;
  void keep_known(uint32_t index, ir::Type &type);
  void find_padded(const rules::Application &app);
  void judge_lookup(ir::InstId id, const rules::Application &app);
  void keep_blocks(ir::Type &type);
  void keep_offsets(ir::ValueId value, uint32_t index, ir::Type &type);
  void take_shares(const ir::Inst &inst, const rules::ResolvedOp &op);
  ir::AxisSet addends_of_gradient(const ir::Inst &inst) const;
  void take_squares(const ir::Inst &inst, const rules::ResolvedOp &op);
  void take_joined_counts(const rules::ResolvedOp &op);
  void hand_in(const ir::Inst &inst, const rules::ResolvedOp &op);
  std::optional<uint32_t> carry_of(const ir::Inst &inst, uint32_t result) const;
  bool makes_zero(const ir::Inst &inst);
  void keep_addends(const rules::ResolvedOp &op, uint32_t result, uint32_t results, ir::Type &type);
  ir::AxisSet joined(uint32_t index) const;
  ir::AxisSet cut_joined(uint32_t index, ir::Type &type) const;
  void learn(ir::ValueId value);
  void keep_own(ir::ValueId value, ir::Type &type);
  void keep_shared_gradient(const ir::Inst &inst, ir::ValueId value);
  void keep_equal_addends(const ir::Inst &inst, ir::ValueId value, ir::Type &type);
  void find_sent(const rules::Application &app);
  void apply_norms(ir::ValueId value, uint32_t index, ir::Type &type);
  void restore(ir::ValueId value, ir::Type &type) const;
  void take_rows(const ir::Inst &inst, const rules::Application &app);
  void keep_rows(ir::InstId id, ir::ValueId value, uint32_t index, ir::Type &type);
  void take_root(const rules::Application &app);
  ir::AxisSet proved_on_root(ir::ValueId operand) const;
  void judge_handed_out(const ir::Inst &inst, const rules::ResolvedOp &op);
  void keep_root(ir::InstId id, ir::ValueId value, uint32_t index, ir::Type &type);
  ir::AxisSet own_counts_made(ir::ValueId value, const ir::Type &type) const;
  llvm::SmallVector<ir::ValueId, 2> returned_as(ir::InstId id, ir::ValueId value) const;
  bool is_number(ir::ValueId value) const { return is_number(program_.values[value].shape); }
  bool is_number(ir::ShapeId shape) const;
  bool is_float(ir::ValueId value) const;
  void prove(ir::InstId id, ir::ValueId value, uint32_t index, const ir::Type &type);
  ir::AxisSet written_rows(ir::InstId id, const ir::Type &type) const;
  ir::AxisSet known_axes(const ir::Type &type) const;
  ir::AxisSet known_pieces(ir::ValueId value, ir::MeshId mesh) const;
  ir::AxisSet unknown_operands() const;
  bool certain(Place place, rules::Violation &violation);
  void follow_weights(const ir::Inst &inst, ir::ValueId value);
  void follow_doubts(ir::InstId id, ir::ValueId value);
  ir::AxisSet doubted(Place place, const rules::Violation &violation) const;
  void open_inside(ir::InstId id, const rules::Application &app);
  void judge_rate(ir::InstId id, const rules::Application &app);
  bool weighs_terms(Place place, const rules::Violation &violation) const;
  bool is_of_zeros(Place place, const rules::Violation &violation) const;
  bool steps_inside(Place place, const rules::Violation &violation) const;
  ir::AxisSet open_at(Place place, rules::Violation &violation);
  ir::AxisSet open_addends(const ir::Inst &inst, const rules::Violation &violation) const;
  ir::AxisSet moved(ir::InstId id) const;
  bool again_in_optimizer(Place place, rules::Violation &violation);

  WalkState &state_;
  ir::Program &program_;
  CheckResult &result_;
  const Gradual &gradual_;
  Norms norms_;
  llvm::DenseSet<uint32_t> zero_blocks_; // values that are made of zeros, and cut
  Offsets offsets_;
  Lookups lookups_;
  Numbering numbering_;
  llvm::DenseSet<uint32_t> numbered_; // values that were reported as such numbers
  Extremes extremes_;
  Lists lists_;
  Windows windows_;
  EdgeGradients edge_gradients_;
  Rings rings_;
  ir::AxisSet mixed_; // along which blocks of different ranks have met
  Alone alone_;
  ir::AxisSet alone_axes_; // along which something is on one rank alone
  Selected selected_;
  OwnLogs own_logs_;
  Routed routes_;
  Rooted roots_;
  llvm::DenseMap<uint32_t, ir::AxisSet> made_of_sent_; // by value
  ir::AxisSet shared_out_; // axes along which ranks take parts of data that all have
  llvm::DenseSet<uint32_t> shared_gradients_; // values: see keep_shared_gradient
  // Gradients that are equal on the ranks of axes along which each has a loss of its own.
  llvm::DenseMap<uint32_t, ir::AxisSet> equal_gradients_; // by value
  // Axes over which something was summed, of what a value of the forward is made of.
  llvm::DenseMap<uint32_t, ir::AxisSet> summed_; // by value
  llvm::DenseSet<uint32_t> data_;    // values of the forward made of inputs and numbers alone
  llvm::DenseSet<uint32_t> buffers_; // values that are made of buffers alone
  llvm::DenseMap<uint32_t, Place> first_pending_; // gradients that the optimizer reads: where first
  llvm::DenseMap<uint32_t, Mean> means_;          // by value
  // Axes with whose sizes the program has multiplied what a value is made of.
  llvm::DenseMap<uint32_t, ir::AxisSet> weights_; // by value
  // By whose sizes its scale may be off, because a plain number was taken as what it may not be.
  llvm::DenseMap<uint32_t, AxisSizeNumbers::Doubt> doubts_;
  llvm::DenseMap<uint32_t, ir::AxisSet> equal_counts_; // by value: axes along which ranks have it

  struct Now {                      // the instruction that is being typed
    ir::AxisSet reported, open;     // of its findings, and of what might be one
    ir::AxisSet picked, own_counts; // see Selected
    ir::AxisSet offset_axes;        // along which such indices and masks are taken as equal
    ir::AxisSet parts;              // along which it takes or joins rows that a rank has
    bool takes_block = false;       // it is the backward of a convert, by which a rank took a block
    ir::AxisSet padded;             // along which it puts zeros around such a block
    ir::AxisSet cut_beside;         // along which something that was joined is cut beside that
    ir::AxisSet exchanged;          // along which blocks are exchanged with those of other axes
    ir::AxisSet own;                // along which it numbers what a rank has
    ir::AxisSet received;           // along which operands are blocks that another rank has sent
    ir::AxisSet sums_received;      // along which it adds sums over such blocks
    bool scale_open = false;        // the scale of its results is not known
    ir::AxisSet divided, uneven;    // on which it divides by own counts, and on which these differ
    ir::ScaleId count_scale;        // what that does to scales
    llvm::SmallSet<uint32_t, 4> unread; // operands, by index
    Lookups::Made lookup;
    Routed::Made routed;
    std::optional<Rooted::Seen> on_root; // what operands are on one rank, or the result of a sum
    bool handed_out = false;             // what that rank has is handed out
    llvm::SmallVector<Norms::Made, 2> norms; // by result
    ir::AxisSet normed_alone; // along which it is a norm that one rank puts beside those of all
    llvm::SmallVector<std::optional<Lists::Joined>, 2> joined;
    Extremes::Made extreme; // of the first result, as what follows
    Windows::Made window;
    EdgeGradients::Made edge_gradient;
    Rings::Made ring;
    OwnLogs::Made own_log;
    Alone::Made alone;
  };
  Now now_;
};

} // namespace spmd::checker
