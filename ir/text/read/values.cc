// Results are defined after everything else of their statement has been read, as the Builder asks.
#include "ir/text/read/values.h"
#include "ir/support/format.h"

#include <fmt/core.h>

namespace spmd::ir {

std::optional<ValueId> TextValueReader::value_use() {
  Token token = peek();
  if (token.kind != TokenKind::Value)
    return expected("a value"), std::nullopt;
  take();
  std::optional<ValueName> name = value_name(token);
  if (!name)
    return std::nullopt;
  if (std::optional<ValueId> found = builder_.lookup(*name))
    return found;
  if (!in_.lost_values)
    error(token, "trace-reference",
          fmt::format("no value `{}` is defined up to here{}", print(*name, program_.strings),
                      nearest_value(print(*name, program_.strings))));
  // Named once is enough.
  Value value;
  value.name = *name;
  std::optional<ValueId> id = builder_.define(value);
  made_up_.insert(id->index);
  return id;
}

std::optional<ValueName> TextValueReader::value_name(const Token &token) {
  if (!token.quoted)
    return make_name(token.text, program_.strings);
  std::optional<std::string> text = unescaped(token);
  if (!text)
    return std::nullopt;
  if (!is_value_name(*text))
    error(token, "trace-key",
          fmt::format("`{}` is no name of a value: letters, digits, `_ . / -`",
                      llvm::StringRef(*text).take_front(60)));
  return make_name(*text, program_.strings);
}

std::string TextValueReader::nearest_value(llvm::StringRef name) const {
  std::vector<std::string> known;
  for (const Value &value : program_.values)
    if (builder_.lookup(value.name))
      known.push_back(print(value.name, program_.strings));
  return nearest_suffix(name, std::vector<llvm::StringRef>(known.begin(), known.end()));
}

bool TextValueReader::read_results(llvm::SmallVectorImpl<WrittenValue> &results) {
  do {
    WrittenValue value;
    value.token = peek();
    if (value.token.kind != TokenKind::Value)
      return expected("a value");
    take();
    std::optional<ValueName> name = value_name(value.token);
    if (!name)
      return false;
    value.name = *name;
    results.push_back(value);
    if (!read_value_words(results.back()))
      return false;
    if (!take_if(':'))
      continue;
    std::optional<WrittenType> written = types_.type(mesh());
    if (!written)
      return false;
    results.back().type = *written;
    results.back().typed = true;
  } while (take_if(','));
  return true;
}

// `aliases %x`, `grad_of %x`, `requires_grad`, `no_grad`, in any order.
bool TextValueReader::read_value_words(WrittenValue &value) {
  for (;;) {
    if (take_word("aliases")) {
      std::optional<ValueId> other = value_use();
      if (!other)
        return false;
      value.alias_of = *other;
    } else if (take_word("grad_of")) {
      if (!read_grad_of(value))
        return false;
    } else if (take_word("requires_grad"))
      value.requires_grad = Tristate::True;
    else if (take_word("no_grad"))
      value.requires_grad = Tristate::False;
    else
      return true;
  }
}

// In a joint program the gradient of a result may come in as a parameter.
bool TextValueReader::read_grad_of(WrittenValue &value) {
  Token token = peek();
  std::optional<ValueName> name;
  if (token.kind == TokenKind::Value && builder_.depth() == 1)
    name = value_name(token);
  if (name && !builder_.lookup(*name)) {
    value.late_grad_of = take();
    return true;
  }
  std::optional<ValueId> other = value_use();
  if (other)
    value.grad_of = *other;
  return other.has_value();
}

Value TextValueReader::value_of(const WrittenValue &written) const {
  Value value;
  value.name = written.name;
  value.declared = written.type.type;
  value.shape = written.type.shape;
  value.global_shape = written.type.global_shape;
  value.alias_of = written.alias_of;
  value.grad_of = written.grad_of;
  value.mesh = written.type.on;
  value.requires_grad = written.requires_grad;
  return value;
}

// A second definition is stored too, so that results stay in a row.
ValueId TextValueReader::define(const WrittenValue &written) {
  Value value = value_of(written);
  if (std::optional<ValueId> id = builder_.define(value))
    return *id;
  if (!made_up_.contains(builder_.lookup(written.name)->index))
    error(written.token, "trace-duplicate",
          fmt::format("value `{}` is defined twice", print(written.name, program_.strings)));
  return program_.values.add(value);
}

} // namespace spmd::ir
