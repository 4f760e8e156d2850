// The list of all kinds: a struct that stands here has a name that is accepted wherever a finding
// is named.
#include "rules/violation.h"

#include "rules/violations/claims.h"
#include "rules/violations/commands/costs.h"
#include "rules/violations/commands/implicit.h"
#include "rules/violations/commands/runs.h"
#include "rules/violations/control.h"
#include "rules/violations/coverage.h"
#include "rules/violations/gradients.h"
#include "rules/violations/local.h"
#include "rules/violations/meshes.h"
#include "rules/violations/norms.h"
#include "rules/violations/operands.h"
#include "rules/violations/shards.h"
#include "rules/violations/steps/edges.h"
#include "rules/violations/steps/micro_batches.h"
#include "rules/violations/steps/offsets.h"
#include "rules/violations/steps/positions.h"
#include "rules/violations/steps/returned.h"
#include "rules/violations/steps/rings.h"
#include "rules/violations/symbols.h"
#include "rules/violations/transitions.h"

namespace spmd::rules {
namespace {

template <class... Kinds> constexpr const DiagnosticInfo *kInfos[] = {&Kinds::info...};
constexpr llvm::ArrayRef<const DiagnosticInfo *> kTable = kInfos<
    PartialIntoNonlinear, PartialTimesPartial, PartialPlusReplicate, PartialWithVarying,
    InvariantMixed, PartialCombiner, MissingClaim, UndecidedKind, ShapeMismatch, OperandMismatch,
    NeedlessPartial, RandomDiverges, ShardedRandomRepeats, WrongSource, ReduceOfReplicated,
    NoTransition, ReducedWithoutOwner, ExpertTransition, WrongAxis, UnknownGroup, UnknownAxis,
    ReductionMismatch, NonSumGradient, Indivisible, AttributeMismatch, ClaimMismatch,
    BoundaryMismatch, BoundaryShape, CollectiveUnderVaryingControl, RanksDiverge, BranchMismatch,
    CarryMismatch, VaryingChoice, PartialCondition, NormOvercount, NormUndercount,
    UnreducedGradient, OverreducedGradient, GradientTypeMismatch, MissingVjp, ScaleMismatch,
    SameBatch, CopiesDiffer, CopiesDrift, BuffersDiffer, UnequalCounts, UnlikeSteps,
    UnseenCollective, AccumulatedMeans, DroppedGradients, WrongGradient, UnlikeOneDevice,
    CrossedGradient, UnusedGradient, UnreturnedGradient, OverwrittenMessage, TiedCopiesDrift,
    UnclearedGradient, RepeatedGradient, BlockOffset, ForeignRows, WideMask, RepeatedPositions,
    RepeatedDraws, MisplacedEdge, HalfOpenRing, EdgeOfOtherAxis, MissingEdge, ShiftedBlock,
    EdgeGradientKept, MixedBlocks, MissingBlock, RepeatedBlock, UnlikeScales, OwnMaximum,
    GradientOfOtherBlock, UnlikeParts, UnstatedPartial, SpecMismatch, UnwholeDimension,
    AxisUsedTwice, ShardOrderUnknown, NoSpec, StridedShard, StridedUneven, UnevenShard, UnevenList,
    NoShardRule, NotInnermost, WrongDimension, MixedPolicy, SpecNotRemappable, LossKind,
    MutationChangesType, PartialState, StaleAlias, UncheckedClaim, MeshChange, MeshGroupMixed,
    CancellingPair, RepeatedCollective, ReduceThenSlice, GatherThenSlice, FusableCollectives,
    Overlappable, UnknownOp, ImplicitCast, AssumedRule, UndecidedExtents, UnusedSuppression,
    ExpiredSuppression, MalformedSuppression, SourceChanged, ImplicitRedistribute, ReplicateRefuted,
    InvariantRefuted, ShardRefuted, PartialRefuted, GradientRefuted, ShapeRefuted, ReplicasDrift,
    RunInput, RunMemory, RunPlansDiffer, RunLostRank, RunTimeout>;

} // namespace

llvm::ArrayRef<const DiagnosticInfo *> all_violations() { return kTable; }

const DiagnosticInfo *find_violation(std::string_view name) {
  for (const DiagnosticInfo *row : kTable)
    if (row->name == name)
      return row;
  return nullptr;
}

ir::AxisSet axes_of(const Violation &violation) {
  ir::AxisSet axes;
  for_each_field(violation, [&](std::string_view name, const Field &field) {
    if (const auto *set = std::get_if<ir::AxisSet>(&field); set && name == "axes")
      axes = *set;
  });
  return axes;
}

// Equal but for their axes: one violation over the union.
static bool merge_into(llvm::SmallVectorImpl<Violation> &out, size_t first,
                       const Violation &violation) {
  for (size_t i = first; i < out.size(); ++i) {
    Violation &known = out[i];
    if (!known.same_finding(violation))
      continue;
    ir::AxisSet *axes = known.axes();
    if (!axes && known == violation)
      return true;
    if (!axes)
      continue;
    Violation made = violation;
    ir::AxisSet all = *axes | std::exchange(*made.axes(), *axes);
    if (known != made)
      continue;
    *axes = all;
    return true;
  }
  return false;
}

void add_merged(llvm::SmallVectorImpl<Violation> &out, size_t first, Violation violation) {
  if (!merge_into(out, first, violation))
    out.push_back(std::move(violation));
}

} // namespace spmd::rules
