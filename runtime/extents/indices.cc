// Indices that a program counts itself have to stay within what they pick from.
#include "runtime/extents/constraints.h"

#include "checker/program_queries.h"
#include "rules/apply.h"
#include "rules/attributes/lookups.h"

namespace spmd::runtime {

using ir::ValueId;

// Whether an op gives 0, 1, 2 and so on.
static bool counts_places(const rules::Application &app) {
  const ir::AttrValue *start = app.attr("start");
  return rules::counts_by_one(app) &&
         (!start || (start->form == ir::AttrForm::Integer && start->as_integer() == 0));
}

// What is made of numbers alone, and of nothing that the program is given.
void ExtentConstraints::note_counted(const Site &site, const rules::Application &app) {
  if (site.results.empty())
    return;
  ValueId counted;
  if (site.args.empty() && rules::counts_up(*site.op))
    counted = site.results[0];
  for (ValueId arg : site.args) {
    auto known = counted_.find(arg.index);
    if (known == counted_.end())
      return;
    counted = known->second.by;
  }
  const bool moved = site.args.size() == 1 && rules::moves_elements(*site.op);
  const bool plain =
      site.args.empty() ? counts_places(app) : (moved && counted_.lookup(site.args[0].index).plain);
  for (ValueId result : site.results)
    if (counted.valid())
      counted_[result.index] = {counted, plain, false};
}

void ExtentConstraints::bound_indices(const Site &site, const rules::Application &app) {
  for (const rules::Pick &pick : rules::picks_of(app)) {
    auto known = counted_.find(site.args[pick.index].index);
    if (known == counted_.end() || pick.dim >= vars(site.args[pick.table]).size() ||
        is_open(site.args[pick.table], pick.dim))
      continue;
    const Var picked = vars(site.args[pick.table])[pick.dim];
    const ValueId by = known->second.by;
    const unsigned dim =
        rules::counted_dim(program_, program_.insts[checker::defining_inst(program_, by)].attrs);
    if (known->second.plain && dim < vars(by).size() && !is_open(by, dim)) {
      proportional(picked, vars(by)[dim]);
      continue;
    }
    classes_.fix(picked);
    fix_counted(site.args[pick.index]);
  }
}

void ExtentConstraints::fix_counted(ValueId value) {
  auto known = counted_.find(value.index);
  if (known == counted_.end() || std::exchange(known->second.fixed, true))
    return;
  fix(value);
  if (const ir::InstId made = checker::defining_inst(program_, value); made.valid())
    for (ValueId operand : checker::tensors_of(program_, made))
      fix_counted(operand);
}

} // namespace spmd::runtime
