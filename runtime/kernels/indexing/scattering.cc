// Rows that put elements into a tensor at positions that other operands hold. Of several elements
// for one position the last one stands, unless they are combined.
#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/indexing/selection_of.h"
#include "runtime/kernels/rows.h"

namespace spmd::runtime {

namespace {

using llvm::Error;

// What is put: the elements of operand `s` at `from`, or one number everywhere.
template <class T> struct Source {
  T number{};
  const T *data = nullptr;
  Positions from;
};
template <class T> Source<T> source_of(const Call<T> &call, size_t size, Positions from) {
  View<const T> s = call.operand("s");
  if (s)
    return {T(), s.data, std::move(from)};
  return {constant<T>(call.context.number(call.context.operand("s")).value_or(0)), nullptr,
          Positions(size, 0)};
}

template <class T, class Combine>
Error put_all(const Call<T> &call, llvm::Expected<Positions> offsets, Positions from,
              Combine combine) {
  if (!offsets)
    return offsets.takeError();
  View<const T> a = call.operand("a");
  View<T> to = call.results[0];
  std::copy_n(a.data, a.size(), to.data);
  Source<T> source = source_of(call, offsets->size(), std::move(from));
  put(*offsets, source.from, source.data ? source.data : &source.number, to, combine);
  return Error::success();
}

constexpr auto kReplace = [](const auto &, const auto &value) { return value; };
constexpr auto kAdd = [](const auto &old, const auto &value) { return old + value; };
constexpr auto kSubtract = [](const auto &old, const auto &value) { return old - value; };
constexpr auto kMultiply = [](const auto &old, const auto &value) { return old * value; };

// Positions of the elements of `i`, each at its own place but for dimension d; and where the
// elements of `s`, which may be longer, are taken from.
struct Pairs {
  Positions offsets, from;
};
template <class T> llvm::Expected<Pairs> pairs(const Call<T> &call) {
  View<const T> i = call.operand("i"), s = call.operand("s");
  if (rules::any_attr(call.context.app, {"dimension_numbers"})) {
    if (!s)
      return cannot_run(call.context, "its updates are no tensor");
    Dims large = *call.results[0].dims;
    llvm::Expected<Positions> offsets = windows(call, large, *s.dims, window_sizes(call, s), true);
    if (!offsets)
      return offsets.takeError();
    return Pairs{std::move(*offsets), broadcast_positions(*s.dims, *s.dims)};
  }
  Dims large = call.results[0].rank() ? *call.results[0].dims : Dims{1};
  Dims small = i.rank() ? *i.dims : Dims{1};
  bool first = call.context.variant() == Variant::FirstDim;
  unsigned d =
      first && !rules::dim_attr(call.context.app) ? 0 : dim_of(call.context, call.results[0]);
  if (small.size() != large.size() || (s && s.rank() && s.rank() != small.size()))
    return cannot_run(call.context, "its index has not the dimensions of what it indexes");
  if (!lies_within(small, large, d))
    return cannot_run(call.context, "its index is longer than what it writes");
  for (unsigned each = 0; s && s.rank() && each < small.size(); ++each)
    if (small[each] > s.dim(each))
      return cannot_run(call.context, "its index is longer than its source");
  llvm::Expected<Positions> at = positions(call.context, i, large[d]);
  if (!at)
    return at.takeError();
  Positions offsets = along(large, small, d, *at, small);
  return Pairs{std::move(offsets),
               s && s.rank() ? corner_positions(*s.dims, small) : Positions(at->size(), 0)};
}

template <class T, class Combine> Error scatter_by(const Call<T> &call, Combine combine) {
  llvm::Expected<Pairs> found = pairs(call);
  if (!found)
    return found.takeError();
  return put_all(call, std::move(found->offsets), std::move(found->from), combine);
}

template <class T> Error scatter(const Call<T> &call) {
  llvm::StringRef reduce = rules::word_attr(call.context.app, {"reduce"});
  if (reduce == "add")
    return scatter_by(call, kAdd);
  if (reduce == "multiply")
    return scatter_by(call, kMultiply);
  return scatter_by(call, kReplace);
}

// How often each element was written; `include_self = false` drops what stood there before.
std::vector<int64_t> writes(const KernelContext &context, int64_t size) {
  const ir::AttrValue *stated = context.app.attr("include_self");
  return std::vector<int64_t>(static_cast<size_t>(size), !stated || stated->as_bool());
}

template <class T> Error scatter_add(const Call<T> &call) {
  if (call.context.variant() == Variant::Subtracts)
    return scatter_by(call, kSubtract);
  std::vector<int64_t> written = writes(call.context, call.results[0].size());
  const T *base = call.results[0].data;
  return scatter_by(call, [&](const T &old, const T &value) {
    return written[static_cast<size_t>(&old - base)]++ ? T(old + value) : value;
  });
}

// One index for each position along the dimension.
template <class T> llvm::Expected<Positions> line_positions(const Call<T> &call) {
  Dims large = call.results[0].rank() ? *call.results[0].dims : Dims{1};
  unsigned d = dim_of(call.context, call.results[0]);
  llvm::Expected<Positions> at = positions(call.context, call.operand("i"), large[d]);
  if (!at)
    return at.takeError();
  return lines(large, d, *at);
}
// The elements of `s` in order, or its one element everywhere.
template <class T> Positions in_order(const Call<T> &call, size_t size) {
  View<const T> s = call.operand("s");
  Positions from(size, 0);
  for (size_t i = 0; s && s.size() != 1 && i < size; ++i)
    from[i] = static_cast<int64_t>(i);
  return from;
}
template <class T, class Combine> Error put_lines(const Call<T> &call, Combine combine) {
  llvm::Expected<Positions> offsets = line_positions(call);
  if (!offsets)
    return offsets.takeError();
  View<const T> s = call.operand("s");
  auto size = static_cast<int64_t>(offsets->size());
  if (s && s.size() != 1 && s.size() != size)
    return wrong_number(call.context, s.size(), size);
  Positions from = in_order(call, offsets->size());
  return put_all(call, std::move(offsets), std::move(from), combine);
}

template <class T> Error index_add(const Call<T> &call) {
  T alpha = constant<T>(call.context.number_attr("alpha", 1));
  return put_lines(call, [alpha](const T &old, const T &value) { return old + alpha * value; });
}
template <class T> Error index_copy(const Call<T> &call) { return put_lines(call, kReplace); }

template <class T> Error put_flat(const Call<T> &call) {
  llvm::Expected<Positions> offsets =
      positions(call.context, call.operand("i"), call.results[0].size());
  Positions from = in_order(call, static_cast<size_t>(call.operand("i").size()));
  return rules::flag_attr(call.context.app, "accumulate")
             ? put_all(call, std::move(offsets), std::move(from), kAdd)
             : put_all(call, std::move(offsets), std::move(from), kReplace);
}

template <class T, class Combine> Error index_put_by(const Call<T> &call, Combine combine) {
  llvm::Expected<Selection> chosen = selection(call, *call.results[0].dims);
  if (!chosen)
    return chosen.takeError();
  View<const T> s = call.operand("s");
  Dims over = chosen->dims;
  if (s && s.rank() > over.size())
    return wrong_number(call.context, static_cast<int64_t>(chosen->offsets.size()), s.size());
  for (unsigned back = 1; s && back <= s.rank(); ++back)
    if (int64_t extent = s.dim(s.rank() - back); extent != 1 && extent != over[over.size() - back])
      return wrong_number(call.context, over[over.size() - back], extent);
  Positions from = s ? broadcast_positions(*s.dims, over) : Positions();
  return put_all(call, std::move(chosen->offsets), std::move(from), combine);
}
template <class T> Error index_put(const Call<T> &call) { return index_put_by(call, kReplace); }
template <class T> Error index_put_add(const Call<T> &call) { return index_put_by(call, kAdd); }

enum class Combiner : uint8_t { Sum, Product, Mean, Max, Min };
std::optional<Combiner> combiner_of(const KernelContext &context) {
  llvm::StringRef word = rules::word_attr(context.app, {"reduce", "reduction"});
  const Variant variant = context.variant();
  if (word == "sum" || word == "add")
    return Combiner::Sum;
  if (word == "prod" || word == "multiply" || variant == Variant::Multiplies)
    return Combiner::Product;
  if (word == "mean")
    return Combiner::Mean;
  if (word == "amax" || word == "max" || variant == Variant::Largest)
    return Combiner::Max;
  if (word == "amin" || word == "min" || variant == Variant::Smallest)
    return Combiner::Min;
  return std::nullopt;
}
template <class T> T combined(Combiner combiner, const T &a, const T &b) {
  switch (combiner) {
  case Combiner::Sum:
  case Combiner::Mean:
    return a + b;
  case Combiner::Product:
    return a * b;
  case Combiner::Max:
    return larger(a, b);
  case Combiner::Min:
    break;
  }
  return smaller(a, b);
}

template <class T> Error scatter_reduce(const Call<T> &call) {
  std::optional<Combiner> combiner = combiner_of(call.context);
  if (!combiner)
    return cannot_run(call.context, "attribute `reduce` is not known");
  std::vector<int64_t> addends = writes(call.context, call.results[0].size());
  const T *base = call.results[0].data;
  auto combine = [&](const T &old, const T &value) {
    return addends[static_cast<size_t>(&old - base)]++ ? combined(*combiner, old, value) : value;
  };
  Error wrong = call.context.variant() == Variant::Lines ? put_lines(call, combine)
                                                         : scatter_by(call, combine);
  if (wrong || *combiner != Combiner::Mean)
    return wrong;
  for (size_t i = 0; i < addends.size(); ++i)
    if (addends[i] > 1)
      call.results[0].data[i] = call.results[0].data[i] / T(static_cast<double>(addends[i]));
  return Error::success();
}

template <class T> Error masked_scatter(const Call<T> &call) {
  View<const T> a = call.operand("a"), m = call.operand("m"), s = call.operand("s");
  View<T> to = call.results[0];
  int64_t next = 0, size = s.size();
  for (Walk walk(*to.dims, {strides_over(*a.dims, *to.dims), strides_over(*m.dims, *to.dims),
                            strides_of(*to.dims)});
       walk; ++walk) {
    bool here = truth(m[walk.offset(1)]);
    if (here && next >= size)
      return cannot_run(call.context, "its mask chooses more elements than there are");
    to[walk.offset(2)] = here ? s[next++] : a[walk.offset(0)];
  }
  return Error::success();
}

constexpr KernelDef kScattering[] = {
    {.row = "scatter",
     .real = scatter<double>,
     .complex = scatter<Complex>,
     .modular = scatter<Residue>,
     .taped = scatter<Var>,
     .composed = composed_scatter},
    {.row = "scatter_add",
     .real = scatter_add<double>,
     .complex = scatter_add<Complex>,
     .modular = scatter_add<Residue>,
     .taped = scatter_add<Var>,
     .composed = composed_scatter},
    {.row = "index_add",
     .real = index_add<double>,
     .complex = index_add<Complex>,
     .modular = index_add<Residue>,
     .taped = index_add<Var>,
     .composed = composed_lines},
    {.row = "index_copy",
     .real = index_copy<double>,
     .complex = index_copy<Complex>,
     .modular = index_copy<Residue>,
     .taped = index_copy<Var>,
     .composed = composed_lines},
    {.row = "index_fill",
     .real = index_copy<double>,
     .complex = index_copy<Complex>,
     .modular = index_copy<Residue>,
     .taped = index_copy<Var>,
     .composed = composed_lines},
    {.row = "put",
     .real = put_flat<double>,
     .complex = put_flat<Complex>,
     .modular = put_flat<Residue>,
     .taped = put_flat<Var>},
    {.row = "index_put",
     .real = index_put<double>,
     .complex = index_put<Complex>,
     .modular = index_put<Residue>,
     .taped = index_put<Var>,
     .composed = composed_index_put},
    {.row = "index_put_add",
     .real = index_put_add<double>,
     .complex = index_put_add<Complex>,
     .modular = index_put_add<Residue>,
     .taped = index_put_add<Var>,
     .composed = composed_index_put},
    {.row = "scatter_reduce", .real = scatter_reduce<double>, .taped = scatter_reduce<Var>},
    // How many elements a mask chooses is not known in the field.
    {.row = "masked_scatter",
     .real = masked_scatter<double>,
     .complex = masked_scatter<Complex>,
     .taped = masked_scatter<Var>},
};

} // namespace

llvm::ArrayRef<KernelDef> scattering_kernels() { return kScattering; }

} // namespace spmd::runtime
