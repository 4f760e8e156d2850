// Which functions stand where they are used, in a `local_map`: those that nobody else uses, and of
// which that form says all.
#pragma once

#include "ir/text/print/types.h"

#include <optional>
#include <vector>

namespace spmd::ir {

class InlinedBodies {
public:
  InlinedBodies(const Program &program, const TextTypes &types);

  bool contains(const Inst &inst) const;
  // The others, in order of first use.
  llvm::ArrayRef<FunctionId> named() const { return named_; }

private:
  void count_uses();
  void find(Body body, std::vector<bool> &met);
  const Function *own_body(const Inst &inst) const;
  bool has_form(const Inst &inst) const;
  bool has_attrs(const Inst &inst) const;
  std::optional<Context> context_of_body(const Inst &inst) const;
  bool states_boundary(ValueId result, const Claim &claim, MeshId mesh) const;

  const Program &program_;
  const TextTypes &types_;
  std::vector<uint32_t> uses_; // of functions, by instructions
  std::vector<bool> inlined_;  // by function
  std::vector<FunctionId> named_;
};

} // namespace spmd::ir
