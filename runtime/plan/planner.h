// What makes a plan, shared by the files that implement it (plan.cc: bodies, values and ops;
// transition.cc; boundary.cc; control.cc).
#pragma once

#include "runtime/plan/plan.h"

#include "checker/operand_list.h"
#include "rules/transitions/call.h"

#include "ir/support/error.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <array>
#include <map>

namespace spmd::runtime {

// The axes of a call, outermost first.
llvm::Expected<llvm::SmallVector<ir::AxisId, 4>> call_axes(const rules::Application &app);

// Extents rank by rank. One entry where all ranks have the same.
using RankDims = std::vector<Dims>;

class Planner {
public:
  Planner(checker::CheckedProgram &checked, const World &world, const PlanOptions &options,
          Plan &plan)
      : checked_(checked), program_(checked.tables()), rules_(program_), world_(world),
        options_(options), plan_(plan) {}
  llvm::Error run();

private:
  // How a name of storage follows from the value that first named it: by these views.
  struct View {
    ir::InstId inst;
    unsigned result;
  };
  struct Name {
    uint32_t storage; // into Frame::storages
    llvm::SmallVector<View, 2> views;
  };
  struct Written {
    Name name;
    PlannedId value;
  };
  struct Storage {
    PlannedId content;            // all of it, but for what is written down here
    std::vector<Written> written; // in order
  };
  // One execution of a body.
  struct Frame {
    uint32_t call = 0;
    uint32_t typing = 0;
    llvm::DenseMap<uint32_t, PlannedId> values;
    llvm::DenseMap<uint32_t, Name> names;
    std::vector<Storage> storages;
  };
  // An instruction at hand.
  struct Site {
    Frame &frame;
    ir::InstId id;
    ir::Inst inst;
    const rules::ResolvedOp &op;
    checker::OperandList operands;
    llvm::SmallVector<PlannedId, 4> values; // per arg
    llvm::SmallVector<rules::Arg, 4> args;  // as seen on the mesh of the instruction
    llvm::SmallVector<rules::ResultClaim, 2> claims;

    ir::MeshId mesh(const ir::Program &program) const {
      return program.contexts[inst.context].mesh;
    }
  };

  // Bodies (plan.cc).
  llvm::Error params(Frame &frame);
  ir::Type seen_from(ir::TypeId type, ir::MeshId mesh);
  llvm::Error body(Frame &frame, const ir::Body &body);
  llvm::Error instruction(Frame &frame, ir::InstId id);
  llvm::Error dispatch(Site &site);
  rules::Application application(Site &site);
  llvm::Error equation(Site &site);
  // The results of an equation on other values than its operands; `dtype`: of the results, if it is
  // not their own.
  llvm::Expected<llvm::SmallVector<BufferId, 2>>
  compute(Site &site, llvm::ArrayRef<PlannedId> values, ir::DType dtype = ir::DType::Unknown);
  llvm::Expected<RankDims> result_dims(Site &site, llvm::ArrayRef<PlannedId> values,
                                       unsigned result);
  llvm::Expected<Dims> inferred_dims(Site &site, llvm::ArrayRef<PlannedId> values, unsigned result,
                                     RankId rank);
  // One op of the table on buffers as they stand, for results of known extents.
  BufferId op(llvm::StringRef name, llvm::ArrayRef<rules::Slot> slots,
              llvm::ArrayRef<BufferId> operands, ir::DType dtype, RankDims dims);
  BufferId op(llvm::StringRef name, llvm::ArrayRef<BufferId> operands, ir::DType dtype,
              RankDims dims);

  // Values and buffers (plan.cc).
  std::string who(const Frame &frame, ir::ValueId value) const;
  llvm::Expected<PlannedId> find(Frame &frame, ir::ValueId value);
  llvm::Error define(Frame &frame, ir::ValueId value, BufferId buffer);
  llvm::Error define_result(Site &site, unsigned result, BufferId buffer) {
    return define(site.frame, site.inst.result(result), buffer);
  }
  PlacementId place_of(const rules::Arg &known, const Buffer &buffer);
  BufferId buffer(ir::DType dtype, ir::MeshId mesh, RankDims dims);
  BufferId buffer_like(BufferId other, RankDims dims) {
    return buffer(plan_.buffers[other].dtype, plan_.buffers[other].mesh, std::move(dims));
  }
  RankDims dims_of_buffer(BufferId id) const { return plan_.buffers[id].dims; }
  // The same function of the extents on each rank of the mesh.
  llvm::Expected<RankDims> map_dims(ir::MeshId mesh,
                                    llvm::function_ref<llvm::Expected<Dims>(RankId)> of) const;
  ir::DType dtype_of(const rules::Arg &known) const {
    return known.shape.valid() ? program_.shapes[known.shape].dtype : ir::DType::Unknown;
  }
  CommunicatorId communicator(ir::MeshId mesh, llvm::ArrayRef<ir::AxisId> axes);
  const Groups &groups(CommunicatorId id);
  Span uses(llvm::ArrayRef<Use> list);
  Span uses_of(llvm::ArrayRef<BufferId> list);
  Span members(llvm::ArrayRef<PlannedId> list);

  // Steps (plan.cc).
  void step(StepForm form, size_t index, ir::MeshId mesh);
  void local_step(LocalStep local, ir::MeshId mesh);
  // Appends the collective and its step; its result.
  BufferId communicate(const Communicate &made, ir::MeshId mesh);
  BufferId copy(BufferId from, RankDims dims);
  BufferId copy(BufferId from) { return copy(from, dims_of_buffer(from)); }
  void copy_into(BufferId from, BufferId to);

  // Transitions (transition.cc).
  // An operand of a call on its way to the result.
  struct MovedOperand {
    BufferId at;
    ir::MeshId mesh;
    std::string name; // of the result, for errors
    ir::DType wire_dtype = ir::DType::Unknown;
    // As tensors say them, by RankId: of the pieces that are cut, and of those that are joined.
    std::vector<TensorSizes::Lengths> sent, joined;
  };
  llvm::Error transition(Site &site);
  // The lengths that a tensor operand of one of these names says, by RankId; empty if there is
  // none, or if they are not known: then it is asked for.
  std::vector<TensorSizes::Lengths> sizes_by(Site &site,
                                             std::initializer_list<llvm::StringRef> names);
  llvm::Expected<BufferId> reordered(Site &site, unsigned operand, unsigned result,
                                     llvm::ArrayRef<ir::AxisId> axes);
  llvm::Expected<BufferId> moved(Site &site, BufferId from,
                                 llvm::ArrayRef<rules::TransitionMove> moves, unsigned result);
  llvm::Error keep(Site &site, MovedOperand &at, const rules::TransitionMove &move,
                   llvm::ArrayRef<ir::AxisId> axes);
  llvm::Error gather(MovedOperand &at, const rules::TransitionMove &move);
  llvm::Error take(MovedOperand &at, const rules::TransitionMove &move);
  llvm::Error scatter(MovedOperand &at, const rules::TransitionMove &move);
  llvm::Error place_own(MovedOperand &at, const rules::TransitionMove &move);
  llvm::Error exchange(MovedOperand &at, const rules::TransitionMove &one,
                       const rules::TransitionMove &other);
  llvm::Expected<Cut> piece_lengths(MovedOperand &at, const rules::TransitionMove &move,
                                    CommunicatorId group);
  llvm::Expected<int64_t> block_length(const rules::BlockDim &dim, ir::MeshId mesh,
                                       RankId rank) const;
  // The lengths of the pieces that a rank joins; empty if nothing says them.
  static llvm::ArrayRef<int64_t> stated_joined(const MovedOperand &at,
                                               const rules::TransitionMove &move, RankId rank);
  // The ranks whose pieces are looked at: all, or the first, whose pieces are those of all; `Cut`
  // and RankDims have as many entries then.
  llvm::ArrayRef<RankId> looked_at(const MovedOperand &at, bool same_extents) const {
    llvm::ArrayRef<RankId> ranks = world_.ranks(at.mesh);
    return same_extents ? ranks.take_front() : ranks;
  }
  size_t entries(bool same_extents) const { return same_extents ? 1 : world_.size(); }
  // Whether all ranks hold tensors of the same extents, and no tensor says how long pieces are.
  bool has_same_extents(const MovedOperand &at) const {
    return plan_.buffers[at.at].dims.size() == 1 && at.sent.empty() && at.joined.empty();
  }
  CutId add_cut(Cut cut, ir::MeshId mesh);
  CutId uneven_counts(Cut counts, ir::MeshId mesh);
  RankDims own_dims(const MovedOperand &at, const rules::TransitionMove &move, const Cut &lengths,
                    CommunicatorId group);
  void pack(MovedOperand &at, const rules::TransitionMove &move, const Cut &lengths,
            CommunicatorId group);
  void on_pieces(LocalStepForm form, MovedOperand &at, const rules::TransitionMove &move,
                 RankDims dims, Cut lengths, CommunicatorId group);
  ir::DType wire_dtype(const Site &site, BufferId from) const;
  llvm::Expected<uint32_t> root_of(Site &site, size_t size);
  llvm::Error permute_pairs(Site &site, const rules::TransitionMove &move, size_t size,
                            Communicate &made);

  // Boundary ops (boundary.cc).
  llvm::Error boundary(Site &site);
  llvm::Error step_of(Site &site);
  llvm::Error axis_index(Site &site);
  llvm::Error rescale(Site &site);
  llvm::Error random_state(Site &site);
  llvm::Error send_on(Site &site);
  llvm::Error recv(Site &site);
  llvm::Error norm(Site &site, bool clips);
  llvm::Expected<BufferId> total_norm(Site &site);
  llvm::Expected<std::pair<double, double>> factor(Site &site, ir::ScaleId by);
  BufferId combine_all(BufferId from, llvm::ArrayRef<ir::AxisId> axes, ir::Combiner combiner);
  llvm::Error realias(Site &site);
  llvm::Error aliases(Site &site);
  Name name_of(Frame &frame, ir::ValueId value, PlannedId planned);
  llvm::Expected<PlannedId> content_of_storage(Frame &frame, uint32_t storage);
  llvm::Expected<BufferId> replay(Frame &frame, BufferId base, llvm::ArrayRef<View> views);

  // Bodies that instructions run (control.cc).
  llvm::Error call(Site &site);
  llvm::Expected<ir::FunctionId> region(Site &site, llvm::StringRef role);
  Frame enter(Site &site, uint32_t typing, uint64_t round, bool looped);
  llvm::Error define_results(Site &site, llvm::ArrayRef<BufferId> buffers);
  BufferId row_of(BufferId whole, int64_t row);
  llvm::Expected<int64_t> rounds_of(Site &site, llvm::ArrayRef<BufferId> scanned);
  llvm::Expected<BufferId> stack_rows(Site &site, unsigned result, llvm::ArrayRef<BufferId> rows);
  llvm::Error bind(Frame &frame, ir::FunctionId function, llvm::ArrayRef<BufferId> args);
  // The buffers of the results.
  llvm::Expected<llvm::SmallVector<BufferId, 4>> run_body(Frame &frame, ir::FunctionId function,
                                                          llvm::ArrayRef<BufferId> args);
  llvm::Error plain_call(Site &site);
  llvm::Error scan(Site &site);
  llvm::Error branch(Site &site);
  llvm::Error loop(Site &site);
  llvm::SmallVector<BufferId, 4> arg_buffers(Site &site, size_t first = 0) const;
  int64_t integer(const Site &site, llvm::StringRef name) const;

  checker::CheckedProgram &checked_;
  ir::Program &program_;
  rules::Rules rules_;
  const World &world_;
  const PlanOptions &options_;
  Plan &plan_;
  ir::InstId inst_;                                                 // at hand
  std::vector<Groups> groups_;                                      // by communicator
  std::map<std::array<uint32_t, 3>, PlacementId> known_placements_; // by type, shape, sizes
  llvm::DenseMap<uint32_t, std::vector<PlannedId>> sent_; // by tag: not yet received, in order
  uint32_t dynamic_ = 0;                                  // branches and loops around
};

} // namespace spmd::runtime
