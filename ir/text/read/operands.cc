// Operands and attributes in the text form. A known key takes one form only (attrs.h); whatever
// else is written keeps its plain value: a bare word is a string, as JSON has it, unless it names a
// symbol.
#include "ir/text/read/operands.h"

#include "ir/boundary_ops.h"
#include "ir/input/read_operands.h"
#include "ir/support/format.h"

#include <fmt/core.h>

namespace spmd::ir {

// Alone, it is a word like any other.
static bool marks(const Token &mut, const Token &next) {
  return mut.is_name("mut") && !next.is(',') && !next.is(']') && !next.is('}') &&
         next.kind != TokenKind::End;
}

bool TextOperandReader::at_operand() {
  static constexpr llvm::StringLiteral kWords[] = {"true", "false", "null", "inf", "nan"};
  Token token = peek();
  switch (token.kind) {
  case TokenKind::Value:
  case TokenKind::Integer:
  case TokenKind::Float:
  case TokenKind::String:
    return true;
  case TokenKind::Punctuation:
    return token.is('-') || token.is('[');
  case TokenKind::Name:
    return llvm::is_contained(kWords, token.text) || marks(token, peek_second()) ||
           (token.text == "sym" && peek_second().is('('));
  default:
    return false;
  }
}

bool TextOperandReader::read_operands(Operation &op) {
  if (!at_operand())
    return true;
  do {
    std::optional<Operand> one = operand();
    if (!one)
      return false;
    op.operands.push_back(*one);
  } while (take_if(','));
  return true;
}

void TextOperandReader::add_named(Operation &op, Key key, Operand operand) {
  op.named.push_back(Operand::name(builder_.string(key)));
  op.named.push_back(operand);
}

std::optional<Operand> TextOperandReader::operand() {
  bool mut = take_word("mut");
  if (peek().is('['))
    return list_operand(mut);
  if (mut || peek().kind == TokenKind::Value) {
    std::optional<ValueId> id = values_.value_use();
    return id ? std::optional(Operand::value(*id, mut)) : std::nullopt;
  }
  std::optional<AttrValue> value = literal();
  return value ? std::optional(Operand::literal(builder_.literal(*value))) : std::nullopt;
}

std::optional<Operand> TextOperandReader::list_operand(bool mut) {
  const Token first = peek();
  llvm::SmallVector<Operand, 8> items;
  bool ok = open_value() && list('[', ']', [&] {
              const Token at = peek();
              std::optional<Operand> item = operand();
              if (!item)
                return false;
              if (item->mut)
                error(at, "trace-syntax", "`mut` marks a list as a whole: `mut [...]`");
              items.push_back(*item);
              return !item->mut;
            });
  if (!ok)
    return std::nullopt;
  --in_.values;
  const Operand made = Operand::list(program_.operand_lists.add(items), mut);
  if (mut && !holds_value(program_, made))
    return error(first, "trace-reference", std::string(kNothingToWrite)), std::nullopt;
  return made;
}

// Numbers, strings, `true`, `false`, `null`, `inf`, `-inf`, `nan`, `sym(...)`.
std::optional<AttrValue> TextOperandReader::literal() {
  Token token = peek();
  if (token.kind == TokenKind::String) {
    std::optional<std::string> text = string("a string");
    return text ? std::optional(AttrValue::string(builder_.string(*text))) : std::nullopt;
  }
  if (take_word("null"))
    return AttrValue::null();
  if (token.is_name("true") || token.is_name("false"))
    return AttrValue::boolean(take().text == "true");
  if (token.is_name("sym") && peek_second().is('('))
    return symbolic();
  bool numeric = token.is('-') || token.is_name("inf") || token.is_name("nan") ||
                 token.kind == TokenKind::Integer || token.kind == TokenKind::Float;
  if (!numeric)
    return expected("an operand"), std::nullopt;
  return number();
}

std::optional<AttrValue> TextOperandReader::symbolic() {
  take_word("sym");
  std::optional<Extent> size;
  if (!open('(') || !(size = types_.extent()) || !close(')'))
    return std::nullopt;
  return size->is_number() ? AttrValue::integer(size->number()) : AttrValue::expr(size->expr());
}

bool TextOperandReader::read_attrs(Operation &op) {
  Token token = peek();
  if (!dict([&](const Token &at, Key key) { return read_attr(op, at, key); }, is_op_key))
    return false;
  check_type_parts(op, token);
  return true;
}

// In JSON the members of a type stand among the attributes.
void TextOperandReader::check_type_parts(const Operation &op, const Token &token) {
  static constexpr llvm::StringLiteral kParts[] = {"spec", "dtype", "shape", "gshape", "scale"};
  bool typed = states_type(program_.op_name(op.inst.op)) ||
               llvm::any_of(op.attrs.attrs, [&](const Attr &row) {
                 return row.value.form == AttrForm::Claim && program_.strings[row.key] == "type";
               });
  for (const Attr &row : op.attrs.attrs) {
    llvm::StringRef key = program_.strings[row.key];
    const auto *part = llvm::find(kParts, key);
    bool taken = part == kParts || (typed && part != std::end(kParts));
    if (taken && row.value.form != AttrForm::Function)
      error(token, "trace-key",
            fmt::format("`{}` is a part of a type, and stands in the one under `type`", key));
  }
}

bool TextOperandReader::read_attr(Operation &op, const Token &token, Key key) {
  bool bare = token.kind == TokenKind::Name;
  if (bare && is_op_key(key))
    return read_op_key(op, key);
  if (peek().kind == TokenKind::Value || marks(peek(), peek_second()) || at_list_of_values()) {
    std::optional<Operand> one = operand();
    if (one)
      add_named(op, key, *one);
    return one.has_value();
  }
  if (bare && key == "to" && types_.at_type())
    key = "type";
  std::optional<AttrValue> value;
  if (Token function = peek(); function.kind == TokenKind::Function) {
    take();
    value = AttrValue::function(functions_.use_function(function));
  } else if (std::optional<unsigned> row = known_key(key))
    value = known_attr(op, kKnownKeys[*row].form, key);
  else
    value = plain_attr();
  if (!value)
    return false;
  StringId id = builder_.string(key);
  // `to` and `type` are one key; of all others dict() has seen to it.
  bool repeated =
      key == "type" && llvm::any_of(op.attrs.attrs, [&](const Attr &row) { return row.key == id; });
  if (!repeated)
    op.attrs.attrs.push_back({id, *value});
  else if (in_.result.errors.empty() ||
           in_.result.errors.back().offset != token.offset) // as `to` and as `type`
    error(token, "trace-key", fmt::format("key `{}` is repeated", key));
  return true;
}

bool TextOperandReader::read_op_key(Operation &op, Key key) {
  if (key == "phase")
    return enumerator(kPhaseWords, "phase", op.inst.phase);
  if (key == "ignore")
    return read_ignore(op);
  std::optional<ValueId> value = values_.value_use();
  if (value)
    op.inst.bwd_of = *value;
  return value.has_value();
}

bool TextOperandReader::read_ignore(Operation &op) {
  auto one = [&] {
    std::optional<std::string> name = finding();
    if (name)
      op.ignores.push_back(builder_.string(*name));
    return name.has_value();
  };
  return peek().is('[') ? list('[', ']', one) : one();
}

std::optional<AttrValue> TextOperandReader::known_attr(const Operation &op, KeyForm form, Key key) {
  switch (form) {
  case KeyForm::Axes:
    return axes_attr();
  case KeyForm::Word:
    return word_attr(key);
  case KeyForm::Kinds:
    return kinds_attr();
  case KeyForm::Type:
    return claim_attr(target_mesh(op), rank_in(op, 0));
  case KeyForm::Claim:
    return claim_attr(mesh(), rank_in(op, 0));
  case KeyForm::ClaimList:
    return claims_attr(op, key);
  case KeyForm::Scale: {
    Token token = peek();
    std::optional<ScaleId> factor = types_.scale();
    if (!factor)
      return std::nullopt;
    if (std::string wrong = check_scale(program_, program_.scales[*factor]); !wrong.empty())
      error(token, "trace-type", std::move(wrong));
    return AttrValue::scale(*factor);
  }
  case KeyForm::Plain:
    return plain_attr();
  }
  return std::nullopt;
}

// Whether the mesh has such axes is for the rules to say (`unknown-axis`).
std::optional<AttrValue> TextOperandReader::axes_attr() {
  std::optional<AxisRefs> refs = types_.axes();
  if (!refs)
    return std::nullopt;
  return AttrValue::axes(program_.axis_refs.add(std::move(*refs)));
}

std::optional<AttrValue> TextOperandReader::word_attr(Key key) {
  Token token = peek();
  if (key == "mesh" && token.kind == TokenKind::Name) {
    if (!types_.mesh_name())
      return std::nullopt;
    return AttrValue::string(builder_.string(token.text));
  }
  std::optional<std::string> word = word_or_string("a word");
  return word ? std::optional(AttrValue::string(builder_.string(*word))) : std::nullopt;
}

std::optional<AttrValue> TextOperandReader::kinds_attr() {
  AttrList kinds;
  auto one = [&] {
    std::optional<WrittenKind> word = types_.kind();
    if (word)
      kinds.items.push_back(AttrValue::kind(*word));
    return word.has_value();
  };
  if (!peek().is('['))
    return one() ? std::optional(kinds.items.front()) : std::nullopt;
  if (!list('[', ']', one))
    return std::nullopt;
  return AttrValue::list(program_.lists.add(std::move(kinds)));
}

std::optional<unsigned> TextOperandReader::rank_in(const Operation &op, size_t operand) const {
  if (operand >= op.operands.size() || !op.operands[operand].is_value())
    return std::nullopt;
  return types_.rank_of(program_.values[op.operands[operand].as_value()].shape);
}

std::optional<AttrValue> TextOperandReader::claim_attr(MeshId mesh, std::optional<unsigned> rank) {
  std::optional<ClaimId> stated = types_.claim(mesh, rank);
  return stated ? std::optional(AttrValue::claim(*stated)) : std::nullopt;
}

// Shapes of results are not known yet, those of operands are.
std::optional<AttrValue> TextOperandReader::claims_attr(const Operation &op, Key key) {
  AttrList claims;
  bool ok = list('[', ']', [&] {
    std::optional<unsigned> rank =
        key == "in_types" ? rank_in(op, claims.items.size()) : std::nullopt;
    std::optional<AttrValue> one = claim_attr(mesh(), rank);
    if (one)
      claims.items.push_back(*one);
    return one.has_value();
  });
  return ok ? std::optional(AttrValue::list(program_.lists.add(std::move(claims)))) : std::nullopt;
}

// The mesh of a target type: that of the key `mesh`, which may stand further on.
MeshId TextOperandReader::target_mesh(const Operation &op) {
  for (const Attr &attr : op.attrs.attrs)
    if (program_.strings[attr.key] == "mesh" && attr.value.form == AttrForm::String)
      if (MeshId found = find_mesh(program_, program_.strings[attr.value.as<StringId>()]);
          found.valid())
        return found;
  Lexer ahead(in_.bytes);
  ahead.seek(peek().offset);
  int depth = 0;
  for (Token token = ahead.next(true); token.kind != TokenKind::End && depth >= 0;
       token = ahead.next(true)) {
    depth += token.is('(') || token.is('[') || token.is('{');
    depth -= token.is(')') || token.is(']') || token.is('}');
    if (depth != 0 || !token.is(',') || !ahead.next(true).is_name("mesh") ||
        !ahead.next(true).is('='))
      continue;
    MeshId found = find_mesh(program_, ahead.next(true).text);
    return found.valid() ? found : mesh();
  }
  return mesh();
}

// A list with a value in it is a named operand.
bool TextOperandReader::at_list_of_values() {
  if (!peek().is('['))
    return false;
  Lexer ahead = in_.lexer;
  Token before = peek();
  for (int depth = 1; depth > 0 && before.kind != TokenKind::End;) {
    Token token = ahead.next(true);
    bool item = before.is('[') || before.is(',');
    if (item && (token.kind == TokenKind::Value || marks(token, Lexer(ahead).next(true))))
      return true;
    depth += token.is('(') || token.is('[') || token.is('{');
    depth -= token.is(')') || token.is(']') || token.is('}');
    before = token;
  }
  return false;
}

std::optional<AttrValue> TextOperandReader::plain_attr() {
  Token token = peek();
  if (token.is('['))
    return plain_list();
  if (token.is('{'))
    return plain_dict();
  if (token.is('('))
    return parenthesised_attr();
  if (types_.at_shape() || types_.at_kind())
    return kind_attr();
  bool word = token.kind == TokenKind::Name &&
              !(at_operand() && (token.text != "sym" || peek_second().is('(')));
  if (word)
    return name_attr();
  if (token.kind == TokenKind::Integer && at_expression()) {
    std::optional<Extent> size = types_.extent();
    if (!size)
      return std::nullopt;
    return size->is_number() ? AttrValue::integer(size->number()) : AttrValue::expr(size->expr());
  }
  return literal();
}

// True if an operator follows the token at hand.
bool TextOperandReader::at_expression() {
  Token second = peek_second();
  bool sign =
      second.kind == TokenKind::Punctuation && llvm::StringRef("+-*/%").contains(second.text);
  return sign || (second.kind == TokenKind::Value && !second.quoted);
}

std::optional<AttrValue> TextOperandReader::plain_list() {
  AttrList items;
  bool ok = open_value() && list('[', ']', [&] {
              std::optional<AttrValue> item = plain_attr();
              if (item)
                items.items.push_back(*item);
              return item.has_value();
            });
  if (!ok)
    return std::nullopt;
  --in_.values;
  return AttrValue::list(program_.lists.add(std::move(items)));
}

std::optional<AttrValue> TextOperandReader::plain_dict() {
  AttrDict items;
  bool ok = open_value() && dict([&](const Token &, Key key) {
              std::optional<AttrValue> item = plain_attr();
              if (item)
                items.attrs.push_back({builder_.string(key), *item});
              return item.has_value();
            });
  if (!ok)
    return std::nullopt;
  --in_.values;
  return AttrValue::dict(builder_.attrs(std::move(items)));
}

// A symbol, an expression that starts with one, or a word.
std::optional<AttrValue> TextOperandReader::name_attr() {
  Token token = peek();
  if (types_.is_symbol(token.text) || at_expression()) {
    std::optional<Extent> size = types_.extent();
    if (!size)
      return std::nullopt;
    return size->is_number() ? AttrValue::integer(size->number()) : AttrValue::expr(size->expr());
  }
  std::optional<AxisRef> ref = types_.axis_ref();
  if (!ref)
    return std::nullopt;
  std::string text = program_.strings[ref->axis].str();
  if (ref->mesh.valid())
    text = program_.strings[ref->mesh].str() + "." + text;
  return AttrValue::string(builder_.string(text));
}

// `(dp, tp)` is a list of words, `(s0 / 8) * 8` an expression.
std::optional<AttrValue> TextOperandReader::parenthesised_attr() {
  Lexer ahead = in_.lexer;
  Token first = ahead.next(true), second = ahead.next(true);
  bool words = first.kind == TokenKind::Name && (second.is(',') || second.is('.'));
  if (!words) {
    std::optional<Extent> size = types_.extent();
    if (!size)
      return std::nullopt;
    return size->is_number() ? AttrValue::integer(size->number()) : AttrValue::expr(size->expr());
  }
  AttrList items;
  bool ok = list('(', ')', [&] {
    std::optional<AttrValue> item = name_attr();
    if (item)
      items.items.push_back(*item);
    return item.has_value();
  });
  return ok ? std::optional(AttrValue::list(program_.lists.add(std::move(items)))) : std::nullopt;
}

// A single kind is a word, as in JSON; what says more is a type, which JSON tells by its key.
std::optional<AttrValue> TextOperandReader::kind_attr() {
  Token token = peek();
  if (types_.at_kind()) {
    std::optional<WrittenKind> word = types_.kind();
    if (!word)
      return std::nullopt;
    if (peek().is(',') || peek().is('}') || peek().is(']'))
      return AttrValue::string(builder_.string(print(*word)));
  }
  error(token, "trace-key",
        "a type stands here; it may under `type`, `to`, `grad`, `in_types` and `out_types`");
  return std::nullopt;
}

} // namespace spmd::ir
