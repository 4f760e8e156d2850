// The program applied once, on one device, to what its values mean: the second opinion that a run
// is held against. It never calls what plans a program or carries out a plan; it shares with them
// only how one op is computed on tensors (runtime/equation/evaluate.h).
//
// Values are as meant: data divided by the scale of their type. In global mode every list is the
// blocks of one tensor, so this is the ordinary program on one device; in local mode an axis on
// which a value is a list is one more dimension of it.
#pragma once

#include "runtime/equation/evaluate.h"
#include "runtime/plan/tensor_sizes.h"
#include "runtime/reference/meaning.h"

#include "checker/check.h"
#include "checker/checked_program.h"
#include "checker/operand_list.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::runtime {

// Of one execution of a body: how it was typed, and what its random numbers are a hash of.
struct BodySite {
  uint32_t typing = checker::CheckedProgram::kMain;
  uint64_t path = 0;
};

// An instruction, as rules see it, with its operands where the instruction stands: on its mesh,
// axes that are local there as lists.
class ResolvedInst {
public:
  const rules::Application &app() const { return *app_; }
  const ir::Inst &inst() const { return inst_; }
  const rules::ResolvedOp &op() const { return *op_; }
  llvm::ArrayRef<ir::ValueId> values() const { return operands_.values; }
  // None for what holds no data: a random state, a token.
  const std::optional<Distribution> &from(unsigned arg) const { return from_[arg]; }
  const std::optional<Distribution> &known(unsigned arg) const { return known_[arg]; }
  // A result where the instruction stands, and as it is known from then on.
  const std::optional<Distribution> &result(unsigned result) const { return results_[result]; }
  const std::optional<Distribution> &to(unsigned result) const { return to_[result]; }

private:
  friend class Reference;
  ir::Inst inst_;
  const rules::ResolvedOp *op_ = nullptr;
  checker::OperandList operands_;
  llvm::SmallVector<rules::TensorInfo, 6> args_;
  llvm::SmallVector<rules::ResultClaim, 2> claims_;
  std::optional<rules::Application> app_;
  llvm::SmallVector<std::optional<Distribution>, 6> known_, from_;
  llvm::SmallVector<std::optional<Distribution>, 2> results_, to_;
};

using Meanings = std::vector<Meaning>; // without pieces: no data

class Reference {
public:
  // `domain`: F64 or Field. The program is interned into.
  Reference(checker::CheckedProgram &program, Domain domain, uint64_t seed);

  // Lengths that tensors say are these, whatever the tensors hold; null: what they hold.
  void take_sizes(const TensorSizes *sizes) { sizes_ = sizes; }

  // Of one `while`.
  void limit_rounds(uint64_t rounds) { max_rounds_ = rounds; }
  uint64_t max_rounds() const { return max_rounds_; }

  // The results of one instruction that runs no body, from what its operands mean (by their own
  // types, in the order of the tensors). An error says what has no meaning on one device that we
  // can compute.
  llvm::Expected<Meanings> apply(ir::InstId id, BodySite site,
                                 llvm::ArrayRef<const Meaning *> operands);
  llvm::Expected<std::unique_ptr<ResolvedInst>> resolve_inst(ir::InstId id, BodySite site);
  llvm::Expected<Meanings> apply(const ResolvedInst &seen, ir::InstId id, BodySite site,
                                 llvm::ArrayRef<const Meaning *> operands);

  // True if the instruction takes a sum for a list of what each rank holds of it: only the ranks
  // know that.
  bool takes_addends(ir::InstId id, BodySite site);

  // The value that a `recv` of the main body gets: of those sent under its tag the first that no
  // other one got. None: another program sends it.
  ir::ValueId value_received_by(ir::InstId recv);
  // What a value that was sent means where it is received, whose ranks are as many, in the same
  // order.
  llvm::Expected<Meaning> received(const rules::TensorInfo &sent, const rules::TensorInfo &received,
                                   const Meaning &meaning);

  // An ordinary op on what its operands mean, all as the instruction sees them; with these slots
  // and attributes in place of its own, where numbers that stand there are to be others.
  llvm::Expected<Meanings> equation(const ResolvedInst &seen, uint64_t draws,
                                    const Meanings &operands, llvm::ArrayRef<rules::Slot> slots,
                                    ir::AttrsId attrs);
  // The gradient of one tensor of an instruction of form Equation, from those of its results; all
  // as the instruction sees them. `operand`: its name in the row; `member`: as derived rows count.
  llvm::Expected<Meaning> derivative(const ResolvedInst &seen, uint64_t draws,
                                     const Meanings &operands, const Meanings &results,
                                     unsigned arg, std::string_view operand,
                                     std::optional<int64_t> member);
  // The same of a transition or of an op that passes its operand on. Without pieces: none flows.
  llvm::Expected<Meaning> transposed_move(const ResolvedInst &seen, BodySite site, unsigned arg,
                                          llvm::ArrayRef<Meaning> operands,
                                          llvm::ArrayRef<Meaning> results);

  const rules::ResolvedOp &resolve(ir::OpNameId spelling) { return rules_.resolve(spelling); }
  ir::Program &program() { return program_; }
  checker::CheckedProgram &checked() { return checked_; }
  Domain domain() const { return domain_; }

private:
  llvm::Expected<Meanings> transition(const ResolvedInst &seen, BodySite site, Meanings operands);
  // What a tensor operand of this name says to the rank at these coordinates.
  llvm::Expected<TensorSizes::Lengths> stated_lengths(const ResolvedInst &seen, BodySite site,
                                                      llvm::ArrayRef<Meaning> operands,
                                                      llvm::StringRef key,
                                                      const Grid::Coordinates &at) const;
  llvm::Expected<Meanings> boundary(const ResolvedInst &seen, Meanings operands);
  llvm::Expected<Meaning> coordinate(const ResolvedInst &seen);
  llvm::Expected<Rational> factor_of_scale(const ResolvedInst &seen);
  llvm::Expected<Meanings> norms(const ResolvedInst &seen, Meanings operands);

  checker::CheckedProgram &checked_;
  ir::Program &program_;
  rules::Rules rules_;
  Domain domain_;
  uint64_t seed_;
  std::optional<llvm::DenseMap<uint32_t, ir::ValueId>> sent_; // by InstId of `recv`
  const TensorSizes *sizes_ = nullptr;
  uint64_t max_rounds_ = 100'000;
};

// Of a value that is known so; none if it holds no data.
llvm::Expected<std::optional<Distribution>> distribution_of(const ir::Program &program,
                                                            const rules::TensorInfo &known);

} // namespace spmd::runtime
