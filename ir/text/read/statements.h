// Statements: operations with their results, blocks with a context of their own, functions.
#pragma once

#include "ir/text/read/operands.h"
#include "ir/text/read/places.h"

namespace spmd::ir {

// What reads the statements that stand outside of blocks only.
class TopLevelStatements {
public:
  // From behind the word that begins it.
  virtual bool read(Statement statement) = 0;
  virtual bool declare(const WrittenValue &value, Role role, uint64_t origin) = 0;

protected:
  ~TopLevelStatements() = default;
};

class TextStatementReader : TextCursor {
public:
  TextStatementReader(TextInput &input, TextTypeReader &types, TextValueReader &values,
                      TextOperandReader &operands, TextFunctionNames &functions,
                      TextLocationReader &places)
      : TextCursor(input), types_(types), values_(values), operands_(operands),
        functions_(functions), places_(places) {}

  // Statements up to the end of the file, or up to what closes the block. `outside`: null inside of
  // one.
  bool read_block(TopLevelStatements *outside);

private:
  void skip_separators();
  void recover();
  bool starts_statement();
  bool read_statement(TopLevelStatements *outside);
  bool read_keyword(Statement statement, TopLevelStatements *outside);
  bool read_with();
  bool read_with_key(Context &context, const Token &token, Key key);
  bool read_local();
  bool read_nested(const Context &context);
  bool enter_block();
  bool read_operation(llvm::SmallVectorImpl<WrittenValue> &results, uint64_t origin);
  bool read_op(llvm::SmallVectorImpl<WrittenValue> &results, Operation &op);
  bool read_rng(Operation &op);
  bool read_expectation(uint32_t index);
  uint32_t add_operation(Operation &op, llvm::ArrayRef<WrittenValue> results);
  // Functions and what is read as one (bodies.cc).
  bool read_function();
  bool read_parameter(Function &function);
  bool read_opaque(Function &function);
  bool read_body(Function &function, llvm::StringRef last_word);
  bool starts_attrs();
  bool read_local_map(llvm::SmallVectorImpl<WrittenValue> &results, Operation &op);
  bool read_binding(Operation &op, llvm::SmallVectorImpl<WrittenValue> &params, AttrList &in_types);
  void take_result_types(llvm::SmallVectorImpl<WrittenValue> &results, Operation &op);
  void add_claims(Operation &op, llvm::StringRef key, AttrList list);
  StringId local_map_name();

  TextTypeReader &types_;
  TextValueReader &values_;
  TextOperandReader &operands_;
  TextFunctionNames &functions_;
  TextLocationReader &places_;
  uint64_t local_maps_ = 0;
};

} // namespace spmd::ir
