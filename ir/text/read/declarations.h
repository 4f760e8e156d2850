// Declarations of inputs and parameters with their gradient contracts, and outputs.
#pragma once

#include "ir/text/read/operands.h"
#include "ir/text/read/places.h"

namespace spmd::ir {

class TextDeclarationReader : TextCursor {
public:
  TextDeclarationReader(TextInput &input, TextTypeReader &types, TextValueReader &values,
                        TextOperandReader &operands, TextLocationReader &places)
      : TextCursor(input), types_(types), values_(values), operands_(operands), places_(places) {}

  bool read_output();
  bool read_declaration(WrittenValue value, Role role, uint64_t origin);
  void check_late_gradients();

private:
  bool read_declaration_key(Param &param, const Token &token, Key key);
  bool read_sync(GradContract &grad);
  bool read_sync_axes(GradContract &grad);
  bool read_hints(GradContract &grad);
  std::optional<AxisRefsId> declared_axes();

  TextTypeReader &types_;
  TextValueReader &values_;
  TextOperandReader &operands_;
  TextLocationReader &places_;
  std::vector<std::pair<ValueId, Token>> late_gradients_; // what they are the gradient of
};

} // namespace spmd::ir
