// A collective, convert or reinterpret as its attributes state it, axis by axis: syntax alone.
#pragma once

#include "tests/soundness/world.h"

#include <optional>
#include <string>

namespace spmd::soundness {

// Axes that are named one behind the other with equal words: one call over their ranks.
struct Step {
  ir::WrittenKind src, dst;
  ir::Layout layout; // outermost first
  ir::AxisSet axes;  // typed ones
  int64_t size = 1;
  llvm::SmallVector<int64_t, 2> sizes = {}; // of these axes, outermost first
};

struct Call {
  std::string name;
  ir::MeshId mesh;
  llvm::SmallVector<Step, 2> steps;
  bool average = false;
  size_t dim = 0, split_dim = 0, concat_dim = 0; // as stated, 0 by default
  Dims splits, in_splits, out_splits;            // empty: equal blocks
  size_t root = 0;
  llvm::SmallVector<std::pair<size_t, size_t>, 4> sends; // collective_permute
};

// None, and why, for a call that this suite cannot follow (another combiner, say).
std::optional<Call> read_call(const ir::Program &program, llvm::StringRef name, ir::AttrsId attrs,
                              ir::MeshId mesh, std::string &why);

// A step on the ranks of one group, in order. The two below know nothing of each other.

// What ranks do: collective and local step of the row, and backward those of its dual. None: no
// such row.
class RankStep {
public:
  static std::optional<RankStep> make(const Call &call, const Step &step, std::string &why);

  Arrays forward(const Arrays &held) const;
  // `held`: what forward was given, for its extents.
  Arrays backward(const Arrays &gradients, const Arrays &held) const;

private:
  struct Row; // of the table
  const Call *call_ = nullptr;
  const Step *step_ = nullptr;
  std::string_view name_;
  ir::Kind src_ = {}, dst_ = {};
};

// What the call does to what the ranks mean together. A list has a member per rank, anything else
// is one tensor.
class WholeStep {
public:
  // `listed`: blocks of S(i) are members of a list here. `nowhere`: the axes are local in the whole
  // program, so that copies count.
  static std::optional<WholeStep> make(const Call &call, const Step &step, bool listed,
                                       bool nowhere, std::string &why);

  bool takes_list() const { return takes_list_; }
  bool gives_list() const { return gives_list_; }
  Arrays forward(const Arrays &meant) const;
  Arrays backward(const Arrays &gradients, const Arrays &meant) const;

private:
  enum class Form : uint8_t {
    Same,
    Join,
    Cut,
    Exchange,
    Repeat,
    JoinRepeat,
    Sum,
    Pick,
    Place,
    Permute
  };
  Form form_ = Form::Same;
  const Call *call_ = nullptr;
  const Step *step_ = nullptr;
  bool takes_list_ = false, gives_list_ = false;
  Residue factor_ = 1;
};

} // namespace spmd::soundness
