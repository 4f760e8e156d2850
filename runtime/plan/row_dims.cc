// The rules of shapes, applied to tensors that are the whole on every axis.
#include "runtime/plan/row_dims.h"

#include "rules/violations/operands.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {
namespace {

using KnownExtents = llvm::DenseMap<uint32_t, int64_t>; // by ExprId

// What expressions in the extents of operands come to here.
KnownExtents known_extents(const ir::Program &program, llvm::ArrayRef<rules::TensorInfo> args,
                           llvm::ArrayRef<TensorForm> operands) {
  KnownExtents known;
  for (size_t i = 0; i < std::min(args.size(), operands.size()); ++i) {
    if (!args[i].shape.valid())
      continue;
    const ir::Shape &shape = program.shapes[args[i].shape];
    if (!shape.ranked || shape.dims.size() != operands[i].dims.size())
      continue;
    for (size_t d = 0; d < shape.dims.size(); ++d)
      if (!shape.dims[d].is_number())
        known[shape.dims[d].expr().index] = operands[i].dims[d];
  }
  return known;
}

ir::AttrValue with_numbers(ir::Program &program, ir::AttrValue value, const KnownExtents &known) {
  if (value.form == ir::AttrForm::Expr) {
    auto at = known.find(value.as<ir::ExprId>().index);
    return at == known.end() ? value : ir::AttrValue::integer(at->second);
  }
  if (value.form != ir::AttrForm::List)
    return value;
  ir::AttrList list = program.lists[value.as<ir::AttrListId>()];
  for (ir::AttrValue &item : list.items)
    item = with_numbers(program, item, known);
  return ir::AttrValue::list(program.lists.add(std::move(list)));
}

ir::AttrsId with_numbers(ir::Program &program, ir::AttrsId attrs, const KnownExtents &known) {
  if (known.empty())
    return attrs;
  ir::AttrDict dict = program.attrs[attrs];
  for (ir::Attr &attr : dict.attrs)
    attr.value = with_numbers(program, attr.value, known);
  return program.attrs.add(std::move(dict));
}

} // namespace

std::optional<Dims> row_dims(ir::Program &program, const rules::Application &app,
                             llvm::ArrayRef<TensorForm> operands, unsigned result) {
  ir::Type plain;
  plain.set_mesh(app.op_context().mesh);
  plain.set_kind(program.meshes[plain.mesh()].typed_axes(), ir::Kind::Replicate);
  plain.set_gradient_free(true);
  llvm::SmallVector<rules::TensorInfo, 4> args;
  for (const TensorForm &operand : operands) {
    ir::Shape shape;
    shape.dtype = operand.dtype;
    for (int64_t dim : operand.dims)
      shape.dims.push_back(dim);
    args.push_back({program.types.add(plain), program.shapes.add(std::move(shape)), {}});
  }
  ir::AttrsId attrs = with_numbers(program, app.attrs, known_extents(program, app.args, operands));
  llvm::SmallVector<rules::ResultClaim, 2> claims(app.results.size());
  rules::Outcome out;
  out.types.resize(claims.size());
  out.shapes.resize(claims.size());
  out.sizes.resize(claims.size());
  rules::apply_equation({program, app.op, attrs, app.context, app.slots, args, claims}, out);
  bool fits = llvm::none_of(out.violations, [](const rules::Violation &violation) {
    return violation.is<rules::ShapeMismatch>();
  });
  if (!fits || !out.shapes[result].valid() || !program.shapes[out.shapes[result]].ranked)
    return std::nullopt;
  Dims dims;
  for (ir::Extent extent : program.shapes[out.shapes[result]].dims) {
    if (!extent.is_number())
      return std::nullopt;
    dims.push_back(extent.number());
  }
  return dims;
}

} // namespace spmd::runtime
