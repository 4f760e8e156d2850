// Every way to be wrong, one struct each: the kind of finding and its typed arguments. Its sentence and
// its manual page are in the `.cc` file beside its header, so that an edit of one recompiles one file. A struct that is listed in ViolationKinds has a name that is accepted wherever a finding
// is named.
#pragma once

#include "rules/violations/claims.h"
#include "rules/violations/control.h"
#include "rules/violations/coverage.h"
#include "rules/violations/gradients.h"
#include "rules/violations/implicit.h"
#include "rules/violations/local.h"
#include "rules/violations/meshes.h"
#include "rules/violations/norms.h"
#include "rules/violations/operands.h"
#include "rules/violations/runs.h"
#include "rules/violations/shards.h"
#include "rules/violations/transitions.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <variant>

namespace spmd::rules {

using ViolationKinds = std::variant<
    PartialIntoNonlinear, PartialTimesPartial, PartialPlusReplicate, PartialWithVarying,
    InvariantMixed, PartialCombiner, MissingClaim, UndecidedKind, ShapeMismatch, OperandMismatch,
    NeedlessPartial, RandomDiverges, ShardedRandomRepeats, WrongSource, ReduceOfReplicated,
    NoTransition, ReducedWithoutOwner, ExpertTransition, WrongAxis, UnknownGroup, UnknownAxis,
    ReductionMismatch, NonSumGradient, Indivisible, AttributeMismatch, ClaimMismatch,
    BoundaryMismatch, BoundaryShape, CollectiveUnderVaryingControl, BranchMismatch, CarryMismatch,
    VaryingChoice, PartialCondition, NormOvercount, NormUndercount, UnreducedGradient,
    OverreducedGradient, GradientTypeMismatch, MissingVjp, ScaleMismatch, UnstatedPartial,
    SpecMismatch, UnwholeDimension, AxisUsedTwice, ShardOrderUnknown, NoSpec, StridedShard,
    StridedUneven, UnevenShard, UnevenList, NoShardRule, NotInnermost, WrongDimension, MixedPolicy,
    SpecNotRemappable, LossKind, MutationChangesType, PartialState, StaleAlias, UncheckedClaim,
    MeshChange, MeshGroupMixed, UnknownOp, ImplicitCast, AssumedRule, UndecidedExtents,
    UnusedSuppression, ExpiredSuppression, SourceChanged, ImplicitRedistribute, ReplicateRefuted,
    InvariantRefuted, ShardRefuted, PartialRefuted, GradientRefuted, ShapeRefuted, ReplicasDrift,
    RunInput, RunMemory, RunPlansDiffer, RunLostRank, RunTimeout>;

// Copied, moved and destroyed in one place: made in every file, that was half of the time to compile.
struct Violation : ViolationKinds {
  template <class Kind>
  requires(!std::is_base_of_v<ViolationKinds, std::remove_cvref_t<Kind>>) Violation(Kind &&kind)
      : ViolationKinds(std::in_place_type<std::remove_cvref_t<Kind>>, std::forward<Kind>(kind)) {}
  Violation(const Violation &);
  Violation(Violation &&) noexcept;
  Violation &operator=(const Violation &);
  Violation &operator=(Violation &&) noexcept;
  ~Violation();
};

// The manual of all kinds, in the order of the variant.
llvm::ArrayRef<const DiagnosticInfo *> all_violations();
const DiagnosticInfo &info(const Violation &violation);
// Null if no violation has that name.
const DiagnosticInfo *find_violation(std::string_view name);
// Name and typed value of each argument, in the order of the struct.
void for_each_field(const Violation &violation,
                    llvm::function_ref<void(std::string_view, const Field &)> visit);
// The axes that the finding is about; empty where it names none.
ir::AxisSet axes_of(const Violation &violation);
// Adds it to the violations from `first` on; one that is equal but for its axes takes them over.
void add_merged(llvm::SmallVectorImpl<Violation> &out, size_t first, Violation violation);

} // namespace spmd::rules
