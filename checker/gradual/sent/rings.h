// Blocks that go round: each rank sends what it has to the next one, so that after as many turns as
// there are ranks but one, every rank has seen the block of every other. A sum over the turns is
// then a sum over the whole dimension; what has gone round is at home again.
#pragma once

#include "checker/check.h"
#include "checker/gradual/sent/block_numbers.h"
#include "checker/gradual/sent/ring_value.h"

#include "rules/apply.h"
#include "rules/factors/factors.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

class Rings {
public:
  // `checked`: of the program by kinds, for the shapes.
  Rings(ir::Program &program, const CheckResult &checked, rules::Rules &rules);

  bool empty() const { return axes_.empty(); } // nothing is sent round

  // A result that is an ordinary tensor again: cut by the axis in a dimension, or the same on all
  // ranks.
  struct Known {
    ir::AxisId axis;
    std::optional<unsigned> dim;
    bool proved = false;
    Expressions::Id form = 0;
  };
  struct Result { // one of both, or nothing
    std::optional<Known> known;
    std::optional<RingValue> held;
  };
  enum class Fault : uint8_t {
    None,
    Mixed,    // blocks of different ranks meet in one dimension
    Missing,  // a sum over blocks is used, and that of one rank is not in it
    Repeated, // the block of one rank is added twice
    Scaled,   // addends of one sum are divided by different numbers
  };
  struct Facts {
    Fault fault = Fault::None;
    uint32_t operand = 0; // at fault
    unsigned back = 0;    // of which rank its block is, or is the one in question
    unsigned other = 0;   // of which rank that is which it meets
    ir::InstId by;        // what made it so, if not the instruction
    ir::AxisId axis;
    llvm::SmallVector<Result, 1> results;
    const Known *known(uint32_t result) const {
      return result < results.size() && results[result].known ? &*results[result].known : nullptr;
    }
    const RingValue *held(uint32_t result) const {
      return result < results.size() && results[result].held ? &*results[result].held : nullptr;
    }
  };
  // `unread`, `proved`: of the operands, what is not read, and the axes on which they are proved.
  Facts infer(ir::InstId id, const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
              llvm::ArrayRef<bool> unread, llvm::ArrayRef<ir::AxisSet> proved);
  // Notes what the results are.
  void learn(const rules::Application &app, ir::InstId id, llvm::ArrayRef<ir::ValueId> operands,
             const Facts &facts);
  // Notes of an input of integers, such as positions, that its cut was assumed: its rows may be
  // those of any rank.
  void guess(ir::ValueId value) { guessed_.insert(value.index); }
  // Of a gradient whose block is not that of the value that it belongs to, which has this type.
  struct Astray {
    unsigned back, wanted;
    ir::AxisId axis;
    ir::InstId by; // that sent it last, if any did
  };
  std::optional<Astray> astray(ir::ValueId gradient, ir::ValueId of, const ir::Type &type) const;

private:
  // One instruction.
  struct Step {
    ir::InstId id;
    const rules::Application &app;
    llvm::ArrayRef<ir::ValueId> operands;
    llvm::ArrayRef<bool> unread;
    llvm::ArrayRef<ir::AxisSet> proved;
    ir::ValueId first = {}; // result
    uint32_t results = 0;
    ir::AxisId axis = {};
    bool axis_known = false;
    unsigned ranks = 0;
    Facts facts = {};
    ir::ValueId result(uint32_t index) const { return ir::ValueId{first.index + index}; }
  };
  struct Computing; // an instruction by its equation

  const RingValue *find(ir::ValueId value) const;
  Expressions::Id form(ir::ValueId value);
  Expressions::Id block_form(ir::ValueId whole, unsigned dim, ir::AxisId axis);
  Expressions::Id ordinary_form(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                                ir::ValueId value, uint32_t result);
  Expressions::Id op_form(const rules::Application &app, llvm::ArrayRef<Expressions::Id> operands,
                          uint32_t result);
  std::optional<Expressions::Id> reshaped(const rules::Application &app, Expressions::Id form,
                                          ir::ValueId operand, ir::ValueId result);
  std::optional<RingValue> seen(const ir::Type &type, ir::ValueId value, ir::AxisId axis,
                                bool proved);
  void send(Step &step);
  void take(Step &step);
  void compute(Step &step);
  bool collect(Step &step, const rules::Application &app);
  bool pick(Step &step, const rules::Application &app);
  void follow_broadcast(const rules::Application &app, ir::ValueId operand, ir::ValueId result);
  void collapse(RingValue &held);
  void finish(Step &step, uint32_t result, RingValue held);
  bool is_guessed(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands) const;
  bool is_unknown_start(const rules::Application &app, size_t operand, ir::ValueId value) const;
  bool is_away(const RingValue &held) const {
    return held.sent_by.valid() && away_.contains(held.sent_by.index);
  }
  void gather(Step &step);
  struct Members;
  struct Entry;
  std::optional<Members> members_of(ir::ValueId value, const ir::Type &type, ir::AxisId axis,
                                    unsigned dim) const;
  void send_members(Step &step, unsigned by);
  std::optional<Entry> entry_of(const rules::Application &app, ir::ValueId stack) const;
  bool pick_member(Step &step);
  void write_member(Step &step);
  void learn_entry(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                   ir::ValueId result);
  void find_away(rules::Rules &rules, llvm::ArrayRef<ir::InstId> sends);
  void number_blocks(rules::Rules &rules);
  bool learn_rows(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                  ir::ValueId value);
  std::optional<int64_t> extent(ir::ValueId value, unsigned dim) const;
  size_t rank(ir::ValueId value) const;

  ir::Program &program_;
  const CheckResult &checked_;
  ir::AxisSet axes_;                        // along which something is sent round
  llvm::DenseSet<uint32_t> sent_;           // values
  std::map<uint8_t, BlockNumbers> numbers_; // by axis, of its ranks
  llvm::DenseSet<uint32_t> away_; // by send: of a block that its rank makes nothing of itself
  Expressions forms_;
  llvm::DenseMap<uint32_t, RingValue> held_;       // by value
  llvm::DenseMap<uint32_t, Expressions::Id> form_; // of ordinary values
  // A stack of which each entry has blocks of its own, such as gradients of keys and of values that
  // go round in one buffer.
  struct Members {
    unsigned dim;
    std::vector<RingValue> of;
  };
  llvm::DenseMap<uint32_t, Members> members_; // by value
  struct Entry {                              // a view of one entry of a stack
    ir::ValueId of;
    unsigned dim;
    int64_t index;
  };
  llvm::DenseMap<uint32_t, Entry> entries_; // by value
  struct Rolled {
    ir::ValueId of;
    unsigned dim;
    int64_t by;
  };
  llvm::DenseMap<uint32_t, Rolled> rolled_; // whole tensors that were turned by some elements
  llvm::DenseMap<uint32_t, bool> uniform_;  // of one number: whether it is 0
  llvm::DenseMap<uint32_t, uint32_t> broadcast_dims_; // dimensions, a bit for each
  llvm::DenseSet<uint32_t> guessed_; // integers that may be of the blocks of any rank
  struct Base {                      // that was reshaped
    Expressions::Id form;
    std::vector<uint64_t> extents;
  };
  std::map<Expressions::Id, Base> bases_; // by what it was reshaped to
  struct Log {                            // of a sum over these blocks
    Expressions::Id sum;
    uint64_t blocks;
  };
  llvm::DenseMap<Expressions::Id, Log> logs_; // by what a shift names
  struct LogList {                            // logarithms side by side, one of each member
    Log together;
    unsigned dim; // in which they lie
  };
  llvm::DenseMap<uint32_t, LogList> log_lists_; // by value
};

} // namespace spmd::checker
