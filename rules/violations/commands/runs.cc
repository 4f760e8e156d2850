// The manual pages of the findings of runs.h.
#include "rules/violations/commands/runs.h"

namespace spmd::rules {

constinit const DiagnosticInfo ReplicateRefuted::info = {
    .name = "replicate-refuted",
    .drawn_by = ReportedBy::Run,
    .message = "the type of {value} says replicate[ on {axes}], and {found}",
    .explain = R"(
Replicate means that all ranks along the axis hold the same tensor, and that it is the tensor
which the program computes on one device. The program was run, and one of the two is not so.
Either the ranks differ from one another, or they agree on something else than the reference: a
reduction that is missing or is done twice gives equal data on all ranks, and wrong ones. Since
the types were checked before the run, the fault is where data enter the program unchecked (an input
file whose ranks differ, a rule of the trace that does not hold, `check = false`), or it is ours.
)",
};

constinit const DiagnosticInfo InvariantRefuted::info = {
    .name = "invariant-refuted",
    .drawn_by = ReportedBy::Run,
    .message = "the type of {value} says invariant[ on {axes}], and {found}",
    .explain = R"(
Invariant means that all ranks along the axis hold the same tensor, that it is the tensor which
the program computes on one device, and that the same holds of its gradient. The program was run,
and the data of the ranks differ from one another or from the reference. See replicate-refuted for
where to look; the two differ in their gradients only, which are judged by themselves.
)",
};

constinit const DiagnosticInfo ShardRefuted::info = {
    .name = "shard-refuted",
    .drawn_by = ReportedBy::Run,
    .message = "the pieces of {value}[ over {axes}] are not those of the reference value",
    .explain = R"(
A value that is varying consists of one piece for each rank along the axis. Where the type names
the dimension that is cut, the pieces concatenated in the order of the ranks are the tensor that
the program computes on one device; where it does not, each piece is what the program computes of
the pieces it was made of. The program was run, and some piece is another one. Typical mistakes:
blocks in another order, each rank holding the block of its neighbour, a sum over the axis that is
missing in what the block holds.
)",
};

constinit const DiagnosticInfo PartialRefuted::info = {
    .name = "partial-refuted",
    .drawn_by = ReportedBy::Run,
    .message = "the {joined} of {value} over {axes} is not the reference value",
    .explain = R"(
Partial means that what the ranks along the axis hold adds up to the tensor which the program
computes on one device; no rank's part means anything alone. The program was run, and the parts add
up to something else. Typical mistakes: a value that all ranks hold counted once by each, so that
the sum is as many times too large; a part that was reduced before it was added; a part that one
rank leaves out.
)",
};

constinit const DiagnosticInfo GradientRefuted::info = {
    .name = "gradient-refuted",
    .drawn_by = ReportedBy::Run,
    .message = "{value} is not the gradient of {of}[ on {axes}]: {found}",
    .explain = R"(
The type of a value says what its gradient is on each axis: where the value is replicate the
gradients of the ranks add up to that of the reference, where it is invariant or partial each rank
holds that of the reference, where it is sharded each rank holds its block. The program was run
forward and backward, and a gradient is something else. A factor of as many as there are ranks is a
gradient that was summed although each rank held all of it, or was not summed although each held a
part; so the wrong one of replicate and invariant shows here and nowhere else.
)",
};

constinit const DiagnosticInfo ShapeRefuted::info = {
    .name = "shape-refuted",
    .drawn_by = ReportedBy::Run,
    .message = "{value} is {found} on rank {ranks}, and {expected} by its type",
    .explain = R"(
The check derives what each rank holds: an element type and extents, and how a dimension that does
not divide is cut. A rank holds something else. Nothing more can be said of its elements, so they
are not compared.
)",
};

constinit const DiagnosticInfo ReplicasDrift::info = {
    .name = "replicas-drift",
    .severity = Severity::Warning,
    .drawn_by = ReportedBy::Run,
    .message = "the copies of {value} on {axes} differ in their last bits",
    .explain = R"(
All ranks along the axis should hold the same tensor. They hold the same numbers up to rounding, and
not the same bits: ranks summed in different orders, or with different kernels. The claim is true of
the numbers, so this is no refutation; but copies of a parameter that are updated from such values
part, a little with each step, and branches on them may be taken differently.
)",
};

constinit const DiagnosticInfo RunInput::info = {
    .name = "run-input",
    .drawn_by = ReportedBy::Run,
    .message = "{input} cannot be used: {problem}",
    .explain = R"(
The program could not be run, since what is to enter it is not what it declares: a file that is
damaged, has another shape or element type, or names a value that the program does not have; or a
program whose extents are no numbers. Nothing was run. Or a `while` does not end: the run was
stopped after as many rounds as --max-rounds allows.
)",
};

constinit const DiagnosticInfo RunMemory::info = {
    .name = "run-memory",
    .drawn_by = ReportedBy::Run,
    .message = "the run needs {needed}[ on rank {ranks}], and {available} may be used[; largest: "
               "{largest}]",
    .explain = R"(
What a run takes is known from its plan before anything is allocated: the buffers of all ranks that
this process simulates, and what comparing them with the reference takes. It is more than the
machine has or than --memory-limit allows. Nothing was run. Run a smaller program (--scale-down, a
smaller --mesh), or compare less (--check). Where a rank is named, it is a process of its own; if it
ran out of memory in the midst of the run, something else took what was free before, and the run
could not be finished.
)",
};

constinit const DiagnosticInfo RunPlansDiffer::info = {
    .name = "run-plans-differ",
    .drawn_by = ReportedBy::Run,
    .message = "rank {ranks} is about to run something else than rank 0: {difference}",
    .explain = R"(
All ranks must run one plan, or a collective would wait for ranks that never come to it. Before
anything is sent, each rank compares the fingerprint of its plan, and the versions of whatever makes
it, with those of rank 0. They differ: another file, another version of the tool, or other options.
Nothing was run.
)",
};

constinit const DiagnosticInfo RunLostRank::info = {
    .name = "run-lost-rank",
    .drawn_by = ReportedBy::Run,
    .message = "rank {ranks} was lost: {how}[; {waiting}]",
    .explain = R"(
Each rank is a process, and one of them ended in the midst of the run: it was killed (by a person, a
scheduler, a machine without memory), it crashed, or its host or the network went away. The others
cannot go on without it. All of them stop, and no claim is judged. The place is the step in which
the rank that reports this was; a crash of our own leaves a message of that rank before this one.
)",
};

constinit const DiagnosticInfo RunTimeout::info = {
    .name = "run-timeout",
    .drawn_by = ReportedBy::Run,
    .message = "rank {ranks} kept the others waiting for more than {seconds} s: {found}[; "
               "{waiting}]",
    .explain = R"(
Ranks meet in collectives, and one that does not come holds up all others. After the time that
--timeout allows for one step they give up: all stop, and no claim is judged. A rank that
does not answer was stopped, or its host hangs; one that is in an earlier step than the others is
slow, or has much more to do. Where all ranks wait for one another, predicates of branches or loops
differ from rank to rank around the collective.
)",
};

} // namespace spmd::rules
