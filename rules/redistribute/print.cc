// Steps and specs as words.
#include "rules/redistribute/request.h"

#include "ir/claims.h"
#include "ir/support/arrays.h"

#include <fmt/format.h>

namespace spmd::rules::redistribute {

using ir::AxisId;
using ir::Kind;
using ir::WrittenKind;

namespace {

std::string axis_names(const ir::Program &program, const ir::Mesh &mesh,
                       llvm::ArrayRef<AxisId> axes) {
  bool letters = true;
  for (AxisId axis : mesh.typed_axes())
    letters &= program.strings[mesh[axis].name].size() == 1;
  std::string text;
  for (AxisId axis : axes)
    text += fmt::format("{}{}", text.empty() || letters ? "" : ",",
                        program.strings[mesh[axis].name].str());
  return letters || axes.size() < 2 ? text : fmt::format("({})", text);
}

std::string_view verb_of(const Step &step) {
  Kind src = step.src.front().kind, dst = step.dst.front().kind;
  switch (step.op) {
  case TransitionOp::AllGather:
    return "gather";
  case TransitionOp::AllToAll:
    return "a2a";
  case TransitionOp::AllReduce:
    return "reduce";
  case TransitionOp::ReduceScatter:
    return "scatter";
  case TransitionOp::Convert:
    if (dst == Kind::Varying)
      return "slice";
    if (dst == Kind::Partial)
      return src == Kind::Varying ? "zero-fill" : "keep-one";
    break;
  default:
    break;
  }
  return name_of(step.op);
}

} // namespace

std::string print_spec(const ir::Program &program, const ir::Type &type, unsigned rank) {
  const ir::Mesh &mesh = program.meshes[type.mesh()];
  std::string text;
  for (unsigned dim = 0; dim < rank; ++dim) {
    llvm::SmallVector<AxisId, 2> axes = ir::shards_of(type, dim);
    text +=
        fmt::format("{}{}", dim ? ", " : "", axes.empty() ? "-" : axis_names(program, mesh, axes));
  }
  text = fmt::format("[{}]", text);
  for (auto [kind, letter] : {std::pair{Kind::Partial, "P"}, {Kind::Invariant, "I"}}) {
    llvm::SmallVector<AxisId, 4> axes;
    for (AxisId axis : type.of(kind) - (kind == Kind::Partial ? type.zero() : type.either()))
      axes.push_back(axis);
    if (!axes.empty())
      text += fmt::format(" {}{}", letter, axis_names(program, mesh, axes));
  }
  return text;
}

std::string print(const ir::Program &program, const Step &step, unsigned rank) {
  const std::string_view verb = verb_of(step);
  const ir::Type &after = program.types[step.after];
  const ir::Mesh &mesh = program.meshes[after.mesh()];
  if (step.op == TransitionOp::Reorder) {
    ir::Type bare = after;
    bare.set_kind(bare.of(Kind::Partial) | bare.of(Kind::Invariant), Kind::Replicate);
    return fmt::format("reorder {}", print_spec(program, bare, rank));
  }
  if (step.op == TransitionOp::AllToAll)
    return fmt::format("a2a {} {}>{}", axis_names(program, mesh, step.axes), step.src[0].dim,
                       step.dst[0].dim);
  const bool shards =
      step.src[0].form == WrittenKind::Form::Shard || step.dst[0].form == WrittenKind::Form::Shard;
  const bool keeps_one = step.op == TransitionOp::Convert && step.src[0].kind != Kind::Varying &&
                         step.dst[0].kind == Kind::Partial;
  if (step.op == TransitionOp::AllReduce || keeps_one)
    return fmt::format("{} {}", verb, axis_names(program, mesh, step.axes));
  if (!shards)
    return fmt::format("{} {} {}>{}", verb, axis_names(program, mesh, step.axes),
                       ir::print(step.src[0]), ir::print(step.dst[0]));
  std::string text(verb);
  bool from = step.src[0].form == WrittenKind::Form::Shard;
  llvm::ArrayRef<WrittenKind> words = from ? step.src : step.dst;
  for (size_t i = 0; i < words.size();) {
    size_t end = i + 1;
    while (step.op == TransitionOp::AllGather && end < words.size() &&
           words[end].dim == words[i].dim)
      ++end;
    text +=
        fmt::format(" {}:{}", axis_names(program, mesh, ir::as_array(step.axes).slice(i, end - i)),
                    words[i].dim);
    i = end;
  }
  return text;
}

} // namespace spmd::rules::redistribute
