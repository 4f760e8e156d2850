// Operations, and blocks that have a context of their own. A malformed statement is skipped to its
// end, so that one mistake hides no other.
#include "ir/text/read/statements.h"

#include "ir/boundary_ops.h"
#include "ir/input/read_operands.h"

#include <fmt/core.h>

namespace spmd::ir {

static std::string_view shortened(llvm::StringRef text) { return text.take_front(60); }

bool TextStatementReader::read_block(TopLevelStatements *outside) {
  for (skip_separators(); peek().kind != TokenKind::End; skip_separators()) {
    Token first = peek();
    bool closes = first.is('}') || first.is_name("return") || first.is_name("yield");
    if (closes && in_.blocks > 0)
      return true;
    if (closes) {
      if (!in_.lost_values)
        error(first, "trace-syntax", fmt::format("{} stands outside of a block", describe(first)));
      take();
      recover();
    } else if (!read_statement(outside))
      recover();
  }
  return true;
}

bool TextStatementReader::read_keyword(Statement statement, TopLevelStatements *outside) {
  switch (statement) {
  case Statement::With:
    return read_with();
  case Statement::Local:
    return read_local();
  case Statement::Function:
    return read_function();
  default:
    return outside->read(statement);
  }
}

bool TextStatementReader::read_statement(TopLevelStatements *outside) {
  Token first = peek();
  if (const StatementWord *row =
          first.kind == TokenKind::Name ? find_statement(first.text) : nullptr) {
    take();
    if (row->top_level_only && !outside)
      return error(first, "trace-syntax",
                   fmt::format("`{}` stands inside of a block, and belongs outside", row->word));
    return read_keyword(row->statement, outside) && expect_end_of_statement();
  }
  begin_body();
  llvm::SmallVector<WrittenValue, 2> results;
  if (first.kind == TokenKind::Value && !(values_.read_results(results) && expect('=')))
    return false;
  for (std::string_view role : kRoleWords) {
    if (!results.empty() && peek().is_name(role)) {
      auto which = static_cast<Role>(llvm::find(kRoleWords, role) - kRoleWords.begin());
      if (!outside)
        return expected("an operation: declarations stand outside of blocks");
      if (results.size() > 1 || results[0].typed)
        return expected("an operation: a declaration makes one value, and its type comes last");
      take();
      return outside->declare(results[0], which, first.offset) && expect_end_of_statement();
    }
  }
  if (read_operation(results, first.offset) && expect_end_of_statement())
    return true;
  for (const WrittenValue &value : results)
    if (!builder_.lookup(value.name))
      builder_.define(values_.value_of(value));
  return false;
}

void TextStatementReader::skip_separators() {
  while (peek().kind == TokenKind::Newline)
    take();
}

// True if the next line looks like a statement of its own, although a bracket is still open.
bool TextStatementReader::starts_statement() {
  Lexer ahead = in_.lexer;
  Token first = ahead.next(false), second = ahead.next(false);
  if (first.kind == TokenKind::Value)
    return second.is('=') || second.is(':');
  return first.kind == TokenKind::Name && find_statement(first.text) && !second.is('=');
}

void TextStatementReader::recover() {
  unsigned depth = std::exchange(in_.brackets, 0);
  in_.values = 0;
  in_.next.reset();
  in_.lexer.seek(in_.last_end);
  in_.lost_values = true;
  for (Token token = peek(); token.kind != TokenKind::End; token = peek()) {
    if (token.kind == TokenKind::Newline && (depth == 0 || starts_statement()))
      return;
    if (token.is('}') && depth == 0 && in_.blocks > 0)
      return;
    if (token.is('(') || token.is('[') || token.is('{'))
      ++depth;
    else if (depth > 0 && (token.is(')') || token.is(']') || token.is('}')))
      --depth;
    take();
  }
}

bool TextStatementReader::read_with() {
  begin_body();
  Context context = in_.context;
  return dict([&](const Token &token, Key key) { return read_with_key(context, token, key); }) &&
         read_nested(context);
}

// `local` adds axes to those that are local around, `global` takes them out.
bool TextStatementReader::read_with_key(Context &context, const Token &token, Key key) {
  static constexpr std::string_view kKeys[] = {"mesh",  "local", "global",
                                               "check", "grad",  "implicit"};
  if (key == "mesh") {
    std::optional<MeshId> mesh = types_.mesh_name();
    if (mesh && *mesh != context.mesh) {
      context.mesh = *mesh;
      context.local = {};
    }
    return mesh.has_value();
  }
  if (key == "local" || key == "global") {
    std::optional<AxisSet> axes = types_.axis_set(context.mesh);
    if (axes)
      context.local = key == "local" ? context.local | *axes : context.local - *axes;
    return axes.has_value();
  }
  bool *flag = key == "check" ? &context.check : key == "grad" ? &context.grad : &context.implicit;
  if (!llvm::is_contained(kKeys, std::string_view(key))) {
    unknown_key(token, "a context", kKeys);
    return operands_.skip_attr();
  }
  std::optional<bool> value = boolean();
  *flag = value.value_or(*flag);
  return value.has_value();
}

bool TextStatementReader::read_local() {
  begin_body();
  Context context = in_.context;
  std::optional<AxisSet> axes = types_.axis_set(context.mesh);
  if (!axes)
    return false;
  context.local |= *axes;
  return read_nested(context);
}

bool TextStatementReader::enter_block() {
  if (!peek().is('{'))
    return expected("`{`");
  if (in_.blocks + in_.brackets >= kMaxNesting)
    return fail(fmt::format("blocks are nested more than {} deep", kMaxNesting));
  take();
  ++in_.blocks;
  return true;
}

bool TextStatementReader::read_nested(const Context &context) {
  if (!enter_block())
    return false;
  Context around = std::exchange(in_.context, context);
  read_block(nullptr);
  in_.context = around;
  --in_.blocks;
  return expect('}');
}

bool TextStatementReader::read_operation(llvm::SmallVectorImpl<WrittenValue> &results,
                                         uint64_t origin) {
  Operation op;
  op.origin = origin;
  op.inst.context = context_id();
  if (!read_op(results, op) || !places_.read_where(op.inst.loc))
    return false;
  uint32_t index = add_operation(op, results);
  while (take_word("expect"))
    if (!read_expectation(index))
      return false;
  return true;
}

bool TextStatementReader::read_op(llvm::SmallVectorImpl<WrittenValue> &results, Operation &op) {
  Token token = peek();
  std::optional<StringId> name = op_name();
  if (!name)
    return false;
  op.inst.op = OpNameId{name->index};
  llvm::StringRef spelling = program_.strings[*name];
  if (!is_op_name(spelling))
    error(token, "trace-key", fmt::format("`{}` is no name of an op", shortened(spelling)));
  bool bare = in_.last_end > 0 && in_.bytes[in_.last_end - 1] != '"';
  if (bare && is_boundary(spelling, Boundary::Rng) && types_.at_type())
    return read_rng(op);
  if (bare && is_boundary(spelling, Boundary::LocalMap) && take_word("over"))
    return read_local_map(results, op);
  return operands_.read_operands(op) && (!peek().is('{') || operands_.read_attrs(op));
}

// `%r = rng K`.
bool TextStatementReader::read_rng(Operation &op) {
  std::optional<ClaimId> stated = types_.claim(mesh());
  if (!stated)
    return false;
  op.attrs.attrs.push_back({builder_.string("type"), AttrValue::claim(*stated)});
  return true;
}

uint32_t TextStatementReader::add_operation(Operation &op, llvm::ArrayRef<WrittenValue> results) {
  op.operands.append(op.named);
  op.inst.operands = program_.operand_lists.add(op.operands);
  op.inst.attrs = builder_.attrs(std::move(op.attrs));
  op.inst.result_count = static_cast<uint32_t>(results.size());
  for (const WrittenValue &result : results) {
    if (result.late_grad_of)
      error(*result.late_grad_of, "trace-reference",
            "the value that a gradient is of is not defined up to here");
    ValueId id = values_.define(result);
    if (!op.inst.first_result.valid())
      op.inst.first_result = id;
  }
  uint32_t index = builder_.add(op.inst, op.origin);
  for (StringId finding : op.ignores)
    builder_.ignore(index, finding);
  return index;
}

// `expect error name axes`, `expect warning name axes`, `expect %x: T`.
bool TextStatementReader::read_expectation(uint32_t index) {
  Expectation row;
  if (peek().kind == TokenKind::Value) {
    std::optional<ValueId> value = values_.value_use();
    if (!value || !expect(':'))
      return false;
    std::optional<WrittenType> written = types_.type(mesh_of(program_, *value, mesh()),
                                                     types_.rank_of(program_.values[*value].shape));
    if (!written)
      return false;
    row.value = *value;
    row.type = written->type;
    builder_.expect(index, std::move(row));
    return true;
  }
  row.warning = peek().is_name("warning");
  if (!row.warning && !peek().is_name("error"))
    return expected("`error`, `warning` or a value");
  take();
  std::optional<std::string> name = finding();
  if (!name)
    return false;
  row.finding = builder_.string(*name);
  if (peek().is('(') || (peek().kind == TokenKind::Name && peek().text != "expect")) {
    std::optional<AxisRefs> refs = types_.axes();
    if (!refs)
      return false;
    for (AxisRef ref : refs->refs)
      row.axes.push_back(ref.axis);
  }
  builder_.expect(index, std::move(row));
  return true;
}

} // namespace spmd::ir
