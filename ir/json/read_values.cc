// Names, extents, shapes and claims of the JSON format.
#include "ir/json/read.h"
#include "ir/text/lexer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

namespace spmd::ir {

namespace {

llvm::SmallVector<llvm::StringRef, 24> as_refs(llvm::ArrayRef<std::string_view> words) {
  return {words.begin(), words.end()};
}

std::string cut(llvm::StringRef text) {
  return text.size() > 60 ? text.take_front(60).str() + "..." : text.str();
}

} // namespace

std::optional<llvm::StringRef> JsonReader::word(llvm::ArrayRef<std::string_view> words,
                                                std::string_view what, unsigned &index) {
  Token token = json_.at();
  std::optional<llvm::StringRef> text = json_.string();
  if (!text)
    return std::nullopt;
  const auto *found = llvm::find(words, std::string_view(*text));
  index = static_cast<unsigned>(found - words.begin());
  if (found != words.end())
    return text;
  json_.error(token, "trace-key",
              fmt::format("`{}` is no {}{}", cut(*text), what, nearest(*text, as_refs(words))));
  return std::nullopt;
}

StringId JsonReader::text() {
  std::optional<llvm::StringRef> text = json_.string();
  return text ? builder_.string(*text) : StringId();
}

bool JsonReader::is_identifier(llvm::StringRef text) { return is_name(text) && !is_reserved(text); }

StringId JsonReader::identifier(std::string_view what) {
  Token token = json_.at();
  std::optional<llvm::StringRef> text = json_.string();
  if (!text)
    return {};
  if (is_reserved(*text)) {
    json_.error(token, "trace-key",
                fmt::format("`{}` is a kind and names nothing else", text->str()));
    return {};
  }
  if (is_name(*text))
    return builder_.string(*text);
  json_.error(token, "trace-key",
              fmt::format("`{}` is no name of {}: letters, digits and `_`", cut(*text), what));
  return {};
}

StringId JsonReader::finding() {
  Token token = json_.at();
  std::optional<llvm::StringRef> text = json_.string();
  if (!text)
    return {};
  if (is_finding(*text))
    return builder_.string(*text);
  json_.error(token, "trace-key", fmt::format("`{}` is no name of a finding", cut(*text)));
  return {};
}

std::optional<ValueName> JsonReader::value_name() {
  if (std::optional<uint32_t> number = json_.signed_digits('%')) // needs no look-up
    return ValueName::number(*number);
  Token token = json_.at();
  std::optional<llvm::StringRef> text = json_.string();
  if (!text)
    return std::nullopt;
  llvm::StringRef name = *text;
  if (!name.consume_front("%") || !is_value_name(name)) {
    json_.error(token, "trace-key",
                fmt::format("`{}` is no value: `%`, then letters, digits, `_ . / -`", cut(*text)));
    return std::nullopt;
  }
  return make_name(name, program_.strings);
}

ValueId JsonReader::value_ref() {
  Token token = json_.at();
  std::optional<ValueName> name = value_name();
  if (!name)
    return {};
  if (std::optional<ValueId> found = builder_.lookup(*name))
    return *found;
  json_.error(token, "trace-reference",
              fmt::format("`{}` is not defined before this use", print(*name, program_.strings)));
  return {};
}

std::optional<Extent> JsonReader::extent(std::string_view name) {
  if (json_.peek() != '"') {
    std::optional<int64_t> number = json_.integer(0, kMaxInteger, name);
    return number ? std::optional<Extent>(*number) : std::nullopt;
  }
  Token token = json_.at();
  std::optional<llvm::StringRef> text = json_.string();
  if (!text)
    return std::nullopt;
  std::optional<Extent> found = parse_extent(*text, program_.exprs, program_.strings);
  if (!found)
    json_.error(token, name, fmt::format("`{}` is no extent", cut(*text)));
  else if (!check_symbols(*found, token, name))
    return std::nullopt;
  return found;
}

bool JsonReader::check_symbols(Extent extent, Token token, std::string_view name) {
  if (extent.is_number())
    return true;
  Expr expr = program_.exprs[extent.expr()];
  if (expr.form != Expr::Form::Symbol)
    return check_symbols(expr.left, token, name) && check_symbols(expr.right, token, name);
  if (symbols_.contains(expr.symbol.index))
    return true;
  llvm::SmallVector<llvm::StringRef, 8> known;
  for (const SymbolInfo &symbol : program_.symbols)
    known.push_back(program_.strings[symbol.name]);
  llvm::StringRef symbol = program_.strings[expr.symbol];
  json_.error(token, name,
              fmt::format("no symbol is named `{}`{}", symbol.str(), nearest(symbol, known)));
  return false;
}

std::optional<int64_t> JsonReader::number_or_extent(std::string_view name) {
  Token token = json_.at();
  std::optional<Extent> found = extent(name);
  if (!found)
    return std::nullopt;
  if (found->is_number())
    return found->number();
  json_.error(token, name, "an expression over symbols stands where this reader needs a number");
  return std::nullopt;
}

std::optional<unsigned> JsonReader::rank_of(ShapeId id) const {
  if (!id.valid() || !program_.shapes[id].ranked)
    return std::nullopt;
  return static_cast<unsigned>(program_.shapes[id].dims.size());
}

// `dims` names the member that holds the extents: `shape` or `gshape`.
ShapeId JsonReader::shape(const JsonMembers &members, unsigned dims) {
  RawCache::Key key;
  key.a = members.raw(DTypeKey);
  key.b = members.raw(dims);
  if (json_.failed() || (key.a.empty() && key.b.empty()))
    return {};
  if (std::optional<uint32_t> found = shape_cache_.find(key))
    return ShapeId{*found};
  ShapeId id = read_shape(members, dims);
  if (id.valid())
    shape_cache_.add(key, id.index);
  return id;
}

ShapeId JsonReader::read_shape(const JsonMembers &members, unsigned dims) {
  Shape shape;
  bool ok = true;
  if (members.at(DTypeKey)) {
    Token token = json_.at();
    std::optional<llvm::StringRef> text = json_.string();
    shape.dtype = text ? parse_dtype(*text) : DType::Unknown;
    if (text && shape.dtype == DType::Unknown) {
      llvm::SmallVector<llvm::StringRef, 24> known;
      for (const DTypeInfo &row : llvm::drop_begin(kDTypes))
        known.push_back(row.word);
      json_.error(token, "trace-key",
                  fmt::format("`{}` is no dtype{}", cut(*text), nearest(*text, known)));
    }
    ok = shape.dtype != DType::Unknown;
  }
  shape.ranked = members.at(dims);
  Token token = json_.at();
  bool listed = shape.ranked && json_.array([&](uint32_t i) {
    std::optional<Extent> dim = extent("trace-shape");
    ok &= dim.has_value();
    if (i < kMaxDims)
      shape.dims.push_back(dim.value_or(Extent(0)));
    if (i == kMaxDims)
      json_.error(token, "trace-limit",
                  fmt::format("a shape has more than {} dimensions", kMaxDims));
    ok &= i < kMaxDims;
  });
  return ok && listed == shape.ranked && !json_.failed() ? program_.shapes.add(std::move(shape))
                                                         : ShapeId();
}

TypeId JsonReader::type(const JsonMembers &members, MeshId mesh, std::optional<unsigned> rank) {
  RawCache::Key key;
  key.salt = uint64_t(mesh.index) << 8 | (rank ? *rank : 0xFF);
  key.a = members.raw(TypeKey);
  key.b = members.raw(SpecKey);
  key.c = members.raw(ScaleKey);
  if (json_.failed() || (key.a.empty() && key.b.empty() && key.c.empty()))
    return {};
  if (std::optional<uint32_t> found = type_cache_.find(key))
    return TypeId{*found};
  size_t before = json_.errors().size();
  TypeId id = read_type(members, mesh, rank);
  if (json_.errors().size() == before)
    type_cache_.add(key, id.index);
  return id;
}

TypeId JsonReader::read_type(const JsonMembers &members, MeshId mesh,
                             std::optional<unsigned> rank) {
  ClaimBuilder claims(program_, mesh);
  size_t before = json_.errors().size();
  Token wrong = members.has(TypeKey) ? members.token(TypeKey) : members.token(SpecKey);
  auto report = [&](Token token) {
    ClaimBuilder::Result result = claims.finish(rank);
    if (!result.error.empty() && json_.errors().size() == before)
      json_.error(token, "trace-type", std::move(result.error));
    return result.type;
  };
  if (members.at(TypeKey) && !kinds(claims))
    return report(json_.at()), TypeId();
  if (members.at(SpecKey)) {
    wrong = json_.at();
    if (!spec(claims))
      return report(wrong), TypeId();
  }
  if (members.at(ScaleKey)) {
    Token token = json_.at();
    if (ScaleId id = scale(); !id.valid() || !claims.scale(id))
      return report(token), TypeId();
  }
  return json_.failed() || scales_are_full(wrong) ? TypeId() : report(wrong);
}

// Claims on an axis each; after a claim that cannot stand, the cursor is at it.
bool JsonReader::kinds(ClaimBuilder &claims) {
  Token wrong = JsonCursor::kAbsent;
  bool listed = json_.object([&](llvm::StringRef axis) {
    Token token = json_.at();
    AxisRef ref = axis_ref(axis);
    std::optional<KindWord> word = kind();
    if (wrong == JsonCursor::kAbsent &&
        (!word || !claims.claim(*word, axis == "*" ? llvm::ArrayRef<AxisRef>() : ref)))
      wrong = token;
  });
  if (wrong != JsonCursor::kAbsent)
    json_.seek(wrong);
  return listed && wrong == JsonCursor::kAbsent;
}

bool JsonReader::spec(ClaimBuilder &claims) {
  bool ok = true;
  unsigned length = 0;
  Token token = json_.at();
  bool listed = json_.array([&](uint32_t dim) {
    ++length;
    llvm::SmallVector<AxisRef, 2> refs;
    if (json_.null())
      return;
    axis_refs(refs);
    if (ok && dim < kMaxDims && !refs.empty())
      ok = claims.shard(dim, refs);
  });
  if (length > kMaxDims)
    json_.error(token, "trace-limit",
                fmt::format("a spec has {} entries, and may have {}", length, kMaxDims));
  claims.whole_spec(length);
  return listed && ok && length <= kMaxDims;
}

ScaleId JsonReader::scale() {
  Token token = json_.at();
  RawCache::Key key{json_.raw()};
  if (std::optional<uint32_t> found = scale_cache_.find(key))
    return ScaleId{static_cast<uint16_t>(*found)};
  json_.seek(token);
  std::optional<Scale> scale;
  if (json_.peek() == '"') {
    std::optional<llvm::StringRef> text = json_.string();
    scale = text ? parse_scale(*text, program_.strings) : std::nullopt;
    if (text && !scale)
      json_.error(token, "trace-type",
                  fmt::format("`{}` is no scale: a product or quotient of names", cut(*text)));
  } else if (std::optional<int64_t> number = json_.integer(1, kMaxInteger, "trace-type")) {
    scale.emplace();
    scale->numerator = *number;
  }
  if (!scale)
    return {};
  if (std::string wrong = check_scale(program_, *scale); !wrong.empty()) {
    json_.error(token, "trace-type", std::move(wrong));
    return {};
  }
  if (scales_are_full(token))
    return {};
  ScaleId id = program_.scales.add(std::move(*scale));
  scale_cache_.add(key, id.index);
  return id;
}

bool JsonReader::scales_are_full(Token token) {
  bool full = program_.scales.size() >= ScaleId::kNone - 1u;
  if (full)
    json_.fail(json_.offset(token), "trace-limit",
               fmt::format("more than {} scales are in use", ScaleId::kNone - 2u),
               json_.path_of(token));
  return full;
}

MeshId JsonReader::mesh_named(llvm::StringRef name) {
  for (; meshes_entered_ < program_.meshes.size(); ++meshes_entered_) {
    MeshId id{static_cast<uint16_t>(meshes_entered_)};
    meshes_.try_emplace(program_.meshes[id].name.index, id);
  }
  auto at = meshes_.find(builder_.string(name).index);
  return at == meshes_.end() ? MeshId() : at->second;
}

MeshId JsonReader::mesh_ref() {
  Token token = json_.at();
  std::optional<llvm::StringRef> text = json_.string();
  if (!text)
    return {};
  MeshId found = mesh_named(*text);
  if (found.valid())
    return found;
  llvm::SmallVector<llvm::StringRef, 8> known;
  for (const Mesh &mesh : program_.meshes)
    known.push_back(program_.strings[mesh.name]);
  json_.error(token, "trace-reference",
              fmt::format("no mesh is named `{}`{}", cut(*text), nearest(*text, known)));
  return {};
}

// `rank`: the number of dimensions where no shape is stated here.
Claim JsonReader::claim_of(const JsonMembers &members, MeshId mesh, std::optional<unsigned> rank) {
  Claim claim;
  claim.shape = shape(members, ShapeKey);
  claim.global_shape = members.has(GlobalShapeKey) ? shape(members, GlobalShapeKey) : ShapeId();
  std::optional<unsigned> local = rank_of(claim.shape), global = rank_of(claim.global_shape);
  if (local && global && *local != *global)
    json_.error(
        members.token(GlobalShapeKey), "trace-shape",
        fmt::format("the global shape has {} dimensions, the local one {}", *global, *local));
  claim.type = type(members, mesh, local ? local : global ? global : rank);
  return claim;
}

ClaimId JsonReader::claim(MeshId mesh, std::optional<unsigned> rank) {
  Claim made;
  if (!json_.null())
    if (auto members = object(kClaimKeys)) {
      made = claim_of(members, stated_mesh(members, mesh), rank);
      if (made == Claim() && members.has_unknown())
        json_.error(members.token(), "trace-key",
                    "nothing is claimed here: kinds stand in `type`, cuts in `spec`");
    }
  return program_.claims.add(made);
}

// The mesh that an object names, or else the one given.
MeshId JsonReader::stated_mesh(const JsonMembers &members, MeshId mesh) {
  MeshId stated = members.at(MeshKey) ? mesh_ref() : MeshId();
  return stated.valid() ? stated : mesh;
}

// All but `id`; `mesh` is that of the context. What a parameter is the gradient of may come later.
Value JsonReader::value(const JsonMembers &members, MeshId mesh, bool grads_known) {
  Value value;
  if (members.at(MeshKey))
    value.mesh = mesh_ref();
  Claim claim = claim_of(members, value.mesh.valid() ? value.mesh : mesh, {});
  value.shape = claim.shape;
  value.global_shape = claim.global_shape;
  value.declared = claim.type;
  if (members.at(RequiresGradKey))
    if (std::optional<bool> needed = json_.boolean())
      value.requires_grad = *needed ? Tristate::True : Tristate::False;
  if (grads_known && members.at(GradOfKey))
    value.grad_of = value_ref();
  if (members.at(AliasOfKey))
    value.alias_of = value_ref();
  return value;
}

ValueId JsonReader::define(const JsonMembers &members, MeshId mesh, bool grads_known) {
  Value made = value(members, mesh, grads_known);
  require(members, IdKey, kValueKeys[IdKey]);
  if (!members.at(IdKey))
    return {};
  std::optional<ValueName> name = value_name();
  if (!name)
    return {};
  made.name = *name;
  std::optional<ValueId> id = builder_.define(made);
  if (!id) {
    json_.error(members.token(IdKey), "trace-duplicate",
                fmt::format("`{}` is defined twice", print(*name, program_.strings)));
    return {};
  }
  value_meshes_.push_back(made.mesh.valid() ? made.mesh : mesh);
  return *id;
}

} // namespace spmd::ir
