// Judges a program of per-rank tensors as parts of whole ones, without declarations that say so:
// cuts are inferred, and what is wrong whatever is unknown is a finding. Two passes: by kinds
// alone, as always; then with the cuts that the first one and the program tell, where a sum over a
// dimension that an axis cuts is pending. Where rules for whole tensors do not apply, the first
// pass stands and nothing is reported.
#pragma once

#include "checker/gradual/axis_size_numbers.h"
#include "checker/gradual/blocks/updates.h"
#include "checker/gradual/copies.h"
#include "checker/gradual/cuts.h"
#include "checker/gradual/pieces.h"

#include "ir/claims.h"

#include <set>

namespace spmd::checker {

class Gradual {
public:
  // The program by kinds; cuts are stated in its declarations, and it is judged by whole tensors
  // from then on.
  Gradual(ir::Program &program, const CheckOptions &options, AxisSizeNumbers::Reading numbers);

  // What is known of a value that the second pass does not know, or of which it does not know
  // the cut.
  // `lost`: axes on which it is unknown and nothing was reported.
  ir::Type known(ir::ValueId value, ir::Type type, ir::AxisSet lost) const;
  // True if the finding holds whatever is unknown, or the first pass has it too. `open`: the
  // axes on which something that it depends on is not known.
  bool certain(const Place &place, const rules::Violation &violation, ir::AxisSet open) const;

  // Whether all elements along a dimension are one number that was stretched.
  bool is_broadcast_along(ir::ValueId value, unsigned dim) const;
  // Whether the forward makes a value of a derivative that it takes itself.
  bool of_derivative(ir::ValueId value) const { return derivatives_.count(value.index) != 0; }

  // True if only the second pass has the finding, and a cut that it depends on was not stated.
  bool stands_on_inference(const Place &place, const rules::Violation &violation) const;
  // A reinterpret from V or to V, by which a recorder says of per-rank values what they are.
  static bool only_restates(const rules::Application &app);

  const Copies &copies() const { return copies_; }
  const AxisSizeNumbers &numbers() const { return numbers_; }
  const Pieces &pieces() const { return pieces_; }
  const Updates &updates() const { return updates_; }
  const Cuts &cuts() const { return cuts_; }
  // The axes on which a result is stated as unknown and was given the cut that others like it have.
  ir::AxisSet assumed_cuts(ir::ValueId value) const {
    return assumed_cuts_.lookup(value.index).axes;
  }
  void restore() const; // what the program stated of parameters and results, when all is judged
  const CheckResult &by_kinds() const { return first_; }

private:
  void state_cuts();
  void assume_same(const ir::Param &param);
  void find_broadcast();
  ir::AxisSet blocks_of_number(const ir::Inst &inst, ir::ValueId value, ir::AxisSet cut) const;
  void find_derivatives();
  ir::TypeId with_cuts(ir::TypeId declared, ir::ValueId value) const;

  ir::Program &program_;
  Copies copies_; // states what they are to be, before anything is judged
  CheckResult first_;
  Cuts cuts_;
  AxisSizeNumbers numbers_;
  Pieces pieces_;
  Updates updates_;
  std::set<std::tuple<unsigned, uint32_t, std::string_view>>
      reported_; // form and index of a place, name
  struct AssumedCut {
    ir::AxisSet axes;
    ir::TypeId stated;
  };
  std::vector<ir::TypeId> stated_;                    // of the parameters
  llvm::DenseMap<uint32_t, AssumedCut> assumed_cuts_; // by value: see assumed_cuts()
  llvm::DenseSet<uint32_t> derivatives_; // values that the forward makes of derivatives
  // Values that are constant along a dimension, with the class of its position.
  llvm::DenseSet<std::pair<uint32_t, CutPositions::Class>> broadcast_dims_;
  ir::AxisSet inferred_; // axes along which some cut was not stated
};

CheckResult check_gradually(ir::Program &program, const CheckOptions &options);

} // namespace spmd::checker
