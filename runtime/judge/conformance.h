// Whether the data of a run uphold the types of the program: values are read back, what the ranks
// mean by them is held against the reference, axis by axis.
#pragma once

#include "runtime/judge/fingerprint.h"
#include "runtime/reference/meaning.h"

#include "checker/finding.h"

namespace spmd::runtime {

// Where numbers come from, and what counts as equal.
enum class Tier : uint8_t { Field, Integer, Real };
inline constexpr std::string_view kTierWords[] = {"field", "integer", "real"};

enum class Verdict : uint8_t {
  Upheld,
  Refuted,
  Undecided,   // no bound is known, or the reference cannot compute it
  Blind,       // a mistake would show too little
  ForwardOnly, // as data go; the gradient, in which kinds differ too, was not run
  NotChecked,  // an axis of size 1, or checks are off
};
inline constexpr std::string_view kVerdictWords[] = {"upheld", "refuted",      "undecided",
                                                     "blind",  "forward only", "not checked"};

// The claim that one value makes on one axis.
struct ClaimVerdict {
  ir::ValueId value;
  ir::MeshId mesh;
  ir::AxisId axis;
  std::optional<ir::Kind> kind; // none: nothing is claimed
  bool shard = false;           // V as blocks of one dimension
  bool gradient = false;        // of a value that is the gradient of another
  Verdict verdict = Verdict::NotChecked;
};

// What all ranks of its mesh hold of a value, in row-major order over the typed axes.
struct Observed {
  ir::ValueId value;
  rules::TensorInfo known;
  ir::ValueId gradient_of; // none: it is no gradient
  llvm::ArrayRef<Tensor> tensors;
  llvm::ArrayRef<Fingerprint> fingerprints = {}; // in place of the data
};

// What the reference has for it.
struct ReferenceValue {
  const Meaning *meant = nullptr; // as meant; null: ranks are compared with one another only
  const Meaning *bound = nullptr; // what rounding explains, of data divided by the scale
  bool exact = false;             // no difference is explained; else, without a bound, undecided
  // What helps to say which mistake it was; may be empty.
  ir::AxisSet acted;             // axes along which the step moves or adds up data
  llvm::ArrayRef<Meaning> parts; // of a step that adds up: what each addend is alone
  struct EarlierValue {
    std::string name;
    const Meaning *meant;
  };
  llvm::SmallVector<EarlierValue, 2> earlier; // values that it would be if the step had not run
};

// What is wrong with one value, measured.
struct Refuted {
  enum class Form : uint8_t { Shape, RanksDiffer, Value } form = Form::Value;
  ir::AxisSet axes;
  std::optional<ir::Kind> kind; // on these axes
  bool drift = false;           // RanksDiffer, and rounding explains it
  std::string ranks, first, got, want, difference, bound, guess;
  std::string found; // of a gradient: what it is instead; empty: as `form` and `kind` tell
};

struct Judgment {
  llvm::SmallVector<ClaimVerdict, 4> claims; // one for each axis of the mesh that is not flattened
  std::optional<Refuted> refuted;
  std::string undecided; // why, where it is
};

Judgment judge(ir::Program &program, const Observed &observed, const ReferenceValue &wanted);
// By fingerprints, with sums of this key where data are to be exact. None: only the data tell, as
// of all that is wrong.
std::optional<Judgment> judge_fingerprints(ir::Program &program, const Observed &observed,
                                           const ReferenceValue &wanted, uint64_t key);

// The greatest difference, in units of the bound, among the positions; infinite where no difference
// is explained. Both mean the same type.
double largest_ratio(const Meaning &got, const Meaning &want, const Meaning *bound);
// Whether a sum that is missing, done twice or divided by the number of ranks would be seen: each
// must differ from what is right by four bounds somewhere.
bool is_blind(const Meaning &want, const Meaning *bound, llvm::ArrayRef<Meaning> parts,
              int64_t ranks);

// The same claims judged again in another tier, or by their gradients: the worst that was found,
// and the best of what is left. A refutation stays.
Verdict joined(Verdict a, Verdict b);

} // namespace spmd::runtime
