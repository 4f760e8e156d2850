// Follows a program rank by rank along one axis: which rank takes which part of a tensor that all
// of them have, what it sends on, and what a mask leaves of it. The turns of a loop stand one after
// the other in a trace, so that numbers of ranks and of turns are known.
#pragma once

#include "checker/check.h"
#include "checker/gradual/micro_batches/contents.h"
#include "checker/operand_list.h"

#include "rules/apply.h"
#include "rules/factors/factors.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"

#include <set>

namespace spmd::checker {

class RankInterpreter {
public:
  RankInterpreter(ir::Program &program, const CheckResult &result, ir::MeshId mesh,
                  ir::AxisId axis);
  // Whether there are ranks to tell apart, and not too many for the size of the program.
  static bool can_follow(const ir::Program &program, ir::MeshId mesh, ir::AxisId axis);

  // Of a value on one rank: one content for each of equal stretches of a dimension, or for all of
  // it.
  struct Cells {
    llvm::SmallVector<Contents::Id, 1> of = {Contents::kFree};
    unsigned dim = 0;
    bool given = false; // free, and as the inputs that all ranks have: a loop may go through it
    bool uniform() const { return of.size() == 1; }
  };
  // A tensor that all ranks have, and that ranks go through part by part.
  struct Source {
    unsigned dim = 0;
    int64_t length = 0, parts = 0; // of a part; how many
    bool fits = true;
    bool left = false;    // some ranks make nothing of a part, as a mask of the rank says
    ir::InstId first;     // that takes one
    uint32_t operand = 0; // of it
    std::set<std::pair<unsigned, int64_t>> taken; // by rank
  };

  void run();
  Contents &contents() { return contents_; }
  const Cells &cells(unsigned rank, ir::ValueId value) const { return cells_[rank][value.index]; }
  unsigned ranks() const { return ranks_; }
  const Source *source(uint32_t value) const {
    const auto at = value == PartOf::kResult ? sources_.end() : sources_.find(value);
    return at == sources_.end() ? nullptr : &at->second;
  }

private:
  struct Step { // one instruction on one rank
    ir::InstId id;
    const ir::Inst &inst;
    const rules::Application &app;
    llvm::ArrayRef<ir::ValueId> operands;
    unsigned rank;
  };
  using Results = llvm::SmallVector<Cells, 2>;

  void pass();
  void choose_sources();
  void step(ir::InstId id);
  void send(ir::InstId id, const rules::Application &app);
  llvm::SmallVector<Cells, 8> moved(const rules::Application &app, ir::ValueId from) const;
  Cells reduced(ir::ValueId from);
  void set(unsigned rank, const ir::Inst &inst, Results results);
  Results made(const Step &step);
  Results unknown(const Step &step);
  std::optional<Cells> sliced(const Step &step, const rules::Application &bound);
  std::optional<Cells> joined(const Step &step, const rules::Application &bound);
  std::optional<Cells> padded(const Step &step, const rules::Application &bound);
  std::optional<Cells> written(const Step &step, const rules::Application &bound);
  std::optional<Cells> row_set(const Step &step, const rules::Application &bound);
  std::optional<Cells> overwritten(const Step &step, unsigned dim, int64_t begin, int64_t length,
                                   const Cells &other) const;
  std::optional<Cells> constant(const Step &step, const rules::Application &bound);
  Cells part(const Step &step, const rules::Application &bound, unsigned dim);
  std::optional<Contents::Id> start(const Step &step, const rules::Application &bound, size_t first,
                                    unsigned dim);
  Results by_equation(const Step &step, const rules::Application &bound);
  Contents::Id total(const rules::Application &bound, const rules::Equation &equation,
                     const rules::Sum &sum, const rules::Binding &binding,
                     llvm::ArrayRef<Contents::Id> args, bool discrete);
  std::optional<Contents::Id> chosen(const rules::Application &bound,
                                     const rules::Equation &equation, const rules::Binding &binding,
                                     llvm::ArrayRef<Contents::Id> args);
  Contents::Id atom(const rules::Application &bound, const rules::Equation &equation,
                    const rules::Atom &atom, const rules::Binding &binding,
                    llvm::ArrayRef<Contents::Id> args, bool discrete);
  std::optional<Contents::Id> computed(const rules::Application &bound,
                                       llvm::ArrayRef<Contents::Id> numbers);
  void note_left(ir::InstId id);

  Contents::Id flat(const Cells &cells);
  Cells uniform(Contents::Id id) const { return {{id}, 0, false}; }
  Cells compact(Cells cells) const;
  bool take(const Step &step, uint32_t operand, unsigned dim, int64_t length, int64_t part);
  std::optional<int64_t> extent(ir::ValueId value, unsigned dim) const;
  size_t rank_of(ir::ValueId value) const;
  bool is_equal(ir::ValueId value) const;
  bool is_discrete(ir::ValueId value) const;
  const Cells &at(const Step &step, size_t operand) const {
    return cells_[step.rank][step.operands[operand].index];
  }

  ir::Program &program_;
  const CheckResult &result_;
  ir::MeshId mesh_;
  ir::AxisId axis_;
  unsigned ranks_;
  rules::Rules rules_;
  OperandList list_;
  Contents contents_;
  std::vector<std::vector<Cells>> cells_; // by rank and value
  llvm::DenseMap<uint32_t, Source> sources_;
  bool looking_ = true; // for sources
};

} // namespace spmd::checker
