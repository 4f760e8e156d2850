// What a program says of itself before its declarations: the trace header, files, symbols, rules,
// suppressions.
#pragma once

#include "ir/text/read/operands.h"
#include "ir/text/read/places.h"

#include "llvm/ADT/DenseSet.h"

namespace spmd::ir {

class TextHeaderReader : TextCursor {
public:
  TextHeaderReader(TextInput &input, TextTypeReader &types, TextOperandReader &operands,
                   TextLocationReader &places)
      : TextCursor(input), types_(types), operands_(operands), places_(places) {}

  bool read_trace();
  bool read_file();
  bool read_symbol();
  bool read_rule();
  bool read_suppress();
  void check_counts();

private:
  bool read_trace_key(const Token &token, Key key);
  bool read_extra(Key key);
  bool read_count(std::optional<int64_t> &out, std::string_view what, int64_t least,
                  std::string_view error_name);
  bool read_version();
  bool read_producer();
  bool read_missing();
  bool read_requires();
  bool read_suppress_key(Suppression &row, const Token &token, Key key);

  TextTypeReader &types_;
  TextOperandReader &operands_;
  TextLocationReader &places_;
  llvm::DenseSet<uint32_t> extras_, rules_; // keys, and ops that have one
};

} // namespace spmd::ir
