// One instruction as text: results, operands, attributes, and what may follow them.
#pragma once

#include "ir/text/print/types.h"

namespace spmd::ir {

class InstText {
public:
  InstText(const Program &program, const TextTypes &types)
      : program_(program), types_(types), words_(program) {}

  // Empty without results; `types`: with what they state.
  std::string results(const Inst &inst, bool types) const;
  // `gradient`: whether requires_grad is said here.
  std::string result(ValueId id, std::string type, bool gradient) const;
  std::string operation(InstId id) const;
  std::string operands(llvm::ArrayRef<Operand> operands) const;
  std::string operand(Operand operand) const;
  // `mesh`: that of the types in it.
  std::string value(const AttrValue &value, MeshId mesh) const;
  // Location and what is expected of it.
  std::string tail(InstId id) const;

private:
  std::string attrs(InstId id) const;
  std::string attr(const Inst &inst, const Attr &attr, MeshId target) const;
  std::string list(const AttrList &list, MeshId mesh) const;
  std::string dict(const AttrDict &dict, MeshId mesh) const;
  std::string expectation(const Expectation &row) const;

  const Program &program_;
  const TextTypes &types_;
  TextWords words_;
};

} // namespace spmd::ir
