// What a run brings to light: claims that the data refute, and runs that cannot be begun. Checking
// a program triggers none of these.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

// What a comparison measured. Numbers are texts: they are differences of floats of any size, and
// print as they were computed.
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
  static const DiagnosticInfo info;
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
  static const DiagnosticInfo info;
};

struct ShardRefuted {
  ir::ValueId value;
  ir::AxisSet axes;
  Measured measured;
  void fields(auto &&visit) const {
    visit("value", value), visit("axes", axes), measured.fields(visit);
  }
  bool operator==(const ShardRefuted &) const = default;
  static const DiagnosticInfo info;
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
  static const DiagnosticInfo info;
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
  static const DiagnosticInfo info;
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
  static const DiagnosticInfo info;
};

struct ReplicasDrift {
  ir::ValueId value;
  ir::AxisSet axes;
  Measured measured;
  void fields(auto &&visit) const {
    visit("value", value), visit("axes", axes), measured.fields(visit);
  }
  bool operator==(const ReplicasDrift &) const = default;
  static const DiagnosticInfo info;
};

struct RunInput {
  std::string input;   // the name or the file
  std::string problem; // what is wrong with it, and where
  void fields(auto &&visit) const { visit("input", input), visit("problem", problem); }
  bool operator==(const RunInput &) const = default;
  static const DiagnosticInfo info;
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
  static const DiagnosticInfo info;
};

struct RunPlansDiffer {
  std::string ranks;
  std::string difference; // the first one, with both values
  void fields(auto &&visit) const { visit("ranks", ranks), visit("difference", difference); }
  bool operator==(const RunPlansDiffer &) const = default;
  static const DiagnosticInfo info;
};

struct RunLostRank {
  std::string ranks;
  std::string how;     // what was seen of it
  std::string waiting; // who is where: `rank 0 is in step 7, ...`
  void fields(auto &&visit) const {
    visit("ranks", ranks), visit("how", how), visit("waiting", waiting);
  }
  bool operator==(const RunLostRank &) const = default;
  static const DiagnosticInfo info;
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
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
