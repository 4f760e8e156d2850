// Names, extents, shapes and claims of the JSON format.
#include "ir/json/read/types.h"

#include "ir/text/lexer.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::ir {

void JsonTypeReader::symbols() {
  json_.object([&](llvm::StringRef name) { symbol(name); });
}

void JsonTypeReader::symbol(llvm::StringRef name) {
  static constexpr std::array<std::string_view, 4> kKeys = {"min", "max", "multiple_of", "hint"};
  uint64_t origin = json_.offset(json_.at());
  auto members = object(kKeys);
  SymbolInfo symbol;
  symbol.origin = origin;
  symbol.name = builder_.string(name);
  std::optional<int64_t> *const facts[] = {&symbol.min, &symbol.max, &symbol.multiple_of,
                                           &symbol.hint};
  for (unsigned i = 0; i < 4; ++i)
    if (members && members.at(i))
      *facts[i] = json_.integer(i == 2 ? 1 : -kMaxInteger, kMaxInteger, "trace-shape");
  if (std::string wrong = contradiction(symbol); !wrong.empty())
    json_.error(members.token(), "trace-shape", fmt::format("the symbol has {}", wrong));
  symbols_.insert(symbol.name.index);
  program_.symbols.push_back(symbol);
}

llvm::SmallVector<AxisId, 2> JsonTypeReader::axes_of(MeshId mesh) {
  llvm::SmallVector<AxisId, 2> axes;
  json_.array([&](uint32_t) {
    Token token = json_.at();
    std::optional<llvm::StringRef> name = json_.string();
    if (!name)
      return;
    std::string wrong;
    std::optional<FoundAxis> found = find_axis(program_, mesh, {{}, builder_.string(*name)}, wrong);
    if (found)
      axes.push_back(found->axis);
    else
      json_.error(token, "trace-mesh", std::move(wrong));
  });
  return axes;
}

std::optional<Extent> JsonTypeReader::extent(std::string_view name) {
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

bool JsonTypeReader::check_symbols(Extent extent, Token token, std::string_view name) {
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
  json_.error(
      token, name,
      fmt::format("no symbol is named `{}`{}", symbol.str(), nearest_suffix(symbol, known)));
  return false;
}

std::optional<int64_t> JsonTypeReader::number_or_extent(std::string_view name) {
  Token token = json_.at();
  std::optional<Extent> found = extent(name);
  if (!found)
    return std::nullopt;
  if (found->is_number())
    return found->number();
  json_.error(token, name, "an expression over symbols stands where this reader needs a number");
  return std::nullopt;
}

std::optional<unsigned> JsonTypeReader::rank_of(ShapeId id) const {
  if (!id.valid() || !program_.shapes[id].ranked)
    return std::nullopt;
  return static_cast<unsigned>(program_.shapes[id].dims.size());
}

// `dims` names the member that holds the extents: `shape` or `gshape`.
ShapeId JsonTypeReader::shape(const JsonMembers &members, unsigned dims) {
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

ShapeId JsonTypeReader::read_shape(const JsonMembers &members, unsigned dims) {
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
                  fmt::format("`{}` is no dtype{}", cut(*text), nearest_suffix(*text, known)));
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

TypeId JsonTypeReader::type(const JsonMembers &members, MeshId mesh, std::optional<unsigned> rank) {
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

TypeId JsonTypeReader::read_type(const JsonMembers &members, MeshId mesh,
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
bool JsonTypeReader::kinds(ClaimBuilder &claims) {
  Token wrong = JsonCursor::kAbsent;
  bool listed = json_.object([&](llvm::StringRef axis) {
    Token token = json_.at();
    AxisRef ref = axis_ref(axis);
    std::optional<WrittenKind> word = kind();
    if (wrong == JsonCursor::kAbsent &&
        (!word || !claims.claim(*word, axis == "*" ? llvm::ArrayRef<AxisRef>() : ref)))
      wrong = token;
  });
  if (wrong != JsonCursor::kAbsent)
    json_.seek(wrong);
  return listed && wrong == JsonCursor::kAbsent;
}

bool JsonTypeReader::spec(ClaimBuilder &claims) {
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

ScaleId JsonTypeReader::scale() {
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

bool JsonTypeReader::scales_are_full(Token token) {
  bool full = program_.scales.size() >= ScaleId::kNone - 1u;
  if (full)
    json_.fail(json_.offset(token), "trace-limit",
               fmt::format("more than {} scales are in use", ScaleId::kNone - 2u),
               json_.path_of(token));
  return full;
}

MeshId JsonTypeReader::mesh_named(llvm::StringRef name) {
  for (; meshes_entered_ < program_.meshes.size(); ++meshes_entered_) {
    MeshId id{static_cast<uint16_t>(meshes_entered_)};
    meshes_.try_emplace(program_.meshes[id].name.index, id);
  }
  auto at = meshes_.find(builder_.string(name).index);
  return at == meshes_.end() ? MeshId() : at->second;
}

MeshId JsonTypeReader::mesh_ref() {
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
              fmt::format("no mesh is named `{}`{}", cut(*text), nearest_suffix(*text, known)));
  return {};
}

// `rank`: the number of dimensions where no shape is stated here.
Claim JsonTypeReader::claim_of(const JsonMembers &members, MeshId mesh,
                               std::optional<unsigned> rank) {
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

ClaimId JsonTypeReader::claim(MeshId mesh, std::optional<unsigned> rank) {
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
MeshId JsonTypeReader::stated_mesh(const JsonMembers &members, MeshId mesh) {
  MeshId stated = members.at(MeshKey) ? mesh_ref() : MeshId();
  return stated.valid() ? stated : mesh;
}

std::optional<WrittenKind> JsonTypeReader::kind() {
  Token token = json_.at();
  std::optional<llvm::StringRef> text = json_.string();
  if (!text)
    return std::nullopt;
  if (std::optional<WrittenKind> word = parse_kind(*text))
    return word;
  llvm::SmallVector<llvm::StringRef, 8> known = {"R|I", "S(0)"};
  for (const KindInfo &row : kKinds)
    known.push_back(row.word);
  json_.error(
      token, "trace-type",
      fmt::format("`{}` is no kind{}", text->take_front(60).str(), nearest_suffix(*text, known)));
  return std::nullopt;
}

// `tp`, or `dense.dp` of another mesh.
AxisRef JsonTypeReader::axis_ref(llvm::StringRef text) {
  auto [mesh, axis] = text.split('.');
  if (mesh.size() == text.size())
    return {{}, builder_.string(text)};
  return {builder_.string(mesh), builder_.string(axis)};
}

// An axis or a list of axes, outermost first.
void JsonTypeReader::axis_refs(llvm::SmallVectorImpl<AxisRef> &refs) {
  auto one = [&] {
    Token token = json_.at();
    std::optional<llvm::StringRef> text = json_.string();
    if (!text)
      return;
    auto [mesh, axis] = text->split('.');
    bool qualified = mesh.size() != text->size();
    if (is_identifier(mesh) && (!qualified || is_identifier(axis)))
      refs.push_back(axis_ref(*text));
    else
      json_.error(token, "trace-key",
                  fmt::format("`{}` is no name of an axis", text->take_front(60).str()));
  };
  if (json_.peek() != '[')
    return json_.peek() == '"' ? one() : json_.mismatch("an axis or a list of axes");
  Token token = json_.at();
  json_.array([&](uint32_t) { one(); });
  if (refs.empty() && !json_.failed())
    json_.error(token, "trace-type", "a list of axes is empty");
}

// Axes of a declaration, which must be those of its mesh.
AxisRefsId JsonTypeReader::declared_axes(MeshId mesh) {
  Token token = json_.at();
  AxisRefs refs;
  axis_refs(refs.refs);
  for (AxisRef ref : refs.refs)
    if (std::string wrong; !find_axis(program_, mesh, ref, wrong))
      json_.error(token, "trace-type", std::move(wrong));
  return program_.axis_refs.add(std::move(refs));
}

} // namespace spmd::ir
