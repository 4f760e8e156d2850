// Types, kinds, axes and expressions in the text form. ClaimBuilder says what a claim means; this
// file knows only how it is spelled and where it stands.
#include "ir/text/read/types.h"
#include "ir/dialect/dialect.h"
#include "ir/support/format.h"
#include "ir/support/strings.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/core.h>

namespace spmd::ir {

// What a type in the words of a dialect begins with, up to its end; empty: it is none.
static llvm::StringRef words_at(llvm::StringRef text, Dialect dialect) {
  auto bracket = [&](size_t from) {
    size_t depth = 0;
    for (size_t i = from; i < text.size() && text[i] != '\n'; ++i) {
      depth += text[i] == '(' || text[i] == '[' || text[i] == '{';
      depth -= text[i] == ')' || text[i] == ']' || text[i] == '}';
      if (depth == 0)
        return i + 1;
    }
    return llvm::StringRef::npos;
  };
  size_t end = llvm::StringRef::npos;
  if (dialect == Dialect::DTensor && ir::starts_with(text, "["))
    end = bracket(0);
  if (dialect == Dialect::Jax && ir::starts_with(text, "{")) {
    // Attributes may stand here, too: these have keys with `=`.
    llvm::StringRef first = text.drop_front().ltrim(" ");
    llvm::StringRef key = first.take_while([](char c) { return llvm::isAlpha(c) || c == '_'; });
    bool set = ir::starts_with(first, "}") || ir::starts_with(first, "[") ||
               (!key.empty() && ir::starts_with(first.drop_front(key.size()).ltrim(" "), ":"));
    end = set ? bracket(0) : end;
  }
  if (dialect == Dialect::LTensor && ir::starts_with(text, "variant={")) {
    size_t second = bracket(8); // the brace of the first set
    bool both =
        second != llvm::StringRef::npos && ir::starts_with(text.drop_front(second), " reduced={");
    end = both ? bracket(second + 9) : end;
    while (end != llvm::StringRef::npos && ir::starts_with(text.drop_front(end), " ["))
      end = bracket(end + 1);
  }
  return end == llvm::StringRef::npos ? llvm::StringRef() : text.take_front(end);
}

bool TextTypeReader::at_shape() {
  Token token = peek();
  return (token.kind == TokenKind::Name || token.is('?')) && peek_second().is('[');
}

bool TextTypeReader::at_kind() {
  Token token = peek();
  return token.is('?') || (token.kind == TokenKind::Name && is_reserved(token.text));
}

std::optional<WrittenType> TextTypeReader::type(MeshId mesh, std::optional<unsigned> rank) {
  if (!at_type())
    return expected("a type"), std::nullopt;
  WrittenType type;
  WrittenClaims claims{.first = peek(), .list = {}, .scale = {}};
  bool shaped = at_shape();
  if (shaped && (!read_shape(type, claims) || !read_words(claims)))
    return std::nullopt;
  while (at_kind())
    if (!read_claim(claims))
      return std::nullopt;
  if (!read_scale_and_mesh(type, claims))
    return std::nullopt;
  if (std::optional<unsigned> own = rank_of(type.shape.valid() ? type.shape : type.global_shape))
    rank = own;
  type.type = finish_claims(claims, type.on.valid() ? type.on : mesh, rank);
  if (claims.words.contains("_StridedShard") && type.type.valid() && !cuts_evenly(type))
    error(claims.words_at, "trace-type",
          "strided-uneven: axes against mesh order need even blocks");
  return type;
}

// Whether the extents of one rank make up the global ones that are stated.
bool TextTypeReader::cuts_evenly(const WrittenType &written) const {
  if (!written.shape.valid() || !written.global_shape.valid())
    return true;
  const Shape &local = program_.shapes[written.shape],
              &whole = program_.shapes[written.global_shape];
  const Type &type = program_.types[written.type];
  for (unsigned dim = 0; dim < local.dims.size() && dim < whole.dims.size(); ++dim) {
    int64_t ranks = 1;
    for (AxisId axis : shards_of(type, dim))
      ranks *= program_.meshes[type.mesh()][axis].size();
    bool known = local.dims[dim].is_number() && whole.dims[dim].is_number();
    if (known && local.dims[dim].number() * ranks != whole.dims[dim].number())
      return false;
  }
  return true;
}

std::optional<ClaimId> TextTypeReader::claim(MeshId mesh, std::optional<unsigned> rank) {
  if (take_word("null"))
    return program_.claims.add({});
  std::optional<WrittenType> written = type(mesh, rank);
  if (!written)
    return std::nullopt;
  return program_.claims.add({written->type, written->shape, written->global_shape});
}

std::optional<unsigned> TextTypeReader::rank_of(ShapeId shape) const {
  if (!shape.valid() || !program_.shapes[shape].ranked)
    return std::nullopt;
  return static_cast<unsigned>(program_.shapes[shape].dims.size());
}

bool TextTypeReader::read_shape(WrittenType &type, WrittenClaims &claims) {
  Shape shape;
  if (!read_dtype(shape) || !open('['))
    return false;
  if (peek().kind == TokenKind::Ellipsis) {
    shape.ranked = false;
    take();
  } else if (!peek().is(']') && !read_dims(shape, claims))
    return false;
  if (!close(']'))
    return false;
  if (shape.ranked || shape.dtype != DType::Unknown)
    type.shape = program_.shapes.add(shape);
  return !take_word("of") || read_global_shape(type, shape);
}

bool TextTypeReader::read_dtype(Shape &shape) {
  Token token = take();
  shape.dtype = parse_dtype(token.text);
  if (shape.dtype != DType::Unknown || token.is('?'))
    return true;
  llvm::SmallVector<llvm::StringRef, 20> known;
  for (const DTypeInfo &row : kDTypes)
    known.push_back(row.word);
  error(token, "trace-shape",
        fmt::format("`{}` is no dtype{}", token.text, nearest_suffix(token.text, known)));
  return true;
}

bool TextTypeReader::read_dims(Shape &shape, WrittenClaims &claims) {
  do {
    Token token = peek();
    std::optional<Extent> size = extent();
    if (!size)
      return false;
    if (shape.dims.size() == kMaxDims)
      return error(token, "trace-limit",
                   fmt::format("a shape has more than {} dimensions", kMaxDims));
    auto dim = static_cast<unsigned>(shape.dims.size());
    shape.dims.push_back(*size);
    Token at = peek();
    if (!at.is('@') && at.kind != TokenKind::Function)
      continue;
    std::optional<AxisRefs> axes = axes_after_at();
    if (!axes)
      return false;
    claims.list.push_back({at, std::nullopt, dim, std::move(*axes)});
  } while (take_if(','));
  return true;
}

bool TextTypeReader::read_global_shape(WrittenType &type, const Shape &local) {
  Token token = peek();
  Shape shape;
  shape.dtype = local.dtype;
  bool ok = list('[', ']', [&] {
    std::optional<Extent> size = extent();
    if (size)
      shape.dims.push_back(*size);
    return size.has_value();
  });
  if (!ok)
    return false;
  if (shape.dims.size() > kMaxDims)
    return error(token, "trace-limit",
                 fmt::format("a shape has more than {} dimensions", kMaxDims));
  if (local.ranked && local.dims.size() != shape.dims.size())
    error(token, "trace-shape",
          fmt::format("the global shape has {} dimensions, the local one {}", shape.dims.size(),
                      local.dims.size()));
  type.global_shape = program_.shapes.add(shape);
  return true;
}

bool TextTypeReader::read_claim(WrittenClaims &claims) {
  Token token = peek();
  std::optional<WrittenKind> word = kind();
  if (!word)
    return false;
  AxisRefs axes;
  if (peek().is('@') || peek().kind == TokenKind::Function) {
    std::optional<AxisRefs> stated = axes_after_at();
    if (!stated)
      return false;
    axes = std::move(*stated);
  }
  claims.list.push_back({token, *word, 0, std::move(axes)});
  return true;
}

bool TextTypeReader::read_words(WrittenClaims &claims) {
  Dialect dialect = dialect_of(program_);
  if (dialect == Dialect::Spmd)
    return true;
  Token token = peek();
  claims.words = words_at(in_.bytes.drop_front(token.offset), dialect);
  if (claims.words.empty())
    return true;
  claims.words_at = token;
  in_.next.reset();
  in_.last_end = token.offset + claims.words.size();
  in_.lexer.seek(in_.last_end);
  return true;
}

// The words speak of the axes that nothing else in the type does.
std::optional<std::string> TextTypeReader::add_words(ClaimBuilder &builder,
                                                     const WrittenClaims &claims, MeshId mesh) {
  llvm::Expected<Type> type = ir::read_words(program_, mesh, claims.words, dialect_of(program_));
  if (!type)
    return llvm::toString(type.takeError());
  AxisSet stated;
  for (const WrittenClaims::One &one : claims.list)
    for (AxisRef ref : one.axes.refs) {
      std::string wrong;
      if (std::optional<FoundAxis> found = find_axis(program_, mesh, ref, wrong);
          found && found->mesh == mesh)
        stated |= program_.meshes[mesh].pieces_of(found->axis);
    }
  llvm::SmallVector<ScaleFactor, 2> means; // the axes of `Partial(avg)`
  if (type->scale.valid())
    means = program_.scales[type->scale].factors;
  auto ref_of = [&](AxisId axis) { return AxisRef{{}, program_.meshes[mesh][axis].name}; };
  for (AxisId axis : type->claimed() - stated) {
    bool fine = true;
    if (std::optional<unsigned> dim = type->dim(axis)) {
      llvm::SmallVector<AxisRef, 2> refs;
      if (type->order(axis) == 0) {
        for (AxisId each : shards_of(*type, *dim))
          refs.push_back(ref_of(each));
        fine = builder.shard(*dim, refs);
      }
    } else if (std::optional<WrittenKind> word = kind_word(*type, axis)) {
      if (llvm::any_of(means, [&](auto &each) { return each.base == ref_of(axis).axis; }))
        word->combiner = Combiner::Avg;
      fine = builder.claim(*word, ref_of(axis));
    }
    if (!fine)
      return std::string();
  }
  return std::nullopt;
}

bool TextTypeReader::read_scale_and_mesh(WrittenType &type, WrittenClaims &claims) {
  if (take_word("scale")) {
    claims.scale = scale();
    if (!claims.scale)
      return false;
  }
  if (take_word("on")) {
    std::optional<MeshId> on = mesh_name();
    if (!on)
      return false;
    type.on = *on;
  }
  return true;
}

TypeId TextTypeReader::finish_claims(const WrittenClaims &claims, MeshId mesh,
                                     std::optional<unsigned> rank) {
  ClaimBuilder builder(program_, mesh);
  builder.in_order();
  Token at = claims.first;
  bool ok = true;
  for (const WrittenClaims::One &one : claims.list) {
    ok = one.kind ? builder.claim(*one.kind, one.axes.refs) : builder.shard(one.dim, one.axes.refs);
    at = one.at;
    if (!ok)
      break;
  }
  if (ok && !claims.words.empty()) {
    std::optional<std::string> problem = add_words(builder, claims, mesh);
    if (problem && !problem->empty())
      return error(claims.words_at, "trace-type", std::move(*problem)), TypeId{};
  }
  if (ok && claims.scale)
    builder.scale(*claims.scale);
  ClaimBuilder::Result result = builder.finish(rank);
  if (!result.error.empty())
    error(ok ? claims.first : at, "trace-type", std::move(result.error));
  return result.type;
}

std::optional<WrittenKind> TextTypeReader::kind() {
  Token token = peek();
  if (!at_kind())
    return expected("a kind"), std::nullopt;
  take();
  if (token.is_name("R") && take_if('|')) {
    if (!take_word("I"))
      return expected("`I`"), std::nullopt;
    return parse_kind("R|I");
  }
  bool has_argument = token.is_name("S") || (token.is_name("P") && peek().is('('));
  if (!has_argument)
    return parse_kind(token.text);
  WrittenKind word;
  if (!open('(') || !read_kind_argument(word) || !close(')'))
    return std::nullopt;
  return word;
}

// The dimension of S, or the combiner of P.
bool TextTypeReader::read_kind_argument(WrittenKind &word) {
  Token token = peek();
  if (token.kind == TokenKind::Name) {
    word = {.form = WrittenKind::Form::Plain, .kind = Kind::Partial};
    return enumerator(kCombinerWords, "combiner", word.combiner);
  }
  std::optional<int64_t> dim = integer("a dimension", -kMaxInteger, "trace-type");
  if (!dim)
    return false;
  if (*dim < -int64_t(kMaxDims) || *dim >= int64_t(kMaxDims)) {
    error(token, "trace-type",
          fmt::format("dimension {} is beyond the limit of {}", *dim, kMaxDims));
    dim = 0;
  }
  word = {
      .form = WrittenKind::Form::Shard, .kind = Kind::Varying, .dim = static_cast<int8_t>(*dim)};
  return true;
}

std::optional<AxisRef> TextTypeReader::axis_ref() {
  std::optional<StringId> first = name("an axis");
  if (!first)
    return std::nullopt;
  if (!take_if('.'))
    return AxisRef{{}, *first};
  std::optional<StringId> second = name("an axis");
  if (!second)
    return std::nullopt;
  return AxisRef{*first, *second};
}

std::optional<AxisRefs> TextTypeReader::axes() {
  AxisRefs refs;
  auto one = [&] {
    std::optional<AxisRef> ref = axis_ref();
    if (ref)
      refs.refs.push_back(*ref);
    return ref.has_value();
  };
  if (!peek().is('('))
    return one() ? std::optional(refs) : std::nullopt;
  if (!list('(', ')', one))
    return std::nullopt;
  if (refs.refs.empty())
    return error(in_.last_end - 1, "trace-syntax", "a list of axes is empty"), std::nullopt;
  return refs;
}

// `@tp` comes as one token, `@(` as two.
std::optional<AxisRefs> TextTypeReader::axes_after_at() {
  Token token = peek();
  if (token.kind != TokenKind::Function || token.quoted) {
    if (!expect('@'))
      return std::nullopt;
    return axes();
  }
  in_.next.reset();
  in_.last_end = token.offset + 1;
  in_.lexer.seek(in_.last_end);
  return axes();
}

std::optional<MeshId> TextTypeReader::mesh_name() {
  std::optional<Token> token = any_name("a mesh");
  if (!token)
    return std::nullopt;
  MeshId found = mesh_named(token->text);
  if (found.valid())
    return found;
  llvm::SmallVector<llvm::StringRef, 8> known;
  for (const Mesh &mesh : program_.meshes)
    known.push_back(program_.strings[mesh.name]);
  error(*token, "trace-reference",
        fmt::format("no mesh is named `{}`{}", token->text, nearest_suffix(token->text, known)));
  return in_.context.mesh;
}

bool TextTypeReader::check_axes(const Token &at, MeshId mesh, const AxisRefs &refs) {
  for (AxisRef ref : refs.refs) {
    std::string wrong;
    if (!find_axis(program_, mesh, ref, wrong))
      return error(at, "trace-type", std::move(wrong));
  }
  return true;
}

// Axes of one mesh, flattened ones as their pieces.
std::optional<AxisSet> TextTypeReader::axis_set(MeshId mesh) {
  Token token = peek();
  std::optional<AxisRefs> refs = axes();
  if (!refs)
    return std::nullopt;
  AxisSet set;
  for (AxisRef ref : refs->refs) {
    std::string wrong;
    std::optional<FoundAxis> found = find_axis(program_, mesh, ref, wrong);
    if (found && found->mesh != mesh)
      wrong = fmt::format("axis `{}` is of another mesh than the current one",
                          program_.strings[ref.axis]);
    if (!wrong.empty()) {
      error(token, "trace-type", std::move(wrong));
      continue;
    }
    set |= program_.meshes[mesh].pieces_of(found->axis);
  }
  return set;
}

bool TextTypeReader::is_symbol(llvm::StringRef name) {
  for (; symbols_entered_ < program_.symbols.size(); ++symbols_entered_)
    symbols_.insert(program_.symbols[symbols_entered_].name.index);
  return symbols_.contains(builder_.string(name).index);
}

MeshId TextTypeReader::mesh_named(llvm::StringRef name) {
  for (; meshes_entered_ < program_.meshes.size(); ++meshes_entered_) {
    MeshId id{static_cast<uint16_t>(meshes_entered_)};
    meshes_.try_emplace(program_.meshes[id].name.index, id);
  }
  auto at = meshes_.find(builder_.string(name).index);
  return at == meshes_.end() ? MeshId() : at->second;
}

// After an operand, `%4` is a remainder and no value.
bool TextTypeReader::at_operator() {
  Token token = peek();
  if (token.kind == TokenKind::Value && !token.quoted) {
    in_.lexer.seek(token.offset + 1);
    token = {.kind = TokenKind::Punctuation,
             .offset = token.offset,
             .end = token.offset + 1,
             .text = in_.bytes.substr(token.offset, 1)};
    in_.next = token;
  }
  return token.kind == TokenKind::Punctuation &&
         llvm::StringRef("+-*/%").contains(token.text.front());
}

bool TextTypeReader::expression(std::string &text, bool symbols) {
  if (!expression_operand(text, symbols))
    return false;
  while (at_operator()) {
    text += take().text;
    if (!expression_operand(text, symbols))
      return false;
  }
  return true;
}

bool TextTypeReader::expression_operand(std::string &text, bool symbols) {
  Token token = peek();
  if (token.is('(')) {
    // Whoever reads the text bounds the expression; this bounds the stack.
    if (in_.brackets + in_.blocks >= kMaxNesting + kMaxExprNodes)
      return fail(fmt::format("an expression is nested more than {} deep", kMaxExprNodes));
    text += take().text;
    ++in_.brackets;
    if (!expression(text, symbols) || !close(')'))
      return false;
    text += ')';
    return true;
  }
  if (token.kind != TokenKind::Integer && token.kind != TokenKind::Name)
    return expected(symbols ? "a count, a symbol or `(`" : "a number, a name or `(`");
  take();
  text += token.text;
  if (token.kind == TokenKind::Name && !symbols && take_if('.')) {
    std::optional<StringId> axis = name("an axis");
    if (!axis)
      return false;
    text += '.';
    text += program_.strings[*axis];
  }
  int64_t value = 0;
  if (token.kind == TokenKind::Integer &&
      (token.text.getAsInteger(10, value) || value > kMaxInteger))
    return error(token, "trace-limit", "an integer is beyond 2^53");
  if (token.kind != TokenKind::Name || !symbols || is_symbol(token.text))
    return true;
  llvm::SmallVector<llvm::StringRef, 8> known;
  for (const SymbolInfo &row : program_.symbols)
    known.push_back(program_.strings[row.name]);
  error(token, "trace-shape",
        fmt::format("no symbol is named `{}`{}", token.text, nearest_suffix(token.text, known)));
  return true;
}

std::optional<Extent> TextTypeReader::extent() {
  Token token = peek();
  std::string text;
  if (!expression(text, true))
    return std::nullopt;
  std::optional<Extent> found = parse_extent(text, program_.exprs, program_.strings);
  if (found)
    return found;
  error(token, "trace-shape",
        fmt::format("`{}` divides by zero, is negative, or is too large",
                    llvm::StringRef(text).take_front(60)));
  return Extent(1);
}

std::optional<ScaleId> TextTypeReader::scale() {
  Token token = peek();
  std::string text;
  if (!expression(text, false))
    return std::nullopt;
  std::optional<Scale> found = parse_scale(text, program_.strings);
  if (program_.scales.size() >= ScaleId::kNone - 2u)
    return fail("there are too many scales"), std::nullopt;
  if (found)
    return program_.scales.add(*found);
  error(token, "trace-type",
        fmt::format("`{}` is no product or quotient of axis sizes, symbols and numbers",
                    llvm::StringRef(text).take_front(60)));
  return program_.one();
}

} // namespace spmd::ir
