// Attributes of calls. Words stand for all axes or one for each.
#include "tests/soundness/call.h"

#include <fmt/format.h>

namespace spmd::soundness {

namespace {

class Reader {
public:
  Reader(const ir::Program &program, ir::AttrsId attrs) : program_(program), attrs_(attrs) {}

  std::optional<int64_t> number(llvm::StringRef key) const {
    const ir::AttrValue *value = program_.find(attrs_, key);
    return value && value->form == ir::AttrForm::Integer ? std::optional(value->as_integer())
                                                         : std::nullopt;
  }
  Dims numbers(llvm::StringRef key) const {
    Dims found;
    const ir::AttrValue *value = program_.find(attrs_, key);
    if (value && value->form == ir::AttrForm::List)
      for (const ir::AttrValue &item : program_.lists[value->as<ir::AttrListId>()].items)
        found.push_back(item.as_integer());
    return found;
  }
  std::optional<ir::WrittenKind> word(llvm::StringRef key, size_t axis) const {
    const ir::AttrValue *value = program_.find(attrs_, key);
    if (!value)
      return std::nullopt;
    if (value->form == ir::AttrForm::Kind)
      return value->as_kind();
    if (value->form != ir::AttrForm::List)
      return std::nullopt;
    const auto &items = program_.lists[value->as<ir::AttrListId>()].items;
    return axis < items.size() ? std::optional(items[axis].as_kind()) : std::nullopt;
  }
  llvm::StringRef text(llvm::StringRef key) const {
    const ir::AttrValue *value = program_.find(attrs_, key);
    return value && value->form == ir::AttrForm::String
               ? program_.strings[value->as<ir::StringId>()]
               : llvm::StringRef();
  }
  const ir::AxisRefs *axes() const {
    const ir::AttrValue *value = program_.find(attrs_, "axis");
    return value && value->form == ir::AttrForm::Axes
               ? &program_.axis_refs[value->as<ir::AxisRefsId>()]
               : nullptr;
  }
  llvm::SmallVector<std::pair<size_t, size_t>, 4> pairs(llvm::StringRef key) const {
    llvm::SmallVector<std::pair<size_t, size_t>, 4> found;
    const ir::AttrValue *value = program_.find(attrs_, key);
    if (value && value->form == ir::AttrForm::List)
      for (const ir::AttrValue &item : program_.lists[value->as<ir::AttrListId>()].items) {
        const auto &pair = program_.lists[item.as<ir::AttrListId>()].items;
        found.push_back(
            {static_cast<size_t>(pair[0].as_integer()), static_cast<size_t>(pair[1].as_integer())});
      }
    return found;
  }

private:
  const ir::Program &program_;
  ir::AttrsId attrs_;
};

} // namespace

std::optional<Call> read_call(const ir::Program &program, llvm::StringRef name, ir::AttrsId attrs,
                              ir::MeshId mesh, std::string &why) {
  Reader read(program, attrs);
  Call call;
  call.name = name.str();
  call.mesh = mesh;
  const ir::AxisRefs *axes = read.axes();
  if (!axes)
    return why = "a call without axes", std::nullopt;
  for (size_t i = 0; i < axes->refs.size(); ++i) {
    const ir::AxisRef &ref = axes->refs[i];
    std::optional<ir::AxisId> axis = program.meshes[mesh].find(ref.axis);
    std::optional<ir::WrittenKind> src = read.word("src", i), dst = read.word("dst", i);
    if (ref.mesh.valid() || !axis)
      return why = "an axis of another mesh", std::nullopt;
    if (!src || !dst)
      return why = "unstated words", std::nullopt;
    const ir::Axis &info = program.meshes[mesh][*axis];
    if (call.steps.empty() || !(call.steps.back().src == *src) || !(call.steps.back().dst == *dst))
      call.steps.push_back({*src, *dst, {}, {}, 1});
    Step &step = call.steps.back();
    step.layout.append(info.layout.begin(), info.layout.end());
    ir::AxisSet pieces = program.meshes[mesh].pieces_of(*axis);
    for (ir::AxisId piece : pieces)
      step.sizes.push_back(program.meshes[mesh][piece].size());
    step.axes |= pieces;
    step.size *= info.size();
  }
  llvm::StringRef combiner = read.text("op");
  call.average = combiner == "avg";
  if (!combiner.empty() && combiner != "sum" && !call.average)
    return why = "a combiner that is no sum", std::nullopt;
  call.dim = static_cast<size_t>(read.number("dim").value_or(0));
  call.split_dim = static_cast<size_t>(read.number("split_dim").value_or(0));
  call.concat_dim = static_cast<size_t>(read.number("concat_dim").value_or(0));
  call.splits = read.numbers("splits");
  call.in_splits = read.numbers("in_splits");
  call.out_splits = read.numbers("out_splits");
  call.root = static_cast<size_t>(read.number("root").value_or(0));
  call.sends = read.pairs("perm");
  return call;
}

} // namespace spmd::soundness
