// What of values is proved, and whether their scales are: of declared ones by what is stated and
// inferred, of results by their operands and by what the parts know.
#pragma once

#include "checker/gradual/second_pass/parts.h"

namespace spmd::checker {

class Proof : public SecondPassPart {
public:
  Proof(WalkState &state, Parts &parts) : SecondPassPart(state, parts.now), parts_(parts) {}

  void declare(ir::ValueId value, const ir::Type &type, ir::AxisSet own);
  void prove(ir::InstId id, ir::ValueId value, uint32_t index, const ir::Type &type);

private:
  bool has_taken(const ir::Param &param, const ir::Type &type, ir::AxisId axis) const;
  ir::AxisSet proved_of_operands(ir::InstId id, llvm::ArrayRef<ir::ValueId> returned,
                                 const ir::Type &type) const;
  ir::AxisSet scaled(ir::InstId id, ir::ValueId value, uint32_t index,
                     llvm::ArrayRef<ir::ValueId> returned, const ir::Type &type) const;
  std::optional<uint32_t> carry_of(const ir::Inst &inst, uint32_t result) const;
  ir::AxisSet known_pieces(ir::ValueId value, ir::MeshId mesh) const;

  Parts &parts_;
};

} // namespace spmd::checker
