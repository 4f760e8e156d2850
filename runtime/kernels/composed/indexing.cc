// Rows that read and write by index. All of them are one picture: element p of a small tensor
// stands for one of a large tensor, which lies where p does in some dimensions, and as far along
// others as an entry of the index says. Reading is then one loop nest; writing is a scatter of as
// long pieces as stay together. What an index names that is not there is zero, or nowhere: the
// host, which would refuse it, does not see it.
#include "ir/support/arrays.h"
#include "runtime/kernels/composed/composition.h"
#include "runtime/kernels/composed/compositions.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

namespace {

using Symbols = llvm::ArrayRef<TracedNumber>;

struct IndexedView {
  Dims over;           // of the small tensor
  Strides base;        // of the large one, per dimension of `over`
  DeviceArray entries; // whole numbers; negative: nowhere
  Strides index;       // of the entries, per dimension of `over`
  int64_t step = 1;    // elements of the large tensor that an entry counts
  int64_t extent = 0;  // entries are below
  int64_t size = 0;    // of the large tensor
};

unsigned dim_of(const Composition &of, const Dims &dims) {
  auto named = of.context.dims(static_cast<unsigned>(dims.size()));
  return named.empty() ? 0 : named.front();
}

// Entries as positions in what is at hand: negative ones of the program count from the end of the
// whole.
struct IndexRange {
  int64_t extent = 0, first = 0, whole = 0;
  std::optional<int64_t> skipped;
};
bool count_entries(Composition &of, const DeviceArray &index, const IndexRange &as,
                   DeviceArray &out) {
  out = of.temporary(*index.dims, ir::DType::I64);
  return of.make(out, *index.dims, index, [&](Symbols s) {
    TracedNumber place = s[0] < 0.0 ? s[0] + static_cast<double>(as.whole) : s[0];
    TracedNumber own = place - static_cast<double>(as.first);
    if (own < 0.0 || own >= static_cast<double>(as.extent))
      return TracedNumber(-1.0);
    if (as.skipped && own == static_cast<double>(*as.skipped))
      return TracedNumber(-1.0);
    return own;
  });
}
bool count_entries(Composition &of, const DeviceArray &index, int64_t extent, DeviceArray &out) {
  return count_entries(of, index, {extent, 0, extent, std::nullopt}, out);
}
// Of a block along dimension `dim`.
bool count_own(Composition &of, const DeviceArray &index, const DeviceArray &block, unsigned dim,
               DeviceArray &out) {
  IndexRange as{(*block.dims)[dim], 0, (*block.dims)[dim], std::nullopt};
  if (block.first)
    as.first = (*block.first)[dim];
  if (block.whole)
    as.whole = (*block.whole)[dim];
  return count_entries(of, index, as, out);
}

// As `along` of selection.h: one entry for each element.
bool picture_along(Composition &of, const Dims &large, const Dims &small, unsigned d,
                   const DeviceArray &index, const Dims &index_dims, IndexedView &out) {
  if (small.size() != large.size() || d >= large.size())
    return false;
  for (unsigned i = 0; i < small.size(); ++i)
    if (i != d && small[i] > large[i] && large[i] != 1)
      return false;
  out.over = small, out.base = strides_of(large);
  out.step = out.base[d], out.extent = large[d], out.size = count(large);
  out.base[d] = 0;
  for (size_t i = 0; i < large.size(); ++i)
    if (large[i] == 1)
      out.base[i] = 0;
  out.index = strides_over(index_dims, small);
  return count_entries(of, index, out.extent, out.entries);
}

// One entry for each position along dimension d, of `length`.
bool picture_lines(const Dims &large, unsigned d, const DeviceArray &entries, IndexedView &out) {
  const DimSplit cut(large, d);
  out.over = {cut.outer, entries.size(), cut.inner};
  out.base = {cut.extent * cut.inner, 0, 1};
  out.index = {0, 1, 0};
  out.entries = entries;
  out.step = cut.inner, out.extent = cut.extent, out.size = count(large);
  return true;
}

bool read(Composition &of, const IndexedView &by, const DeviceArray &from, const DeviceArray &out) {
  return count(by.over) == out.size() &&
         of.fetch(by.over, {out, strides_of(by.over)}, {from, by.base}, {by.entries, by.index},
                  by.step, by.extent);
}

// `from`: of the extents of the small tensor, or one element that goes everywhere.
bool write(Composition &of, SpmdScatterForm form, const IndexedView &by, const DeviceArray &from,
           const DeviceArray &to) {
  const int64_t elements = count(by.over);
  if ((from.size() != elements && from.size() != 1) || from.is_complex() || to.is_complex())
    return false;
  if (elements == 0)
    return true;
  // Dimensions at the end that no entry moves and that lie in the large tensor as in the small one.
  size_t lead = by.over.size();
  int64_t width = 1;
  for (; lead > 0; --lead) {
    const size_t d = lead - 1;
    if (by.over[d] != 1 && (by.index[d] != 0 || by.base[d] != width))
      break;
    width *= by.over[d];
  }
  auto divides = [&](int64_t stride) { return stride % width == 0; };
  if (!divides(by.step) || !divides(by.size) ||
      !llvm::all_of(ir::as_array(by.base).take_front(lead), divides))
    lead = by.over.size(), width = 1;
  const Dims rows(by.over.begin(), by.over.begin() + static_cast<ptrdiff_t>(lead));
  auto leading = [&](const Strides &of_all) {
    return Strides(of_all.begin(), of_all.begin() + static_cast<ptrdiff_t>(lead));
  };
  Strided base{of.positions(1, 0, 1), leading(by.base)};
  for (int64_t &stride : base.strides)
    stride /= width;
  const DeviceArray positions = of.temporary(rows, ir::DType::I64);
  const auto step = static_cast<double>(by.step / width);
  if (!of.make_along(rows, {positions, strides_of(rows)}, {{by.entries, leading(by.index)}, base},
                     [&](Symbols s) {
                       if (s[0] < 0.0)
                         return TracedNumber(-1.0);
                       return s[1] + s[0] * step;
                     }))
    return false;
  SpmdScatter made{};
  made.width = width;
  made.from_entry = from.size() == 1 ? 0 : width, made.from_stride = from.size() == 1 ? 0 : 1;
  made.rows = by.size / width, made.to_row = width, made.to_stride = 1;
  of.scatter(form, positions, from, to, made);
  return true;
}

// Reads, or puts the gradient back where it was read.
bool read_or_put_back(Composition &of, const IndexedView &by, std::string_view source) {
  if (!of.by)
    return read(of, by, *of.operand(source), *of.result(0));
  const DeviceArray *g = of.only_gradient(0);
  return g && of.is_by(source) && of.fill(*of.result(0), 0) &&
         write(of, kSpmdAddRows, by, *g, *of.result(0));
}

// Extents of the small tensor: of the result, or of its gradient.
const Dims *small_dims(const Composition &of) {
  const DeviceArray *small = of.by ? of.only_gradient(0) : of.result(0);
  return small ? small->dims : nullptr;
}

Dims at_least_one(const Dims &dims) { return dims.empty() ? Dims{1} : dims; }

} // namespace

bool composed_gather(Composition &of) {
  const DeviceArray *a = of.operand("a"), *i = of.operand("i");
  const Dims *result = small_dims(of);
  if (!a || !i || !result)
    return false;
  const bool flat = of.context.variant() == Variant::Flat && !rules::dim_attr(of.context.app);
  const Dims from = flat ? Dims{a->size()} : at_least_one(*a->dims);
  const Dims index = flat ? Dims{i->size()} : at_least_one(*i->dims);
  IndexedView by;
  return picture_along(of, from, at_least_one(*result), flat ? 0 : dim_of(of, *a->dims), *i, index,
                       by) &&
         read_or_put_back(of, by, "a");
}

bool composed_index_select(Composition &of) {
  const DeviceArray *a = of.operand("a"), *i = of.operand("i");
  if (!a || !i)
    return false;
  const Dims from = at_least_one(*a->dims);
  const unsigned d = dim_of(of, *a->dims);
  DeviceArray entries;
  IndexedView by;
  return count_entries(of, *i, from[d], entries) && picture_lines(from, d, entries, by) &&
         read_or_put_back(of, by, "a");
}

bool composed_embedding(Composition &of) {
  const DeviceArray *t = of.operand("t"), *i = of.operand("i");
  if (!t || !i || t->dims->empty() || rules::any_attr(of.context.app, {"max_norm"}))
    return false;
  DeviceArray entries;
  IndexedView by;
  const bool masked = of.context.row.variant == Variant::LocalRowsOnly;
  const bool made =
      masked ? count_own(of, *i, *t, 0, entries) : count_entries(of, *i, (*t->dims)[0], entries);
  return made && picture_lines(*t->dims, 0, entries, by) && read_or_put_back(of, by, "t");
}

bool composed_gather_masked(Composition &of) {
  const DeviceArray *a = of.operand("a"), *i = of.operand("i");
  if (!a || !i || a->dims->empty())
    return false;
  const unsigned d = dim_of(of, *a->dims);
  const DimSplit cut(*a->dims, d);
  IndexedView by;
  by.over = {cut.outer, cut.inner};
  by.base = {cut.extent * cut.inner, 1};
  by.index = i->size() == 1 ? Strides{0, 0} : Strides{cut.inner, 1};
  by.step = cut.inner, by.extent = cut.extent, by.size = a->size();
  return (i->size() == 1 || i->size() == cut.outer * cut.inner) &&
         count_own(of, *i, *a, d, by.entries) && read_or_put_back(of, by, "a");
}

bool composed_take(Composition &of) {
  const DeviceArray *a = of.operand("a"), *i = of.operand("i");
  if (!a || !i)
    return false;
  IndexedView by;
  by.over = {i->size()}, by.base = {0}, by.index = {1};
  by.extent = by.size = a->size();
  return count_entries(of, *i, a->size(), by.entries) && read_or_put_back(of, by, "a");
}

namespace {

// As `selection` of selection_of.h, but for masks: how many elements these choose is in the data.
bool picture_selection(Composition &of, const Dims &large, IndexedView &out) {
  const unsigned operand = of.context.operand("i");
  struct Part {
    unsigned dim;
    DeviceArray entries;
  };
  llvm::SmallVector<Part, 4> parts;
  Dims chosen;
  unsigned dim = 0, place = 0;
  bool adjacent = true;
  for (unsigned k = 0; k < of.context.members(operand); ++k, ++place) {
    const DeviceArray &index = *of.operand("i", k);
    const unsigned at = list_position(*of.context.binding[operand], k);
    adjacent &= at <= place || parts.empty();
    dim += at - place, place = at;
    if (index.dtype == ir::DType::Bool || index.dtype == ir::DType::U8 || dim >= large.size())
      return false;
    Part part{dim, {}};
    if (!count_entries(of, index, large[dim], part.entries))
      return false;
    const Dims &dims = *index.dims;
    if (dims.size() > chosen.size())
      chosen.insert(chosen.begin(), dims.size() - chosen.size(), 1);
    for (size_t back = 1; back <= dims.size(); ++back) {
      const int64_t extent = dims[dims.size() - back];
      int64_t &have = chosen[chosen.size() - back];
      if (have != 1 && extent != 1 && have != extent)
        return false;
      have = have == 1 ? extent : have;
    }
    parts.push_back(std::move(part));
    ++dim;
  }
  constexpr size_t kMostParts = 4;
  if (parts.empty() || parts.size() > kMostParts)
    return false;
  // Where in the large tensor, as one number.
  const Strides own = strides_of(large);
  llvm::SmallVector<DeviceArray, 4> inputs;
  for (const Part &part : parts)
    inputs.push_back(part.entries);
  out.entries = of.temporary(chosen, ir::DType::I64);
  if (!of.make(out.entries, chosen, inputs, [&](Symbols s) {
        TracedNumber sum = 0.0;
        for (size_t k = 0; k < parts.size(); ++k) {
          if (s[k] < 0.0)
            return TracedNumber(-1.0);
          sum += s[k] * static_cast<double>(own[parts[k].dim]);
        }
        return sum;
      }))
    return false;
  auto take_chosen = [&] {
    const Strides dense = strides_of(chosen);
    out.over.append(chosen.begin(), chosen.end());
    out.base.append(chosen.size(), 0);
    out.index.append(dense.begin(), dense.end());
  };
  if (!adjacent)
    take_chosen();
  for (unsigned d = 0; d < large.size(); ++d) {
    if (adjacent && d == parts.front().dim)
      take_chosen();
    if (llvm::any_of(parts, [&](const Part &part) { return part.dim == d; }))
      continue;
    out.over.push_back(large[d]);
    out.base.push_back(own[d]);
    out.index.push_back(0);
  }
  out.step = 1, out.extent = out.size = count(large);
  return true;
}

} // namespace

bool composed_index(Composition &of) {
  const DeviceArray *a = of.operand("a");
  IndexedView by;
  return a && !rules::any_attr(of.context.app, {"slice_sizes", "dimension_numbers"}) &&
         picture_selection(of, *a->dims, by) && read_or_put_back(of, by, "a");
}

bool composed_embedding_backward(Composition &of) {
  const DeviceArray *g = of.operand("g"), *i = of.operand("i");
  if (of.by || !g || !i || rules::flag_attr(of.context.app, "scale_grad_by_freq"))
    return false;
  const DeviceArray &to = *of.result(0);
  const int64_t rows = (*to.dims)[0];
  auto skipped = static_cast<int64_t>(of.context.number_attr("padding_idx", -1));
  IndexRange as{rows, 0, rows, skipped < -1 ? skipped + rows : skipped};
  if (as.skipped == -1)
    as.skipped = std::nullopt;
  DeviceArray entries;
  IndexedView by;
  return count_entries(of, *i, as, entries) && picture_lines(*to.dims, 0, entries, by) &&
         of.fill(to, 0) && write(of, kSpmdAddRows, by, *g, to);
}

bool composed_selecting_backward(Composition &of) {
  const DeviceArray *g = of.operand("g"), *i = of.operand("i");
  if (of.by || !g || !i)
    return false;
  const DeviceArray &to = *of.result(0);
  const Dims large = at_least_one(*to.dims);
  const unsigned d = dim_of(of, large);
  IndexedView by;
  if (of.context.variant() == Variant::Lines) {
    DeviceArray entries;
    if (!count_entries(of, *i, large[d], entries) || !picture_lines(large, d, entries, by))
      return false;
  } else {
    Dims small = *i->dims; // without the dimension: `keepdim` was false
    if (small.size() < large.size())
      small.insert(small.begin() + d, 1);
    if (!picture_along(of, large, small, d, *i, small, by))
      return false;
  }
  return of.fill(to, 0) && write(of, kSpmdAddRows, by, *g, to);
}

namespace {

// What is put: operand `s` as it is stretched to `over`, its leading part, or one number.
enum class SourceShape : uint8_t { Stretched, Corner, Equal };
bool source_of(Composition &of, const Dims &over, SourceShape shape, DeviceArray &out) {
  const DeviceArray *s = of.operand("s");
  if (!s) {
    std::optional<double> number = of.context.number(of.context.operand("s"));
    out = of.temporary({1}, ir::DType::F64);
    return of.fill(out, number.value_or(0));
  }
  out = *s;
  const int64_t size = count(over);
  if (s->size() == 1)
    return true;
  if (shape == SourceShape::Equal || *s->dims == over)
    return s->size() == size;
  if (s->dims->size() > over.size() ||
      (shape == SourceShape::Corner && s->dims->size() < over.size()))
    return false;
  for (size_t back = 1; back <= s->dims->size(); ++back) {
    const int64_t extent = (*s->dims)[s->dims->size() - back], wanted = over[over.size() - back];
    if (shape == SourceShape::Corner ? extent < wanted : extent != 1 && extent != wanted)
      return false;
  }
  out = of.temporary(over, s->dtype);
  return of.copy(
      over,
      {*s, shape == SourceShape::Corner ? strides_of(*s->dims) : strides_over(*s->dims, over)},
      {out, strides_of(over)});
}

bool put(Composition &of, SpmdScatterForm form, const IndexedView &by, SourceShape shape,
         double factor = 1) {
  DeviceArray from;
  if (!source_of(of, by.over, shape, from))
    return false;
  if (factor != 1) {
    const DeviceArray scaled = of.temporary(*from.dims);
    if (!of.make(scaled, *from.dims, from, [&](Symbols s) { return factor * s[0]; }))
      return false;
    from = scaled;
  }
  return write(of, form, by, from, of.initialised_with("a"));
}

bool has_base(const Composition &of) {
  const DeviceArray *a = of.operand("a"), *to = of.result(0);
  return !of.by && a && a->size() == to->size() && a->dtype == to->dtype;
}

// Whether what stood there before takes part.
bool includes_self(const KernelContext &context) {
  const ir::AttrValue *stated = context.app.attr("include_self");
  return !stated || stated->as_bool();
}

} // namespace

bool composed_scatter(Composition &of) {
  const DeviceArray *i = of.operand("i"), *s = of.operand("s");
  const bool adds = of.context.row.variant == Variant::Adds;
  const llvm::StringRef reduce = rules::word_attr(of.context.app, {"reduce"});
  if (!has_base(of) || !i || rules::any_attr(of.context.app, {"dimension_numbers"}) ||
      of.context.variant() == Variant::Subtracts || (adds && !includes_self(of.context)) ||
      (!reduce.empty() && reduce != "add" && reduce != "sum"))
    return false;
  const Dims large = at_least_one(*of.result(0)->dims), small = at_least_one(*i->dims);
  const bool first = of.context.variant() == Variant::FirstDim && !rules::dim_attr(of.context.app);
  if (s && !s->dims->empty() && s->dims->size() != small.size())
    return false;
  for (size_t d = 0; s && !s->dims->empty() && d < small.size(); ++d)
    if (small[d] > (*s->dims)[d])
      return false;
  IndexedView by;
  return picture_along(of, large, small, first ? 0 : dim_of(of, large), *i, small, by) &&
         put(of, adds || !reduce.empty() ? kSpmdAddRows : kSpmdReplaceRows, by,
             SourceShape::Corner);
}

bool composed_lines(Composition &of) {
  const DeviceArray *i = of.operand("i");
  if (!has_base(of) || !i)
    return false;
  const Dims large = at_least_one(*of.result(0)->dims);
  const unsigned d = dim_of(of, large);
  const bool adds = of.context.row.variant == Variant::Adds;
  DeviceArray entries;
  IndexedView by;
  return count_entries(of, *i, large[d], entries) && picture_lines(large, d, entries, by) &&
         put(of, adds ? kSpmdAddRows : kSpmdReplaceRows, by, SourceShape::Equal,
             adds ? of.context.number_attr("alpha", 1) : 1);
}

bool composed_index_put(Composition &of) {
  if (!has_base(of) || rules::any_attr(of.context.app, {"dimension_numbers"}))
    return false;
  const bool adds = of.context.row.variant == Variant::Adds;
  const unsigned operand = of.context.operand("i");
  const DeviceArray &to = *of.result(0), *s = of.operand("s"), *mask = of.operand("i");
  const Dims &large = *to.dims;
  // One value where a mask is: of the leading dimensions.
  if (!adds && of.context.members(operand) == 1 && mask->dtype == ir::DType::Bool &&
      list_position(*of.context.binding[operand], 0) == 0 && (!s || s->size() == 1) &&
      mask->dims->size() <= large.size()) {
    Dims seen = *mask->dims;
    seen.resize(large.size(), 1);
    DeviceArray value;
    return source_of(of, {1}, SourceShape::Equal, value) &&
           of.make(to, large, {*of.operand("a"), of.as(*mask, seen), of.as(value, {1})},
                   [](Symbols v) { return v[1] == 0.0 ? v[0] : v[2]; });
  }
  IndexedView by;
  return picture_selection(of, large, by) &&
         put(of, adds ? kSpmdAddRows : kSpmdReplaceRows, by, SourceShape::Stretched);
}

bool composed_one_hot(Composition &of) {
  const DeviceArray *i = of.operand("i");
  if (of.by || !i)
    return false;
  const DeviceArray &to = *of.result(0);
  const int64_t classes = to.dims->back();
  Dims column = *i->dims;
  column.push_back(1);
  const auto extent = static_cast<double>(classes);
  return of.make(to, *to.dims,
                 {of.as(*i, column), of.positions(to.dims->size(), to.dims->size() - 1, classes)},
                 [&](Symbols s) {
                   TracedNumber place = s[0] < 0.0 ? s[0] + extent : s[0];
                   return place == s[1] ? TracedNumber(1.0) : TracedNumber(0.0);
                 });
}

} // namespace spmd::runtime
