// The reader of the text form: a program statement by statement, each by the part that knows it.
#pragma once

#include "ir/text/read/declarations.h"
#include "ir/text/read/header.h"
#include "ir/text/read/meshes.h"
#include "ir/text/read/statements.h"

namespace spmd::ir {

class TextReader : TextCursor, TopLevelStatements {
public:
  explicit TextReader(TextInput &input)
      : TextCursor(input), types_(input), places_(input), functions_(input), values_(input, types_),
        operands_(input, types_, values_, functions_), meshes_(input, types_, operands_),
        header_(input, types_, operands_, places_),
        declarations_(input, types_, values_, operands_, places_),
        statements_(input, types_, values_, operands_, functions_, places_) {}

  void read();

private:
  bool read(Statement statement) override;
  bool declare(const WrittenValue &value, Role role, uint64_t origin) override {
    return declarations_.read_declaration(value, role, origin);
  }

  TextTypeReader types_;
  TextLocationReader places_;
  TextFunctionNames functions_;
  TextValueReader values_;
  TextOperandReader operands_;
  TextMeshReader meshes_;
  TextHeaderReader header_;
  TextDeclarationReader declarations_;
  TextStatementReader statements_;
};

} // namespace spmd::ir
