// Sums of rows of a table, and gradients of tables.
#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/indexing/selection_of.h"
#include "runtime/kernels/rows.h"

namespace spmd::runtime {

namespace {

using llvm::Error;

// How often each position occurs, where gradients are divided by that (`scale_grad_by_freq`).
std::vector<int64_t> frequencies(const KernelContext &context, const Positions &at,
                                 int64_t extent) {
  std::vector<int64_t> often(static_cast<size_t>(extent),
                             rules::flag_attr(context.app, "scale_grad_by_freq") ? 0 : 1);
  for (int64_t row : at)
    often[static_cast<size_t>(row)] += rules::flag_attr(context.app, "scale_grad_by_freq");
  return often;
}

// The row of the table that takes no part; -1: none.
int64_t padding(const KernelContext &context, int64_t extent) {
  auto row = static_cast<int64_t>(context.number_attr("padding_idx", -1));
  // Behind `padding_idx` of the functional form a negative number counts from the end; below, -1
  // says that there is none.
  return row < -1 ? row + extent : row;
}

template <class T> T share(const T &value, int64_t count) {
  return count == 1 ? value : value / T(static_cast<double>(count));
}
Residue share(Residue value, int64_t count) { return value * Residue(count).inverse(); }

template <class T> Error dense_backward(const Call<T> &call) {
  View<const T> g = call.operand("g"), i = call.operand("i");
  View<T> to = call.results[0];
  int64_t rows = to.dim(0), width = to.size() / std::max<int64_t>(rows, 1);
  llvm::Expected<Positions> at = positions(call.context, i, rows);
  if (!at)
    return at.takeError();
  std::vector<int64_t> often = frequencies(call.context, *at, rows);
  int64_t skipped = padding(call.context, rows);
  for (size_t n = 0; n < at->size(); ++n)
    for (int64_t c = 0, row = (*at)[n]; row != skipped && c < width; ++c)
      to[row * width + c] = to[row * width + c] + share(g[static_cast<int64_t>(n) * width + c],
                                                        often[static_cast<size_t>(row)]);
  return Error::success();
}

enum class BagMode : uint8_t { Sum, Mean, Max };
BagMode bag_of(const KernelContext &context) {
  llvm::StringRef word = rules::word_attr(context.app, {"mode"});
  if (!word.empty())
    return word == "mean" ? BagMode::Mean : word == "max" ? BagMode::Max : BagMode::Sum;
  bool functional = context.variant() == Variant::MeanOfBag;
  return static_cast<BagMode>(
      std::clamp<int64_t>(rules::number_attr(context.app, {"mode"}).value_or(functional), 0, 2));
}

template <class T> Error embedding_bag(const Call<T> &call) {
  View<const T> t = call.operand("t"), i = call.operand("i"), o = call.operand("o"),
                w = call.operand("w");
  View<T> to = call.results[0];
  int64_t bags = to.dim(0), width = t.dim(1), skipped = padding(call.context, t.dim(0));
  BagMode mode = bag_of(call.context);
  llvm::Expected<Positions> at = positions(call.context, i, t.dim(0));
  if (!at)
    return at.takeError();
  for (int64_t b = 0; b < bags; ++b) {
    auto begin = static_cast<int64_t>(plain(o[b]));
    auto end = b + 1 < o.size() ? static_cast<int64_t>(plain(o[b + 1])) : i.size();
    if (begin < 0 || begin > end || end > i.size())
      return cannot_run(call.context, "its offsets are not in order");
    int64_t members = 0;
    for (int64_t n = begin; n < end; ++n) {
      int64_t row = (*at)[static_cast<size_t>(n)];
      if (row == skipped)
        continue;
      for (int64_t c = 0; c < width; ++c) {
        T value = w ? t[row * width + c] * w[n] : t[row * width + c];
        T &cell = to[b * width + c];
        if (mode == BagMode::Max)
          cell = members ? larger(cell, value) : value;
        else
          cell = cell + value;
      }
      ++members;
    }
    for (int64_t c = 0; mode == BagMode::Mean && members > 1 && c < width; ++c)
      to[b * width + c] = share(to[b * width + c], members);
  }
  return Error::success();
}

template <class T> Error bag_backward(const Call<T> &call) {
  View<const T> g = call.operand("g"), i = call.operand("i"), o = call.operand("o"),
                p = call.operand("p"), q = call.operand("q"), w = call.operand("w");
  View<T> to = call.results[0];
  int64_t rows = to.dim(0), width = to.dim(1), skipped = padding(call.context, rows);
  BagMode mode = bag_of(call.context);
  if ((mode == BagMode::Mean && !p) || (mode == BagMode::Max && !q))
    return cannot_run(call.context, "what its forward kept is not given");
  if (mode == BagMode::Max) {
    llvm::Expected<Positions> best = positions(call.context, q, rows);
    if (!best)
      return best.takeError();
    for (int64_t at = 0; at < q.size() && at < g.size(); ++at) {
      int64_t cell = (*best)[static_cast<size_t>(at)] * width + at % width;
      to[cell] = to[cell] + g[at];
    }
    return Error::success();
  }
  llvm::Expected<Positions> at = positions(call.context, i, rows),
                            bag = positions(call.context, o, g.dim(0));
  if (!at || !bag)
    return llvm::joinErrors(at.takeError(), bag.takeError());
  std::vector<int64_t> often = frequencies(call.context, *at, rows);
  for (size_t n = 0; n < at->size(); ++n) {
    int64_t row = (*at)[n], from = (*bag)[n];
    auto members = mode == BagMode::Mean ? static_cast<int64_t>(plain(p[from])) : 1;
    for (int64_t c = 0; row != skipped && c < width; ++c) {
      T value = share(g[from * width + c],
                      std::max<int64_t>(members, 1) * often[static_cast<size_t>(row)]);
      T &cell = to[row * width + c];
      cell = cell + (w ? value * w[static_cast<int64_t>(n)] : value);
    }
  }
  return Error::success();
}

template <class T> Error bag_weights_backward(const Call<T> &call) {
  View<const T> g = call.operand("g"), t = call.operand("t"), i = call.operand("i"),
                p = call.operand("p");
  View<T> to = call.results[0];
  int64_t width = t.dim(1), skipped = padding(call.context, t.dim(0));
  if (bag_of(call.context) != BagMode::Sum || !p)
    return cannot_run(call.context, "weights are of sums");
  llvm::Expected<Positions> at = positions(call.context, i, t.dim(0)),
                            bag = positions(call.context, p, g.dim(0));
  if (!at || !bag)
    return llvm::joinErrors(at.takeError(), bag.takeError());
  for (size_t n = 0; n < at->size(); ++n)
    for (int64_t c = 0; (*at)[n] != skipped && c < width; ++c)
      to[static_cast<int64_t>(n)] += g[(*bag)[n] * width + c] * t[(*at)[n] * width + c];
  return Error::success();
}

constexpr KernelDef kEmbedding[] = {
    {.row = "embedding_dense_backward",
     .real = dense_backward<double>,
     .complex = dense_backward<Complex>,
     .modular = dense_backward<Residue>,
     .taped = dense_backward<Var>,
     .composed = composed_embedding_backward},
    {.row = "embedding_bag", .real = embedding_bag<double>, .taped = embedding_bag<Var>},
    {.row = "embedding_bag_weights_backward",
     .real = bag_weights_backward<double>,
     .taped = bag_weights_backward<Var>},
    {.row = "embedding_bag_backward", .real = bag_backward<double>, .taped = bag_backward<Var>},
};

} // namespace

llvm::ArrayRef<KernelDef> embedding_kernels() { return kEmbedding; }

} // namespace spmd::runtime
