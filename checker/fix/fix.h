// What would make a finding right: an edit that was applied in memory and checked before it is
// offered.
#pragma once

#include "checker/check.h"

#include "ir/dialect/words.h"

#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

// A transition that a fix puts in: on one value, from one type to another.
struct FixStep {
  ir::ValueId value;
  rules::TransitionOp op;
  ir::AttrsId attrs;
  rules::TensorInfo before, after;
};

struct Fix {
  // A transition on one operand, a change of the instruction's own attributes, the instruction
  // dropped, or a transition on a result.
  enum class Form : uint8_t { Transition, Attribute, Drop, Result };
  Form form = Form::Transition;
  std::string text;           // `all_reduce(%h, tp, src=P, dst=R)`
  bool changes_value = false; // the denotation of the operand changes
  bool changes_shape = false; // its local extents change: what follows works on another piece
  std::optional<int64_t> forward_bytes,
      backward_bytes; // what one rank sends; none where shapes are unknown
  ir::InstId inst;
  // All of the instruction. Attribute: where nothing else changes; Transition: where they change,
  // too; else none.
  ir::AttrsId attrs;
  llvm::SmallVector<uint32_t, 1>
      operands; // Transition: positions among the tensors of the instruction
  std::string
      // canonical text of the line to insert before the instruction, to put in its place, or
      // (Result) to insert after it
      replacement;
  llvm::SmallVector<FixStep, 1> steps; // Transition, Result
  std::string remark;                  // the end of `text`, which is about other lines
  bool dual_too = false; // these are the recorded gradients of the value, which take the dual step
  // The same as `text` and `replacement` in the words of the dialect that was asked for; empty: it
  // has none.
  std::string words, words_replacement;
};
inline constexpr unsigned kMaxFixes = 3;

// Writes the fixes in the words of a dialect, where it has words that do just that.
void translate_fixes(ir::Program &program, ir::Dialect dialect, llvm::MutableArrayRef<Fix> fixes);

} // namespace spmd::checker
