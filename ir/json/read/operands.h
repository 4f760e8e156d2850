// Operands: values, literals and lists of them, and the arguments of calls.
#pragma once

#include "ir/json/read/attributes.h"
#include "ir/json/read/values.h"

namespace spmd::ir {

class JsonOperandReader : JsonPart {
public:
  JsonOperandReader(JsonInput &input, JsonValueReader &values, JsonAttributeReader &attributes)
      : JsonPart(input), values_(values), attributes_(attributes) {}

  void operands(llvm::SmallVectorImpl<Operand> &out);
  void named_operands(llvm::SmallVectorImpl<Operand> &out, AttrDict &literals);
  void mark_mutated(llvm::MutableArrayRef<Operand> operands);
  llvm::SmallVector<Operand, 8> read_call(const JsonMembers &members, unsigned args,
                                          unsigned kwargs, Inst &inst, AttrDict &literals);

private:
  Operand operand();
  AttrValue literal();
  Operand argument();

  JsonValueReader &values_;
  JsonAttributeReader &attributes_;
  RawCache literal_cache_;
};

} // namespace spmd::ir
