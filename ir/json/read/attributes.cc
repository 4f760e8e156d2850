// Attributes of the JSON format: known keys in their typed form, everything else as it stands.
#include "ir/json/read/attributes.h"

#include "ir/support/strings.h"
#include "ir/text/lexer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/SaveAndRestore.h"

#include <cmath>
#include <fmt/format.h>

namespace spmd::ir {

namespace {

constexpr std::array<std::string_view, 3> kNonFinite = {"inf", "-inf", "nan"};

} // namespace

void JsonAttributeReader::check_functions() {
  llvm::SmallVector<llvm::StringRef, 8> known;
  for (size_t i = 0; i < program_.functions.size(); ++i)
    if (FunctionId id{static_cast<uint32_t>(i)}; builder_.is_defined(id))
      known.push_back(program_.strings[program_.functions[id].name]);
  for (auto [function, token] : region_uses_) {
    if (builder_.is_defined(function))
      continue;
    llvm::StringRef name = program_.strings[program_.functions[function].name];
    json_.error(token, "trace-reference",
                fmt::format("no function is named `{}`{}", name.take_front(60).str(),
                            nearest_suffix(name, known)));
  }
}

AttrsId JsonAttributeReader::attrs(llvm::StringRef raw, const JsonOpShape &op) {
  RawCache::Key key{raw};
  std::optional<unsigned> rank = op.rank_in(0);
  key.salt = uint64_t(op.mesh.index) << 16 | uint64_t(rank ? *rank : 0xFF) << 1 | op.states_type;
  if (std::optional<uint32_t> found = attrs_cache_.find(key))
    return AttrsId{*found};
  size_t before = json_.errors().size();
  AttrDict dict = read_attrs(op);
  // Claims on operands depend on more than the key says.
  bool lists =
      llvm::any_of(dict.attrs, [&](const Attr &attr) { return attr.value.form == AttrForm::List; });
  AttrsId id = builder_.attrs(std::move(dict));
  if (json_.errors().size() == before && !(lists && key.a.contains("_types")))
    attrs_cache_.add(key, id.index);
  return id;
}

// Some ops state a whole type in their attributes; the members of that claim become the one
// attribute `type`.
AttrDict JsonAttributeReader::read_attrs(const JsonOpShape &op) {
  AttrDict dict;
  Token start = json_.at();
  bool has_type = false;
  bool listed = json_.object([&](llvm::StringRef name) {
    bool whole = name == "type" || name == "spec";
    has_type |= whole;
    if (whole || (op.states_type && llvm::is_contained(kClaimKeys, std::string_view(name)) &&
                  name != "mesh"))
      json_.skip();
    else
      dict.attrs.push_back({builder_.string(name), attr_value(name, op)});
  });
  Token end = json_.at();
  if (!listed || json_.failed() || !(has_type || op.states_type))
    return dict;
  if (!op.states_type)
    llvm::erase_if(dict.attrs, [&](const Attr &attr) {
      llvm::StringRef key = program_.strings[attr.key];
      return key != "mesh" && llvm::is_contained(kClaimKeys, std::string_view(key));
    });
  json_.seek(start);
  if (std::optional<AttrValue> claim = whole_type(op.mesh, op.rank_in(0)))
    dict.attrs.push_back({builder_.string("type"), *claim});
  json_.seek(end);
  return dict;
}

// None if nothing of a type is stated.
std::optional<AttrValue> JsonAttributeReader::whole_type(MeshId mesh,
                                                         std::optional<unsigned> rank) {
  JsonObject<ClaimKeyCount> members(json_, kClaimKeys, [&](llvm::StringRef) { json_.skip(); });
  bool stated = false;
  for (unsigned key : {DTypeKey, ShapeKey, GlobalShapeKey, TypeKey, SpecKey, ScaleKey})
    stated |= members.has(key);
  if (!stated)
    return std::nullopt;
  mesh = types_.stated_mesh(members, mesh);
  if (members.at(TypeKey) && is_nested_claim()) {
    members.at(TypeKey);
    return AttrValue::claim(types_.claim(mesh, rank));
  }
  return AttrValue::claim(program_.claims.add(types_.claim_of(members, mesh, rank)));
}

// True for an object with a claim inside, where a type would map axes to kinds: the claim names a
// mesh.
bool JsonAttributeReader::is_nested_claim() {
  bool nested = false;
  if (json_.peek() == '{')
    json_.object([&](llvm::StringRef) {
      nested |= json_.peek() == '{';
      json_.skip();
    });
  return nested;
}

AttrValue JsonAttributeReader::attr_value(llvm::StringRef name, const JsonOpShape &op) {
  std::optional<unsigned> known = known_key(name);
  if (!known)
    return plain_value();
  switch (kKnownKeys[*known].form) {
  case KeyForm::Axes:
    return axes_value();
  case KeyForm::Kinds:
    return kinds_value();
  case KeyForm::ClaimList:
    return claim_list(op, name == "out_types");
  case KeyForm::Word: {
    StringId word = text();
    return word.valid() ? AttrValue::string(word) : AttrValue::null();
  }
  case KeyForm::Claim:
    return AttrValue::claim(types_.claim(op.mesh, op.rank_in(0)));
  case KeyForm::Scale: {
    ScaleId id = types_.scale();
    return id.valid() ? AttrValue::scale(id) : AttrValue::null();
  }
  case KeyForm::Type:
  case KeyForm::Plain:
    break;
  }
  return plain_value();
}

AttrValue JsonAttributeReader::kinds_value() {
  auto one = [&] {
    Token token = json_.at();
    std::optional<WrittenKind> word = types_.kind();
    if (word && (word->dim < -int{kMaxDims} || word->dim >= int{kMaxDims}))
      json_.error(token, "trace-type",
                  fmt::format("{} is beyond the limit of {} dimensions", print(*word), kMaxDims));
    return word ? AttrValue::kind(*word) : AttrValue::null();
  };
  if (json_.peek() != '[')
    return one();
  AttrList list;
  json_.array([&](uint32_t) { list.items.push_back(one()); });
  return AttrValue::list(program_.lists.add(std::move(list)));
}

// Whether the mesh has such axes is for the rules to say (`unknown-axis`).
AttrValue JsonAttributeReader::axes_value() {
  AxisRefs refs;
  types_.axis_refs(refs.refs);
  return AttrValue::axes(program_.axis_refs.add(std::move(refs)));
}

AttrValue JsonAttributeReader::claim_list(const JsonOpShape &op, bool results) {
  AttrList list;
  json_.array([&](uint32_t i) {
    bool none = json_.null();
    std::optional<unsigned> rank = results ? op.rank_out(i) : op.rank_in(i);
    list.items.push_back(
        AttrValue::claim(none ? program_.claims.add({}) : types_.claim(op.mesh, rank)));
  });
  return AttrValue::list(program_.lists.add(std::move(list)));
}

AttrValue JsonAttributeReader::plain_value() {
  switch (json_.peek()) {
  case '{':
    return plain_object();
  case 'n':
    return json_.null(), AttrValue::null();
  case 't':
  case 'f':
    return AttrValue::boolean(json_.boolean().value_or(false));
  case '"': {
    StringId string = text();
    return string.valid() ? AttrValue::string(string) : AttrValue::null();
  }
  case '[': {
    AttrList list;
    llvm::SaveAndRestore<unsigned> nested(in_.values, in_.values + 1);
    if (!is_too_deep())
      json_.array([&](uint32_t) { list.items.push_back(plain_value()); });
    return AttrValue::list(program_.lists.add(std::move(list)));
  }
  default: {
    JsonCursor::Number number = json_.number().value_or(JsonCursor::Number{.whole = true});
    return number.whole ? AttrValue::integer(number.integer) : AttrValue::number(number.real);
  }
  }
}

// A dictionary, except that {"sym": ..} is an expression and {"num": ..} a number that is not
// finite.
AttrValue JsonAttributeReader::plain_object() {
  if (std::optional<AttrValue> special = wrapped(false))
    return *special;
  AttrDict dict;
  llvm::SaveAndRestore<unsigned> nested(in_.values, in_.values + 1);
  if (!is_too_deep())
    json_.object([&](llvm::StringRef name) {
      dict.attrs.push_back({builder_.string(name), plain_value()});
    });
  return AttrValue::dict(builder_.attrs(std::move(dict)));
}

// A literal that JSON has no form for, wrapped in an object of one member; none, and the cursor
// unmoved, if the object is another one. `strings`: whether {"str": ..} is one of them.
std::optional<AttrValue> JsonAttributeReader::wrapped(bool strings) {
  Token start = json_.at();
  std::optional<AttrValue> value;
  unsigned count = 0;
  Token end = start;
  {
    static constexpr std::array<std::string_view, 3> kKeys = {"str", "sym", "num"};
    JsonObject<3> members(json_, kKeys, [&](llvm::StringRef) {
      ++count;
      json_.skip();
    });
    end = json_.at();
    for (unsigned i = 0; i < 3; ++i)
      count += members.has(i);
    if (count == 1 && (strings || !members.has(0)))
      value = wrapped_value(members);
  }
  json_.seek(value ? end : start);
  return value;
}

std::optional<AttrValue> JsonAttributeReader::wrapped_value(const JsonMembers &members) {
  if (members.at(0)) {
    StringId string = text();
    return string.valid() ? AttrValue::string(string) : AttrValue::null();
  }
  if (members.at(1)) {
    if (json_.peek() != '"')
      return std::nullopt;
    std::optional<Extent> found = types_.extent("trace-shape");
    if (!found)
      return AttrValue::null();
    return found->is_number() ? AttrValue::integer(found->number())
                              : AttrValue::expr(found->expr());
  }
  unsigned which = 0;
  if (!members.at(2) || json_.peek() != '"' || !word(kNonFinite, "number", which))
    return std::nullopt;
  return AttrValue::number(which == 2 ? NAN : which == 1 ? -INFINITY : INFINITY);
}

void JsonAttributeReader::regions(AttrDict &dict) {
  json_.object([&](llvm::StringRef role) {
    Token token = json_.at();
    std::optional<llvm::StringRef> name = json_.string();
    if (!name)
      return;
    StringId key = builder_.string(role);
    if (!ir::starts_with(*name, "@") || name->size() == 1)
      json_.error(token, "trace-key",
                  fmt::format("`{}` is no name of a function, which is `@` and a word",
                              name->take_front(60).str()));
    else if (llvm::any_of(dict.attrs, [&](const Attr &attr) { return attr.key == key; }))
      json_.error(token, "trace-key", fmt::format("`{}` is an attribute too", role.str()));
    else {
      FunctionId function = builder_.function(*name);
      region_uses_.push_back({function, token});
      dict.attrs.push_back({key, AttrValue::function(function)});
    }
  });
}

} // namespace spmd::ir
