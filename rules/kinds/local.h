// The local judgment of an equation: kinds on all axes at once, as set algebra over the tables of
// tables.h. Accepting is the fast path; what is wrong on an axis is worked out by
// explain.cc.
#pragma once

#include "rules/bind.h"
#include "rules/equation.h"

#include "ir/type.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

namespace spmd::rules {

// What one operand brings to an axis. `strict_*` are kinds that carry a gradient; an R or I that
// cannot receive one is *free*: it adopts what the other operands need.
struct OperandKinds {
  enum class Form : uint8_t { Missing, Number, Zero, Tensor };
  Form form = Form::Missing;
  uint32_t index = 0; // position among the tensors of the instruction
  ir::AxisSet strict_r, strict_i;
  ir::AxisSet free_r, free_i; // declared R or I; a free axis in neither is undecided
  ir::AxisSet free;           // free_r, free_i and undecided ones
  ir::AxisSet open;           // undecided, and a gradient will decide: free ones do not
  ir::AxisSet reduced;        // of strict_r and free_r: the gradient's sum has an owner
  ir::AxisSet v, p, zero, unknown;
  ir::AxisSet combining;                     // P with a combiner other than sum
  ir::Combiner combiner = ir::Combiner::Sum; // of the first of these
  bool infinite = false;                     // a number, and no finite one

  // `adopts`: the operand receives no gradient here (conditions, no_grad).
  static OperandKinds tensor(const ir::Type &type, uint32_t index, bool adopts);
  static OperandKinds number(bool zero, bool infinite) {
    return {.form = zero ? Form::Zero : Form::Number, .infinite = infinite};
  }
};

// The members standing for one operand of the row: one, or those of a list. Empty: missing.
using OperandGroup = llvm::SmallVector<OperandKinds, 1>;

// The random state of a `~`, if the program gives it.
struct GeneratorKinds {
  bool given = false;
  OperandKinds kinds;
};

struct LocalInput {
  const Equation &equation;
  llvm::ArrayRef<OperandGroup> operands; // per operand of the equation
  GeneratorKinds generator;
  ir::AxisSet axes;   // the typed axes of the mesh
  ir::AxisSet stated; // `partial`: V terms are read as P there
  bool zero_drops_term = false;
  // Per term of the sum, or empty: axes on which what is the same on all ranks is read as one
  // addend for each of them, since the other terms are means of their own ranks
  // (rules/kinds/scale.h).
  llvm::ArrayRef<ir::AxisSet> reads = {};
};

struct LocalResult {
  ir::AxisSet r, reduced, i, v, p, either, zero, unknown;
  ir::AxisSet bad;             // violations; also in unknown
  ir::AxisSet needless;        // stated, but no term is V there
  ir::AxisSet random_diverges; // the generator is V where the data is not
  ir::AxisSet random_repeats;  // the generator is R or I where the data is V
};

// What one term of a sum comes to, `partial` of the op included.
struct TermKindSets {
  ir::AxisSet p, v, strict_i, zero, unknown;
};
TermKindSets term_kinds(const LocalInput &input, const Term &term);

// True if a random state stands in the sum.
bool draws(const Equation &equation, const Sum &sum);
// One sum of the equation: the kinds of the results that it defines.
LocalResult evaluate_local(const LocalInput &input, const Sum &sum);

// The violations behind LocalResult::bad, merged over axes with equal arguments, in axis order.
void explain_local(const LocalInput &input, const Sum &sum, ir::AxisSet bad,
                   llvm::SmallVectorImpl<Violation> &out);

} // namespace spmd::rules
