// The parameters of functions of frameworks, by the names under which they are called. The table is
// data (torch.txt), written by exporters/spmd_trace/torch/signatures.py, which says how to read it.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

namespace spmd::ir {

// A type of torch's schemas without its marks; `Number` may stand for a tensor, `Ignored` says
// nothing of the program, `Any` is unknown.
enum class ParameterType : uint8_t {
  Tensor,
  Number,
  Scalar,
  Integer,
  Float,
  Complex,
  Bool,
  String,
  DType,
  Storage,
  Any,
  Ignored
};
// As the table of signatures spells it.
std::string_view word_of(ParameterType type);

struct Parameter {
  ParameterType type = ParameterType::Any;
  llvm::StringRef name;
  llvm::StringRef standard; // the default, as Python writes it; empty: it must be given
  bool is_list = false, is_optional = false;
  bool is_written = false; // in place
  bool named_only = false;
  bool takes_rest = false; // all further arguments by position

  // Whether it stands among the operands.
  bool is_operand() const { return type == ParameterType::Tensor || type == ParameterType::Number; }
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
