// The reader of JSON traces: one pass over each table, in the order in which they need one another,
// whatever their order in the text.
#pragma once

#include "ir/json/read/bodies.h"

namespace spmd::ir {

class JsonReader : JsonPart {
public:
  explicit JsonReader(JsonInput &input)
      : JsonPart(input), types_(input), values_(input, types_), attributes_(input, types_),
        operands_(input, values_, attributes_), meshes_(input, types_), tables_(input, types_),
        declarations_(input, types_, values_, tables_),
        bodies_(input, types_, values_, attributes_, operands_, tables_, declarations_) {}

  ReadResult read();

private:
  // The document.
  void document();
  void report_rest();
  bool recognise(const JsonMembers &top);
  void version();
  void facts(const JsonMembers &top);
  void tables(const JsonMembers &top);
  void features();
  void missing();
  void producer();
  void header(const JsonMembers &top);
  void body(const JsonMembers &top);
  void count_ops(const JsonMembers &top);
  void keep_extra(llvm::StringRef key);

  // A stream (lines.cc).
  void records();
  void record();
  void definitions();
  void end();

  JsonTypeReader types_;
  JsonValueReader values_;
  JsonAttributeReader attributes_;
  JsonOperandReader operands_;
  JsonMeshReader meshes_;
  JsonTableReader tables_;
  JsonDeclarationReader declarations_;
  JsonBodyReader bodies_;
  bool ended_ = false; // the `end` record of a stream was read
};

} // namespace spmd::ir
