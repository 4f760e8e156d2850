// What a value is made of: data of the ranks, or buffers, and nothing else.
#pragma once

#include "checker/gradual/second_pass/part.h"

#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

class DataOrigins : public SecondPassPart {
public:
  using SecondPassPart::SecondPassPart;

  void declare(ir::ValueId value);
  void judge(ir::InstId id, const rules::Application &app);
  void keep(const ir::Inst &inst, ir::ValueId value);

  // A value of the forward that is made of inputs and numbers alone.
  bool is_data(ir::ValueId value) const { return data_.contains(value.index); }
  ir::AxisSet written_rows(ir::InstId id, const ir::Type &type) const;

private:
  void judge_part_of_own(ir::InstId id, const rules::Application &app);

  llvm::DenseSet<uint32_t> data_, buffers_; // by value: made of these alone
  ir::AxisSet shared_out_; // axes along which ranks take parts of data that all have
};

} // namespace spmd::checker
