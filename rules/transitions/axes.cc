// Names and groups become axes of the current mesh by rank layout: names are for people.
#include "rules/transitions/axes.h"

#include "rules/violations/meshes.h"
#include "rules/violations/transitions.h"

#include "ir/claims.h"
#include "ir/support/misspelling.h"
#include "ir/support/product.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::rules {
namespace {

constexpr size_t kShownRanks = 8, kShownGroups = 4;
constexpr size_t kSearchedRanks = 1 << 12; // for the first ranks of groups

// `{0,1,2,3}`; of a long list the first ranks and the last.
std::string draw(llvm::ArrayRef<int64_t> ranks, int64_t size, int64_t last) {
  bool whole = size <= static_cast<int64_t>(kShownRanks);
  std::string text;
  for (int64_t rank : ranks.take_front(whole ? kShownRanks : 3))
    text += fmt::format("{}{}", text.empty() ? "" : ",", rank);
  return whole ? fmt::format("{{{}}}", text) : fmt::format("{{{},..,{}}}", text, last);
}

std::string draw(llvm::ArrayRef<int64_t> ranks) {
  return draw(ranks, static_cast<int64_t>(ranks.size()), ranks.empty() ? 0 : ranks.back());
}

std::string print_atoms(llvm::ArrayRef<ir::Atom> layout) {
  std::string text;
  for (ir::Atom atom : layout)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", atom.size, atom.stride);
  return text.empty() ? "1:1" : text;
}

int64_t size_of(llvm::ArrayRef<ir::Atom> layout) {
  int64_t size = 1;
  for (ir::Atom atom : layout)
    size = ir::saturating_product(size, atom.size);
  return size;
}

// The group that starts at a rank.
std::string draw_group(llvm::ArrayRef<ir::Atom> layout, int64_t first) {
  int64_t last = first;
  for (ir::Atom atom : layout)
    last += (atom.size - 1) * atom.stride;
  return draw(ir::ranks_of(layout, first, kShownRanks), size_of(layout), last);
}

bool starts_group(llvm::ArrayRef<ir::Atom> layout, int64_t offset) {
  return llvm::all_of(layout, [&](ir::Atom atom) { return offset / atom.stride % atom.size == 0; });
}

std::string text_of(llvm::StringRef text) { return text.str(); }

// Finds what one call names; each step either succeeds or leaves one violation.
class Resolver {
public:
  Resolver(const Application &app, ir::WrittenKind expected, Outcome &out)
      : app_(app), program_(app.program), mesh_(app.mesh()), expected_(expected), out_(out) {}

  bool add_axis(ir::AxisRef ref);
  // A tuple of axes of one other mesh, whose ranks together are those of axes here.
  bool add_together(llvm::ArrayRef<ir::AxisRef> refs);
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
  bool foreign(std::string name, llvm::ArrayRef<ir::Atom> layout, std::string drawn);
  bool unknown_group(const std::string &key, std::string ranks) {
    out_.violations.push_back(UnknownGroup{key, std::move(ranks)});
    return false;
  }

  const ir::Mesh *find_mesh(ir::StringId name) const {
    const auto *found =
        llvm::find_if(program_.meshes.all(), [&](const ir::Mesh &m) { return m.name == name; });
    return found == program_.meshes.all().end() ? nullptr : found;
  }
  const ir::Mesh *mesh_with_axis(ir::StringId name) const {
    const auto *found = llvm::find_if(program_.meshes.all(),
                                      [&](const ir::Mesh &m) { return m.find(name).has_value(); });
    return found == program_.meshes.all().end() ? nullptr : found;
  }
  // A mesh of which this is a group along axes; null if there is none.
  const ir::Mesh *mesh_with(llvm::ArrayRef<ir::Atom> layout, int64_t first) const {
    const auto *found = llvm::find_if(program_.meshes.all(), [&](const ir::Mesh &mesh) {
      return starts_group(layout, first - mesh.offset) &&
             ir::axes_of_layout(mesh, layout).has_value();
    });
    return found == program_.meshes.all().end() ? nullptr : found;
  }
  ir::AxisSet axes_of_size(int64_t size) const {
    ir::AxisSet found;
    for (ir::AxisId axis : mesh_.typed_axes())
      if (mesh_[axis].size() == size)
        found |= axis;
    return found;
  }
  bool is_rank_of_mesh(int64_t rank) const {
    int64_t last = mesh_.offset;
    for (ir::AxisId axis : mesh_.typed_axes())
      for (ir::Atom atom : mesh_[axis].layout)
        last += (atom.size - 1) * atom.stride;
    return rank >= mesh_.offset && rank <= last;
  }
  // Axes that share ranks with some of the layout.
  ir::AxisSet overlapping(llvm::ArrayRef<ir::Atom> layout) const {
    ir::AxisSet found;
    for (ir::AxisId axis : mesh_.typed_axes())
      for (ir::Atom own : mesh_[axis].layout)
        for (ir::Atom atom : layout)
          if (own.stride < atom.stride * atom.size && atom.stride < own.stride * own.size)
            found |= axis;
    return found;
  }

  const Application &app_;
  const ir::Program &program_;
  const ir::Mesh &mesh_;
  ir::WrittenKind expected_;
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
                                        text_of(ir::nearest_name(axis, names))});
  return false;
}

// Other ranks than those of an axis. Shown beside them: where the operand is what the call expects,
// else axes of that size, else axes of these ranks, with what the operand is there.
bool Resolver::foreign(std::string name, llvm::ArrayRef<ir::Atom> layout, std::string drawn) {
  ir::AxisSet actual;
  ir::WrittenKind kind = expected_;
  ir::AxisSet sized = axes_of_size(size_of(layout));
  if (!app_.args.empty())
    actual = app_.type(app_.args[0]).of(expected_.kind);
  if (actual & sized)
    actual &= sized;
  if (actual.empty()) {
    actual = sized;
    if (actual.empty())
      actual = overlapping(layout);
    if (!app_.args.empty() && actual) {
      const ir::Type &type = app_.type(app_.args[0]);
      kind = ir::kind_word(type, actual.first())
                 .value_or(ir::WrittenKind{.form = ir::WrittenKind::Form::Unknown});
      for (ir::AxisId axis : actual)
        if (type.kind(axis) != type.kind(actual.first()))
          actual -= axis;
    }
  }
  out_.violations.push_back(
      WrongAxis{.operand = {0},
                .kind = kind,
                .axes = {},
                .actual = actual,
                .layout = fmt::format("{} = {} = {}", name, print_atoms(layout), drawn),
                .actual_layout = print_layout(mesh_, layout_of_set(mesh_, actual))});
  return false;
}

bool Resolver::add_axis(ir::AxisRef ref) {
  const ir::Mesh *mesh = ref.mesh.valid() ? find_mesh(ref.mesh) : &mesh_;
  if (!mesh)
    return unknown_axis(ref, mesh_);
  std::optional<ir::AxisId> axis = mesh->find(ref.axis);
  if (!axis && !ref.mesh.valid())
    if (const ir::Mesh *other = mesh_with_axis(ref.axis)) {
      axis = other->find(ref.axis);
      if (!ir::axes_of_layout(mesh_, (*other)[*axis].layout)) // its ranks are no axis here
        mesh = other;
      else
        axis.reset();
    }
  if (!axis)
    return unknown_axis(ref, *mesh);
  const ir::Layout &layout = (*mesh)[*axis].layout;
  if (add_layout(layout))
    return true;
  return foreign(fmt::format("{}.{}", text_of(program_.strings[mesh->name]),
                             text_of(program_.strings[ref.axis])),
                 layout, draw_groups(*mesh, layout));
}

bool Resolver::add_together(llvm::ArrayRef<ir::AxisRef> refs) {
  const ir::Mesh *mesh =
      refs.size() > 1 && refs[0].mesh.valid() ? find_mesh(refs[0].mesh) : nullptr;
  llvm::SmallVector<ir::AxisId, 4> axes;
  for (ir::AxisRef ref : refs) {
    std::optional<ir::AxisId> axis =
        mesh && ref.mesh == refs[0].mesh ? mesh->find(ref.axis) : std::nullopt;
    if (!axis)
      return false;
    axes.push_back(*axis);
  }
  return add_layout(ir::layout_of_axes(*mesh, axes));
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
    return add_layout(layout) ||
           foreign(key, layout, draw_groups(program_.meshes[group->mesh], layout));
  }
  std::optional<ir::Layout> layout = group->layout;
  int64_t first = group->offset;
  if (group->form == ir::Group::Form::Ranks) {
    layout = ir::layout_of(group->ranks);
    if (!layout)
      return unknown_group(key, draw(group->ranks));
    first = group->ranks.front();
  }
  // A layout without an offset means the groups of any mesh; ranks mean themselves.
  bool inside = group->form != ir::Group::Form::Ranks || is_rank_of_mesh(first);
  if (inside && starts_group(*layout, first - mesh_.offset) && add_layout(*layout))
    return true;
  const ir::Mesh *other = mesh_with(*layout, first);
  if (other || axes_of_size(size_of(*layout)))
    return foreign(key, *layout, other ? draw_groups(*other, *layout) : draw_group(*layout, first));
  return unknown_group(key, draw_group(*layout, first));
}

} // namespace

ir::AxisSet CallAxes::all() const {
  ir::AxisSet all;
  for (const WrittenAxis &each : written)
    for (ir::AxisId axis : each.axes)
      all |= axis;
  return all;
}

ir::AxisSet named_axes(const Application &app) {
  Outcome ignored;
  const std::optional<CallAxes> axes = resolve_axes(app, {}, ignored);
  return axes ? axes->all() : ir::AxisSet();
}

int64_t CallAxes::size() const {
  int64_t size = 1;
  for (const WrittenAxis &each : written)
    size = ir::saturating_product(size, each.size);
  return size;
}

std::optional<CallAxes> resolve_axes(const Application &app, ir::WrittenKind expected,
                                     Outcome &out) {
  Resolver resolver(app, expected, out);
  const ir::AttrValue *axis = app.attr("axis"), *group = app.attr("group");
  if (axis && axis->form == ir::AttrForm::Axes) {
    ir::AxisRefs refs = app.program.axis_refs[axis->as<ir::AxisRefsId>()];
    if (!resolver.add_together(refs.refs))
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
        out.violations.push_back(AttributeMismatch{"axis", "a tuple that has each axis once"});
        return std::nullopt;
      }
      seen |= one;
    }
  return call;
}

void forget_results(const Application &app, Outcome &out) {
  ir::Type unknown;
  unknown.set_mesh(app.op_context().mesh);
  unknown.unknown = app.mesh().typed_axes();
  out.types.assign(app.results.size(), app.program.types.add(unknown));
  out.shapes.assign(app.results.size(), {});
  out.sizes.assign(app.results.size(), {});
}

std::string draw_groups(const ir::Mesh &mesh, llvm::ArrayRef<ir::Atom> layout) {
  llvm::SmallVector<int64_t, 16> ranks =
      ir::ranks_of(layout_of_set(mesh, mesh.typed_axes()), 0, kSearchedRanks);
  llvm::sort(ranks);
  std::string text;
  int64_t shown = 0;
  for (int64_t rank : ranks) {
    if (!starts_group(layout, rank))
      continue;
    text += (text.empty() ? "" : " ") + draw_group(layout, mesh.offset + rank);
    if (++shown == static_cast<int64_t>(kShownGroups))
      break;
  }
  int64_t more = size_of(mesh, mesh.typed_axes()) / size_of(layout) - shown;
  return more > 0 ? fmt::format("{} and {} more", text, more) : text;
}

std::string print_layout(const ir::Mesh &mesh, llvm::ArrayRef<ir::Atom> layout) {
  return fmt::format("{} = {}", print_atoms(layout), draw_groups(mesh, layout));
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
    size = ir::saturating_product(size, mesh[axis].size());
  return size;
}

} // namespace spmd::rules
