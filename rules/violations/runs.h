// What a run brings to light: claims that the data refute, and runs that cannot be begun. Checking a
// program draws none of these.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

// What a comparison measured. Numbers are texts: they are differences of floats of any size, and print
// as they were computed.
struct Measured {
  std::string ranks; // of the mesh, `0, 3`: those whose data show it
  std::string first; // the first element that differs, `[3, 17]`
  std::string got, want;
  std::string difference; // the largest one
  std::string bound;      // what rounding explains; empty: the comparison is exact
  std::string tier;
  int64_t seed = 0;
  std::string guess; // which mistake gives these data; empty: none that we know
  std::string later; // what was refuted after it, which may follow from it; empty: nothing
  std::string rerun; // the command line
  void fields(auto &&visit) const {
    visit("ranks", ranks), visit("first", first), visit("got", got), visit("want", want);
    visit("difference", difference), visit("bound", bound), visit("tier", tier);
    visit("seed", seed), visit("guess", guess), visit("later", later), visit("rerun", rerun);
  }
  bool operator==(const Measured &) const = default;
};

struct ReplicateRefuted {
  ir::ValueId value;
  std::string found; // `its ranks hold different data`, `what they hold is not the reference value`
  ir::AxisSet axes;
  Measured measured;
  void fields(auto &&visit) const {
    visit("value", value), visit("found", found), visit("axes", axes), measured.fields(visit);
  }
  bool operator==(const ReplicateRefuted &) const = default;
  static constexpr DiagnosticInfo info = {
      .name = "replicate-refuted",
      .drawn_by = DrawnBy::Run,
      .message = "the type of {value} says replicate[ on {axes}], and {found}",
      .explain = R"(
Replicate means that all ranks along the axis hold the same tensor, and that it is the tensor
which the program computes on one device. The program was run, and one of the two is not so.
Either the ranks differ from one another, or they agree on something else than the reference: a
reduction that is missing or is done twice gives equal data on all ranks, and wrong ones. Since
the types were checked before the run, the fault is where data enter the typed world (an input
file whose ranks differ, a rule of the trace that does not hold, `check = false`), or it is ours.
)",
  };
};

struct InvariantRefuted {
  ir::ValueId value;
  std::string found;
  ir::AxisSet axes;
  Measured measured;
  void fields(auto &&visit) const {
    visit("value", value), visit("found", found), visit("axes", axes), measured.fields(visit);
  }
  bool operator==(const InvariantRefuted &) const = default;
  static constexpr DiagnosticInfo info = {
      .name = "invariant-refuted",
      .drawn_by = DrawnBy::Run,
      .message = "the type of {value} says invariant[ on {axes}], and {found}",
      .explain = R"(
Invariant means that all ranks along the axis hold the same tensor, that it is the tensor which
the program computes on one device, and that the same holds of its gradient. The program was run,
and the data of the ranks differ from one another or from the reference. See replicate-refuted for
where to look; the two differ in their gradients only, which are judged by themselves.
)",
  };
};

struct ShardRefuted {
  ir::ValueId value;
  ir::AxisSet axes;
  Measured measured;
  void fields(auto &&visit) const {
    visit("value", value), visit("axes", axes), measured.fields(visit);
  }
  bool operator==(const ShardRefuted &) const = default;
  static constexpr DiagnosticInfo info = {
      .name = "shard-refuted",
      .drawn_by = DrawnBy::Run,
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
};

struct PartialRefuted {
  ir::ValueId value;
  std::string joined; // `sum`, `max`
  ir::AxisSet axes;
  Measured measured;
  void fields(auto &&visit) const {
    visit("value", value), visit("joined", joined), visit("axes", axes), measured.fields(visit);
  }
  bool operator==(const PartialRefuted &) const = default;
  static constexpr DiagnosticInfo info = {
      .name = "partial-refuted",
      .drawn_by = DrawnBy::Run,
      .message = "the {joined} of {value} over {axes} is not the reference value",
      .explain = R"(
Partial means that what the ranks along the axis hold adds up to the tensor which the program
computes on one device; no rank's part means anything alone. The program was run, and the parts add
up to something else. Typical mistakes: a value that all ranks hold counted once by each, so that
the sum is as many times too large; a part that was reduced before it was added; a part that one
rank leaves out.
)",
  };
};

struct GradientRefuted {
  ir::ValueId value; // the gradient
  ir::ValueId of;    // the value that it is the gradient of
  std::string found;
  ir::AxisSet axes;
  Measured measured;
  void fields(auto &&visit) const {
    visit("value", value), visit("of", of), visit("found", found), visit("axes", axes);
    measured.fields(visit);
  }
  bool operator==(const GradientRefuted &) const = default;
  static constexpr DiagnosticInfo info = {
      .name = "gradient-refuted",
      .drawn_by = DrawnBy::Run,
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
};

struct ShapeRefuted {
  ir::ValueId value;
  std::string found, expected; // `f32[4, 8]`
  std::string ranks;
  void fields(auto &&visit) const {
    visit("value", value), visit("found", found), visit("expected", expected);
    visit("ranks", ranks);
  }
  bool operator==(const ShapeRefuted &) const = default;
  static constexpr DiagnosticInfo info = {
      .name = "shape-refuted",
      .drawn_by = DrawnBy::Run,
      .message = "{value} is {found} on rank {ranks}, and {expected} by its type",
      .explain = R"(
The check derives what each rank holds: an element type and extents, and how a dimension that does
not divide is cut. A rank holds something else. Nothing more can be said of its elements, so they
are not compared.
)",
  };
};

struct ReplicasDrift {
  ir::ValueId value;
  ir::AxisSet axes;
  Measured measured;
  void fields(auto &&visit) const {
    visit("value", value), visit("axes", axes), measured.fields(visit);
  }
  bool operator==(const ReplicasDrift &) const = default;
  static constexpr DiagnosticInfo info = {
      .name = "replicas-drift",
      .severity = Severity::Warning,
      .drawn_by = DrawnBy::Run,
      .message = "the copies of {value} on {axes} differ in their last bits",
      .explain = R"(
All ranks along the axis should hold the same tensor. They hold the same numbers up to rounding, and
not the same bits: ranks summed in different orders, or with different kernels. The claim is true of
the numbers, so this is no refutation; but copies of a parameter that are updated from such values
part, a little with each step, and branches on them may be taken differently.
)",
  };
};

struct RunInput {
  std::string input;   // the name or the file
  std::string problem; // what is wrong with it, and where
  void fields(auto &&visit) const { visit("input", input), visit("problem", problem); }
  bool operator==(const RunInput &) const = default;
  static constexpr DiagnosticInfo info = {
      .name = "run-input",
      .drawn_by = DrawnBy::Run,
      .message = "{input} cannot be used: {problem}",
      .explain = R"(
The program could not be run, since what is to enter it is not what it declares: a file that is
damaged, has another shape or element type, or names a value that the program does not have; or a
program whose extents are no numbers. Nothing was run.
)",
  };
};

struct RunMemory {
  std::string needed, available; // `1.2 GiB`
  std::string largest;           // the largest values and their sizes
  std::string ranks = {};        // whose memory; empty: that of the one process
  void fields(auto &&visit) const {
    visit("needed", needed), visit("available", available), visit("largest", largest);
    visit("ranks", ranks);
  }
  bool operator==(const RunMemory &) const = default;
  static constexpr DiagnosticInfo info = {
      .name = "run-memory",
      .drawn_by = DrawnBy::Run,
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
};

struct RunPlansDiffer {
  std::string ranks;
  std::string difference; // the first one, with both values
  void fields(auto &&visit) const { visit("ranks", ranks), visit("difference", difference); }
  bool operator==(const RunPlansDiffer &) const = default;
  static constexpr DiagnosticInfo info = {
      .name = "run-plans-differ",
      .drawn_by = DrawnBy::Run,
      .message = "rank {ranks} is about to run something else than rank 0: {difference}",
      .explain = R"(
All ranks must run one plan, or a collective would wait for ranks that never come to it. Before
anything is sent, each rank compares the fingerprint of its plan, and the versions of whatever makes
it, with those of rank 0. They differ: another file, another version of the tool, or other options.
Nothing was run.
)",
  };
};

struct RunLostRank {
  std::string ranks;
  std::string how;     // what was seen of it
  std::string waiting; // who is where: `rank 0 is in step 7, ...`
  void fields(auto &&visit) const {
    visit("ranks", ranks), visit("how", how), visit("waiting", waiting);
  }
  bool operator==(const RunLostRank &) const = default;
  static constexpr DiagnosticInfo info = {
      .name = "run-lost-rank",
      .drawn_by = DrawnBy::Run,
      .message = "rank {ranks} was lost: {how}[; {waiting}]",
      .explain = R"(
Each rank is a process, and one of them ended in the midst of the run: it was killed (by a person, a
scheduler, a machine without memory), it crashed, or its host or the network went away. The others
cannot go on without it. All of them stop, and nothing is said of any claim. The place is the step in
which the rank that tells this was; a crash of our own leaves a message of that rank before this one.
)",
  };
};

struct RunTimeout {
  std::string ranks;
  int64_t seconds = 0;
  std::string found;   // `it does not answer`, `it is in step 7, ...`
  std::string waiting; // who waits, and where
  void fields(auto &&visit) const {
    visit("ranks", ranks), visit("seconds", seconds), visit("found", found);
    visit("waiting", waiting);
  }
  bool operator==(const RunTimeout &) const = default;
  static constexpr DiagnosticInfo info = {
      .name = "run-timeout",
      .drawn_by = DrawnBy::Run,
      .message =
          "rank {ranks} kept the others waiting for more than {seconds} s: {found}[; {waiting}]",
      .explain = R"(
Ranks meet in collectives, and one that does not come holds up all others. After the time that
--timeout allows for one step they give up: all stop, and nothing is said of any claim. A rank that
does not answer was stopped, or its host hangs; one that is in an earlier step than the others is
slow, or has much more to do. Where all ranks wait for one another, predicates of branches or loops
differ from rank to rank around the collective.
)",
  };
};

} // namespace spmd::rules
