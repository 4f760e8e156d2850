// What is known of values and operations, in words: for `reveal`, and for what editors show.
#pragma once

#include "checker/report/report.h"

namespace spmd::checker {

// Types are in the words of a dialect, too. The report must outlive it.
class Described {
public:
  Described(const Report &report, ir::Dialect words) : report_(report), words_(words) {}

  // `f32[8, 16] P@tp`; `not reached`
  std::string type(ir::ValueId value) const;
  // `  %x (layers.0.weight): f32[8, 16] P@tp`, a line
  std::string typed(ir::ValueId value) const;
  // `model.py:34:8 in layers.0`
  std::string at(const Place &place) const;
  // Where the kinds of a value arose and what they stand on; of a recorded step, along which axes
  // all of that is proved, too. Lines.
  std::string why(ir::ValueId value) const;
  // Its place and text, and a line for each value that it makes and takes. `reasons`: below each
  // that it makes, why().
  std::string instruction(ir::InstId inst, bool reasons = false) const;
  // Of the operations that stand at a line; the path as the trace has it, or the end of it.
  std::vector<ir::InstId> at_line(llvm::StringRef path, uint32_t line) const;

private:
  const Report &report_;
  ir::Dialect words_;
};

} // namespace spmd::checker
