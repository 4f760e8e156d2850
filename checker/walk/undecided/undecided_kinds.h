// What the walk notes about values that are R or I where nothing says which: how the variables of
// operands and results belong together, and which uses decide. Internal to the checker.
#pragma once

#include "checker/walk/bodies/call_site.h"
#include "checker/walk/state.h"
#include "checker/walk/undecided/kind_variables.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::checker {

class UndecidedKinds {
public:
  using Row = KindVariables::Row;
  // What is reported at a place, if a value is of the other kind on the axis.
  using Say = llvm::function_ref<rules::Violation(ir::AxisId, ir::Kind other)>;

  explicit UndecidedKinds(WalkState &state)
      : state_(state), program_(state.program), result_(state.result),
        open_(state.program.values.size()) {}

  bool any() const { return open_.any(); }
  // True while there is something open, and what is met of it is recorded.
  bool recording() const { return state_.recording && open_.any(); }
  Row row(ir::ValueId value) const { return open_.row(value); }
  ir::AxisSet axes(ir::ValueId value) const { return open_.axes(open_.row(value)); }
  // Of an operand or a result of the current instruction.
  Row operand_row(size_t operand);
  Row result_row(uint32_t result) const { return result < rows_.size() ? rows_[result] : 0; }
  void set_result_rows(KindRows rows) { rows_ = std::move(rows); }

  // What an application says of its operands and results.
  void apply(ir::InstId id, const rules::Application &app, const rules::Outcome &outcome,
             uint32_t application);
  // A value is made, or made again, with these variables and new ones where it lacks some.
  void define(ir::ValueId value, Row row, const ir::Type &type);
  // The gradient of a value that is open: a kind that has no such gradient is ruled out. `refused`:
  // the axes on which a value of that type has not.
  void gradient(Place place, ir::ValueId gradient, const ir::Type &value, const ir::Type &found,
                llvm::function_ref<ir::AxisSet(const ir::Type &value)> refused);
  // One value as it was known, and as it is known from here on: what was open and is no more was
  // decided at this place; what is open still shares the variables of `other`. `say`: what stands
  // here if it is the other kind.
  void meet(Row row, const ir::Type &before, Row other, const ir::Type &after, Place place,
            Say say);
  void need(Row row, ir::AxisId axis, ir::Kind kind, Place place, rules::Violation violation);

  // Bodies that were run.
  void call(CallSite &site, const Round &round);
  void loop(CallSite &site, const Round &round, const Args &args, size_t first,
            llvm::ArrayRef<ir::Type> met);
  void branches(CallSite &site, const Round &then, const Round &other);

  // The whole program was walked: solves all variables, and reports uses that contradict, each at
  // the second use. Findings about declarations may have been reported last, from entry `reported`
  // on; `late` of them were moved to entry `declared`, before those of the instructions.
  void settle(size_t declared, size_t reported, size_t late);
  void settle_src_dst() { open_.settle_src_dst(result_); }

  // While an edit is tried the words stand as they were decided.
  void use_decided_src_dst();
  void apply_decided_dst(ir::InstId id, ir::Type &type) const;

private:
  using Probe = std::pair<uint32_t, ir::Kind>; // an operand, taken as R or as I where it is open
  // The variables of a result that are known so far.
  struct ResultVariables {
    ir::AxisSet axes;
    std::array<uint32_t, ir::kMaxAxes> variables;
    Row like = 0;
  };

  void fact(KindFact::Form form, uint32_t a, uint32_t b, ir::AxisId axis = {});
  void follow(ir::InstId id, const KindLink &link, llvm::ArrayRef<Row> operands,
              llvm::MutableArrayRef<ResultVariables> made);
  KindLinks links_of(const rules::Application &app, const rules::Outcome &outcome);
  void link_words(const rules::Application &app, const rules::Outcome &outcome, KindLinks &links);
  void link_group(const rules::Application &app, const rules::Outcome &outcome,
                  llvm::ArrayRef<uint32_t> operands, ir::AxisSet refused, KindLinks &links);
  void link_pair(const rules::Application &app, Probe one, uint32_t other, ir::AxisSet axes,
                 KindLinks &links);
  const rules::Outcome &probe(const rules::Application &app, llvm::ArrayRef<Probe> probes);
  KindRows bind_params(uint32_t body, llvm::ArrayRef<Row> args);
  KindRows bind_results(uint32_t body);
  void name_clash(KindVariables::Contradiction &clash);
  void put_in_order(std::vector<KindVariables::Contradiction> found);

  WalkState &state_;
  ir::Program &program_;
  CheckResult &result_;
  KindVariables open_;
  KindRows rows_; // of the results of the current instruction; may be shorter
  // The words that were decided, while retyping: per instruction.
  llvm::DenseMap<uint32_t, llvm::SmallVector<std::pair<ir::AxisSet, ir::Kind>, 1>> words_;
};

} // namespace spmd::checker
