// The walk: types every value of a program in program order and reports all that does not follow,
// on all axes.
#pragma once

#include "checker/finding.h"

#include "ir/program.h"
#include "rules/apply.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace spmd::checker {

struct CheckOptions {
  bool permissive = false;    // a missing claim is skipped instead of reported
  bool infer_partial = false; // `partial` need not be stated
  bool memoise = true;        // off only to test that it changes nothing
  // The program declares no types, as a recorded step: temporary storage takes the type of the last
  // write, and a broadcast of an equal value is no finding. check() sets it for Mode::Gradual; set
  // it only where such a program is judged by kinds alone.
  bool undeclared = false;
  std::optional<ir::Mode> mode; // overrides the program's
  std::string today;            // YYYY-MM-DD, for suppressions with a date; empty: none lapses
  std::function<void(uint64_t done, uint64_t all)> progress = {}; // ops, reported now and then
};

// The `src` or `dst` that a collective does not state, and what was inferred for it.
struct InferredSrcDst {
  // Why `dst` is what it is: it follows from the call; a use needs it; no gradient passes, or no
  // use decides, so that R is as good as I.
  enum class Why : uint8_t { Call, Use, NoGradient, NoUse };
  ir::InstId inst;
  rules::InferredKinds word;
  Why why = Why::Call;
  Place use = {}; // Use: the first one in the program
};

// Two uses of the result of a collective that does not state its `dst`, which no `dst` satisfies
// both: the finding is at the second.
struct UndecidedClash {
  ir::InstId collective;
  Place first;     // the first use
  ir::Kind needed; // by the first use: R, Reduced or I
  ir::AxisSet axes;
};

struct CheckStats {
  uint64_t ops = 0;          // instructions, bodies included
  uint64_t unknown_ops = 0;  // without a rule
  uint64_t applications = 0; // distinct ones
  uint64_t silent = 0;       // (value, axis) pairs left unknown after a report
};

// One body as typed for the operand types of one call. A function that is called with two tuples
// of types has two instances.
struct BodyInstance {
  // The bodies that an instruction runs: `body`; `then`, `else`; `cond`, `body`. Those of functions
  // without one are left out.
  struct Site {
    ir::InstId inst;
    llvm::SmallVector<uint32_t, 2> bodies; // indices into CheckResult::body_instances
  };
  std::vector<Site> sites;               // in order of the instructions
  uint32_t first = 0;                    // the ValueId of values[0]
  std::vector<rules::TensorInfo> values; // of the parameters and the instructions of the body
};

class Gradual;

// Everything that checking a program yields. `types` is per value; none for values of code not
// reached.
struct CheckResult {
  std::vector<ir::TypeId> types;
  std::vector<ir::ShapeId> shapes;          // local; declared where stated, else what follows
  std::vector<ir::ShardSizesId> sizes;      // none: every sharded dimension is cut evenly
  std::vector<BodyInstance> body_instances; // that of the main body is the first, without values
  std::vector<Finding> findings;            // program order, not folded, suppressed ones included
  std::vector<InferredSrcDst> inferred;
  std::vector<UndecidedClash> clashes; // Finding::clash
  CheckStats stats;
  std::vector<bool> used_suppressions; // of the program, in its order; empty: it has none
  // Mode::Gradual only (docs/proof.md); else null and empty.
  std::shared_ptr<const Gradual> gradual;
  std::vector<ir::AxisSet> proved; // per value: axes on which kind, cut and scale are known of it
                                   // and of all that it was made of
  std::vector<ir::AxisSet> scaled; // per value: axes on which its scale is, even if the others are
                                   // not
  // Per value: axes on which it is an index or a count among the rank's own elements, so no block
  // of a whole tensor: never counted as proved.
  std::vector<ir::AxisSet> own;
  std::vector<std::pair<ir::AxisId, Place>> lost; // where an axis stops being proved, in order

  bool clean() const; // no finding of severity error, suppressed ones included
};

// Total: any verified program gets a result, in time linear in its size. `program` is only interned
// into, and takes the mode that the options state.
CheckResult check(ir::Program &program, const CheckOptions &options = {});

} // namespace spmd::checker
