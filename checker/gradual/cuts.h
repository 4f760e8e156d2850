// Of tensors that differ between the ranks of an axis and of which nobody said how: which dimension
// of them the axis cuts, as far as the program tells.
#pragma once

#include "checker/gradual/positions.h"
#include "checker/operand_list.h"

#include "llvm/ADT/DenseSet.h"

#include <map>

namespace spmd::checker {

// What a statement about a tensor stands on, the strongest first.
enum class Origin : uint8_t { Stated, Inferred, Assumed };

// Says that the axis cuts a dimension, inside of what cuts it already.
void cut(ir::Type &type, ir::AxisId axis, unsigned dim);
// The axes along which ranks have batches of their own, as the mesh says.
ir::AxisSet data_axes(const ir::Program &program, ir::MeshId mesh);

class Cuts {
public:
  // `checked`: of the program, judged by kinds.
  Cuts(ir::Program &program, const CheckResult &checked);

  // The dimension of the value that the axis cuts, if it differs there, at its front or inside;
  // none: not known.
  std::optional<unsigned> dim(ir::ValueId value, ir::AxisId axis) const;
  // Whether a parameter that is the same on all ranks of the axis has the dimension.
  bool is_whole(ir::ValueId value, unsigned dim, ir::AxisId axis) const;
  // The axes as they are stated to cut the same dimension of another value, the outermost first.
  llvm::SmallVector<ir::AxisId, 4> in_order(ir::ValueId value, ir::AxisSet axes) const;
  // Whether the axis cuts it inside: ranks side by side do not have neighbouring blocks.
  bool inside(ir::ValueId value, ir::AxisId axis) const;
  // How many blocks of each rank lie behind one another in the dimension: 1 if the axis does not
  // cut it inside.
  int64_t blocks(ir::ValueId value, ir::AxisId axis) const;
  // Of a declared value of which it is not known whether it differs, and that is not cut: what it
  // is, as most parameters are on the axis. None if nothing is known of any.
  std::optional<ir::Kind> same(ir::ValueId value, ir::AxisId axis) const;
  // True of a parameter, or its state, that differs although the axis can cut none of its
  // dimensions: its copies have drifted apart.
  bool has_drifted(ir::ValueId value, ir::AxisId axis) const;
  // The axes along which a parameter, or its state, is a rank's own, as the weights of an expert
  // are: no axis cuts it, and each rank multiplies what it has itself with it.
  ir::AxisSet owned(ir::ValueId value) const { return owned_.lookup(value.index); }
  // The axes along which ranks have other ones of an input that is a single sample: a `stack` puts
  // it behind others, as the batch of the rank.
  ir::AxisSet sample(ir::ValueId value) const { return samples_.lookup(value.index); }
  // True of an input whose rows are numbers that each row of a batch has alike, such as positions:
  // the ranks hold equal blocks of it.
  bool repeats(ir::ValueId value, ir::AxisId axis) const;
  // Whether the dimension is one of such an input, which may be a whole batch as well.
  bool is_of_repeated(ir::ValueId value, unsigned dim, ir::AxisId axis) const;
  // Along which an input is taken for each rank's own rows of a batch, which may be any of them.
  ir::AxisSet batch_axes(ir::ValueId value) const;
  // Of a declared value.
  std::optional<Origin> origin(ir::ValueId value, ir::AxisId axis) const;

  const CutPositions &positions() const { return positions_; }

private:
  struct Axis {
    llvm::DenseSet<uint32_t> cut;             // classes
    llvm::DenseSet<uint32_t> stated;          // those of them that a declaration says
    llvm::DenseMap<uint32_t, unsigned> whole; // classes -> how often a collective leaves them whole
    llvm::DenseSet<uint32_t> never;  // declared values have them and are the same on all ranks
    llvm::DenseSet<uint32_t> shared; // those of them that parameters have
    llvm::DenseSet<uint32_t> own;    // parameters with them are multiplied with what differs itself
    llvm::DenseMap<uint32_t, unsigned> candidates; // classes -> in how many varying parameters
    llvm::DenseMap<uint32_t, Origin> origins;      // by value
    llvm::DenseSet<uint32_t> drifted;              // values
    llvm::DenseSet<uint32_t> repeated;             // values, equal on all ranks, row by row
    unsigned replicated = 0, invariant = 0;        // parameters
  };
  using Key = std::pair<uint16_t, uint8_t>; // mesh and axis

  const Axis *find(ir::ValueId value, ir::AxisId axis) const;
  void find_used();
  void declared(const ir::Param &param);
  bool may_repeat(const ir::Param &param, ir::AxisId axis) const;
  void result(ir::InstId id);
  void converted(ir::InstId id, const rules::ResolvedOp &op, const OperandList &operands);
  void products(ir::InstId id);
  void follow_exchanges();
  void follow_splits();
  void find_taken_apart();
  void follow_parts();
  bool is_own(const Axis &axis, ir::ValueId value) const;
  void find_drifted(const Key &key, Axis &axis);
  void find_state_of_owned();
  void choose_parameters(Axis &axis, llvm::ArrayRef<ir::ValueId> values);
  void find_stacked();
  void follow_batches();
  void choose_inputs(ir::AxisId id, Axis &axis, llvm::ArrayRef<ir::ValueId> values);
  std::optional<uint32_t> best(const Axis &axis, ir::ValueId value) const;
  bool moves(ir::InstId id, bool gathers, ir::AxisSet axes);

  ir::Program &program_;
  const CheckResult &checked_;
  CutPositions positions_;
  llvm::DenseSet<uint32_t> needed_whole_; // classes
  llvm::DenseSet<uint32_t> used_;         // values that the model uses
  std::map<Key, Axis> axes_;
  llvm::DenseMap<uint32_t, llvm::SmallVector<ir::AxisId, 2>> orders_; // classes, as it is stated
  std::map<Key, std::vector<ir::ValueId>> parameters_, inputs_; // that vary there, of unknown cut
  llvm::DenseMap<uint32_t, ir::AxisSet> owned_;                 // by value
  // Inputs that nothing but a `stack` reads: the class of the dimension in which it puts them.
  llvm::DenseMap<uint32_t, uint32_t> stacked_;
  llvm::DenseMap<uint32_t, ir::AxisSet> samples_; // by value
  llvm::DenseSet<uint32_t> apart_;                // values: batches that are taken apart for a loop
  std::map<Key, std::vector<ir::ValueId>> unknown_; // of which it is not known whether they do
};

} // namespace spmd::checker
