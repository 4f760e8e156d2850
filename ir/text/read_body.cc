// Statements of the text form: operations with their results, contexts, locations and expectations.
// Results are defined after everything else of their statement has been read, as the Builder asks.
#include "ir/boundary_ops.h"
#include "ir/input/read_operands.h"
#include "ir/text/read.h"

#include <fmt/core.h>

namespace spmd::ir {

static std::string_view shortened(llvm::StringRef text) { return text.take_front(60); }

bool TextReader::read_with() {
  begin_body();
  Context context = context_;
  return dict([&](const Token &token, Key key) { return read_with_key(context, token, key); }) &&
         read_nested(context);
}

// `local` adds axes to those that are local around, `global` takes them out.
bool TextReader::read_with_key(Context &context, const Token &token, Key key) {
  static constexpr std::string_view kKeys[] = {"mesh",  "local", "global",
                                               "check", "grad",  "implicit"};
  if (key == "mesh") {
    std::optional<MeshId> mesh = mesh_name();
    if (mesh && *mesh != context.mesh) {
      context.mesh = *mesh;
      context.local = {};
    }
    return mesh.has_value();
  }
  if (key == "local" || key == "global") {
    std::optional<AxisSet> axes = axis_set(context.mesh);
    if (axes)
      context.local = key == "local" ? context.local | *axes : context.local - *axes;
    return axes.has_value();
  }
  bool *flag = key == "check" ? &context.check : key == "grad" ? &context.grad : &context.implicit;
  if (!llvm::is_contained(kKeys, std::string_view(key))) {
    unknown_key(token, "a context", kKeys);
    return skip_attr();
  }
  std::optional<bool> value = boolean();
  *flag = value.value_or(*flag);
  return value.has_value();
}

bool TextReader::read_local() {
  begin_body();
  Context context = context_;
  std::optional<AxisSet> axes = axis_set(context.mesh);
  if (!axes)
    return false;
  context.local |= *axes;
  return read_nested(context);
}

bool TextReader::enter_block() {
  if (!peek().is('{'))
    return expected("`{`");
  if (nesting_ + brackets_ >= kMaxNesting)
    return fail(fmt::format("blocks are nested more than {} deep", kMaxNesting));
  take();
  ++nesting_;
  return true;
}

bool TextReader::read_nested(const Context &context) {
  if (!enter_block())
    return false;
  Context around = std::exchange(context_, context);
  read_block(false);
  context_ = around;
  --nesting_;
  return expect('}');
}

bool TextReader::read_results(llvm::SmallVectorImpl<WrittenValue> &results) {
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
    std::optional<WrittenType> written = type(mesh());
    if (!written)
      return false;
    results.back().type = *written;
    results.back().typed = true;
  } while (take_if(','));
  return true;
}

// `aliases %x`, `grad_of %x`, `requires_grad`, `no_grad`, in any order.
bool TextReader::read_value_words(WrittenValue &value) {
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
bool TextReader::read_grad_of(WrittenValue &value) {
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

void TextReader::check_late_gradients() {
  for (auto &[value, token] : late_gradients_) {
    next_.reset();
    lexer_.seek(token.offset);
    if (std::optional<ValueId> of = value_use())
      program_.values[value].grad_of = *of;
  }
}

bool TextReader::read_operation(llvm::SmallVectorImpl<WrittenValue> &results, uint64_t origin) {
  Operation op;
  op.origin = origin;
  op.inst.context = context_id();
  if (!read_op(results, op) || !read_where(op.inst.loc))
    return false;
  uint32_t index = add_operation(op, results);
  while (take_word("expect"))
    if (!read_expectation(index))
      return false;
  return true;
}

bool TextReader::read_op(llvm::SmallVectorImpl<WrittenValue> &results, Operation &op) {
  Token token = peek();
  std::optional<StringId> name = op_name();
  if (!name)
    return false;
  op.inst.op = OpNameId{name->index};
  llvm::StringRef spelling = program_.strings[*name];
  if (!is_op_name(spelling))
    error(token, "trace-key", fmt::format("`{}` is no name of an op", shortened(spelling)));
  bool bare = last_end_ > 0 && bytes_[last_end_ - 1] != '"';
  if (bare && is_boundary(spelling, Boundary::Rng) && at_type())
    return read_rng(op);
  if (bare && is_boundary(spelling, Boundary::LocalMap) && take_word("over"))
    return read_local_map(results, op);
  return read_operands(op) && (!peek().is('{') || read_attrs(op));
}

std::optional<StringId> TextReader::op_name() {
  if (peek().kind == TokenKind::String) {
    std::optional<std::string> text = string("an operation");
    return text ? std::optional(builder_.string(*text)) : std::nullopt;
  }
  std::optional<Token> part = any_name("an operation");
  if (!part)
    return std::nullopt;
  std::string text = part->text.str();
  while (take_if('.')) {
    part = any_name("the rest of an operation's name");
    if (!part)
      return std::nullopt;
    text += '.';
    text += part->text;
  }
  return builder_.string(text);
}

// `%r = rng K`.
bool TextReader::read_rng(Operation &op) {
  std::optional<ClaimId> stated = claim(mesh());
  if (!stated)
    return false;
  op.attrs.attrs.push_back({builder_.string("type"), AttrValue::claim(*stated)});
  return true;
}

uint32_t TextReader::add_operation(Operation &op, llvm::ArrayRef<WrittenValue> results) {
  op.operands.append(op.named);
  op.inst.operands = program_.blocks.add(op.operands);
  op.inst.attrs = builder_.attrs(std::move(op.attrs));
  op.inst.result_count = static_cast<uint32_t>(results.size());
  for (const WrittenValue &result : results) {
    if (result.late_grad_of)
      error(*result.late_grad_of, "trace-reference",
            "the value that a gradient is of is not defined up to here");
    ValueId id = define(result);
    if (!op.inst.first_result.valid())
      op.inst.first_result = id;
  }
  uint32_t index = builder_.add(op.inst, op.origin);
  for (StringId finding : op.ignores)
    builder_.ignore(index, finding);
  return index;
}

Value TextReader::value_of(const WrittenValue &written) const {
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
ValueId TextReader::define(const WrittenValue &written) {
  Value value = value_of(written);
  if (std::optional<ValueId> id = builder_.define(value))
    return *id;
  if (!made_up_.contains(builder_.lookup(written.name)->index))
    error(written.token, "trace-duplicate",
          fmt::format("value `{}` is defined twice", print(written.name, program_.strings)));
  return program_.values.add(value);
}

bool TextReader::read_where(LocId &loc) {
  FrameId frame;
  StringId scope;
  if (take_word("at") && !read_frames(frame))
    return false;
  if (take_word("in")) {
    std::optional<std::string> text = string("a scope in quotes");
    if (!text)
      return false;
    scope = builder_.string(*text);
  }
  loc = builder_.location(frame, scope);
  return true;
}

// Innermost first, each `from` one step out.
bool TextReader::read_frames(FrameId &innermost) {
  llvm::SmallVector<Frame, 4> frames;
  do {
    frames.emplace_back();
    if (!read_frame(frames.back()))
      return false;
  } while (take_word("from"));
  for (Frame &frame : llvm::reverse(frames)) {
    frame.caller = innermost;
    innermost = program_.frames.add(frame);
  }
  return true;
}

// `"model.py":41:13-41:20 fn "Block.forward"`.
bool TextReader::read_frame(Frame &frame) {
  std::optional<std::string> path = string("a path in quotes");
  if (!path || !expect(':') || !read_place(frame))
    return false;
  frame.file = file_named(*path);
  if (!take_word("fn"))
    return true;
  std::optional<std::string> name = string("a function in quotes");
  if (name)
    frame.function = builder_.string(*name);
  return name.has_value();
}

bool TextReader::read_place(Frame &frame) {
  if (!read_number(frame.line, "a line"))
    return false;
  if (take_if(':') && !read_number(frame.col, "a column"))
    return false;
  if (!take_if('-'))
    return true;
  return read_number(frame.end_line, "a line") && expect(':') &&
         read_number(frame.end_col, "a column");
}

bool TextReader::read_number(uint32_t &out, std::string_view what) {
  Token token = peek();
  std::optional<int64_t> number = integer(what, 1, "trace-key");
  if (!number)
    return false;
  if (*number > INT32_MAX)
    return error(token, "trace-limit", fmt::format("{} is beyond 2^31", what));
  out = static_cast<uint32_t>(*number);
  return true;
}

// `expect error name axes`, `expect warning name axes`, `expect %x: T`.
bool TextReader::read_expectation(uint32_t index) {
  Expectation row;
  if (peek().kind == TokenKind::Value) {
    std::optional<ValueId> value = value_use();
    if (!value || !expect(':'))
      return false;
    std::optional<WrittenType> written =
        type(mesh_of(program_, *value, mesh()), rank_of(program_.values[*value].shape));
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
    std::optional<AxisRefs> refs = axes();
    if (!refs)
      return false;
    for (AxisRef ref : refs->refs)
      row.axes.push_back(ref.axis);
  }
  builder_.expect(index, std::move(row));
  return true;
}

} // namespace spmd::ir
