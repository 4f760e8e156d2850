// What a redistribution is asked for and what comes of it: from one type to another on the same
// mesh, as a sequence of transitions (rules/README.md, "Redistribution"). The steps are ordinary
// rows, so that whatever types, differentiates or executes transitions needs to know nothing of
// plans.
#pragma once

#include "rules/application.h"

#include "llvm/ADT/StringMap.h"

namespace spmd::rules::redistribute {

inline constexpr uint64_t kNoCap = ~uint64_t(0);
// The larger of what source and target need.
inline constexpr uint64_t kOwnCap = 0;

// What links cost; femtoseconds. Axes that are not named cost what `otherwise` says.
struct Topology {
  struct Link {
    uint64_t latency = 0; // per hop
    uint64_t per_byte = 1;
  };
  uint64_t launch = 0;
  Link otherwise;
  llvm::StringMap<Link> axes;
  bool in_time = false; // else the unit is a byte
};

struct Request {
  ir::TypeId source, target; // on one mesh
  ir::ShapeId shape;         // of the whole tensor
  uint64_t cap = kOwnCap;    // bytes that one rank may hold of the tensor between two steps
  bool gradient = true;      // the price of a step is that of its backward too
  friend bool operator==(const Request &, const Request &) = default;
};

// One call of a transition.
struct Step {
  TransitionOp op = TransitionOp::None;
  llvm::SmallVector<ir::AxisId, 4> axes;          // outermost first
  llvm::SmallVector<ir::WrittenKind, 4> src, dst; // per axis
  ir::TypeId before, after;
  // Of the busiest rank; padded: where all blocks are as long as the longest.
  uint64_t bytes = 0, padded_bytes = 0, backward_bytes = 0;
  uint64_t hops = 0, backward_hops = 0;
  friend bool operator==(const Step &, const Step &) = default;
};

struct Plan {
  llvm::SmallVector<Step, 4> steps;
  uint64_t bytes = 0, padded_bytes = 0, backward_bytes = 0;
  std::optional<uint64_t> bound; // bytes that some rank receives in any sequence of messages
  uint64_t peak_bytes = 0, cap = 0;
  uint64_t price = 0; // in the unit of the topology
  uint16_t collectives = 0;
  bool proven = false;    // nothing is cheaper among all sequences of steps under the cap
  bool within_cap = true; // false: no sequence is; this is the cheapest without a cap
  uint32_t expanded = 0;  // states looked at
};

// What searches may still look at, all together: a budget in moves, so that it is the same on every
// machine. A million is about a tenth of a second.
struct SearchBudget {
  uint64_t left = 0;
  bool cut =
      // it did not suffice: something cheaper may exist, or something where nothing was found
      false;

  bool spend(uint64_t moves) {
    left -= std::min(left, moves);
    cut |= left == 0;
    return left > 0;
  }
};

// What keeps a value from being brought to another type.
std::optional<Violation> refuse(ir::Program &program, const Request &request);
// The same of the blocks of a value: those of the nested rule can be moved.
std::optional<Violation> refuse_blocks(ir::Program &program, const TensorInfo &value);
// False where the extents are not known, or too large to be priced.
bool can_be_planned(const ir::Program &program, const Request &request);

// Attributes of a step as a call: `axis`, `src`, `dst`, `expert`.
ir::AttrsId attributes_of(ir::Program &program, const Step &step);
// `slice b:0 c:0`, `gather ab:0`, `a2a ab 0>1`, `reorder [ba, -]`.
std::string print(const ir::Program &program, const Step &step, unsigned rank);
// `[ab, -] Pc Id`: which axes shard each dimension, outermost first; partial ones, invariant ones.
std::string print_spec(const ir::Program &program, const ir::Type &type, unsigned rank);

} // namespace spmd::rules::redistribute
