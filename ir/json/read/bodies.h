// Ops, and functions, whose bodies are ops.
#pragma once

#include "ir/json/read/declarations.h"
#include "ir/json/read/operands.h"

namespace spmd::ir {

class JsonBodyReader : JsonPart {
public:
  JsonBodyReader(JsonInput &input, JsonTypeReader &types, JsonValueReader &values,
                 JsonAttributeReader &attributes, JsonOperandReader &operands,
                 JsonTableReader &tables, JsonDeclarationReader &declarations)
      : JsonPart(input), types_(types), values_(values), attributes_(attributes),
        operands_(operands), tables_(tables), declarations_(declarations) {}

  void ops();
  void op();
  void functions();

private:
  OpNameId op_name(const JsonMembers &members, JsonOpShape &shape);
  OperandsId read_operands(const JsonMembers &members, Inst &inst, AttrDict &literals,
                           JsonOpShape &shape);
  AttrsId all_attrs(const JsonMembers &members, const AttrDict &literals, const JsonOpShape &shape);
  void results(Inst &inst, JsonOpShape &shape);
  void assertions(const JsonMembers &members, uint32_t index);
  void expectation(uint32_t index);
  void function(llvm::StringRef name);

  JsonTypeReader &types_;
  JsonValueReader &values_;
  JsonAttributeReader &attributes_;
  JsonOperandReader &operands_;
  JsonTableReader &tables_;
  JsonDeclarationReader &declarations_;
  llvm::SmallVector<Operand, 16> buffer_; // operands of the op at hand
  RawCache op_cache_;
};

} // namespace spmd::ir
