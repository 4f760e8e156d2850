// Where results are cut, by what is known of the program beside the rule: from classes of
// dimensions, from the storage that they are views of.
#pragma once

#include "checker/gradual/second_pass/part.h"

namespace spmd::checker {

class ResultCuts : public SecondPassPart {
public:
  using SecondPassPart::SecondPassPart;

  // What is known of the value, and the cuts of its rule.
  void take_known(const rules::OpDef *row, ir::ValueId value, ir::Type &type);
  void keep_addends(const rules::ResolvedOp &op, uint32_t result, uint32_t results,
                    ir::Type &type) const;
  void restore(ir::ValueId value, ir::Type &type) const;

private:
  void cut_stretched(ir::ValueId value, ir::Type &type) const;
  void keep_known_cuts(const rules::OpDef *row, ir::ValueId value, const ir::Type &before,
                       ir::Type &type);
};

} // namespace spmd::checker
