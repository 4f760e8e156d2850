// Operands and attributes of an operation.
#pragma once

#include "ir/text/read/functions.h"
#include "ir/text/read/values.h"

namespace spmd::ir {

// What an op is written with, while it is read.
struct Operation {
  Inst inst;
  llvm::SmallVector<Operand, 8> operands;
  llvm::SmallVector<Operand, 8> named; // name and operand by turns
  AttrDict attrs;
  llvm::SmallVector<StringId, 1> ignores;
  llvm::SmallVector<Expectation, 1> expectations;
  uint64_t origin = 0;
};

class TextOperandReader : TextCursor {
public:
  TextOperandReader(TextInput &input, TextTypeReader &types, TextValueReader &values,
                    TextFunctionNames &functions)
      : TextCursor(input), types_(types), values_(values), functions_(functions) {}

  bool read_operands(Operation &op);
  bool read_attrs(Operation &op);
  bool skip_attr() { return plain_attr().has_value(); }

private:
  bool at_operand();
  void add_named(Operation &op, Key key, Operand operand);
  std::optional<Operand> operand();
  std::optional<Operand> list_operand(bool mut);
  std::optional<AttrValue> literal();
  std::optional<AttrValue> symbolic();
  void check_type_parts(const Operation &op, const Token &token);
  bool read_attr(Operation &op, const Token &token, Key key);
  bool read_op_key(Operation &op, Key key);
  bool read_ignore(Operation &op);
  std::optional<AttrValue> known_attr(const Operation &op, KeyForm form, Key key);
  std::optional<AttrValue> axes_attr();
  std::optional<AttrValue> word_attr(Key key);
  std::optional<AttrValue> kinds_attr();
  std::optional<unsigned> rank_in(const Operation &op, size_t operand) const;
  std::optional<AttrValue> claims_attr(const Operation &op, Key key);
  std::optional<AttrValue> claim_attr(MeshId mesh, std::optional<unsigned> rank);
  std::optional<AttrValue> plain_attr();
  std::optional<AttrValue> plain_list();
  std::optional<AttrValue> plain_dict();
  std::optional<AttrValue> name_attr();
  std::optional<AttrValue> parenthesised_attr();
  std::optional<AttrValue> kind_attr();
  bool at_list_of_values();
  bool at_expression();
  MeshId target_mesh(const Operation &op);

  TextTypeReader &types_;
  TextValueReader &values_;
  TextFunctionNames &functions_;
};

} // namespace spmd::ir
