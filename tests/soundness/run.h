// Runs a checked program in a field, forward and backward: on all ranks, or once, on what the ranks
// mean together. Gradients are those of ops differentiated one by one where they stand; ranks
// exchange nothing backward but what the duals of transitions say.
#pragma once

#include "tests/soundness/call.h"
#include "tests/soundness/field_op.h"

#include "checker/check.h"

#include "llvm/ADT/DenseMap.h"

#include <functional>
#include <memory>

namespace spmd::soundness {

// A tensor per rank. Ranks that hold one and the same by construction share that of a
// representative; where all ranks are run, each is its own.
struct Held {
  RankList rep; // per rank
  Arrays at;    // filled at representatives only
};

// What both runs of a program need: types, the ops that its instructions mean.
class Setting {
public:
  // A program without findings of errors.
  Setting(ir::Program &program, const checker::CheckResult &checked);

  // A body is typed for each call: `typing` is which one.
  Typed typed(ir::ValueId value, uint32_t typing) const;
  // Null, and why, where this suite cannot follow the instruction.
  const FieldOp *field_op(const ir::Inst &inst, uint32_t index, uint32_t typing, std::string &why);

  ir::Program &program;
  const checker::CheckResult &checked;
  World world;
  rules::Rules rules;

private:
  llvm::DenseMap<std::pair<uint32_t, uint32_t>, std::unique_ptr<FieldOp>> ops_;
};

class Run {
public:
  enum class Side : uint8_t { Ranks, Whole };
  Run(Setting &setting, Side side, uint64_t seed);

  // False: the program cannot be followed (`why`), or a claimed extent is none that an op gives
  // (`wrong` too).
  bool run();
  std::string why;
  bool wrong = false;

  const Held *value(ir::ValueId value) const;
  // Null: nothing was differentiated. Zeros where nothing flows.
  const Held *gradient(ir::ValueId value);
  // Of a value computed before the latest `backward`.
  bool was_differentiated(ir::ValueId value) const { return value.index < before_root_; }
  // All gradients anew: those of the root, and a drawn one at each of these values.
  void differentiate_with(llvm::ArrayRef<ir::ValueId> values);
  // To be called before run(): every root is differentiated with these.
  void observe(llvm::ArrayRef<ir::ValueId> values) {
    observed_.assign(values.begin(), values.end());
  }
  ir::ValueId root() const { return root_; }

private:
  struct Node {
    Held value;
    Arrays gradient; // as `value.at`; empty: zero
  };
  using NodeId = uint32_t;
  using Frame = llvm::DenseMap<uint32_t, NodeId>;
  using Nodes = llvm::SmallVector<NodeId, 4>;

  NodeId add(Held held);
  NodeId node(ir::ValueId value);
  void define(ir::ValueId value, NodeId id) { frame_[value.index] = id; }
  // What leaves a local region with a spec is joined.
  void define(const ir::Inst &inst, uint32_t result, NodeId id);
  Arrays &gradient_of(NodeId id);
  bool fail(std::string what) {
    why = std::move(what);
    return false;
  }
  bool carries_gradient(ir::ValueId value) const;
  // Ranks for which all of these hold the same.
  RankList classes(llvm::ArrayRef<NodeId> nodes) const;

  bool inputs();
  // Data of a type, the same on both sides but for `factor`, by which all ranks' are multiplied.
  Held draw(const Typed &known, const ir::Type &as, uint64_t seed, Residue factor) const;
  bool body(ir::Body body);
  bool inst(uint32_t index);
  bool equation(const ir::Inst &inst, uint32_t index);
  struct Application; // of an equation (run_equations.cc)
  struct Site;
  std::unique_ptr<Site> site_of(const Application &of, unsigned rank);
  bool compute(const ir::Inst &inst, const Application &of);
  void pull(const Application &of);
  bool transition(const ir::Inst &inst, llvm::StringRef name);
  bool transition_of(const Call &call, const ir::Inst &inst, ir::ValueId from, uint32_t result);
  // To a whole type, by a plan; blocks that change places (run_redistribute.cc).
  bool redistribution(const ir::Inst &inst);
  bool reorder(const ir::Inst &inst);
  std::optional<NodeId> reordered(ir::MeshId mesh, llvm::ArrayRef<ir::AxisId> axes,
                                  ir::TypeId before, ir::TypeId after, NodeId from, bool gradient);
  NodeId rank_step(const Call &call, const Step &step, NodeId from, bool gradient);
  NodeId whole_step(const Call &call, const Step &step, ir::AxisSet local, NodeId from,
                    bool gradient);
  NodeId edge(const ir::Inst &inst, ir::ValueId value);
  bool boundary(const ir::Inst &inst, rules::Boundary op);
  // Calls and loops (run_control.cc).
  bool call(const ir::Inst &inst, uint32_t index, rules::Boundary op);
  bool apply(const ir::Inst &inst, uint32_t index, llvm::StringRef region, unsigned place,
             llvm::ArrayRef<NodeId> args, Nodes &results);
  std::optional<uint32_t> typing_of(uint32_t index, unsigned place) const;
  bool loop(const ir::Inst &inst, uint32_t index, llvm::ArrayRef<NodeId> args);
  bool region(const ir::Inst &inst, uint32_t index, llvm::ArrayRef<NodeId> args);
  bool scan(const ir::Inst &inst, uint32_t index, llvm::ArrayRef<NodeId> args);
  bool branches(const ir::Inst &inst, uint32_t index, llvm::ArrayRef<NodeId> args);
  NodeId slice(NodeId from, int64_t at);
  // The same value with a gradient of its own.
  NodeId again(NodeId from);
  NodeId stacked(llvm::ArrayRef<NodeId> parts);
  NodeId chosen(const Held &predicate, NodeId yes, NodeId no);
  NodeId multiplied(NodeId from, Residue factor);
  // Of a list along the axes: the sum of its members; a list of the tensor and of zeros.
  NodeId summed(NodeId from, ir::MeshId mesh, ir::AxisSet axes);
  NodeId first_of_zeros(NodeId from, ir::MeshId mesh, ir::AxisSet axes);
  // The axes along which an op on lists is followed by their sum, as `partial` states.
  ir::AxisSet summed_axes(const ir::Inst &inst, llvm::ArrayRef<ir::ValueId> operands) const;
  void differentiate(ir::ValueId root);
  void pull_back(llvm::ArrayRef<ir::ValueId> values);

  // The value with other axes listed: blocks become members of a list, or join.
  NodeId relisted(NodeId from, const Typed &from_type, ir::AxisSet from_listed,
                  const Typed &to_type, ir::AxisSet to_listed);
  // An operand as an instruction sees it: on axes that are local there, a list of blocks.
  NodeId seen(ir::ValueId value, ir::ContextId context);
  Nodes seen_operands(const ir::Inst &inst);
  Typed typed(ir::ValueId value) const { return setting_.typed(value, typing_); }

  Setting &setting_;
  ir::Program &program_;
  const World &world_;
  Side side_;
  uint64_t seed_;
  std::vector<std::unique_ptr<Node>> nodes_;
  Frame frame_;
  std::vector<std::function<void()>> tape_; // backward, last first
  ir::ValueId root_;
  llvm::SmallVector<ir::ValueId, 32> observed_;
  uint32_t before_root_ = 0; // values before it have gradients; 0: none has
  uint32_t typing_ = 0;
  Held shown_; // what gradient() answered last
};

} // namespace spmd::soundness
