// What the parts of the planner work on: the task, one execution of a body, an instruction at hand.
#pragma once

#include "runtime/plan/plan.h"

#include "checker/operand_list.h"
#include "rules/apply.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::runtime {

// Extents rank by rank. One entry where all ranks have the same.
using RankDims = std::vector<Dims>;

struct PlanTask {
  checker::CheckedProgram &checked;
  ir::Program &program;
  rules::Rules &rules;
  const World &world;
  const PlanOptions &options;
  Plan &plan;
};

// How a name of storage follows from the value that first named it: by these views.
struct StorageView {
  ir::InstId inst;
  unsigned result;
};
struct StorageName {
  uint32_t storage; // into PlanFrame::storages
  llvm::SmallVector<StorageView, 2> views;
};
struct PlannedStorage {
  struct Written {
    StorageName name;
    PlannedId value;
  };
  PlannedId content;            // all of it, but for what is written down here
  std::vector<Written> written; // in order
};

// One execution of a body.
struct PlanFrame {
  uint32_t call = 0;
  uint32_t typing = 0;
  llvm::DenseMap<uint32_t, PlannedId> values;
  llvm::DenseMap<uint32_t, StorageName> names;
  std::vector<PlannedStorage> storages;
};

// An instruction at hand.
struct PlanSite {
  PlanFrame &frame;
  ir::InstId id;
  ir::Inst inst;
  const rules::ResolvedOp &op;
  checker::OperandList operands;
  llvm::SmallVector<PlannedId, 4> values;       // per arg
  llvm::SmallVector<rules::TensorInfo, 4> args; // as seen on the mesh of the instruction
  llvm::SmallVector<rules::ResultClaim, 2> claims;

  ir::MeshId mesh(const ir::Program &program) const { return program.contexts[inst.context].mesh; }
  rules::Application application(ir::Program &program) const {
    return {program, op, inst.attrs, inst.context, operands.slots, args, claims};
  }
  // An attribute; 0 where it is no integer.
  int64_t integer(const ir::Program &program, llvm::StringRef name) const;
  // What the operands lie in, from this one on.
  llvm::SmallVector<BufferId, 4> buffers(const Plan &plan, size_t first = 0) const;
};

// The axes of a call, outermost first.
llvm::Expected<llvm::SmallVector<ir::AxisId, 4>> call_axes(const rules::Application &app);

} // namespace spmd::runtime
