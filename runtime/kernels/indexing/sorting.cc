// Orders of elements along a dimension: sorts, selections, searches, sets. NaN stands behind every
// number; of equal elements the first comes first, forward and backward.
#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/indexing/selection_of.h"
#include "runtime/kernels/rows.h"

#include <numeric>

namespace spmd::runtime {

namespace {

using llvm::Error;

bool before(double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); }

// Positions along one line in the order asked for; stable.
std::vector<int64_t> order_of(llvm::ArrayRef<double> line, bool descending) {
  std::vector<int64_t> order(line.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    double a = line[static_cast<size_t>(i)], b = line[static_cast<size_t>(j)];
    return descending ? before(b, a) : before(a, b);
  });
  return order;
}

template <class T>
std::vector<double> line_of(View<const T> a, const DimSplit &cut, int64_t o, int64_t i) {
  std::vector<double> line(static_cast<size_t>(cut.extent));
  for (int64_t x = 0; x < cut.extent; ++x)
    line[static_cast<size_t>(x)] = plain(a[cut.at(o, x, i)]);
  return line;
}

// Calls f(o, i, order) for every line; orders as `descending` says.
template <class T, class F>
void each_line(View<const T> a, unsigned d, bool descending, const F &f) {
  DimSplit cut(*a.dims, d);
  for (int64_t o = 0; o < cut.outer; ++o)
    for (int64_t i = 0; i < cut.inner; ++i)
      f(o, i, order_of(line_of(a, cut, o, i), descending));
}

// The first elements of each line in its order go to the results: values, and where they stood.
template <class T>
void take_first(View<const T> a, unsigned d, bool descending, View<T> values, View<T> indices,
                int64_t skip = 0) {
  Dims none(a.rank() ? *a.dims : Dims{1});
  View<T> any = values ? values : indices;
  Dims shape = any.rank() == a.rank() && a.rank() ? *any.dims : none;
  if (any.rank() < a.rank())
    shape[d] = 1; // the dimension is gone
  DimSplit from(none, d), to(shape, d);
  View<const T> source = a;
  source.dims = &none;
  each_line(source, d, descending, [&](int64_t o, int64_t i, llvm::ArrayRef<int64_t> order) {
    for (int64_t n = 0; n < to.extent; ++n) {
      int64_t x = order[static_cast<size_t>(n + skip)];
      if (values)
        values[to.at(o, n, i)] = a[from.at(o, x, i)];
      if (indices)
        indices[to.at(o, n, i)] = T(static_cast<double>(x));
    }
  });
}

template <class T> View<T> result(const Call<T> &call, unsigned i) {
  return i < call.results.size() ? call.results[i] : View<T>();
}

template <class T> Error sort(const Call<T> &call) {
  View<const T> a = call.operand("a");
  take_first(a, dim_of(call.context, a), rules::flag_attr(call.context.app, "descending"),
             call.results[0], result(call, 1));
  return Error::success();
}

template <class T> Error topk(const Call<T> &call) {
  View<const T> a = call.operand("a");
  auto is = [&](llvm::StringRef name) {
    const ir::AttrValue *value = call.context.app.attr(name);
    return !value || value->as_bool();
  };
  unsigned d = dim_of(call.context, a);
  int64_t asked = call.results[0] ? call.results[0].size() : result(call, 1).size();
  if (asked > a.size())
    return cannot_run(call.context, "more elements are asked for than there are");
  take_first(a, d, is("largest") && is("is_max_k"), call.results[0], result(call, 1));
  return Error::success();
}

Error argsort(const Call<double> &call) {
  View<const double> a = call.operand("a");
  take_first(a, dim_of(call.context, a), rules::flag_attr(call.context.app, "descending"),
             View<double>(), call.results[0]);
  return Error::success();
}

// By the first `num_keys` operands; all are moved the same way.
template <class T> Error sort_together(const Call<T> &call) {
  const KernelContext &context = call.context;
  unsigned operand = context.operand("a"), members = context.members(operand);
  auto keys = static_cast<unsigned>(
      std::clamp(context.number_attr("num_keys", 1), 1.0, static_cast<double>(members)));
  View<const T> first = call.operand(operand);
  DimSplit cut(*first.dims, dim_of(context, first));
  for (int64_t o = 0; o < cut.outer; ++o)
    for (int64_t i = 0; i < cut.inner; ++i) {
      std::vector<int64_t> order(static_cast<size_t>(cut.extent));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
        for (unsigned k = 0; k < keys; ++k) {
          View<const T> key = call.operand(operand, k);
          double a = plain(key[cut.at(o, x, i)]), b = plain(key[cut.at(o, y, i)]);
          if (before(a, b) || before(b, a))
            return before(a, b);
        }
        return false;
      });
      for (unsigned m = 0; m < members && m < call.results.size(); ++m)
        for (int64_t n = 0; call.results[m] && n < cut.extent; ++n)
          call.results[m][cut.at(o, n, i)] =
              call.operand(operand, m)[cut.at(o, order[static_cast<size_t>(n)], i)];
    }
  return Error::success();
}

// How many elements of a sorted sequence stand before a number.
int64_t place_in(llvm::ArrayRef<double> sequence, double x, bool right) {
  auto at = right ? std::upper_bound(sequence.begin(), sequence.end(), x, before)
                  : std::lower_bound(sequence.begin(), sequence.end(), x, before);
  return at - sequence.begin();
}
bool right_of(const KernelContext &context) {
  return rules::flag_attr(context.app, "right") ||
         rules::word_attr(context.app, {"side"}) == "right";
}

Error searchsorted(const Call<double> &call) {
  View<const double> b = call.operand("b"), x = call.operand("x");
  if (rules::any_attr(call.context.app, {"sorter"}) || call.context.app.named("sorter"))
    return cannot_run(call.context, "its `sorter` is no operand of the row");
  int64_t width = b.rank() ? b.dims->back() : 1, wanted = x.rank() ? x.dims->back() : 1;
  int64_t rows = b.size() / std::max<int64_t>(width, 1);
  for (int64_t at = 0; at < x.size(); ++at) {
    int64_t row = rows == 1 ? 0 : at / wanted % rows;
    call.results[0][at] = static_cast<double>(place_in(
        {b.data + row * width, static_cast<size_t>(width)}, x[at], right_of(call.context)));
  }
  return Error::success();
}

Error bucketize(const Call<double> &call) {
  View<const double> b = call.operand("b"), x = call.operand("x");
  llvm::ArrayRef<double> sequence(b.data, static_cast<size_t>(b.size()));
  for (int64_t at = 0; at < x.size(); ++at)
    call.results[0][at] = static_cast<double>(place_in(sequence, x[at], right_of(call.context)));
  return Error::success();
}

template <class T> Error isin(const Call<T> &call) {
  View<const T> a = call.operand("a"), b = call.operand("b");
  bool invert = rules::flag_attr(call.context.app, "invert");
  std::optional<double> number = call.context.number(call.context.operand("b"));
  for (int64_t at = 0; at < a.size(); ++at) {
    bool found = !b && number && plain(a[at]) == *number;
    for (int64_t i = 0; b && i < b.size() && !found; ++i)
      found = a[at] == b[i];
    call.results[0][at] = constant<T>(found != invert);
  }
  return Error::success();
}

// Sets and positions whose number depends on the data.

Error nonzero(const Call<double> &call) {
  View<const double> a = call.operand("a");
  View<double> to = call.results[0];
  Dims dims = a.rank() ? *a.dims : Dims{1};
  auto width = static_cast<int64_t>(a.rank());
  bool filled = call.context.variant() == Variant::Filled;
  int64_t rows = to.rank() ? to.dim(0) : 0, found = 0;
  if (filled)
    std::fill_n(to.data, to.size(), call.context.number_attr("fill_value", -1));
  for (Walk walk(dims, {strides_of(dims)}); walk; ++walk) {
    if (!truth(a[walk.offset()]))
      continue;
    for (int64_t d = 0; found < rows && d < width; ++d)
      to[found * width + d] = static_cast<double>(walk.index(static_cast<unsigned>(d)));
    ++found;
  }
  return filled || found == rows ? Error::success() : wrong_number(call.context, found, rows);
}

// Of slices along one dimension, or of all elements: those that differ, in order or in sequence.
Error unique(const Call<double> &call) {
  const KernelContext &context = call.context;
  View<const double> a = call.operand("a");
  bool consecutive = context.variant() == Variant::Neighbours, along = rules::dim_attr(context.app);
  Dims dims = along ? *a.dims : Dims{a.size()};
  unsigned d = along ? dim_of(context, a) : 0;
  DimSplit cut(dims, d);
  auto compare = [&](int64_t x, int64_t y) {
    for (int64_t o = 0; o < cut.outer; ++o)
      for (int64_t i = 0; i < cut.inner; ++i) {
        double left = a[cut.at(o, x, i)], right = a[cut.at(o, y, i)];
        if (before(left, right) || before(right, left))
          return before(left, right) ? -1 : 1;
      }
    return 0;
  };
  std::vector<int64_t> order(static_cast<size_t>(cut.extent)), first, group(order.size()), counts;
  std::iota(order.begin(), order.end(), 0);
  if (!consecutive)
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t x, int64_t y) { return compare(x, y) < 0; });
  for (size_t n = 0; n < order.size(); ++n) {
    if (n == 0 || compare(order[n - 1], order[n]) != 0)
      first.push_back(order[n]), counts.push_back(0);
    group[static_cast<size_t>(order[n])] = static_cast<int64_t>(first.size()) - 1;
    ++counts.back();
  }
  View<double> to = call.results[0];
  auto found = static_cast<int64_t>(first.size());
  int64_t expected = along ? to.dim(d) : to.size();
  if (found != expected)
    return wrong_number(context, found, expected);
  View<const double> flat = a;
  flat.dims = &dims;
  fetch(flat, lines(dims, d, first), to);
  // Of `inverse` and `counts` only those asked for; `_unique2` always has a place for both.
  llvm::SmallVector<const std::vector<int64_t> *, 2> extras;
  bool both = call.results.size() > 2;
  if (both || rules::flag_attr(context.app, "return_inverse"))
    extras.push_back(&group);
  if (both || rules::flag_attr(context.app, "return_counts"))
    extras.push_back(&counts);
  for (size_t e = 0; e < extras.size() && e + 1 < call.results.size(); ++e)
    for (size_t n = 0; call.results[e + 1] && n < extras[e]->size() &&
                       static_cast<int64_t>(n) < call.results[e + 1].size();
         ++n)
      call.results[e + 1].data[n] = static_cast<double>((*extras[e])[n]);
  return Error::success();
}

constexpr KernelDef kSorting[] = {
    {.row = "sort", .real = sort<double>, .taped = sort<Var>, .composed = composed_sort},
    {.row = "msort", .real = sort<double>, .taped = sort<Var>, .composed = composed_sort},
    {.row = "topk", .real = topk<double>, .taped = topk<Var>, .composed = composed_sort},
    {.row = "sort_together", .real = sort_together<double>, .taped = sort_together<Var>},
    {.row = "argsort", .real = argsort, .composed = composed_sort},
    {.row = "searchsorted", .real = searchsorted},
    {.row = "bucketize", .real = bucketize},
    {.row = "isin", .real = isin<double>, .modular = isin<Residue>},
    {.row = "nonzero", .real = nonzero},
    {.row = "argwhere", .real = nonzero},
    {.row = "unique", .real = unique},
};

} // namespace

llvm::ArrayRef<KernelDef> sorting_kernels() { return kSorting; }

} // namespace spmd::runtime
