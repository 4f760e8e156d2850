// Names of values: where they are defined, and where they are used.
#pragma once

#include "ir/text/read/types.h"

#include "llvm/ADT/DenseSet.h"

namespace spmd::ir {

// A result or a parameter before `=` or `:`.
struct WrittenValue {
  Token token;
  ValueName name;
  ValueId alias_of, grad_of;
  std::optional<Token> late_grad_of; // not defined yet; a declaration may say so
  Tristate requires_grad = Tristate::Unstated;
  WrittenType type;
  bool typed = false;
};

class TextValueReader : TextCursor {
public:
  TextValueReader(TextInput &input, TextTypeReader &types) : TextCursor(input), types_(types) {}

  std::optional<ValueId> value_use();
  std::optional<ValueName> value_name(const Token &token);
  bool read_results(llvm::SmallVectorImpl<WrittenValue> &results);
  bool read_value_words(WrittenValue &value);
  ValueId define(const WrittenValue &value);
  Value value_of(const WrittenValue &value) const;

private:
  std::string nearest_value(llvm::StringRef name) const;
  bool read_grad_of(WrittenValue &value);

  TextTypeReader &types_;
  llvm::DenseSet<uint32_t> made_up_; // values that were used and never defined
};

} // namespace spmd::ir
