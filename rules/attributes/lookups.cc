// Reads off a call which rows it picks, and what it counts.
#include "rules/attributes/lookups.h"

#include "rules/attributes/attributes.h"
#include "rules/factors/factors.h"
#include "rules/ops/op.h"
#include "rules/shapes/attrs.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {

static bool is_one(const ir::AttrValue &value) {
  return value.form == ir::AttrForm::Integer && value.as_integer() == 1;
}

llvm::SmallVector<std::pair<size_t, unsigned>, 2> listed_indices(const Application &app) {
  llvm::SmallVector<std::pair<size_t, unsigned>, 2> found;
  for (const Slot &slot : app.slots) {
    if (slot.form != Slot::Form::List || slot.literal.form != ir::AttrForm::Integer)
      continue;
    size_t arg = slot.first;
    for (unsigned dim = 0; arg < slot.first + slot.count && dim < 64; ++dim)
      if (slot.literal.bits >> dim & 1)
        found.emplace_back(arg++, dim);
  }
  return found;
}

std::optional<unsigned> dim_of_first(const Application &app) {
  const ir::Shape *shape = app.args.empty() ? nullptr : app.shape(app.args[0]);
  if (!shape)
    return std::nullopt;
  const auto dims = placed_dims(app, app.op.row->default_dim, shape->dims.size());
  return dims && dims->size() == 1 ? std::optional(dims->front()) : std::nullopt;
}

// Of JAX's gather: the dimensions to which the numbers of an index belong. Others of one element
// each are those of a batch, which has an index for each entry.
static std::optional<llvm::SmallVector<unsigned, 4>> indexed_dims(const Application &app) {
  const ir::AttrValue *value = app.attr("dimension_numbers");
  if (!value || value->form != ir::AttrForm::List)
    return std::nullopt;
  llvm::ArrayRef<ir::AttrValue> lists = app.program.lists[value->as<ir::AttrListId>()].items;
  constexpr size_t kIndexed = 2; // offset, collapsed, indexed dimensions; those of the batch
  if (lists.size() <= kIndexed || lists[kIndexed].form != ir::AttrForm::List)
    return std::nullopt;
  llvm::SmallVector<unsigned, 4> dims;
  for (const ir::AttrValue &dim : app.program.lists[lists[kIndexed].as<ir::AttrListId>()].items)
    if (dim.form == ir::AttrForm::Integer)
      dims.push_back(static_cast<unsigned>(dim.as_integer()));
  return dims;
}

llvm::SmallVector<Pick, 2> picks_of(const Application &app) {
  llvm::SmallVector<Pick, 2> picks;
  if (app.args.size() < 2)
    return picks;
  const ir::Shape *first = app.shape(app.args[0]);
  const ir::AttrValue *sizes = app.attr("slice_sizes");
  if (app.op.computes(Computes::Embedding)) {
    const bool table_first = first && ir::differentiable(first->dtype);
    picks.push_back(table_first ? Pick{0, 1, 0} : Pick{1, 0, 0});
  } else if (app.op.computes(Computes::Gather)) {
    if (std::optional<unsigned> dim = dim_of_first(app))
      picks.push_back({0, 1, *dim});
  } else if (app.op.computes(Computes::Index) && first && sizes &&
             sizes->form == ir::AttrForm::List) {
    llvm::ArrayRef<ir::AttrValue> taken = app.program.lists[sizes->as<ir::AttrListId>()].items;
    const auto indexed = indexed_dims(app);
    for (unsigned d = 0; d < taken.size() && d < first->dims.size(); ++d)
      if (is_one(taken[d]) && first->dims[d] != ir::Extent(1) &&
          (!indexed || llvm::is_contained(*indexed, d)))
        picks.push_back({0, 1, d});
  } else if (app.op.computes(Computes::Index)) {
    for (const auto &[arg, dim] : listed_indices(app))
      picks.push_back({0, arg, dim});
  }
  return picks;
}

std::optional<unsigned> rows_of(const Application &app, const Pick &pick) {
  if (!app.op.computes(Computes::Index) || app.attr("slice_sizes"))
    return std::nullopt;
  unsigned most = 0, next = 0;
  for (const auto &[arg, dim] : listed_indices(app)) {
    const ir::Shape *index = app.shape(app.args[arg]);
    if (!index || dim != next++)
      return std::nullopt;
    most = std::max<unsigned>(most, index->dims.size());
  }
  const ir::Shape *index = app.shape(app.args[pick.index]);
  return index ? std::optional<unsigned>(most - index->dims.size()) : std::nullopt;
}

bool counts_up(const ResolvedOp &op) {
  return (op.alias && op.alias->factors == arange_factors) || op.variant() == Variant::Iota;
}

bool counts_by_one(const Application &app) {
  const ir::AttrValue *step = app.attr("step");
  return counts_up(app.op) &&
         (!step || (step->form == ir::AttrForm::Integer && step->as_integer() == 1));
}

unsigned counted_dim(const ir::Program &program, ir::AttrsId attrs) {
  const ir::AttrValue *dim = program.find(attrs, "dimension");
  return dim && dim->form == ir::AttrForm::Integer ? static_cast<unsigned>(dim->as_integer()) : 0;
}

} // namespace spmd::rules
