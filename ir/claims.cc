// Assembles types from claims. Everything that makes a claim malformed is found here, so that both
// readers refuse the same programs with the same words.
#include "ir/claims.h"

#include <fmt/core.h>

namespace spmd::ir {

std::string nearest_suffix(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> known) {
  unsigned limit = std::max<unsigned>(1, static_cast<unsigned>(name.size()) / 2);
  llvm::StringRef best;
  if (name.size() > 256)
    return "";
  for (llvm::StringRef candidate : known) {
    unsigned distance = name.edit_distance(candidate, true, limit);
    if (distance > limit || (distance == limit && !best.empty()))
      continue;
    best = candidate;
    limit = distance;
  }
  return best.empty() ? "" : fmt::format(", nearest is `{}`", std::string_view(best));
}

MeshId find_mesh(const Program &program, llvm::StringRef name) {
  for (unsigned i = 0; i < program.meshes.size(); ++i) {
    MeshId id{static_cast<uint16_t>(i)};
    if (program.strings[program.meshes[id].name] == name)
      return id;
  }
  return {};
}

MeshId mesh_of(const Program &program, ValueId id, MeshId around) {
  const Value &value = program.values[id];
  if (value.mesh.valid())
    return value.mesh;
  return value.declared.valid() ? program.types[value.declared].mesh() : around;
}

static std::string unknown_mesh(const Program &program, llvm::StringRef name) {
  llvm::SmallVector<llvm::StringRef, 8> known;
  for (const Mesh &mesh : program.meshes)
    known.push_back(program.strings[mesh.name]);
  return fmt::format("no mesh is named `{}`{}", std::string_view(name),
                     nearest_suffix(name, known));
}

std::optional<FoundAxis> find_axis(const Program &program, MeshId mesh, AxisRef ref,
                                   std::string &error) {
  if (ref.mesh.valid()) {
    mesh = find_mesh(program, program.strings[ref.mesh]);
    if (!mesh.valid()) {
      error = unknown_mesh(program, program.strings[ref.mesh]);
      return std::nullopt;
    }
  }
  const Mesh &grid = program.meshes[mesh];
  if (std::optional<AxisId> found = grid.find(ref.axis))
    return FoundAxis{mesh, *found};
  llvm::SmallVector<llvm::StringRef, 8> known;
  for (const Axis &axis : grid.axes)
    known.push_back(program.strings[axis.name]);
  llvm::StringRef name = program.strings[ref.axis];
  error = fmt::format("mesh `{}` has no axis `{}`{}", std::string_view(program.strings[grid.name]),
                      std::string_view(name), nearest_suffix(name, known));
  return std::nullopt;
}

std::optional<AxisId> named_in(const Program &program, const Mesh &mesh, StringId base) {
  if (std::optional<AxisId> plain = mesh.find(base))
    return plain;
  auto [before, axis] = llvm::StringRef(program.strings[base]).split('.');
  if (axis.empty() || before != program.strings[mesh.name])
    return std::nullopt;
  for (uint8_t a = 0; a < mesh.axes.size(); ++a)
    if (program.strings[mesh.axes[a].name] == axis)
      return AxisId{a};
  return std::nullopt;
}

std::string check_scale(const Program &program, const Scale &scale) {
  for (const ScaleFactor &factor : scale.factors) {
    bool known =
        program.symbols.find(factor.base) || llvm::any_of(program.meshes, [&](const Mesh &mesh) {
          return named_in(program, mesh, factor.base).has_value();
        });
    if (!known)
      return fmt::format("`{}` in a scale is neither an axis nor a symbol",
                         std::string_view(program.strings[factor.base]));
  }
  return "";
}

bool ClaimBuilder::fail(std::string message) {
  if (error_.empty())
    error_ = std::move(message);
  return false;
}

std::string ClaimBuilder::axis_name(AxisId axis) const {
  return program_.strings[program_.meshes[mesh_][axis].name].str();
}

bool ClaimBuilder::resolve(llvm::ArrayRef<AxisRef> refs, llvm::SmallVectorImpl<AxisId> &axes) {
  const Mesh &mesh = program_.meshes[mesh_];
  for (AxisRef ref : refs) {
    std::string error;
    std::optional<FoundAxis> found = find_axis(program_, mesh_, ref, error);
    if (!found)
      return fail(std::move(error));
    if (found->mesh != mesh_)
      return fail(fmt::format("axis `{}.{}` is claimed for a value on mesh `{}`",
                              std::string_view(program_.strings[ref.mesh]),
                              std::string_view(program_.strings[ref.axis]),
                              std::string_view(program_.strings[mesh.name])));
    const Axis &axis = mesh[found->axis];
    if (!axis.flattened)
      axes.push_back(found->axis);
    else
      axes.append(axis.pieces.begin(), axis.pieces.end());
  }
  return true;
}

bool ClaimBuilder::claim(WrittenKind word, llvm::ArrayRef<AxisRef> refs) {
  if (refs.empty()) {
    if (all_)
      return fail("the axes not otherwise stated are claimed twice");
    all_ = word;
    return true;
  }
  llvm::SmallVector<AxisId, 4> axes;
  if (!resolve(refs, axes))
    return false;
  for (AxisId axis : axes) {
    if (claimed_.contains(axis))
      return fail(fmt::format("axis `{}` is claimed twice", axis_name(axis)));
    claimed_ |= axis;
    if (word.form != WrittenKind::Form::Shard)
      entries_.push_back({axis, word});
  }
  if (word.form == WrittenKind::Form::Shard)
    shards_.push_back({word.dim, false, {axes.begin(), axes.end()}});
  return true;
}

bool ClaimBuilder::shard(unsigned dim, llvm::ArrayRef<AxisRef> refs) {
  llvm::SmallVector<AxisId, 2> axes;
  if (!resolve(refs, axes))
    return false;
  for (AxisId axis : axes) {
    if (sharded_.contains(axis))
      return fail(fmt::format("axis `{}` shards two dimensions", axis_name(axis)));
    sharded_ |= axis;
  }
  shards_.push_back({static_cast<int>(dim), true, std::move(axes)});
  return true;
}

bool ClaimBuilder::scale(ScaleId id) {
  const Scale &scale = program_.scales[id];
  if (std::string error = check_scale(program_, scale); !error.empty())
    return fail(std::move(error));
  std::optional<Scale> product = multiply(scale_, scale, program_.strings);
  if (!product)
    return fail("the numbers in the scale leave 64 bits");
  scale_ = std::move(*product);
  return true;
}

void ClaimBuilder::place(Type &type, AxisId axis, WrittenKind word) {
  if (word.form == WrittenKind::Form::Unknown)
    return type.set_unknown(axis);
  if (word.form == WrittenKind::Form::Either)
    return type.set_either(axis);
  type.set_kind(axis, word.kind);
  if (word.kind != Kind::Partial)
    return;
  if (word.combiner != Combiner::Avg)
    return type.set_combiner(axis, word.combiner);
  Scale size{.factors = {{program_.meshes[mesh_][axis].name, 1}}};
  if (std::optional<Scale> product = multiply(scale_, size, program_.strings))
    scale_ = std::move(*product);
}

bool ClaimBuilder::place_kinds(Type &type) {
  AxisSet typed = program_.meshes[mesh_].typed_axes();
  for (const Entry &entry : entries_) {
    bool varying = entry.word.form == WrittenKind::Form::Plain && entry.word.kind == Kind::Varying;
    if (sharded_.contains(entry.axis) && !varying)
      return fail(fmt::format("axis `{}` shards a dimension and is claimed {}, not V",
                              axis_name(entry.axis), print(entry.word)));
    if (typed.contains(entry.axis))
      place(type, entry.axis, entry.word);
  }
  return true;
}

// What `*` claims, on every axis that nothing else speaks of.
bool ClaimBuilder::place_rest(Type &type) {
  if (!all_)
    return true;
  AxisSet rest = program_.meshes[mesh_].typed_axes() - claimed_ - sharded_;
  if (all_->form != WrittenKind::Form::Shard) {
    for (AxisId axis : rest)
      place(type, axis, *all_);
    return true;
  }
  if (rest.size() > 1)
    return fail(fmt::format("{} is claimed for {} axes at once, so that their order is unknown",
                            print(*all_), rest.size()));
  if (rest)
    shards_.push_back({all_->dim, false, {rest.first()}});
  return true;
}

std::optional<unsigned> ClaimBuilder::dimension(int dim, std::optional<unsigned> rank) {
  if (dim < 0 && !rank) {
    fail(fmt::format(
        "S({}) counts from the end of a value whose number of dimensions is not stated", dim));
    return std::nullopt;
  }
  int found = dim < 0 ? dim + static_cast<int>(*rank) : dim;
  if (found < 0 || found >= static_cast<int>(rank.value_or(kMaxDims))) {
    fail(rank ? fmt::format("S({}) is claimed for a value with {} dimension{}", dim, *rank,
                            *rank == 1 ? "" : "s")
              : fmt::format("S({}) is beyond the limit of {} dimensions", dim, kMaxDims));
    return std::nullopt;
  }
  return static_cast<unsigned>(found);
}

bool ClaimBuilder::place_shard(Type &type, const Shards &shards, unsigned dim) {
  AxisSet typed = program_.meshes[mesh_].typed_axes();
  unsigned order = 0;
  for (AxisId axis : typed)
    order += type.dim(axis) == dim;
  for (AxisId axis : shards.axes)
    if (typed.contains(axis))
      type.set_shard(axis, dim, order++);
  return true;
}

bool ClaimBuilder::place_shards(Type &type, std::optional<unsigned> rank) {
  std::array<const Shards *, kMaxDims> seen{};
  for (const Shards &shards : shards_) {
    std::optional<unsigned> dim = dimension(shards.dim, rank);
    if (!dim)
      return false;
    AxisSet typed;
    for (AxisId axis : shards.axes)
      typed |= axis;
    typed &= program_.meshes[mesh_].typed_axes();
    if (!typed)
      continue;
    const Shards *first = std::exchange(seen[*dim], &shards);
    if (first && (!ordered_ || first->spec || shards.spec))
      return fail(
          fmt::format("axes `{}` and `{}` both shard dimension {}, and their order is unknown",
                      axis_name(first->axes.front()), axis_name(shards.axes.front()), *dim));
    if (!place_shard(type, shards, *dim))
      return false;
  }
  return true;
}

// What a whole spec asks for beyond what each entry does.
bool ClaimBuilder::check_spec(std::optional<unsigned> rank) {
  if (AxisSet both = sharded_ & claimed_; both && !spec_length_) {
    for (const Shards &shards : shards_)
      for (AxisId axis : shards.axes)
        if (!shards.spec && both.contains(axis))
          return fail(fmt::format("axis `{}` is claimed twice", axis_name(axis)));
  }
  if (!spec_length_)
    return true;
  if (rank && *rank != *spec_length_)
    return fail(fmt::format("the spec has {} entries for {} dimensions", *spec_length_, *rank));
  for (const Shards &shards : shards_)
    if (!shards.spec)
      return fail(fmt::format("S({}) stands beside a spec", shards.dim));
  bool varying = all_ && all_->form == WrittenKind::Form::Plain && all_->kind == Kind::Varying;
  if (AxisSet unstated = sharded_ - claimed_; unstated && !varying)
    return fail(fmt::format("axis `{}` stands in the spec and is not claimed V",
                            axis_name(unstated.first())));
  return true;
}

ClaimBuilder::Result ClaimBuilder::finish(std::optional<unsigned> rank) {
  Type type;
  type.set_mesh(mesh_);
  bool ok = error_.empty() && place_kinds(type) && place_rest(type) && check_spec(rank) &&
            place_shards(type, rank);
  if (!ok)
    return {{}, error_};
  if (program_.scales.size() >= ScaleId::kNone - 1u)
    return {{}, "there are too many scales"};
  type.scale = program_.scales.add(scale_);
  if (!states_something(program_, type))
    return {};
  return {program_.types.add(type), ""};
}

std::optional<WrittenKind> kind_word(const Type &type, AxisId axis) {
  if (type.unknown.contains(axis))
    return WrittenKind{.form = WrittenKind::Form::Unknown, .kind = Kind::Replicate};
  if (type.either().contains(axis))
    return WrittenKind{.form = WrittenKind::Form::Either, .kind = Kind::Replicate};
  std::optional<Kind> kind = type.kind(axis);
  if (!kind)
    return std::nullopt;
  WrittenKind word{.form = WrittenKind::Form::Plain, .kind = *kind};
  if (*kind == Kind::Partial)
    word.combiner = type.combiner(axis);
  return word;
}

llvm::SmallVector<AxisId, 2> shards_of(const Type &type, unsigned dim) {
  llvm::SmallVector<AxisId, 2> axes;
  for (AxisId axis : type.of(Kind::Varying))
    if (type.dim(axis) == dim)
      axes.push_back(axis);
  llvm::sort(axes, [&](AxisId a, AxisId b) { return type.order(a) < type.order(b); });
  return axes;
}

bool states_something(const Program &program, const Type &type) {
  return !type.claimed().empty() || (type.scale.valid() && type.scale != program.one());
}

std::string contradiction(const SymbolInfo &symbol) {
  if (!symbol.min || !symbol.max)
    return "";
  if (*symbol.min > *symbol.max)
    return fmt::format("min {} above max {}", *symbol.min, *symbol.max);
  int64_t step = symbol.multiple_of.value_or(1), rest = *symbol.max % step;
  int64_t last = *symbol.max - (rest < 0 ? rest + step : rest);
  return last >= *symbol.min
             ? ""
             : fmt::format("no multiple of {} from {} to {}", step, *symbol.min, *symbol.max);
}

} // namespace spmd::ir
