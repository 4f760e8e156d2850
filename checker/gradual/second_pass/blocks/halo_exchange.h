// Edges of blocks that neighbours send, beside a rank's own rows, and the gradients of them.
#pragma once

#include "checker/gradual/second_pass/part.h"
#include "checker/gradual/sent/halo_gradients.h"
#include "checker/gradual/sent/halo_windows.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

class HaloExchange : public SecondPassPart {
public:
  HaloExchange(WalkState &state, CurrentInst &now)
      : SecondPassPart(state, now), windows_(program_, gradual_.by_kinds()),
        edge_gradients_(program_, gradual_.by_kinds(), windows_) {}

  void begin();
  void judge(ir::InstId id, const rules::Application &app);
  void learn(ir::ValueId value) { windows_.learn(value, window_); }
  void keep_blocks(ir::Type &type) const;
  // What has come together from all ranks is an ordinary tensor again.
  void keep_known(uint32_t index, ir::Type &type) const;

  ir::AxisSet axes(ir::ValueId value) const { return windows_.axes(value); }
  // What the instruction makes: rows with the edges of neighbours, and gradients of edges.
  const HaloWindows::Facts &window() const { return window_; }
  const HaloGradients::Facts &gradient() const { return gradient_; }
  // Along which the result is a window whose rows stand where they should.
  ir::AxisSet in_place() const;

private:
  void judge_window(ir::InstId id, const rules::Application &app);
  void judge_shift(ir::InstId id);
  ir::AxisSet exchanging();
  bool is_part(ir::ValueId value) const;
  void judge_gradient(ir::InstId id, const rules::Application &app);

  HaloWindows windows_;
  HaloGradients edge_gradients_;
  HaloWindows::Facts window_;
  // Slices of blocks that leave out rows at one end, by the class of the dimension that is left.
  struct Cutting {
    ir::AxisId axis;
    int64_t first = 0, rows = 0;
    ir::InstId by;
  };
  llvm::DenseMap<CutPositions::Class, Cutting> cuttings_;
  HaloGradients::Facts gradient_;
  std::optional<ir::AxisSet> exchanging_; // once it was asked for
};

} // namespace spmd::checker
