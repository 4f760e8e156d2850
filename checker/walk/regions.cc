// A view is followed from its storage on: each step cuts dimensions, or counts them otherwise. What
// is not understood shows the same elements as its base, or some of them.
#include "checker/walk/regions.h"

#include "checker/operand_list.h"
#include "checker/program_queries.h"

#include "rules/boundary/name.h"
#include "rules/factors/factors.h"
#include "rules/shapes/attrs.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;

namespace {

bool is_empty(const Region &region) {
  return llvm::any_of(region.dims, [](Region::Dim dim) { return dim.extent == 0; });
}

// How far the last element is from the first one, by dimensions below a stride.
int64_t reach(const Region &region, int64_t below = INT64_MAX) {
  int64_t sum = 0;
  for (Region::Dim dim : region.dims)
    if (dim.stride < below)
      sum += (dim.extent - 1) * dim.stride;
  return sum;
}

// The same elements by as few dimensions as there can be, outermost first.
llvm::SmallVector<Region::Dim, 4> nest(const Region &region, bool sorted) {
  llvm::SmallVector<Region::Dim, 4> dims;
  llvm::copy_if(region.dims, std::back_inserter(dims), [](Region::Dim d) { return d.extent != 1; });
  if (sorted)
    llvm::sort(dims, [](Region::Dim a, Region::Dim b) { return a.stride > b.stride; });
  llvm::SmallVector<Region::Dim, 4> merged;
  for (Region::Dim dim : dims) {
    if (!merged.empty() && merged.back().stride == dim.stride * dim.extent)
      merged.back() = {merged.back().extent * dim.extent, dim.stride};
    else
      merged.push_back(dim);
  }
  return merged;
}

// True if rows of `stride` elements each are cut apart by columns: both stay between two of their
// own. Larger strides must be whole rows.
bool other_columns(const Region &a, const Region &b, int64_t stride) {
  auto in_rows = [&](const Region &region) {
    return region.first % stride + reach(region, stride) < stride &&
           llvm::all_of(region.dims, [&](Region::Dim dim) {
             return dim.stride < stride || dim.stride % stride == 0;
           });
  };
  if (!in_rows(a) || !in_rows(b))
    return false;
  const int64_t first = a.first % stride, other = b.first % stride;
  return first + reach(a, stride) < other || other + reach(b, stride) < first;
}

// Its elements counted by other dimensions, in the same order. False if no strides say that.
bool reshape(Region &region, const ir::Shape &shape) {
  llvm::SmallVector<Region::Dim, 4> left = nest(region, false), dims;
  for (ir::Extent extent : llvm::reverse(shape.dims)) {
    const int64_t wanted = extent.number();
    if (wanted == 1) {
      dims.push_back({1, 1});
      continue;
    }
    if (left.empty() || left.back().extent % wanted)
      return false;
    Region::Dim &from = left.back();
    dims.push_back({wanted, from.stride});
    from = {from.extent / wanted, from.stride * wanted};
    if (from.extent == 1)
      left.pop_back();
  }
  region.dims.assign(dims.rbegin(), dims.rend());
  return left.empty();
}

const rules::FactorsRule *rule_of(const rules::ResolvedOp &op) {
  if (op.form != rules::OpForm::Equation || !op.row)
    return nullptr;
  return op.alias && op.alias->factors ? &op.alias->factors : &op.row->factors;
}

bool is_any(rules::FactorsRule rule, std::initializer_list<rules::FactorsRule> rules) {
  return llvm::is_contained(rules, rule);
}

// Every element of the result is made of the one in its place.
bool keeps_positions(const rules::ResolvedOp &op) {
  if (op.form != rules::OpForm::Equation)
    return op.form == rules::OpForm::Boundary && rules::passes_data(op.boundary);
  const rules::Equation &row = op.row->equation.equation;
  auto is_rest = [&](uint8_t first, uint8_t count) {
    return count == 1 && row.dims[first].form == rules::Dim::Form::Rest;
  };
  return !*rule_of(op) && !row.whole && row.ref_count == 1 && row.result_count == 1 &&
         is_rest(row.refs[0].first_dim, row.refs[0].dim_count) &&
         is_rest(row.results[0].first_dim, row.results[0].dim_count);
}

// Its dimensions in another order. False if that is not said by numbers.
bool permute(Region &region, const rules::Application &app) {
  const rules::FactorsRule rule = *rule_of(app.op);
  const size_t rank = region.dims.size();
  llvm::SmallVector<Region::Dim, 4> dims = region.dims;
  auto place = [&](llvm::StringRef name) {
    const std::optional<int64_t> dim = rules::number_attr(app, {name});
    return dim ? rules::place_of(*dim, rank) : std::nullopt;
  };
  if (rule == rules::permute_factors) {
    const std::optional<rules::Numbers> order =
        rules::numbers_attr(app, {"dims", "dim", "permutation"});
    if (!order || order->size() != rank)
      return false;
    for (size_t i = 0; i < rank; ++i) {
      const std::optional<unsigned> from = rules::place_of((*order)[i], rank);
      if (!from)
        return false;
      region.dims[i] = dims[*from];
    }
    return true;
  }
  if (rule == rules::reverse_factors)
    std::reverse(region.dims.begin(), region.dims.end());
  else if (rule == rules::swap_last_factors && rank > 1)
    std::swap(region.dims[rank - 1], region.dims[rank - 2]);
  else if (const auto a = place("dim0"), b = place("dim1");
           rule == rules::transpose_factors && a && b)
    std::swap(region.dims[*a], region.dims[*b]);
  else
    return false;
  return true;
}

// Elements of what lies densely, counted by strides of their own. False if it does not, or if some
// would be met twice.
bool stride(Region &region, const rules::Application &app, const ir::Shape &shape) {
  const std::optional<rules::Numbers> strides = rules::numbers_attr(app, {"stride", "strides"});
  const std::optional<int64_t> offset =
      rules::any_attr(app, {"storage_offset"}) ? rules::number_attr(app, {"storage_offset"}) : 0;
  const llvm::SmallVector<Region::Dim, 4> dense = nest(region, false);
  if (!strides || strides->size() != shape.dims.size() || !offset || *offset < 0 ||
      dense.size() != 1 || dense[0].stride != 1)
    return false;
  Region made{region.first, {}, true, region.exact};
  int64_t last = *offset;
  for (size_t d = 0; d < shape.dims.size(); ++d) {
    const int64_t extent = shape.dims[d].number(), step = (*strides)[d];
    // Far numbers are not multiplied: they may be any.
    if (extent == 0 || step < 0 || last >= dense[0].extent ||
        (extent > 1 && step > (dense[0].extent - 1 - last) / (extent - 1)))
      return false;
    last += (extent - 1) * step;
    made.dims.push_back({extent, extent == 1 ? 1 : step});
  }
  if (last >= dense[0].extent)
    return false;
  int64_t inside = 0;
  for (Region::Dim dim : llvm::reverse(nest(made, true))) {
    if (dim.stride <= inside)
      return false;
    inside += (dim.extent - 1) * dim.stride;
  }
  made.first += *offset;
  region = made;
  return true;
}

std::optional<unsigned> cut_dim(const rules::Application &app, size_t rank) {
  if (!rules::dim_attr(app))
    return rules::place_of(0, rank);
  const std::optional<int64_t> dim = rules::dim_number(app);
  return dim ? rules::place_of(*dim, rank) : std::nullopt;
}

// Where a slice begins, or its step; `absent` is the default. None if it is known at run time only.
std::optional<int64_t> bound(const rules::Application &app, llvm::StringRef name, int64_t absent) {
  if (app.named(name))
    return std::nullopt;
  return rules::any_attr(app, {name}) ? rules::number_attr(app, {name}) : absent;
}

} // namespace

bool Regions::disjoint(ValueId a, ValueId b) {
  const std::pair<const Region *, const Region *> known = both(a, b);
  const Region *one = known.first, *other = known.second;
  if (!one || !other)
    return false;
  if (is_empty(*one) || is_empty(*other))
    return true;
  if (one->first + reach(*one) < other->first || other->first + reach(*other) < one->first)
    return true;
  return llvm::any_of(
      llvm::concat<const Region::Dim>(one->dims, other->dims),
      [&](Region::Dim dim) { return dim.stride > 1 && other_columns(*one, *other, dim.stride); });
}

bool Regions::misses(ValueId whole, ValueId part) {
  const auto [all, some] = both(whole, part);
  if (!all || !some || !all->exact || !some->exact || is_empty(*some))
    return false;
  const llvm::SmallVector<Region::Dim, 4> dims = nest(*all, true);
  if (is_empty(*all) || dims.size() > 1 || (dims.size() == 1 && dims[0].stride != 1))
    return is_empty(*all) || all->first != some->first || dims != nest(*some, true);
  return some->first < all->first || all->first + reach(*all) < some->first + reach(*some);
}

std::pair<const Region *, const Region *> Regions::both(ValueId a, ValueId b) {
  of(a), of(b); // so that neither moves the other one
  const std::optional<Region> &one = of(a), &other = of(b);
  return {one ? &*one : nullptr, other ? &*other : nullptr};
}

const std::optional<Region> &Regions::of(ValueId value) {
  if (auto found = known_.find(value.index); found != known_.end())
    return found->second;
  llvm::SmallVector<ValueId, 8> chain;
  ValueId at = value;
  while (!known_.count(at.index) && program_.values[at].alias_of.valid()) {
    chain.push_back(at);
    at = base_of(at);
  }
  auto found = known_.find(at.index);
  std::optional<Region> region = found == known_.end() ? whole(at) : found->second;
  if (found == known_.end())
    known_[at.index] = region;
  for (ValueId view : llvm::reverse(chain)) {
    if (region)
      follow(*region, view);
    known_[view.index] = region;
  }
  return known_.find(value.index)->second;
}

// What a name shows a part of; of `alias`, the older name that shows the same.
ValueId Regions::base_of(ValueId view) {
  const InstId id = defining_inst(program_, view);
  if (id.valid() && rules_.resolve(program_.insts[id].op).boundary == rules::Boundary::Alias)
    if (llvm::SmallVector<ValueId, 4> operands = tensors_of(program_, id); operands.size() > 1)
      return operands[1];
  return program_.values[view].alias_of;
}

std::optional<Region> Regions::whole(ValueId root) const {
  const ir::Shape *dims = shape(root);
  if (!dims || !ir::element_count(*dims))
    return std::nullopt;
  Region region;
  int64_t stride = 1;
  for (ir::Extent extent : llvm::reverse(dims->dims)) {
    region.dims.insert(region.dims.begin(), {extent.number(), stride});
    stride *= std::max<int64_t>(extent.number(), 1);
  }
  return region;
}

// From the elements of its base to those of a view, or of what was written there.
void Regions::follow(Region &region, ValueId view) {
  const ValueId base = base_of(view);
  const InstId id = defining_inst(program_, view);
  if (!id.valid())
    region.exact = region.ordered = false;
  if (!id.valid() || base != program_.values[view].alias_of)
    return;
  const ir::Inst &inst = program_.insts[id];
  const rules::ResolvedOp &op = rules_.resolve(inst.op);
  OperandList operands;
  operands.read(program_, inst.operands);
  for (size_t i = 0; i < operands.values.size(); ++i)
    if (operands.values[i] == base && operands.written[i])
      return;
  const ir::Shape *before = shape(base), *after = shape(view);
  const bool counted = before && after && ir::element_count(*after);
  const rules::FactorsRule *rule = rule_of(op);
  if (counted && before->dims == after->dims && keeps_positions(op))
    return;
  rules::Application app{program_, op, inst.attrs, inst.context, operands.slots, {}, {}};
  const bool counts = rule && is_any(*rule, {rules::reshape_factors, rules::view_as_factors,
                                             rules::flatten_factors, rules::unflatten_factors,
                                             rules::squeeze_factors, rules::unsqueeze_factors});
  if (rule &&
      is_any(*rule, {rules::permute_factors, rules::transpose_factors, rules::reverse_factors,
                     rules::swap_last_factors, rules::movedim_factors})) {
    region.ordered &= permute(region, app);
    return;
  }
  if (counted && counts && ir::element_count(*before) == ir::element_count(*after)) {
    region.ordered &= !is_empty(region) && reshape(region, *after);
    return;
  }
  if (counted && region.ordered && rule && cut(region, app, id, view))
    return;
  if (counted && region.ordered && op.row && op.row->variant == rules::Variant::Strided &&
      stride(region, app, *after))
    return;
  region.exact = region.ordered = false;
}

RegionIndex Regions::index(ValueId root) const {
  const ir::Shape *of = shape(root);
  const int64_t elements = of ? ir::element_count(*of).value_or(1) : 1;
  const bool rows = elements > 1 && !of->dims.empty();
  return {std::max<int64_t>(elements, 1), rows ? of->dims.back().number() : 1};
}

RegionIndex::Span RegionIndex::rows(const Region &region) const {
  const auto at = [&](int64_t element) {
    const int64_t inside = std::clamp<int64_t>(element, 0, elements_ - 1);
    return static_cast<unsigned>(inside / std::max<int64_t>(elements_ / kStretches + 1, 1));
  };
  return {at(region.first), at(region.first + reach(region))};
}

// None if it does not stay between two columns of its first row.
std::optional<RegionIndex::Span> RegionIndex::columns(const Region &region) const {
  const int64_t first = region.first % columns_, last = first + reach(region, columns_);
  if (last >= columns_ || llvm::any_of(region.dims, [&](Region::Dim dim) {
        return dim.stride >= columns_ && dim.stride % columns_ != 0;
      }))
    return std::nullopt;
  const int64_t width = std::max<int64_t>(columns_ / kStretches + 1, 1);
  return Span{static_cast<unsigned>(first / width), static_cast<unsigned>(last / width)};
}

void RegionIndex::add(uint32_t entry, const Region *region) {
  if (region && is_empty(*region)) // it meets none
    return;
  const Span all{0, kStretches - 1};
  const Span row = region ? rows(*region) : all;
  const Span column = region ? columns(*region).value_or(all) : all;
  const Span &fewer = column.count() < row.count() ? column : row;
  if (fewer.count() > kMost)
    return anywhere_.push_back(entry);
  for (unsigned i = fewer.first; i <= fewer.last; ++i)
    (&fewer == &row ? by_row_ : by_column_)[i].push_back(entry);
}

llvm::SmallVector<llvm::ArrayRef<uint32_t>, 8> RegionIndex::near(const Region *region) const {
  const Span all{0, kStretches - 1};
  const Span row = region ? rows(*region) : all;
  const Span column = region ? columns(*region).value_or(all) : all;
  llvm::SmallVector<llvm::ArrayRef<uint32_t>, 8> lists{anywhere_};
  for (unsigned i = row.first; i <= row.last; ++i)
    lists.push_back(by_row_[i]);
  for (unsigned i = column.first; i <= column.last; ++i)
    lists.push_back(by_column_[i]);
  llvm::erase_if(lists, [](llvm::ArrayRef<uint32_t> list) { return list.empty(); });
  return lists;
}

// A block of one dimension, or one of its elements. False if it is another op, or not said.
bool Regions::cut(Region &region, const rules::Application &app, InstId id, ValueId view) const {
  const rules::FactorsRule rule = *rule_of(app.op);
  const std::optional<unsigned> dim = cut_dim(app, region.dims.size());
  if (!dim)
    return false;
  const ir::Inst &inst = program_.insts[id];
  const uint32_t result = view.index - inst.first_result.index;
  Region::Dim &cut = region.dims[*dim];
  std::optional<int64_t> start, step = 1;
  const bool one = rule == rules::select_factors || rule == rules::unbind_factors;
  if (rule == rules::slice_factors) {
    start = bound(app, "start", 0);
    step = bound(app, "step", 1);
  } else if (one) {
    start = rule == rules::unbind_factors ? int64_t(result) : rules::number_attr(app, {"index"});
  } else if (rule == rules::split_factors || rule == rules::chunk_factors) {
    start = 0;
    for (uint32_t r = 0; start && r < result; ++r) {
      const ir::Shape *block = shape(inst.result(r));
      if (!block || block->dims.size() != region.dims.size() || !block->dims[*dim].is_number())
        return false;
      *start += block->dims[*dim].number();
    }
  }
  const llvm::ArrayRef<ir::Extent> dims = shape(view)->dims;
  if (!start || !step || *step <= 0 || dims.size() + one != region.dims.size())
    return false;
  const int64_t extent = one ? 1 : dims[*dim].number();
  const int64_t first = *start < 0 ? std::max<int64_t>(*start + cut.extent, 0) : *start;
  if (extent > 0 && (first >= cut.extent || extent - 1 > (cut.extent - 1 - first) / *step))
    return false;
  if (extent > 0)
    region.first += first * cut.stride;
  cut = {extent, cut.stride * (extent > 1 ? *step : 1)};
  if (one)
    region.dims.erase(region.dims.begin() + *dim);
  return true;
}

} // namespace spmd::checker
