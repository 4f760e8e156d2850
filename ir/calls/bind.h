// Calls as frameworks make them, name, arguments and keywords, bound by the signature of what is
// called: to operands and attributes, as any other operation has them.
#pragma once

#include "ir/program.h"

#include "llvm/ADT/ArrayRef.h"

#include <string>
#include <utility>

namespace spmd::ir {

using NamedOperand = std::pair<StringId, Operand>;

struct Call {
  llvm::StringRef name;
  llvm::SmallVector<Operand, 8> args;
  llvm::SmallVector<NamedOperand, 4> kwargs;
};

struct BoundCall {
  std::string name; // with the overload that takes these arguments
  llvm::SmallVector<Operand, 8> operands;
  AttrDict attrs;
  std::string problem; // why nothing takes them; empty if something does
};

// A name of which the table knows nothing keeps its order: what has a position is an operand, what
// has a name and holds no value an attribute.
BoundCall bind_call(Builder &builder, const Call &call);

} // namespace spmd::ir
