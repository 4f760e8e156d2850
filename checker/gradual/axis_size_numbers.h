// Plain numbers that stand for the size of an axis. A recorded program divides by 8, not by the
// size of dp; only where it stands says which is meant: beside a collective over as many ranks, in
// the backward of a mean, or below a loss whose gradients are summed over as many ranks.
#pragma once

#include "checker/check.h"
#include "checker/operand_list.h"

#include "rules/ops/registry.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

// Whether the result is the last of so many operands as it is, and nothing else is read.
bool copies_operand(const rules::ResolvedOp &op, size_t operands);

// The number that a literal is; none: it is none.
std::optional<double> number_of(const ir::AttrValue &value);

// The factor that a multiplication or division by a number comes to; none: it is none.
std::optional<double> factor_of(const rules::ResolvedOp &op, const OperandList &operands);

class AxisSizeNumbers {
public:
  // What a number is that equals the size of an axis which the program names at another place: that
  // size all the same, or a number, as in 2 * x / (1 + x) on two ranks.
  enum class Reading : uint8_t { Sizes, Numbers };
  // `checked`: of the program, for the shapes.
  AxisSizeNumbers(ir::Program &program, const CheckResult &checked, Reading reading);
  // True if some number was taken for a size that the other reading takes for a number.
  bool has_other_reading() const { return has_other_reading_; }

  // What the numbers of an instruction multiply its results with, as a scale. `types`: of the
  // values ahead of it. 1 where its numbers are numbers; none where a number may be one of two
  // sizes.
  std::optional<ir::ScaleId> scale(ir::InstId id, llvm::ArrayRef<ir::TypeId> types) const;
  // The axes by whose sizes the results may be off from that scale: a number may be a size where it
  // is taken as a number, or as that of another axis of as many ranks.
  struct Doubt {
    ir::AxisSet larger, smaller; // than it was taken to be
    bool operator==(const Doubt &) const = default;
    explicit operator bool() const { return larger || smaller; }
    void add(const Doubt &other) { larger |= other.larger, smaller |= other.smaller; }
  };
  Doubt doubt(ir::InstId id, llvm::ArrayRef<ir::TypeId> types) const;
  // The axes by whose size the result of a collective is divided.
  ir::AxisSet averaged(ir::ValueId sum, ir::MeshId mesh) const;
  // True if it divides by a number that is one of elements.
  bool is_mean(ir::InstId id) const { return means_.count(id.index) != 0; }

private:
  struct Mean { // that the instruction is a part of, or of its backward
    ir::ValueId operand, result;
    bool rows_only = false; // a sum that is divided by the number of its rows, dimension 0
    int64_t times = 1;      // the number is that of the elements of one rank, so many times
    int64_t passes = 1;     // micro-batches
  };
  struct Product {
    ir::ValueId operand;
    int64_t by;
  };
  struct Share { // of a loss, and the axes over which its gradients are summed and not averaged
    ir::ValueId operand;
    int64_t of;
  };
  void follow(ir::InstId id, rules::Rules &rules);
  void follow_one_rank(const ir::Inst &inst, const rules::ResolvedOp &op,
                       const OperandList &operands, bool product);
  void note_sum(const rules::Application &app, ir::ValueId operand, ir::ValueId result);
  void instruction(ir::InstId id, rules::Rules &rules);
  ir::ValueId summed(ir::InstId id, rules::Rules &rules) const;
  std::pair<ir::ValueId, int64_t> contracted(ir::InstId id, rules::Rules &rules) const;
  int64_t passes(const ir::Inst &inst) const;
  void mean_of_sum(ir::InstId id, ir::ValueId sum, int64_t divisor, rules::Rules &rules);
  void mean_backward(ir::InstId id, int64_t divisor, rules::Rules &rules);
  bool is_exponent(const ir::Inst &inst, double factor, rules::Rules &rules);
  int64_t elements(ir::ValueId value) const;
  Doubt may_be_size(ir::InstId id, const Product &product, const ir::Type &type) const;
  Doubt may_be_mean(const Product &quotient, const ir::Type &type) const;
  Doubt may_be_another(ir::InstId id) const;
  ir::AxisSet beside(ir::ValueId operand, ir::ValueId result, int64_t ranks,
                     bool sums = false) const;
  void count_passes(rules::Rules &rules);
  ir::ValueId root_of_backward(ir::InstId id, rules::Rules &rules) const;
  void find_shares(rules::Rules &rules);
  void find_shares_of(ir::ValueId root, rules::Rules &rules);
  void take_share(ir::InstId by, ir::ValueId of, double factor);
  void find_summed();
  ir::AxisSet as_read(ir::AxisSet sizes);
  bool is_divided(ir::ValueId value, const llvm::DenseMap<uint32_t, ir::ValueId> &next) const;
  ir::AxisSet shared_by(const Share &share, llvm::ArrayRef<ir::TypeId> types) const;

  ir::Program &program_;
  const CheckResult &checked_;
  const Reading reading_;
  bool has_other_reading_ = false;
  std::vector<ir::InstId> made_by_; // per value; none: declared
  llvm::DenseMap<uint32_t, ir::ValueId>
      next_; // a value -> the one that holds the same elements, scaled or moved
  llvm::DenseMap<uint32_t, ir::ValueId> before_; // the other way
  ir::AxisSet named_axes_;                       // whose sizes the program names
  // By value: the axes whose sizes the program names where it multiplies it, or has done so.
  llvm::DenseMap<uint32_t, ir::AxisSet> scaled_;
  llvm::DenseMap<std::pair<uint32_t, uint32_t>, int64_t>
      runs_;   // instructions of the forward, by spelling and place
  struct Sum { // the axes of a collective that adds up, and those where it adds up equal values
    ir::AxisSet all, equal;
    bool averages = false;
  };
  llvm::DenseSet<uint32_t> exponents_;    // powers whose exponent the backward has multiplied with
  int64_t passes_ = 1;                    // of backward, where all begin at one line
  llvm::DenseMap<uint32_t, Sum> entered_; // by operand of such a collective
  llvm::DenseMap<uint32_t, Sum> left_;    // by its result
  llvm::DenseMap<uint32_t, ir::ScaleId> scales_; // by instruction
  llvm::DenseMap<uint32_t, ir::ScaleId> named_;  // likewise, where the program names the size
  llvm::DenseMap<uint32_t, double> factors_;     // likewise: the number that it is
  llvm::DenseMap<uint32_t, Mean> means_;         // likewise
  // Likewise: with a whole number, and by one.
  llvm::DenseMap<uint32_t, Product> products_, quotients_;
  llvm::DenseMap<uint32_t, Share> shares_; // likewise: of a loss, by a whole number
  ir::AxisSet summed_; // axes over which gradients are summed, and nowhere averaged
  // Values: the place of a rank, zeros, what is true on one rank alone, what is not zero there.
  llvm::DenseSet<uint32_t> places_, zeros_, one_rank_masks_, one_rank_;
};

} // namespace spmd::checker
