// Rows that take elements at positions that other operands hold. What moves elements is exact in
// every domain.
#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/indexing/selection_of.h"
#include "runtime/kernels/rows.h"

namespace spmd::runtime {

namespace {

using llvm::Error;

template <class T> Error gather(const Call<T> &call) {
  View<const T> a = call.operand("a"), i = call.operand("i");
  bool flat = call.context.variant() == Variant::Flat && !rules::dim_attr(call.context.app);
  Dims from = flat || a.rank() == 0 ? Dims{a.size()} : *a.dims;
  Dims to = call.results[0].rank() == 0 ? Dims{1} : *call.results[0].dims;
  Dims index = flat || i.rank() == 0 ? Dims{i.size()} : *i.dims;
  unsigned d = flat ? 0 : dim_of(call.context, a);
  llvm::Expected<Positions> at = positions(call.context, i, from[d]);
  if (!at)
    return at.takeError();
  if (!lies_within(to, from, d))
    return cannot_run(call.context, "its index is longer than what it picks from");
  fetch(a, along(from, to, d, *at, index), call.results[0]);
  return Error::success();
}

template <class T> Error index_select(const Call<T> &call) {
  View<const T> a = call.operand("a");
  Dims from = a.rank() ? *a.dims : Dims{1};
  unsigned d = dim_of(call.context, a);
  llvm::Expected<Positions> at = positions(call.context, call.operand("i"), from[d]);
  if (!at)
    return at.takeError();
  fetch(a, lines(from, d, *at), call.results[0]);
  return Error::success();
}

template <class T> Error embedding(const Call<T> &call) {
  View<const T> t = call.operand("t");
  if (rules::any_attr(call.context.app, {"max_norm"}))
    return cannot_run(call.context, "`max_norm` would change its table");
  llvm::Expected<Positions> at = positions(call.context, call.operand("i"), t.dim(0));
  if (!at)
    return at.takeError();
  fetch(t, lines(*t.dims, 0, *at), call.results[0]);
  return Error::success();
}

// Positions in the whole, less where the block begins; -1: in another block.
template <class T>
llvm::Expected<Positions> own_positions(const KernelContext &context, View<const T> index,
                                        View<const T> block, unsigned d) {
  int64_t first = block.first ? (*block.first)[d] : 0;
  llvm::Expected<Positions> at =
      positions(context, index, block.whole ? (*block.whole)[d] : block.dim(d));
  if (at)
    for (int64_t &place : *at)
      place = place < first || place >= first + block.dim(d) ? -1 : place - first;
  return at;
}

template <class T> Error embedding_masked(const Call<T> &call) {
  View<const T> t = call.operand("t");
  llvm::Expected<Positions> at = own_positions(call.context, call.operand("i"), t, 0);
  if (!at)
    return at.takeError();
  int64_t width = t.size() / std::max<int64_t>(t.dim(0), 1);
  Positions offsets;
  for (int64_t row : *at)
    for (int64_t c = 0; c < width; ++c)
      offsets.push_back(row < 0 ? -1 : row * width + c);
  fetch(t, offsets, call.results[0]);
  return Error::success();
}

template <class T> Error gather_masked(const Call<T> &call) {
  View<const T> a = call.operand("a"), i = call.operand("i");
  unsigned d = dim_of(call.context, a);
  llvm::Expected<Positions> at = own_positions(call.context, i, a, d);
  if (!at)
    return at.takeError();
  DimSplit cut(*a.dims, d);
  Positions offsets;
  for (int64_t o = 0; o < cut.outer; ++o)
    for (int64_t k = 0; k < cut.inner; ++k) {
      int64_t x = (*at)[static_cast<size_t>(i.size() == 1 ? 0 : o * cut.inner + k)];
      offsets.push_back(x < 0 ? -1 : cut.at(o, x, k));
    }
  fetch(a, offsets, call.results[0]);
  return Error::success();
}

template <class T> Error take(const Call<T> &call) {
  View<const T> a = call.operand("a");
  llvm::Expected<Positions> at = positions(call.context, call.operand("i"), a.size());
  if (!at)
    return at.takeError();
  fetch(a, *at, call.results[0]);
  return Error::success();
}

template <class T> Error one_hot(const Call<T> &call) {
  View<T> to = call.results[0];
  int64_t classes = to.dims->back();
  llvm::Expected<Positions> at = positions(call.context, call.operand("i"), classes);
  if (!at)
    return at.takeError();
  for (size_t i = 0; i < at->size(); ++i)
    to[static_cast<int64_t>(i) * classes + (*at)[i]] = T(1);
  return Error::success();
}

// Each element of the dimension equally often.
template <class T> Error repeat_interleave_evenly(const Call<T> &call) {
  const KernelContext &context = call.context;
  View<const T> a = call.operand("a");
  View<T> to = call.results[0];
  bool flat = !rules::dim_attr(context.app);
  unsigned d = flat ? 0 : dim_of(context, a);
  DimSplit from(flat ? Dims{a.size()} : *a.dims, d);
  int64_t times = to.size() / std::max<int64_t>(a.size(), 1);
  for (int64_t at = 0; at < to.size(); ++at)
    to[at] = a[at / from.inner / times * from.inner + at % from.inner];
  return Error::success();
}

// Place k, counts[k] times.
template <class T> Error repeat_interleave_positions(const Call<T> &call) {
  View<const T> a = call.operand("a");
  View<T> to = call.results[0];
  int64_t next = 0;
  for (int64_t k = 0; k < a.size(); ++k) {
    // In the field nothing is known of the counts.
    int64_t times = std::is_same_v<T, Residue> ? (k + 1) * to.size() / a.size() - next
                                               : static_cast<int64_t>(plain(a[k]));
    for (; times > 0; --times, ++next)
      if (next < to.size())
        to[next] = constant<T>(static_cast<double>(k));
  }
  return next == to.size() ? Error::success() : wrong_number(call.context, next, to.size());
}

// Element k of the dimension, counts[k] times; without a dimension, of all elements in order.
template <class T> Error repeat_interleave(const Call<T> &call) {
  View<const T> a = call.operand("a"), counts = call.operand("i");
  bool flat = !rules::dim_attr(call.context.app);
  Dims from = flat ? Dims{a.size()} : *a.dims;
  unsigned d = flat ? 0 : dim_of(call.context, a);
  Positions at;
  for (int64_t k = 0; k < from[d]; ++k) {
    double times = plain(counts[counts.size() == 1 ? 0 : k]);
    if (!(times >= 0) || !(times < 0x1p40))
      return cannot_run(call.context, "a count is negative");
    at.insert(at.end(), static_cast<size_t>(times), k);
  }
  Dims to = *call.results[0].dims;
  int64_t expected = flat ? call.results[0].size() : to[d];
  if (static_cast<int64_t>(at.size()) != expected)
    return wrong_number(call.context, static_cast<int64_t>(at.size()), expected);
  fetch(a, lines(from, d, at), call.results[0]);
  return Error::success();
}

// What XLA gives where a window lies outside.
template <class T> T outside(const KernelContext &context, ir::DType dtype) {
  if (const ir::AttrValue *value = rules::any_attr(context.app, {"fill_value"}))
    return constant<T>(context.number_attr("fill_value", value->as_bool()));
  const ir::DTypeInfo &info = ir::info(dtype);
  double range = std::ldexp(1.0, static_cast<int>(info.bytes) * 8);
  switch (info.form) {
  case ir::DTypeClass::Boolean:
    return constant<T>(1);
  case ir::DTypeClass::Integer:
    return constant<T>(dtype >= ir::DType::U8 && dtype <= ir::DType::U64 ? range - 1 : -range / 2);
  default:
    return constant<T>(kNaN);
  }
}

template <class T> Error index(const Call<T> &call) {
  View<const T> a = call.operand("a");
  View<T> to = call.results[0];
  std::optional<rules::Numbers> sizes = rules::numbers_attr(call.context.app, {"slice_sizes"});
  if (sizes && sizes->size() == a.rank()) {
    for (unsigned d = 0; d < a.rank(); ++d)
      (*sizes)[d] = std::min((*sizes)[d], a.dim(d));
    llvm::Expected<Positions> offsets = windows(call, *a.dims, *to.dims, *sizes, false);
    if (!offsets)
      return offsets.takeError();
    for (size_t i = 0; i < offsets->size(); ++i)
      if ((*offsets)[i] < 0)
        to.data[i] = outside<T>(call.context, a.dtype);
    fetch(a, *offsets, to);
    return Error::success();
  }
  llvm::Expected<Selection> chosen = selection(call, *a.dims);
  if (!chosen)
    return chosen.takeError();
  if (static_cast<int64_t>(chosen->offsets.size()) != to.size())
    return wrong_number(call.context, count(chosen->dims), to.size());
  fetch(a, chosen->offsets, to);
  return Error::success();
}

template <class T> Error masked_select(const Call<T> &call) {
  View<const T> a = call.operand("a"), m = call.operand("m");
  View<T> to = call.results[0];
  Dims over = a.rank() >= m.rank() ? *a.dims : *m.dims;
  for (unsigned back = 1; back <= std::min(a.rank(), m.rank()); ++back) {
    int64_t &extent = over[over.size() - back];
    extent = std::max(a.dim(a.rank() - back), m.dim(m.rank() - back));
  }
  Positions offsets;
  for (Walk walk(over, {strides_over(*a.dims, over), strides_over(*m.dims, over)}); walk; ++walk)
    if (truth(m[walk.offset(1)]))
      offsets.push_back(walk.offset(0));
  auto found = static_cast<int64_t>(offsets.size());
  // The backward of `masked_scatter` leaves what is over at zero.
  bool may_be_longer = call.context.variant() == Variant::ZeroesRest;
  if (found > to.size() || (found < to.size() && !may_be_longer))
    return wrong_number(call.context, found, to.size());
  fetch(a, offsets, to);
  return Error::success();
}

// Of the gradient of `gather`, `index_select` and what selects values: each is put back where it
// was found. `lines`: one index for each position along the dimension.
template <class T> Error selecting_backward(const Call<T> &call) {
  View<const T> g = call.operand("g"), i = call.operand("i");
  View<T> to = call.results[0];
  Dims large = to.rank() ? *to.dims : Dims{1};
  auto dims = call.context.dims(static_cast<unsigned>(large.size()));
  unsigned d = dims.empty() ? 0 : dims.front();
  llvm::Expected<Positions> at = positions(call.context, i, large[d]);
  if (!at)
    return at.takeError();
  Positions offsets;
  if (call.context.variant() == Variant::Lines) {
    offsets = lines(large, d, *at);
  } else {
    Dims small = *i.dims; // without the dimension: `keepdim` was false
    if (small.size() < large.size())
      small.insert(small.begin() + d, 1);
    if (!lies_within(small, large, d))
      return cannot_run(call.context, "its index is longer than what it picked from");
    offsets = along(large, small, d, *at, small);
  }
  for (size_t k = 0; k < offsets.size(); ++k)
    to.data[offsets[k]] = to.data[offsets[k]] + g.data[g.size() == 1 ? 0 : k];
  return Error::success();
}

constexpr KernelDef kIndexing[] = {
    {.row = "gather",
     .real = gather<double>,
     .complex = gather<Complex>,
     .modular = gather<Residue>,
     .taped = gather<Var>,
     .moves = true,
     .composed = composed_gather},
    {.row = "index_select",
     .real = index_select<double>,
     .complex = index_select<Complex>,
     .modular = index_select<Residue>,
     .taped = index_select<Var>,
     .moves = true,
     .composed = composed_index_select},
    {.row = "embedding",
     .real = embedding<double>,
     .complex = embedding<Complex>,
     .modular = embedding<Residue>,
     .taped = embedding<Var>,
     .moves = true,
     .composed = composed_embedding},
    {.row = "embedding_masked",
     .real = embedding_masked<double>,
     .complex = embedding_masked<Complex>,
     .modular = embedding_masked<Residue>,
     .taped = embedding_masked<Var>,
     .moves = true,
     .composed = composed_embedding},
    {.row = "gather_masked",
     .real = gather_masked<double>,
     .complex = gather_masked<Complex>,
     .modular = gather_masked<Residue>,
     .taped = gather_masked<Var>,
     .moves = true,
     .composed = composed_gather_masked},
    {.row = "take",
     .real = take<double>,
     .complex = take<Complex>,
     .modular = take<Residue>,
     .taped = take<Var>,
     .moves = true,
     .composed = composed_take},
    {.row = "index",
     .real = index<double>,
     .complex = index<Complex>,
     .modular = index<Residue>,
     .taped = index<Var>,
     .moves = true,
     .composed = composed_index},
    {.row = "repeat_interleave",
     .real = repeat_interleave_evenly<double>,
     .complex = repeat_interleave_evenly<Complex>,
     .modular = repeat_interleave_evenly<Residue>,
     .taped = repeat_interleave_evenly<Var>,
     .moves = true},
    // The number of elements depends on the data, which in the field are not what they are.
    {.row = "repeat_interleave_positions",
     .real = repeat_interleave_positions<double>,
     .modular = repeat_interleave_positions<Residue>},
    {.row = "repeat_interleave_counts",
     .real = repeat_interleave<double>,
     .complex = repeat_interleave<Complex>,
     .taped = repeat_interleave<Var>,
     .moves = true},
    {.row = "masked_select",
     .real = masked_select<double>,
     .complex = masked_select<Complex>,
     .taped = masked_select<Var>,
     .moves = true},
    {.row = "one_hot",
     .real = one_hot<double>,
     .modular = one_hot<Residue>,
     .composed = composed_one_hot},
    {.row = "value_selecting_backward",
     .real = selecting_backward<double>,
     .complex = selecting_backward<Complex>,
     .modular = selecting_backward<Residue>,
     .taped = selecting_backward<Var>,
     .composed = composed_selecting_backward},
};

} // namespace

llvm::ArrayRef<KernelDef> indexing_kernels() { return kIndexing; }

} // namespace spmd::runtime
