// The parameters of functions of frameworks, by the names under which they are called. The table is
// data (torch.txt), written by exporters/spmd_trace/torch/signatures.py, which says how to read it.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

namespace spmd::ir {

struct Parameter {
  llvm::StringRef type; // without marks: Tensor, number, int, ..., `any`, `_`
  llvm::StringRef name;
  llvm::StringRef standard; // the default, as Python writes it; empty: it must be given
  bool is_list = false, is_optional = false;
  bool is_written = false; // in place
  bool named_only = false;
  bool takes_rest = false; // all further arguments by position

  // Whether it stands among the operands.
  bool is_operand() const { return type == "Tensor" || type == "number"; }
};

struct Signature {
  llvm::StringRef overload; // empty if it has none
  llvm::SmallVector<Parameter, 6> parameters;
};

// Those of a name without an overload; empty if the table has none.
llvm::ArrayRef<Signature> signatures_of(llvm::StringRef name);
// `f32` for `float32`; empty for what is no dtype of a framework.
llvm::StringRef dtype_word(llvm::StringRef framework_word);

} // namespace spmd::ir
