// Declared values and outputs of a program as text.
#pragma once

#include "ir/text/print/instructions.h"
#include "ir/text/print/lines.h"

namespace spmd::ir {

class TextDeclarations {
public:
  TextDeclarations(const Program &program, const TextTypes &types, TextLines &lines)
      : program_(program), types_(types), words_(program), insts_(program, types), lines_(lines) {}

  void param(const Param &param);
  void output(const Output &output);

private:
  std::string contract(const Param &param) const;
  std::string sync(llvm::ArrayRef<Sync> list) const;
  std::string hints(llvm::ArrayRef<SyncHint> list) const;

  const Program &program_;
  const TextTypes &types_;
  TextWords words_;
  InstText insts_;
  TextLines &lines_;
};

} // namespace spmd::ir
