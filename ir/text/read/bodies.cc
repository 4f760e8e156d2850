// Functions of the text form, and the inline bodies of `local_map`, which become functions too.
#include "ir/text/read/statements.h"

#include <fmt/core.h>

namespace spmd::ir {

// True if the `{` at hand opens attributes and no body.
bool TextStatementReader::starts_attrs() {
  if (!peek().is('{'))
    return false;
  Lexer ahead = in_.lexer;
  Token first = ahead.next(true);
  bool key = first.kind == TokenKind::Name || first.kind == TokenKind::String;
  return first.is('}') || (key && ahead.next(true).is('='));
}

bool TextStatementReader::read_function() {
  begin_body();
  Token token = peek();
  if (token.kind != TokenKind::Function)
    return expected("the name of a function");
  take();
  Function function;
  function.origin = token.offset;
  function.name = functions_.function_name(token);
  builder_.function(program_.strings[function.name]); // before those that its body names
  builder_.open_body();
  Context around = in_.context;
  bool ok = list('(', ')', [&] { return read_parameter(function); });
  if (ok && starts_attrs()) {
    ok = dict([&](const Token &at, Key key) { return read_with_key(in_.context, at, key); });
    function.context = context_id();
  }
  function.opaque = peek().kind == TokenKind::Arrow;
  if (ok)
    ok = function.opaque ? read_opaque(function) : read_body(function, "return");
  Body body = builder_.close_body();
  if (!function.opaque)
    function.body = body;
  in_.context = around;
  functions_.add_function(token, std::move(function));
  return ok;
}

bool TextStatementReader::read_parameter(Function &function) {
  llvm::SmallVector<WrittenValue, 1> values;
  WrittenValue value;
  value.token = peek();
  if (value.token.kind != TokenKind::Value)
    return expected("a parameter");
  take();
  std::optional<ValueName> name = values_.value_name(value.token);
  if (!name)
    return false;
  value.name = *name;
  if (!values_.read_value_words(value))
    return false;
  if (take_if(':')) {
    std::optional<WrittenType> written = types_.type(mesh());
    if (!written)
      return false;
    value.type = *written;
  }
  FunctionParam param{values_.define(value), {}};
  if (take_word("grad")) {
    std::optional<ClaimId> grad =
        types_.claim(mesh_of(program_, param.value, mesh()), types_.rank_of(value.type.shape));
    if (!grad)
      return false;
    param.grad = *grad;
  }
  function.params.push_back(param);
  return true;
}

// `-> T, T`, or `-> ()` for no result.
bool TextStatementReader::read_opaque(Function &function) {
  take();
  if (peek().is('('))
    return open('(') && close(')');
  do {
    std::optional<ClaimId> out = types_.claim(mesh());
    if (!out)
      return false;
    function.outs.push_back(*out);
  } while (take_if(','));
  return true;
}

// A block that ends in `return` or `yield` and the results.
bool TextStatementReader::read_body(Function &function, llvm::StringRef last_word) {
  if (!enter_block())
    return false;
  read_block(nullptr);
  Operation results;
  bool ok = take_word(last_word) || expected(fmt::format("`{}`", std::string_view(last_word)));
  ok = ok && operands_.read_operands(results);
  if (ok && !results.named.empty())
    ok = expected("results without names");
  if (ok)
    skip_separators();
  ok = ok && (peek().is('}') || expected("`}`"));
  if (!ok) {
    recover();
    skip_separators();
  }
  --in_.blocks;
  function.results = program_.operand_lists.add(results.operands);
  return take_if('}') || ok;
}

bool TextStatementReader::read_local_map(llvm::SmallVectorImpl<WrittenValue> &results,
                                         Operation &op) {
  if (results.empty())
    return error(op.origin, "trace-syntax", "a `local_map` with a body has no results");
  Token token = peek();
  Lexer before = in_.lexer;
  std::optional<AxisRefs> refs = types_.axes();
  if (!refs)
    return false;
  Context inner = in_.context;
  in_.lexer = before;
  in_.next = token;
  inner.local |= types_.axis_set(in_.context.mesh).value_or(AxisSet());
  op.attrs.attrs.push_back(
      {builder_.string("axis"), AttrValue::axes(program_.axis_refs.add(std::move(*refs)))});

  llvm::SmallVector<WrittenValue, 4> params;
  AttrList in_types;
  if (!list('(', ')', [&] { return read_binding(op, params, in_types); }))
    return false;
  add_claims(op, "in_types", std::move(in_types));
  take_result_types(results, op);

  Function function;
  function.name = local_map_name();
  op.attrs.attrs.push_back({builder_.string("body"), AttrValue::function(builder_.function(
                                                         program_.strings[function.name]))});
  builder_.open_body();
  for (const WrittenValue &param : params)
    function.params.push_back({values_.define(param), {}});
  Context around = std::exchange(in_.context, inner);
  function.context = context_id();
  bool ok = read_body(function, "yield");
  in_.context = around;
  function.body = builder_.close_body();
  functions_.add_function(token, std::move(function));
  return ok;
}

// `%q = %x S(1)@tp`.
bool TextStatementReader::read_binding(Operation &op, llvm::SmallVectorImpl<WrittenValue> &params,
                                       AttrList &in_types) {
  WrittenValue param;
  param.token = peek();
  if (param.token.kind != TokenKind::Value)
    return expected("a value");
  take();
  std::optional<ValueName> name = values_.value_name(param.token);
  if (!name || !expect('='))
    return false;
  param.name = *name;
  std::optional<ValueId> operand = values_.value_use();
  if (!operand)
    return false;
  op.operands.push_back(Operand::value(*operand));
  params.push_back(param);
  ClaimId stated = program_.claims.add({});
  if (types_.at_type()) {
    std::optional<ClaimId> written =
        types_.claim(mesh(), types_.rank_of(program_.values[*operand].shape));
    if (!written)
      return false;
    stated = *written;
  }
  in_types.items.push_back(AttrValue::claim(stated));
  return true;
}

// The claims on the results are those of the boundary; the values keep their shapes.
void TextStatementReader::take_result_types(llvm::SmallVectorImpl<WrittenValue> &results,
                                            Operation &op) {
  AttrList out_types;
  for (WrittenValue &result : results) {
    TypeId stated = std::exchange(result.type.type, TypeId{});
    out_types.items.push_back(AttrValue::claim(program_.claims.add({stated, {}, {}})));
  }
  add_claims(op, "out_types", std::move(out_types));
}

// Left out where no entry says anything.
void TextStatementReader::add_claims(Operation &op, llvm::StringRef key, AttrList list) {
  AttrValue nothing = AttrValue::claim(program_.claims.add({}));
  bool silent = llvm::all_of(list.items, [&](AttrValue item) { return item == nothing; });
  if (!silent)
    op.attrs.attrs.push_back(
        {builder_.string(key), AttrValue::list(program_.lists.add(std::move(list)))});
}

// `@local_map_<n>`, n beyond any that the program writes itself.
StringId TextStatementReader::local_map_name() {
  static constexpr llvm::StringLiteral kPrefix = "@local_map_";
  if (local_maps_ == 0)
    for (size_t at = in_.bytes.find(kPrefix); at != llvm::StringRef::npos;
         at = in_.bytes.find(kPrefix, at + 1)) {
      uint64_t number = 0;
      llvm::StringRef digits = in_.bytes.substr(at + kPrefix.size(), 12);
      if (!digits.consumeInteger(10, number))
        local_maps_ = std::max(local_maps_, number + 1);
    }
  return builder_.string(kPrefix.str() + std::to_string(local_maps_++));
}

} // namespace spmd::ir
