// A mask has the first dimensions of the tensor that it picks from, and cuts as that does.
#include "checker/gradual/blocks/mask_selected_rows.h"

#include "rules/ops/op.h"
#include "rules/shapes/attrs.h"

#include "ir/support/arrays.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;

AxisSet MaskSelectedRows::picked(const rules::Application &app) {
  const bool puts = app.op.computes(rules::Computes::IndexPut) && app.args.size() == 3;
  if (!puts && !(app.op.computes(rules::Computes::Index) && app.args.size() == 2))
    return {};
  const ir::Shape *table = app.shape(app.args[0]), *mask = app.shape(app.args[1]);
  if (!table || !mask || !table->ranked || !mask->ranked || mask->dtype != ir::DType::Bool ||
      mask->dims.empty() || mask->dims.size() > table->dims.size() ||
      !std::equal(mask->dims.begin(), mask->dims.end(), table->dims.begin()))
    return {};
  AxisSet axes = app.type(app.args[0]).sharded();
  for (ir::AxisId axis : axes)
    if (llvm::any_of(app.args,
                     [&](const rules::TensorInfo &arg) { return app.type(arg).dim(axis) != 0U; }))
      axes -= axis;
  return axes;
}

bool MaskSelectedRows::counts_rows(const rules::Application &app) {
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return true;
  if (app.op.row->reduces && rules::reduction_of(app) == rules::LossReduction::Sum)
    return false;
  const rules::Equation &equation = app.op.row->equation.equation;
  return llvm::any_of(ir::as_array(equation.terms.data(), equation.term_count),
                      [](const rules::Term &term) { return term.divisors != 0; });
}

} // namespace spmd::checker
