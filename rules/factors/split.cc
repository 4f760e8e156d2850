// Maps of ops that join, cut, pad or index dimensions. What is cut or joined is whole, and a new
// factor on the other side; all other dimensions pass.
#include "rules/factors/factors.h"
#include "rules/shapes/attrs.h"
#include "rules/shapes/checked.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {

using ir::Extent;

namespace {

std::optional<unsigned> dim_of(const Application &app, size_t rank, int64_t absent) {
  if (!dim_attr(app))
    return place_of(absent, rank);
  std::optional<int64_t> dim = dim_number(app);
  return dim ? place_of(*dim, rank) : std::nullopt;
}

std::optional<Extent> sum(const Application &app, std::optional<Extent> a, Extent b) {
  return a ? combine(app.program.exprs, ir::Expr::Form::Add, *a, b) : std::nullopt;
}

std::optional<int64_t> number(Extent extent) {
  return extent.is_number() ? std::optional(extent.number()) : std::nullopt;
}

// Members of a list, equal but for the dimension `joined` (none: equal throughout). Empty: they do
// not fit.
std::optional<TensorFactors> common_factors(FactorSink &sink, std::optional<unsigned> joined) {
  const ir::Shape *first = sink.shape(0);
  TensorFactors common = sink.fresh(0);
  if (joined)
    sink.whole(common[*joined]);
  for (unsigned i = 1; i < sink.count(0); ++i) {
    const ir::Shape *shape = sink.shape(0, i);
    if (!shape || shape->dims.size() != first->dims.size())
      return std::nullopt;
    TensorFactors factors = common;
    for (unsigned d = 0; d < shape->dims.size(); ++d)
      if (d == joined)
        factors[d] = {sink.factor(shape->dims[d], true)};
      else if (!sink.equal(common[d][0], shape->dims[d], 0, i, d))
        return std::nullopt;
    sink.set(0, i, std::move(factors));
  }
  return common;
}

// One result per part of dimension `place`; a part without extent is not known.
bool split_into(FactorSink &sink, unsigned place, llvm::ArrayRef<std::optional<Extent>> parts) {
  const TensorFactors from = sink.fresh(0);
  sink.whole(from[place]);
  for (std::optional<Extent> part : parts) {
    TensorFactors factors = from;
    factors[place] = {sink.factor(part, true)};
    sink.result(std::move(factors));
  }
  return true;
}

// Blocks of `size`, the last one shorter.
bool split_evenly(FactorSink &sink, unsigned place, std::optional<int64_t> size) {
  llvm::SmallVector<std::optional<Extent>, 8> parts;
  std::optional<int64_t> total = number(sink.shape(0)->dims[place]);
  for (unsigned k = 0; k < sink.result_count(); ++k) {
    int64_t left = -1;
    if (total && size && *size >= 0)
      left = (CheckedInt(*total) - CheckedInt(*size) * int64_t(k)).number().value_or(-1);
    parts.push_back(left > 0 ? std::optional(Extent(std::min(*size, left))) : std::nullopt);
  }
  return split_into(sink, place, parts);
}

// The extent of a slice; none if it is not known. `full`: nothing is cut.
std::optional<Extent> slice_extent(const Application &app, Extent whole, bool &full) {
  if (any_attr(app, {"length"})) {
    std::optional<WantedExtents> wanted = extents_attr(app, {"length"});
    if (wanted->size() != 1)
      return std::nullopt;
    full = (*wanted)[0].extent == whole;
    return (*wanted)[0].extent;
  }
  // A bound that is an operand is known at run time only.
  auto bound = [&](llvm::StringRef name, int64_t absent) -> std::optional<int64_t> {
    if (app.named(name))
      return std::nullopt;
    return any_attr(app, {name}) ? number_attr(app, {name}) : absent;
  };
  std::optional<int64_t> start = bound("start", 0), step = bound("step", 1);
  std::optional<int64_t> end = bound("end", INT64_MAX);
  bool to_the_end = end && (*end >= INT32_MAX || Extent(std::max<int64_t>(*end, 0)) == whole);
  full = start == 0 && step == 1 && to_the_end;
  if (full)
    return whole;
  if (!whole.is_number() || !start || !end || !step || *step <= 0)
    return std::nullopt;
  auto clamped = [&](int64_t place) {
    return std::clamp<int64_t>(place < 0 ? place + whole.number() : place, 0, whole.number());
  };
  int64_t length = std::max<int64_t>(0, clamped(*end) - clamped(*start));
  return Extent((length + *step - 1) / *step);
}

bool result_like_first(FactorSink &sink, unsigned part, unsigned place, bool removed) {
  const ir::Shape *shape = sink.shape(part);
  TensorFactors result = sink.fresh(0);
  sink.whole(result[place]);
  if (shape && shape->dims.size() + removed == result.size()) {
    TensorFactors factors = result;
    if (removed)
      factors.erase(factors.begin() + place);
    else
      factors[place] = {sink.factor(shape->dims[place], true)};
    sink.set(part, std::move(factors));
  }
  sink.result(std::move(result));
  return true;
}

bool backward_of_cut(const Application &app, FactorSink &sink, bool removed) {
  std::optional<WantedExtents> size = extents_attr(app, {"input_sizes", "size", "shape"});
  const ir::Shape *shape = sink.shape(0);
  std::optional<unsigned> place = size ? dim_of(app, size->size(), 0) : std::nullopt;
  if (!place || !shape || shape->dims.size() + removed != size->size())
    return false;
  TensorFactors result = sink.fresh(0);
  DimFactors whole{sink.factor((*size)[*place].extent, true)};
  if (removed) {
    result.insert(result.begin() + *place, whole);
  } else {
    sink.whole(result[*place]);
    result[*place] = whole;
  }
  sink.result(std::move(result));
  return true;
}

} // namespace

bool cat_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *first = sink.shape(0);
  std::optional<unsigned> place = first ? dim_of(app, first->dims.size(), 0) : std::nullopt;
  if (!place)
    return false;
  std::optional<Extent> total(Extent(0));
  for (unsigned i = 0; i < sink.count(0); ++i) {
    const ir::Shape *shape = sink.shape(0, i);
    // An empty tensor of one dimension joins anything.
    if (!shape || *place >= shape->dims.size() ||
        (shape->dims.size() == 1 && shape->dims[0] == Extent(0)))
      return false;
    total = total == Extent(0) ? shape->dims[*place] : sum(app, total, shape->dims[*place]);
  }
  std::optional<TensorFactors> factors = common_factors(sink, place);
  if (!factors)
    return false;
  (*factors)[*place] = {sink.factor(total, true)};
  sink.result(std::move(*factors));
  return true;
}

bool stack_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *first = sink.shape(0);
  std::optional<unsigned> place = first ? dim_of(app, first->dims.size() + 1, 0) : std::nullopt;
  std::optional<TensorFactors> factors = place ? common_factors(sink, std::nullopt) : std::nullopt;
  if (!factors)
    return false;
  factors->insert(factors->begin() + *place, DimFactors{sink.factor(Extent(sink.count(0)), true)});
  sink.result(std::move(*factors));
  return true;
}

bool split_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<unsigned> place = shape ? dim_of(app, shape->dims.size(), 0) : std::nullopt;
  if (!place)
    return false;
  std::initializer_list<llvm::StringRef> names = {"sizes", "split_sizes", "split_size",
                                                  "split_size_or_sections"};
  const ir::AttrValue *stated = any_attr(app, names);
  if (!stated)
    return any_attr(app, {"chunks"}) && chunk_factors(app, sink);
  if (stated->form != ir::AttrForm::List)
    return split_evenly(sink, *place, number_attr(app, names));
  llvm::SmallVector<std::optional<Extent>, 8> parts;
  std::optional<Extent> total(Extent(0));
  const std::optional<WantedExtents> sizes = extents_attr(app, names);
  for (const WantedExtent &wanted : *sizes) {
    parts.push_back(wanted.extent);
    total = wanted.extent ? sum(app, total, *wanted.extent) : std::nullopt;
  }
  Extent whole = shape->dims[*place];
  // On a shard there is nothing to compare: it may not be split.
  if (total && total->is_number() && whole.is_number() && *total != whole &&
      !sink.cut(0, 0, *place))
    return sink.mismatch("dimension " + std::to_string(*place) +
                             " of operand 0 and the sum of the sizes",
                         std::to_string(whole.number()), std::to_string(total->number()));
  return split_into(sink, *place, parts);
}

bool chunk_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<unsigned> place = shape ? dim_of(app, shape->dims.size(), 0) : std::nullopt;
  std::optional<int64_t> chunks = number_attr(app, {"chunks"});
  if (!place || !chunks || *chunks <= 0)
    return false;
  std::optional<int64_t> total = number(shape->dims[*place]);
  return split_evenly(sink, *place,
                      total ? std::optional((*total + *chunks - 1) / *chunks) : std::nullopt);
}

bool unbind_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<unsigned> place = shape ? dim_of(app, shape->dims.size(), 0) : std::nullopt;
  if (!place)
    return false;
  TensorFactors factors = sink.fresh(0);
  sink.whole(factors[*place]);
  factors.erase(factors.begin() + *place);
  for (unsigned k = 0; k < sink.result_count(); ++k)
    sink.result(factors);
  return true;
}

bool slice_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<unsigned> place = shape ? dim_of(app, shape->dims.size(), 0) : std::nullopt;
  if (!place)
    return false;
  bool full = false;
  std::optional<Extent> extent = slice_extent(app, shape->dims[*place], full);
  TensorFactors result = sink.fresh(0);
  if (!full) {
    sink.whole(result[*place]);
    result[*place] = {sink.factor(extent, true)};
  }
  sink.result(std::move(result));
  return true;
}

bool select_factors(const Application &app, FactorSink &sink) { return unbind_factors(app, sink); }

bool slice_backward_factors(const Application &app, FactorSink &sink) {
  return backward_of_cut(app, sink, false);
}
bool select_backward_factors(const Application &app, FactorSink &sink) {
  return backward_of_cut(app, sink, true);
}

bool slice_scatter_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<unsigned> place = shape ? dim_of(app, shape->dims.size(), 0) : std::nullopt;
  return place && result_like_first(sink, 1, *place, false);
}
bool select_scatter_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<unsigned> place = shape ? dim_of(app, shape->dims.size(), 0) : std::nullopt;
  return place && result_like_first(sink, 1, *place, true);
}

// `pad` counts from the last dimension, before and after.
bool pad_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<Numbers> pad = numbers_attr(app, {"pad", "padding"});
  if (!shape || !pad || pad->size() % 2 || pad->size() / 2 > shape->dims.size())
    return false;
  TensorFactors result = sink.fresh(0);
  for (size_t i = 0; i < pad->size() / 2; ++i) {
    int64_t more = (*pad)[2 * i] + (*pad)[2 * i + 1];
    DimFactors &dim = result[result.size() - 1 - i];
    Extent whole = shape->dims[result.size() - 1 - i];
    if ((*pad)[2 * i] == 0 && (*pad)[2 * i + 1] == 0)
      continue;
    sink.whole(dim);
    std::optional<Extent> longer;
    if (whole.is_number())
      longer = (CheckedInt(whole.number()) + more).extent();
    dim = {sink.factor(longer, true)};
  }
  sink.result(std::move(result));
  return true;
}

bool pad_backward_factors(const Application &app, FactorSink &sink) {
  unsigned gradient = sink.operand("g"), padded = sink.operand("a");
  const ir::Shape *g = sink.shape(gradient), *a = sink.shape(padded);
  std::optional<Numbers> pad = numbers_attr(app, {"pad", "padding"});
  if (!g || !a || !pad || pad->size() % 2 || pad->size() / 2 > a->dims.size() ||
      g->dims.size() != a->dims.size())
    return false;
  TensorFactors result = sink.fresh(padded), from = result;
  for (size_t i = 0; i < pad->size() / 2; ++i) {
    if ((*pad)[2 * i] == 0 && (*pad)[2 * i + 1] == 0)
      continue;
    size_t d = result.size() - 1 - i;
    sink.whole(result[d]);
    from[d] = {sink.factor(g->dims[d], true)};
  }
  follow(sink, gradient, from);
  sink.result(std::move(result));
  return true;
}

namespace {

// The dimensions of several indices, which broadcast together. None if they do not say.
std::optional<TensorFactors> index_dims(FactorSink &sink, unsigned operand) {
  size_t rank = 0;
  for (unsigned i = 0; i < sink.count(operand); ++i) {
    const ir::Shape *index = sink.shape(operand, i);
    if (!index || ir::info(index->dtype).form == ir::DTypeClass::Boolean)
      return std::nullopt;
    rank = std::max<size_t>(rank, index->dims.size());
  }
  TensorFactors dims;
  for (size_t d = 0; d < rank; ++d)
    dims.push_back({sink.factor(std::nullopt)});
  for (unsigned i = 0; i < sink.count(operand); ++i) {
    const ir::Shape &index = *sink.shape(operand, i);
    size_t lead = rank - index.dims.size();
    for (unsigned d = 0; d < index.dims.size(); ++d)
      if (!sink.unify(dims[lead + d][0], index.dims[d], operand, i, d))
        return std::nullopt;
    sink.set(operand, i, TensorFactors(dims.begin() + static_cast<ptrdiff_t>(lead), dims.end()));
  }
  return dims;
}

// The tensor that indices are applied to, and what they select of it: indexed dimensions are whole,
// the others pass.
struct Indexed {
  TensorFactors tensor, selected, indices;
};
std::optional<Indexed> indexed(FactorSink &sink, unsigned operand) {
  const ir::Shape *shape = sink.shape(0);
  if (!shape || sink.count(operand) == 0)
    return std::nullopt;
  llvm::SmallVector<unsigned, 4> positions;
  for (unsigned i = 0; i < sink.count(operand); ++i)
    positions.push_back(sink.position(operand, i));
  std::optional<TensorFactors> dims = index_dims(sink, operand);
  if (!dims || positions.back() >= shape->dims.size())
    return std::nullopt;
  bool adjacent = positions.back() - positions.front() + 1 == positions.size();
  Indexed made{sink.fresh(0), {}, *dims};
  if (!adjacent)
    made.selected = *dims;
  for (unsigned d = 0; d < made.tensor.size(); ++d) {
    if (adjacent && d == positions.front())
      made.selected.append(*dims);
    if (llvm::is_contained(positions, d))
      sink.whole(made.tensor[d]);
    else
      made.selected.push_back(made.tensor[d]);
  }
  return made;
}

// Writes s at the indices. `adds`: entries are summed, so that indices may be sharded.
bool index_put(FactorSink &sink, bool adds) {
  unsigned indices = sink.operand("i"), source = sink.operand("s");
  if (!sink.shape(0))
    return false;
  std::optional<Indexed> made = indexed(sink, indices);
  if (!made) {
    sink.result(sink.fresh_whole(0));
    if (sink.shape(source))
      sink.fresh_whole(source);
    return true;
  }
  for (const DimFactors &dim : made->indices)
    if (!adds)
      sink.whole(dim);
  follow(sink, source, made->selected);
  sink.result(std::move(made->tensor));
  return true;
}

} // namespace

// The dimensions of the indices stand where the indexed ones stood; first, if these are not
// adjacent.
bool index_factors(const Application &, FactorSink &sink) {
  std::optional<Indexed> made = indexed(sink, 1);
  if (made)
    sink.result(std::move(made->selected));
  return made.has_value();
}

bool index_put_factors(const Application &, FactorSink &sink) { return index_put(sink, false); }
bool index_put_add_factors(const Application &, FactorSink &sink) { return index_put(sink, true); }

} // namespace spmd::rules
