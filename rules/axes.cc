// Names and groups become axes of the current mesh by rank layout: names are for people.
#include "rules/axes.h"

#include "rules/registry.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::rules {
namespace {

constexpr size_t kShownRanks = 8;

std::string print_ranks(llvm::ArrayRef<int64_t> ranks) {
  std::string text;
  for (int64_t rank : ranks.take_front(kShownRanks))
    text += fmt::format("{}{}", text.empty() ? "" : " ", rank);
  return ranks.size() > kShownRanks ? text + " ..." : text;
}

std::string print_atoms(llvm::ArrayRef<ir::Atom> layout) {
  std::string text;
  for (ir::Atom atom : layout)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", atom.size, atom.stride);
  return text.empty() ? "1:1" : text;
}

int64_t saturating_product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t size_of(llvm::ArrayRef<ir::Atom> layout) {
  int64_t size = 1;
  for (ir::Atom atom : layout)
    size = saturating_product(size, atom.size);
  return size;
}

std::string text_of(llvm::StringRef text) { return text.str(); }

// Finds what one call names; each step either succeeds or leaves one violation.
class Resolver {
public:
  Resolver(const Application &app, ir::KindWord expected, Outcome &out)
      : app_(app), program_(app.program), mesh_(app.mesh()), expected_(expected), out_(out) {}

  bool add_axis(ir::AxisRef ref);
  bool add_group(const ir::AttrValue &key);
  CallAxes take() { return std::move(call_); }

private:
  bool add_layout(llvm::ArrayRef<ir::Atom> layout) {
    auto axes = ir::axes_of_layout(mesh_, layout);
    if (axes)
      call_.written.push_back({{axes->begin(), axes->end()}, size_of(layout)});
    return axes.has_value();
  }
  // Always false, for the caller to return.
  bool unknown_axis(ir::AxisRef ref, const ir::Mesh &mesh);
  bool foreign(std::string name, llvm::ArrayRef<ir::Atom> layout);
  bool unknown_group(const std::string &key, std::string ranks) {
    out_.violations.push_back(UnknownGroup{key, std::move(ranks)});
    return false;
  }

  const ir::Mesh *find_mesh(ir::StringId name) const {
    const auto *found =
        llvm::find_if(program_.meshes.all(), [&](const ir::Mesh &m) { return m.name == name; });
    return found == program_.meshes.all().end() ? nullptr : found;
  }
  bool is_axis_of_some_mesh(llvm::ArrayRef<ir::Atom> layout) const {
    return llvm::any_of(program_.meshes.all(), [&](const ir::Mesh &mesh) {
      return ir::axes_of_layout(mesh, layout).has_value();
    });
  }
  ir::AxisSet axes_of_size(int64_t size) const {
    ir::AxisSet found;
    for (ir::AxisId axis : mesh_.typed_axes())
      if (mesh_[axis].size() == size)
        found |= axis;
    return found;
  }
  // The group starts at coordinate 0 of its axes, so that it is one of the mesh's own groups.
  bool starts_a_group(llvm::ArrayRef<ir::Atom> layout, int64_t first) const {
    int64_t offset = first - mesh_.offset;
    return llvm::all_of(layout,
                        [&](ir::Atom atom) { return offset / atom.stride % atom.size == 0; });
  }

  const Application &app_;
  const ir::Program &program_;
  const ir::Mesh &mesh_;
  ir::KindWord expected_;
  Outcome &out_;
  CallAxes call_;
};

bool Resolver::unknown_axis(ir::AxisRef ref, const ir::Mesh &mesh) {
  llvm::SmallVector<llvm::StringRef, 8> names;
  for (const ir::Axis &axis : mesh.axes)
    names.push_back(program_.strings[axis.name]);
  llvm::StringRef axis = program_.strings[ref.axis];
  std::string name = ref.mesh.valid()
                         ? fmt::format("{}.{}", text_of(program_.strings[ref.mesh]), text_of(axis))
                         : text_of(axis);
  out_.violations.push_back(UnknownAxis{std::move(name), text_of(program_.strings[mesh.name]),
                                        text_of(nearest_name(axis, names))});
  return false;
}

// An axis of other ranks. Shown beside it: where the operand is what the call expects, else axes of
// its size.
bool Resolver::foreign(std::string name, llvm::ArrayRef<ir::Atom> layout) {
  ir::AxisSet actual;
  if (!app_.args.empty())
    actual = app_.type(app_.args[0]).of(expected_.kind);
  if (actual.empty())
    actual = axes_of_size(size_of(layout));
  out_.violations.push_back(
      WrongAxis{.operand = {0},
                .kind = expected_,
                .axes = {},
                .actual = actual,
                .layout = fmt::format("{} = {}", name, print_layout(mesh_, layout)),
                .actual_layout = print_layout(mesh_, layout_of_set(mesh_, actual))});
  return false;
}

bool Resolver::add_axis(ir::AxisRef ref) {
  const ir::Mesh *mesh = ref.mesh.valid() ? find_mesh(ref.mesh) : &mesh_;
  if (!mesh)
    return unknown_axis(ref, mesh_);
  std::optional<ir::AxisId> axis = mesh->find(ref.axis);
  if (!axis)
    return unknown_axis(ref, *mesh);
  const ir::Layout &layout = (*mesh)[*axis].layout;
  if (add_layout(layout))
    return true;
  return foreign(fmt::format("{}.{}", text_of(program_.strings[mesh->name]),
                             text_of(program_.strings[ref.axis])),
                 layout);
}

bool Resolver::add_group(const ir::AttrValue &attr) {
  std::string key = attr.form == ir::AttrForm::String
                        ? text_of(program_.strings[attr.as<ir::StringId>()])
                        : std::to_string(attr.as_integer());
  const auto *group = llvm::find_if(llvm::ArrayRef(program_.groups), [&](const ir::Group &each) {
    return program_.strings[each.key] == llvm::StringRef(key);
  });
  if (group == llvm::ArrayRef(program_.groups).end())
    return unknown_group(key, "it is not in the table of groups");
  if (group->form == ir::Group::Form::Axes) {
    ir::Layout layout = ir::layout_of_axes(program_.meshes[group->mesh], group->axes);
    return add_layout(layout) || foreign(key, layout);
  }
  std::optional<ir::Layout> layout = group->layout;
  int64_t first = group->offset;
  if (group->form == ir::Group::Form::Ranks) {
    layout = ir::layout_of(group->ranks);
    if (!layout)
      return unknown_group(key, print_ranks(group->ranks));
    first = group->ranks.front();
  }
  bool aligned = starts_a_group(*layout, first);
  if (aligned && add_layout(*layout))
    return true;
  if (aligned && (axes_of_size(size_of(*layout)) || is_axis_of_some_mesh(*layout)))
    return foreign(key, *layout);
  return unknown_group(key, print_ranks(ir::ranks_of(*layout, first, kShownRanks + 1)));
}

} // namespace

ir::AxisSet CallAxes::all() const {
  ir::AxisSet all;
  for (const WrittenAxis &each : written)
    for (ir::AxisId axis : each.axes)
      all |= axis;
  return all;
}

int64_t CallAxes::size() const {
  int64_t size = 1;
  for (const WrittenAxis &each : written)
    size = saturating_product(size, each.size);
  return size;
}

std::optional<CallAxes> resolve_axes(const Application &app, ir::KindWord expected, Outcome &out) {
  Resolver resolver(app, expected, out);
  const ir::AttrValue *axis = app.attr("axis"), *group = app.attr("group");
  if (axis && axis->form == ir::AttrForm::Axes) {
    ir::AxisRefs refs = app.program.axis_refs[axis->as<ir::AxisRefsId>()];
    for (ir::AxisRef ref : refs.refs)
      if (!resolver.add_axis(ref))
        return std::nullopt;
  } else if (group) {
    if (!resolver.add_group(*group))
      return std::nullopt;
  } else {
    out.violations.push_back(AttributeMismatch{"axis", "an axis, or a tuple, outermost first"});
    return std::nullopt;
  }
  CallAxes call = resolver.take();
  ir::AxisSet seen;
  for (const WrittenAxis &each : call.written)
    for (ir::AxisId one : each.axes) {
      if (seen.contains(one)) {
        out.violations.push_back(AttributeMismatch{"axis", "each axis once"});
        return std::nullopt;
      }
      seen |= one;
    }
  return call;
}

void forget_results(const Application &app, Outcome &out) {
  ir::Type unknown;
  unknown.set_mesh(app.where().mesh);
  unknown.unknown = app.mesh().typed_axes();
  out.types.assign(app.results.size(), app.program.types.add(unknown));
  out.shapes.assign(app.results.size(), {});
}

std::string print_layout(const ir::Mesh &mesh, llvm::ArrayRef<ir::Atom> layout) {
  return fmt::format("{} = ranks {}", print_atoms(layout),
                     print_ranks(ir::ranks_of(layout, mesh.offset, kShownRanks + 1)));
}

ir::Layout layout_of_set(const ir::Mesh &mesh, ir::AxisSet axes) {
  llvm::SmallVector<ir::AxisId, 4> listed;
  for (ir::AxisId axis : axes)
    listed.push_back(axis);
  return ir::layout_of_axes(mesh, listed);
}

std::string print_order(const Application &app, llvm::ArrayRef<ir::AxisId> axes) {
  std::string text;
  for (ir::AxisId axis : axes)
    text += (text.empty() ? "" : ", ") + text_of(app.program.strings[app.mesh()[axis].name]);
  return text;
}

int64_t size_of(const ir::Mesh &mesh, ir::AxisSet axes) {
  int64_t size = 1;
  for (ir::AxisId axis : axes)
    size = saturating_product(size, mesh[axis].size());
  return size;
}

} // namespace spmd::rules
