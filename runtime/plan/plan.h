// The steps that carry out a checked program, the same on all ranks: a rank differs by its
// coordinates only. Flat arrays that refer to one another by index.
#pragma once

#include "ir/support/arrays.h"
#include "runtime/plan/placement.h"
#include "runtime/plan/tensor_sizes.h"

#include "checker/checked_program.h"
#include "rules/transitions/transition.h"

#include <string>

namespace spmd::runtime {

struct Buffer;
struct Communicator;
struct Cut;
using BufferId = ir::Id<Buffer>;
using CommunicatorId = ir::Id<Communicator>;
using CutId = ir::Id<Cut>;
using PlacementId = ir::Id<Placement>;
using PlannedId = ir::Id<struct PlannedValue>;

// Steps [first, last).
struct StepRange {
  uint32_t first = 0, last = 0;
  bool empty() const { return first >= last; }
  friend bool operator==(StepRange, StepRange) = default;
};

// Part of one of the arrays of a plan.
struct Span {
  uint32_t first = 0, count = 0;
};

// What each rank of a mesh holds under one name.
struct Buffer {
  ir::DType dtype = ir::DType::Unknown;
  ir::MeshId mesh;        // whose ranks hold it
  std::vector<Dims> dims; // one for all ranks, or one per rank of the world
  int64_t bytes = 0;      // on the rank that holds most
  int64_t offset = 0;     // in the arena
  StepRange life;         // steps that write or read it; inputs live from step 0 on
  BufferId in_place;      // an operand that dies where this is made, and whose bytes it takes over

  const Dims &on(RankId rank) const { return dims.size() == 1 ? dims[0] : dims[rank]; }
};

// Ranks along an ordered set of axes: position in the group = row-major index of the coordinates.
struct Communicator {
  ir::MeshId mesh;
  llvm::SmallVector<ir::AxisId, 4> axes;
  bool used = false; // some step sends over it; else only coordinates are asked for
};

// Lengths of the pieces of a dimension, by position in the group; one list for all ranks, or one
// per rank of the world.
struct Cut {
  Cut() = default;
  explicit Cut(size_t entries) : lengths(entries) {}
  std::vector<llvm::SmallVector<int64_t, 8>> lengths;
  llvm::ArrayRef<int64_t> on(RankId rank) const {
    return lengths.size() == 1 ? lengths[0] : lengths[rank];
  }
};

// A tensor as an op sees it. No place: it is the whole.
struct Use {
  BufferId buffer;
  PlacementId place;
};

// One op on the tensors of each rank (runtime/equation/evaluate.h).
struct Compute {
  ir::OpNameId op;
  ir::AttrsId attrs;
  Span slots;                                 // into Plan::slots; they refer to `operands`
  Span operands, results;                     // into Plan::uses
  ir::InstId inst;                            // none: no random numbers
  uint32_t call = 0;                          // into Plan::calls: draw_op(path of the call, inst)
  llvm::SmallVector<ir::AxisId, 2> own_draws; // axes whose ranks draw numbers of their own
};

// What a rank does alone to move data: the local steps of transitions, and the packing around
// collectives.
enum class LocalStepForm : uint8_t {
  Copy,
  TakeOwnSlice, // the own piece of dimension `dim`
  KeepOnRoot,   // zeros on all but position `root` of the group
  PlaceOwn,     // the own piece among zeros, along `dim`
  Split,        // the pieces of `dim` one after another: what a collective sends
  Join,         // the inverse: pieces one after another, along `dim`
  Scale,        // times `factor`, over `divisor`
  Coordinate,   // position in the group
  TakeRow,      // entry `row` of dimension 0
  StackRows,    // operands along a new dimension 0
  Count,        // 0, 1, 2, ...
  Overwrite,    // operand 0, with the entries that operand 1 names replaced by those of operand 2
  Zero,
  Receive, // the tensor of the rank that stands at the same place of the mesh of the operand
};

struct LocalStep {
  LocalStepForm form = LocalStepForm::Copy;
  Span operands; // into Plan::uses
  BufferId result;
  CommunicatorId group; // whose position is asked for
  CutId cut;            // of `dim`
  uint32_t dim = 0;
  uint32_t root = 0, row = 0;
  double factor = 1, divisor = 1;
};

// One collective. Pieces are contiguous, by position in the group.
struct Communicate {
  rules::Collective collective = rules::Collective::None;
  ir::Combiner combiner = ir::Combiner::Sum;
  CommunicatorId group;
  BufferId operand, result;
  // Elements that a rank sends to each position (AllToAll), that each position gives (AllGather) or
  // gets (ReduceScatter). Not valid: all pieces are as long. What is uneven is sent pairwise.
  CutId counts;
  ir::DType dtype = ir::DType::Unknown; // in which it adds; rounded to it, then to the result's
  uint32_t root = 0;
  Span perm; // into Plan::numbers: pairs of positions, from and to
};

struct Release {
  BufferId buffer;
};

// Each rank goes where its own predicate says: steps [own + 1, then_end) or [then_end, else_end).
struct Branch {
  BufferId predicate;
  uint32_t then_end = 0, else_end = 0;
};

// As long as the predicate holds, which steps [own + 1, cond_end) make: [cond_end, body_end).
struct Loop {
  BufferId predicate;
  uint32_t cond_end = 0, body_end = 0;
};

enum class StepForm : uint8_t { Compute, LocalStep, Communicate, Release, Branch, Loop };

struct Step {
  StepForm form = StepForm::Compute;
  uint32_t index = 0; // into the array of its form
  ir::MeshId mesh;    // whose ranks take part
  ir::InstId inst;    // what it is part of; none: of the program as a whole
};

// A value of the program in one execution of its body.
struct PlannedValue {
  ir::ValueId value;
  uint32_t call = 0;       // into Plan::calls
  rules::TensorInfo known; // type, extents, shards
  BufferId buffer;
  PlacementId place;
  // It is there before step `from`, and step `until` releases it (none: ~0); a result in the place
  // of an operand overwrites that before. Values of branches and loops: while these run.
  uint32_t from = 0, until = 0;
};

// An execution of a body. The first one is that of the main body.
struct PlannedCall {
  uint32_t caller = 0;
  ir::InstId site; // none: the main body
  uint32_t typing = 0;
  uint64_t path = 0; // body_path(); in a loop that of the first iteration
  uint64_t round = 0;
  bool looped = false; // a body of `while`: the round is the iteration
};

// An instruction in one execution of its body.
struct Execution {
  ir::InstId inst;
  uint32_t call = 0;
  StepRange steps;
  Span operands, results; // into Plan::members; operands: tensors, in order
  bool nested = false;    // inside of a branch or a loop: its steps cannot be run alone
};

struct Plan {
  std::vector<Step> steps;
  std::vector<Compute> computes;
  std::vector<LocalStep> local_steps;
  std::vector<Communicate> communicates;
  std::vector<Release> releases;
  std::vector<Branch> branches;
  std::vector<Loop> loops;

  ir::Store<BufferId> buffers;
  ir::Store<CommunicatorId> communicators;
  ir::Store<CutId> cuts;
  ir::Store<PlacementId> placements;
  std::vector<rules::Slot> slots;
  std::vector<Use> uses;
  std::vector<int64_t> numbers;

  ir::Store<PlannedId> values;
  std::vector<PlannedCall> calls;
  std::vector<Execution> executions; // in order of their ends
  std::vector<PlannedId> members;
  std::vector<PlannedId> params;  // by place in Program::params
  std::vector<PlannedId> outputs; // by place in Program::outputs

  // Not empty: the plan ends before an exchange whose sizes these tensors say, which are not known
  // yet. They are its outputs.
  llvm::SmallVector<PlannedId, 2> unknown_sizes;

  // What `step` of the main body reads: it is there at the end, and is checked there.
  struct OptimizerInput {
    PlannedId gradient;
    ir::ValueId param;
  };
  std::vector<OptimizerInput> optimizer_inputs;
  uint64_t max_rounds = 0; // of one `while`

  int64_t peak_bytes = 0; // of the rank that holds most, by declared dtypes
  uint64_t fingerprint = 0;

  llvm::ArrayRef<PlannedId> list(Span span) const {
    return ir::as_array(members).slice(span.first, span.count);
  }
  llvm::ArrayRef<Use> used(Span span) const {
    return ir::as_array(uses).slice(span.first, span.count);
  }
  StepRange all() const { return {0, static_cast<uint32_t>(steps.size())}; }
};

inline constexpr uint64_t kMaxRounds = 100'000; // of one `while`, unless more are allowed

struct PlanOptions {
  uint32_t max_steps = 1u << 20; // loops of a known length are unrolled
  // None: exchanges whose sizes are tensors are an error.
  const TensorSizes *sizes = nullptr;
  uint64_t max_rounds = kMaxRounds; // more are an error: TooManyRounds
  ir::InstId *failed = nullptr;     // where there is an error, the instruction that it is of
};

// A run came to the last round that a `while` may have.
class TooManyRounds : public llvm::ErrorInfo<TooManyRounds> {
public:
  static char ID;
  TooManyRounds(ir::InstId loop, uint64_t rounds) : loop(loop), rounds(rounds) {}
  void log(llvm::raw_ostream &out) const override;
  std::error_code convertToErrorCode() const override { return llvm::inconvertibleErrorCode(); }
  ir::InstId loop;
  uint64_t rounds;
};

// Steps, memory and fingerprint. An error says what cannot be carried out, and names the value or
// the op: an extent that is no number, an opaque function, an instruction of the gradient boundary.
llvm::Expected<Plan> make_plan(checker::CheckedProgram &program, const World &world,
                               const PlanOptions &options = {});

// The step that follows: behind a branch or a loop with all that is in it.
uint32_t step_after(const Plan &plan, uint32_t step);
// `%y = matmul`: what a step is part of, for errors.
std::string name_of(const ir::Program &program, const Step &step);

// Offsets of all buffers, peak and releases (memory.cc).
void plan_memory(const ir::Program &program, Plan &plan);

// One line per step, then buffers and what they take.
std::string print(const ir::Program &program, const Plan &plan);
uint64_t fingerprint(const ir::Program &program, const Plan &plan);

} // namespace spmd::runtime
