// Holds what the ranks computed against what one device computes: claim by claim, forward and
// backward.
#pragma once

#include "tests/soundness/run.h"

namespace spmd::soundness {

struct Verdict {
  enum class Form : uint8_t { Upheld, Wrong, NotFollowed };
  Form form = Form::Upheld;
  std::string what;                   // Wrong: which claim, where; NotFollowed: why
  unsigned values = 0, gradients = 0; // claims that were compared
  bool is(Form other) const { return form == other; }
};

// All: every value and every gradient. Edges: what nothing uses, and gradients of what is declared.
enum class Claims : uint8_t { All, Edges };

// A program, run on both sides.
class Execution {
public:
  Execution(ir::Program &program, const checker::CheckResult &checked, uint64_t seed);

  // Upheld: both sides ran to the end.
  Verdict run();
  // All gradients anew, with a drawn one at each value, as if the loss depended on all: a value
  // whose gradient is 0 is then one that none can have. Gradients that the program asks for stay as
  // they are.
  void observe_all();
  // The same, for gradients that the program asks for too: both sides run again.
  void run_again_observed();
  // The first claim that the data refute.
  Verdict judge(Claims claims);

  // Empty, or what the data have against the value being of this type; against its gradient being
  // of the dual one, where it has a gradient. `known`: its shape, and how it is cut.
  std::string refute(ir::ValueId value, const Typed &known, const ir::Type &type);
  std::string refute_gradient(ir::ValueId value, const Typed &known, const ir::Type &type);

  // A gradient that the program states, against the one that `taped` differentiated for the value.
  // Both have run. Counts what is compared.
  std::string refute_against(ir::ValueId stated, Execution &taped, ir::ValueId of,
                             unsigned &compared);
  // What `step` reads, after what the contract of the parameter reduces, against what it reads in
  // `taped`.
  std::string refute_step_against(ir::ValueId param, ir::ValueId read, Execution &taped,
                                  ir::ValueId before, unsigned &compared);

  Setting &setting() { return setting_; }
  const Held &held(ir::ValueId value) const { return *ranks_->value(value); } // of what ran
  bool ran(ir::ValueId value) const { return ranks_->value(value) && meant_->value(value); }

private:
  bool can_be_observed(ir::ValueId value) const;
  llvm::SmallVector<ir::ValueId, 32> observed() const;
  void judge_value(ir::ValueId value, Verdict &verdict);
  void judge_gradient(ir::ValueId value, Verdict &verdict);
  // What a program says of gradients itself: `grad_of`, `step` (judge_stated.cc).
  void judge_stated(ir::ValueId value, Verdict &verdict);
  void judge_steps(Verdict &verdict);
  // `gradient`: its type before what the contract reduces.
  Held summed_over(const Held &held, ir::MeshId mesh, ir::AxisSet axes, ir::Combiner op) const;
  std::string refute_step(const ir::Param &param, const ir::Type &gradient, const Held &ranks,
                          const Held &meant);
  // The scale of the loss that stated gradients are of.
  Residue stated_root() const;

  ir::Program &program_;
  Setting setting_;
  uint64_t seed_;
  std::unique_ptr<Run> meant_, ranks_;
  std::vector<bool> used_;
};

// Empty, or where what the ranks hold is not what is meant, if it is of the type. `value`: how it
// lies. `factor`: what the ranks' data denote, in terms of what is meant.
std::string refute_data(const ir::Program &program, const World &world, const Typed &value,
                        const ir::Type &type, const Held &ranks, const Held &meant, Residue factor);

// Runs both sides, twice backward: from the root, then as if the loss depended on every value.
Verdict judge(ir::Program &program, const checker::CheckResult &checked, uint64_t seed,
              Claims claims = Claims::All);

} // namespace spmd::soundness
