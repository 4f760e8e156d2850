// Cuts the axes of all meshes into common pieces and names these. Relies on meshes being finished.
#include "ir/mesh/axis_scale.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <map>

namespace spmd::ir {
namespace {

// Ranks `stride` apart, `size` of them: a digit that no axis of any mesh divides further.
struct Piece {
  int64_t stride, size;
  friend auto operator<=>(const Piece &, const Piece &) = default;
};

class Pieces {
public:
  explicit Pieces(Program &program) : program_(program) {
    for (const Mesh &mesh : program.meshes)
      for (const Axis &axis : mesh.axes)
        for (const Atom &atom : axis.layout) {
          cuts_.push_back(atom.stride);
          int64_t end = 0;
          if (!__builtin_mul_overflow(atom.stride, atom.size, &end))
            cuts_.push_back(end);
        }
    llvm::sort(cuts_);
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
    name_pieces();
  }

  Scale size_of(const Axis &axis) {
    Scale size;
    for (const Atom &atom : axis.layout)
      for (Piece piece : cut(atom))
        if (std::optional<Scale> more = multiply(size, {.factors = {{name(piece), 1}}}, strings()))
          size = std::move(*more);
    return size;
  }

private:
  StringTable &strings() { return program_.strings; }

  // Where another mesh's boundary divides the digit evenly, it is cut there.
  llvm::SmallVector<Piece, 4> cut(const Atom &atom) const {
    llvm::SmallVector<Piece, 4> pieces;
    if (atom.size <= 1)
      return pieces;
    int64_t at = atom.stride, end = 0;
    if (at <= 0 || __builtin_mul_overflow(atom.stride, atom.size, &end))
      return {{atom.stride, atom.size}};
    for (auto next = llvm::upper_bound(cuts_, at); next != cuts_.end() && *next < end; ++next) {
      if (*next % at != 0 || end % *next != 0)
        continue;
      pieces.push_back({at, *next / at});
      at = *next;
    }
    pieces.push_back({at, end / at});
    return pieces;
  }

  // A piece has the name of the axis that it is, of the last mesh that has one.
  void name_pieces() {
    for (const Mesh &mesh : llvm::reverse(program_.meshes.all()))
      for (const Axis &axis : mesh.axes) {
        Layout whole = canonical(axis.layout);
        if (whole.size() != 1 || axis.flattened)
          continue;
        llvm::SmallVector<Piece, 4> pieces = cut(whole.front());
        if (pieces.size() != 1 || names_.count(pieces.front()))
          continue;
        StringId name = axis.name;
        if (taken(name))
          name = strings().add(fmt::format("{}.{}", std::string_view(strings()[mesh.name]),
                                           std::string_view(strings()[axis.name])));
        names_[pieces.front()] = name;
      }
  }
  bool taken(StringId name) const {
    return llvm::any_of(names_, [&](const auto &entry) { return entry.second == name; }) ||
           program_.symbols.find(name);
  }
  // One that is no axis by itself goes by its layout, as in a mesh.
  StringId name(Piece piece) {
    auto [at, inserted] = names_.try_emplace(piece);
    if (inserted)
      at->second = strings().add(fmt::format("[{}:{}]", piece.size, piece.stride));
    return at->second;
  }

  Program &program_;
  std::vector<int64_t> cuts_; // in ranks, ascending
  std::map<Piece, StringId> names_;
};

void make_sizes(Program &program) {
  Pieces pieces(program);
  program.axis_scales.of.assign(program.meshes.size() * kMaxAxes, program.one());
  for (uint16_t m = 0; m < program.meshes.size(); ++m) {
    AxisSet local = program.local_axes(MeshId{m});
    const Mesh &mesh = program.meshes[MeshId{m}];
    for (uint8_t a = 0; a < mesh.axes.size(); ++a)
      if (!mesh.axes[a].flattened && !local.contains(AxisId{a}))
        program.axis_scales.of[m * kMaxAxes + a] = program.scales.add(pieces.size_of(mesh.axes[a]));
  }
}

// The scale of one base as written on a mesh: an axis of it, of another mesh, or a symbol.
ScaleId base_scale(Program &program, StringId name, MeshId mesh) {
  if (std::optional<AxisId> axis = program.meshes[mesh].find(name))
    return axis_scale(program, mesh, *axis);
  bool symbol = program.symbols.find(name);
  for (auto m = static_cast<uint16_t>(program.meshes.size()); !symbol && m-- > 0;) {
    if (std::optional<AxisId> axis = named_in(program, program.meshes[MeshId{m}], name))
      return axis_scale(program, MeshId{m}, *axis);
  }
  return program.scales.add({.factors = {{name, 1}}});
}

Scale only(ScaleFactor factor) { return {.factors = {factor}}; }

} // namespace

ScaleId axis_scale(Program &program, MeshId mesh, AxisId axis) {
  if (program.axis_scales.of.size() != program.meshes.size() * kMaxAxes)
    make_sizes(program);
  if (!program.meshes[mesh][axis].flattened)
    return program.axis_scales.of[mesh.index * kMaxAxes + axis.index];
  return axes_scale(program, mesh, program.meshes[mesh].pieces_of(axis));
}

ScaleId axes_scale(Program &program, MeshId mesh, AxisSet axes) {
  ScaleId size = program.one();
  for (AxisId axis : axes)
    size = product(program, size, axis_scale(program, mesh, axis));
  return size;
}

ScaleId canonical_scale(Program &program, ScaleId written, MeshId mesh) {
  if (!written.valid() || written == program.one())
    return written;
  const Scale scale = program.scales[written];
  ScaleId made = program.scales.add({scale.numerator, scale.denominator, {}});
  for (const ScaleFactor &factor : scale.factors) {
    ScaleId base = base_scale(program, factor.base, mesh);
    for (int32_t i = 0; i < std::abs(factor.exponent); ++i)
      made = factor.exponent > 0 ? product(program, made, base) : quotient(program, made, base);
  }
  return made;
}

Type canonical_scale(Program &program, Type written) {
  if (written.scale != program.one())
    written.scale = canonical_scale(program, written.scale, written.mesh());
  return written;
}

ScaleId product(Program &program, ScaleId a, ScaleId b) {
  if (!a.valid() || !b.valid() || a == program.one())
    return a.valid() ? b : a;
  if (b == program.one())
    return a;
  std::optional<Scale> made = multiply(program.scales[a], program.scales[b], program.strings);
  return made && program.scales.size() < ScaleId::kNone - 1u ? program.scales.add(*made)
                                                             : ScaleId();
}

ScaleId quotient(Program &program, ScaleId a, ScaleId b) {
  if (!a.valid() || !b.valid())
    return {};
  if (b == program.one())
    return a;
  if (a == b)
    return program.one();
  std::optional<Scale> inverted = inverse(program.scales[b]);
  if (!inverted || program.scales.size() >= ScaleId::kNone - 2u)
    return {};
  return product(program, a, program.scales.add(*inverted));
}

AxisSet axes_in(Program &program, ScaleId canonical, MeshId mesh) {
  AxisSet axes;
  if (!canonical.valid())
    return axes;
  const Scale scale = program.scales[canonical];
  for (AxisId axis : program.meshes[mesh].typed_axes()) {
    const Scale size = program.scales[axis_scale(program, mesh, axis)];
    for (const ScaleFactor &factor : size.factors)
      if (llvm::any_of(scale.factors, [&](auto &other) { return other.base == factor.base; }))
        axes |= axis;
  }
  return axes;
}

int32_t exponent_of(const Program &program, ScaleId canonical, MeshId mesh, AxisId axis) {
  if (!canonical.valid() || program.axis_scales.of.empty())
    return 0;
  const Scale &size = program.scales[program.axis_scales.of[mesh.index * kMaxAxes + axis.index]];
  for (const ScaleFactor &factor : program.scales[canonical].factors)
    if (!size.factors.empty() && factor.base == size.factors.front().base)
      return factor.exponent;
  return 0;
}

ScaleId without(Program &program, ScaleId canonical, MeshId mesh, AxisSet axes) {
  if (!canonical.valid() || axes.empty() || canonical == program.one())
    return canonical;
  Scale scale = program.scales[canonical];
  for (AxisId axis : axes &program.meshes[mesh].typed_axes())
    for (const ScaleFactor &factor : program.scales[axis_scale(program, mesh, axis)].factors)
      llvm::erase_if(scale.factors, [&](auto &other) { return other.base == factor.base; });
  return program.scales.add(std::move(scale));
}

std::string print_scale(const Program &program, ScaleId id, MeshId mesh) {
  return print(named_scale(program, id, mesh), program.strings);
}

Scale named_scale(const Program &program, ScaleId id, MeshId mesh) {
  Scale scale = program.scales[id];
  if (!mesh.valid())
    return scale;
  auto exponent = [](const Scale &in, StringId base) -> int32_t {
    const auto *at = llvm::find_if(in.factors, [&](auto &f) { return f.base == base; });
    return at == in.factors.end() ? 0 : at->exponent;
  };
  Scale named{scale.numerator, scale.denominator, {}}; // the axes first, in their order
  auto take = [&](const Scale &size, StringId name, int32_t times) {
    for (const ScaleFactor &factor : size.factors)
      scale = *multiply(scale, only({factor.base, -times}), program.strings);
    if (named.factors.empty() || named.factors.back().base != name)
      named.factors.push_back({name, 0});
    named.factors.back().exponent += times;
  };
  for (AxisId axis : program.meshes[mesh].typed_axes()) {
    const Scale size =
        program.axis_scales.of.empty()
            ? only({program.meshes[mesh][axis].name, 1})
            : program.scales[program.axis_scales.of[mesh.index * kMaxAxes + axis.index]];
    for (int32_t sign : {1, -1})
      while (!size.factors.empty() && llvm::all_of(size.factors, [&](const ScaleFactor &factor) {
        return exponent(scale, factor.base) * sign > 0;
      }))
        take(size, program.meshes[mesh][axis].name, sign);
  }
  named.factors.append(scale.factors.begin(), scale.factors.end());
  return named;
}

} // namespace spmd::ir
