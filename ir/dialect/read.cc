// What the printers of dialect.cc print, read back.
#include "ir/dialect/dialect.h"
#include "ir/support/error.h"
#include "ir/support/strings.h"

#include "ir/claims.h"
#include "ir/mesh/axis_scale.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

namespace spmd::ir {
namespace {

using llvm::StringRef;

// One placement: a word, and what stands between its parentheses.
struct Placement {
  StringRef name;
  llvm::SmallVector<StringRef, 2> arguments;

  // `0` or `dim=0`
  std::optional<int64_t> number(size_t place, StringRef key) const {
    int64_t number = 0;
    for (size_t i = 0; i < arguments.size(); ++i) {
      auto [name, value] = arguments[i].split('=');
      bool named = name.size() != arguments[i].size();
      if (named ? name.trim() == key : i == place)
        return (named ? value : name).trim().getAsInteger(10, number) ? std::nullopt
                                                                      : std::optional(number);
    }
    return std::nullopt;
  }
};

// Commas that stand in no parentheses and braces part.
llvm::SmallVector<StringRef, 4> parts_of(StringRef list) {
  llvm::SmallVector<StringRef, 4> parts;
  size_t depth = 0, first = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && depth == 0)) {
      parts.push_back(list.slice(first, i).trim());
      first = i + 1;
    } else if (list[i] == '(' || list[i] == '{' || list[i] == '[') {
      ++depth;
    } else if ((list[i] == ')' || list[i] == '}' || list[i] == ']') && depth) {
      --depth;
    }
  }
  if (parts.size() == 1 && parts.front().empty())
    parts.clear();
  return parts;
}

std::optional<StringRef> between(StringRef text, StringRef open, StringRef close) {
  text = text.trim();
  if (!text.consume_front(open) || !text.consume_back(close))
    return std::nullopt;
  return text.trim();
}

llvm::Expected<AxisId> axis_named(const Program &program, const Mesh &mesh, StringRef name) {
  for (AxisId axis : mesh.typed_axes())
    if (program.strings[mesh[axis].name] == name)
      return axis;
  return make_error(fmt::format("the mesh has no axis `{}`", name.str()));
}

// `[V@tp]`: one axis in our words, which others lack.
llvm::Error read_own(const Program &program, const Mesh &mesh, StringRef text, Type &type) {
  std::optional<StringRef> inside = between(text, "[", "]");
  auto [kind, name] = inside.value_or(text).rsplit('@');
  std::optional<WrittenKind> word = parse_kind(kind.trim());
  if (!inside || !word || word->form == WrittenKind::Form::Shard)
    return make_error(fmt::format("`{}` is no kind of ours such as [V@tp]", text.str()));
  llvm::Expected<AxisId> axis = axis_named(program, mesh, name.trim());
  if (!axis)
    return axis.takeError();
  if (word->form == WrittenKind::Form::Either)
    return type.set_either(*axis), llvm::Error::success();
  if (word->form == WrittenKind::Form::Unknown)
    return type.set_unknown(*axis), llvm::Error::success();
  type.set_kind(*axis, word->kind);
  if (word->kind == Kind::Partial)
    type.set_combiner(*axis, word->combiner);
  return llvm::Error::success();
}

class PlacementReader {
public:
  PlacementReader(Program &program, MeshId mesh) : program_(program), mesh_(program.meshes[mesh]) {
    type_.set_mesh(mesh);
  }

  llvm::Expected<Type> read(StringRef text) {
    std::optional<StringRef> list = between(text, "[", "]");
    if (!list)
      list = between(text, "(", ")");
    if (!list)
      return make_error(fmt::format("`{}` is no list of placements", text.str()));
    llvm::SmallVector<StringRef, 4> placements = parts_of(*list);
    if (!placements.empty() && placements.back().empty())
      placements.pop_back(); // `(Shard(0),)`
    llvm::SmallVector<AxisId, 8> axes;
    for (AxisId axis : mesh_.typed_axes())
      axes.push_back(axis);
    if (axes.size() != placements.size())
      return make_error(
          fmt::format("{} placements for the {} axes of the mesh", placements.size(), axes.size()));
    // Factors speak of axes further back, so these come first.
    for (size_t i = axes.size(); i-- > 0;)
      if (llvm::Error error = read_one(axes[i], placements[i]))
        return llvm::Expected<Type>(std::move(error));
    for (const auto &[dim, order] : orders_)
      for (unsigned place = 0; place < order.size(); ++place)
        type_.set_shard(order[place], dim, place);
    return type_;
  }

private:
  llvm::Error read_one(AxisId axis, StringRef text) {
    if (ir::starts_with(text, "["))
      return read_own(program_, mesh_, text, type_);
    Placement placement;
    size_t open = text.find('(');
    placement.name = text.take_front(open).trim();
    if (open == StringRef::npos || !text.consume_back(")"))
      return make_error(fmt::format("`{}` is no placement", text.str()));
    placement.arguments = parts_of(text.drop_front(open + 1));
    if (placement.name == "Shard" || placement.name == "_StridedShard")
      return shard(axis, placement);
    if (placement.name == "Replicate")
      return replicate(axis, placement);
    if (placement.name == "Reduced" && placement.arguments.empty())
      return type_.set_kind(axis, Kind::Reduced), llvm::Error::success();
    if (placement.name == "Partial")
      return partial(axis, placement);
    return make_error(fmt::format(
        "`{}` is none of Shard, _StridedShard, Replicate, Reduced, Partial", placement.name.str()));
  }

  llvm::Error replicate(AxisId axis, const Placement &placement) {
    bool pending = placement.arguments.size() == 1 && placement.arguments[0] == "grad=Partial";
    if (!pending && !placement.arguments.empty())
      return make_error(
          fmt::format("`Replicate` does not take `{}`", placement.arguments[0].str()));
    type_.set_kind(axis, pending ? Kind::Replicate : Kind::Invariant);
    return llvm::Error::success();
  }

  llvm::Error partial(AxisId axis, const Placement &placement) {
    StringRef word = placement.arguments.empty() ? StringRef("sum") : placement.arguments[0];
    word = word.trim("'\"");
    if (word == "avg") { // addends of as many means as there are ranks
      type_.set_kind(axis, Kind::Partial);
      Scale size{.factors = {{mesh_[axis].name, 1}}};
      type_.scale = product(program_, type_.scale, program_.scales.add(std::move(size)));
      return llvm::Error::success();
    }
    if (word == "product")
      word = "prod";
    for (Combiner combiner : {Combiner::Sum, Combiner::Max, Combiner::Min, Combiner::Prod})
      if (word == StringRef(ir::word(combiner).data(), ir::word(combiner).size())) {
        type_.set_kind(axis, Kind::Partial);
        type_.set_combiner(axis, combiner);
        return llvm::Error::success();
      }
    return make_error(fmt::format("`{}` is no reduction of `Partial`", word.str()));
  }

  // The factor of a strided shard: the sizes of the axes further back in the mesh that stand
  // outside of it.
  llvm::Error shard(AxisId axis, const Placement &placement) {
    std::optional<int64_t> dim = placement.number(0, "dim");
    if (!dim || *dim < 0 || *dim >= int64_t(kMaxDims))
      return make_error(fmt::format("`{}` names no dimension", placement.name.str()));
    int64_t factor = 1;
    if (placement.name == "_StridedShard") {
      std::optional<int64_t> stated = placement.number(1, "split_factor");
      if (!stated)
        stated = placement.number(2, "sf");
      if (!stated)
        return make_error("`_StridedShard` lacks its split_factor");
      factor = *stated;
    }
    auto at = llvm::find_if(orders_, [&](const auto &each) { return each.first == *dim; });
    if (at == orders_.end())
      at = orders_.insert(orders_.end(), {static_cast<unsigned>(*dim), {}});
    int64_t outside = 1;
    size_t place = 0;
    for (; place < at->second.size() && outside != factor; ++place)
      outside *= mesh_[at->second[place]].size();
    if (outside != factor)
      return make_error(
          fmt::format("strided-shard: no axes outside of {} on dimension {} have {} ranks",
                      program_.strings[mesh_[axis].name].str(), *dim, factor));
    at->second.insert(at->second.begin() + place, axis);
    return llvm::Error::success();
  }

  Program &program_;
  const Mesh &mesh_;
  Type type_;
  // Per dimension: the axes that shard it, outermost first.
  llvm::SmallVector<std::pair<unsigned, llvm::SmallVector<AxisId, 4>>, 4> orders_;
};

// `{V:dp, R:tp}`; axes in no set are invariant.
llvm::Expected<Type> read_sets(const Program &program, MeshId id, StringRef text) {
  const Mesh &mesh = program.meshes[id];
  Type type;
  type.set_mesh(id);
  type.set_kind(mesh.typed_axes(), Kind::Invariant);
  std::optional<StringRef> list = between(text, "{", "}");
  if (!list)
    return make_error(fmt::format("`{}` is no set of axes such as {{V:dp, R:tp}}", text.str()));
  for (StringRef part : parts_of(*list)) {
    if (ir::starts_with(part, "[")) {
      if (llvm::Error error = read_own(program, mesh, part, type))
        return llvm::Expected<Type>(std::move(error));
      continue;
    }
    auto [set, name] = part.split(':');
    llvm::Expected<AxisId> axis = axis_named(program, mesh, name.trim());
    if (!axis)
      return axis.takeError();
    Combiner combiner = Combiner::Sum;
    if (set.consume_front("U_")) {
      std::optional<Combiner> found;
      for (Combiner each : {Combiner::Max, Combiner::Min, Combiner::Prod})
        if (set == StringRef(word(each).data(), word(each).size()))
          found = each;
      if (!found)
        return make_error(fmt::format("`{}` is no reduction", set.str()));
      combiner = *found, set = "U";
    }
    if (set != "V" && set != "R" && set != "U")
      return make_error(fmt::format("`{}` is none of V, R, U", set.str()));
    type.set_kind(*axis, set == "V" ? Kind::Varying : set == "R" ? Kind::Replicate : Kind::Partial);
    if (set == "U")
      type.set_combiner(*axis, combiner);
  }
  return type;
}

// `variant={dp} reduced={tp}`; axes in neither are invariant.
llvm::Expected<Type> read_two_sets(const Program &program, MeshId id, StringRef text) {
  const Mesh &mesh = program.meshes[id];
  Type type;
  type.set_mesh(id);
  type.set_kind(mesh.typed_axes(), Kind::Invariant);
  auto [variant, rest] = text.trim().split(' ');
  auto [reduced, own] = rest.split(' ');
  auto add = [&](StringRef set, StringRef open, Kind kind) -> llvm::Error {
    std::optional<StringRef> names = between(set, open, "}");
    if (!names)
      return make_error(
          fmt::format("`{}` is not of the form variant={{dp}} reduced={{tp}}", text.str()));
    for (StringRef name : parts_of(*names)) {
      llvm::Expected<AxisId> axis = axis_named(program, mesh, name);
      if (!axis)
        return axis.takeError();
      if (type.kind(*axis) != Kind::Invariant)
        return make_error(fmt::format("`{}` is in both sets", name.str()));
      type.set_kind(*axis, kind);
    }
    return llvm::Error::success();
  };
  if (llvm::Error error = add(variant, "variant={", Kind::Varying))
    return llvm::Expected<Type>(std::move(error));
  if (llvm::Error error = add(reduced, "reduced={", Kind::Replicate))
    return llvm::Expected<Type>(std::move(error));
  for (own = own.trim(); !own.empty(); own = own.trim()) {
    auto [item, more] = own.split(' ');
    own = more;
    if (llvm::Error error = read_own(program, mesh, item, type))
      return llvm::Expected<Type>(std::move(error));
  }
  return type;
}

} // namespace

llvm::Expected<Type> read_words(Program &program, MeshId mesh, StringRef text, Dialect dialect) {
  switch (dialect) {
  case Dialect::Jax:
    return read_sets(program, mesh, text);
  case Dialect::DTensor:
    return PlacementReader(program, mesh).read(text);
  case Dialect::LTensor:
    return read_two_sets(program, mesh, text);
  case Dialect::Spmd:
    break;
  }
  return make_error("types in our own words are read with their extents, as part of a program");
}

} // namespace spmd::ir
