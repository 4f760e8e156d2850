// Convolutions of any number of dimensions, with groups, strides, dilations of image and kernel,
// and transposed ones. Forward and both gradients are the same sum of products, read three ways.
#include "runtime/kernels/positions.h"
#include "runtime/kernels/rows.h"
#include "runtime/kernels/windows/windows.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

namespace {

using llvm::Error;
using rules::Numbers;

// Where a tensor has its batch entries or output channels, its channels, its spatial dimensions.
struct Layout {
  unsigned outer = 0, channel = 1;
  llvm::SmallVector<unsigned, 3> spatial;
  bool has_outer = true;

  static Layout usual(unsigned rank, bool has_outer = true) {
    Layout layout;
    layout.has_outer = has_outer;
    layout.channel = has_outer;
    for (unsigned d = layout.channel + 1; d < rank; ++d)
      layout.spatial.push_back(d);
    return layout;
  }
};

// One dimension: place p of the result, r of the kernel and x of the image meet where
// x * base = p * step + r * turn - pad.
struct Axis {
  int64_t base = 1, step = 1, turn = 1, pad = 0;
};

struct Geometry {
  Layout x, w, y;
  llvm::SmallVector<Axis, 3> axes;
  bool swapped = false; // the kernel has its input channels first
};

std::optional<Numbers> listed(const KernelContext &context,
                              std::initializer_list<llvm::StringRef> names, size_t count,
                              int64_t absent) {
  if (!rules::any_attr(context.app, names))
    return Numbers(count, absent);
  std::optional<Numbers> numbers = rules::numbers_attr(context.app, names);
  if (numbers && numbers->size() == 1 && count != 1)
    numbers->resize(count, numbers->front());
  return numbers && numbers->size() == count ? numbers : std::nullopt;
}

std::optional<Layout> layout_of(const KernelContext &context, llvm::StringRef key, unsigned place) {
  const ir::AttrValue *all = rules::any_attr(context.app, {"dimension_numbers"});
  std::optional<ir::AttrValue> part =
      all ? rules::attr_part(context.app, *all, key, place) : std::nullopt;
  std::optional<Numbers> numbers = part ? rules::numbers_of(context.app, *part) : std::nullopt;
  if (!numbers || numbers->size() < 2 ||
      llvm::any_of(*numbers, [](int64_t number) { return number < 0 || number > 15; }))
    return std::nullopt;
  Layout layout;
  layout.outer = static_cast<unsigned>((*numbers)[0]);
  layout.channel = static_cast<unsigned>((*numbers)[1]);
  for (int64_t d : llvm::ArrayRef<int64_t>(*numbers).drop_front(2))
    layout.spatial.push_back(static_cast<unsigned>(d));
  return layout;
}

std::optional<Geometry> lax_geometry(const KernelContext &context, size_t count) {
  std::optional<Layout> x = layout_of(context, "lhs_spec", 0),
                        w = layout_of(context, "rhs_spec", 1),
                        y = layout_of(context, "out_spec", 2);
  std::optional<Numbers> strides = listed(context, {"window_strides"}, count, 1),
                         base = listed(context, {"lhs_dilation"}, count, 1),
                         turn = listed(context, {"rhs_dilation"}, count, 1);
  std::optional<llvm::SmallVector<Margin, 4>> margins = margins_of(context, count);
  if (!x || !w || !y || !strides || !base || !turn || !margins || x->spatial.size() != count ||
      w->spatial.size() != count || y->spatial.size() != count ||
      rules::number_attr(context.app, {"batch_group_count"}).value_or(1) != 1)
    return std::nullopt;
  Geometry geometry{*x, *w, *y, {}, false};
  for (size_t i = 0; i < count; ++i)
    geometry.axes.push_back({(*base)[i], (*strides)[i], (*turn)[i], (*margins)[i].low});
  return geometry;
}

// `kernel`: extents of the kernel's spatial dimensions, in their order.
std::optional<Geometry> geometry_of(const KernelContext &context, const Dims &x, const Dims &w) {
  size_t count = w.size() - 2;
  if (rules::any_attr(context.app, {"dimension_numbers"}))
    return lax_geometry(context, count);
  bool transposed =
      context.variant() == Variant::Transposed || rules::flag_attr(context.app, "transposed");
  bool tbc = context.variant() == Variant::TimeFirst;
  Geometry geometry;
  geometry.swapped = transposed;
  geometry.x = geometry.y = Layout::usual(static_cast<unsigned>(count + 2), x.size() == w.size());
  geometry.w = Layout::usual(static_cast<unsigned>(count + 2));
  if (tbc) {
    geometry.x = geometry.y = Layout{1, 2, {0}, true};
    geometry.w = Layout{2, 1, {0}, true};
  }
  std::optional<Numbers> strides = listed(context, {"stride"}, count, 1),
                         turn = listed(context, {"dilation"}, count, 1), pad = Numbers(count, 0);
  llvm::StringRef word = rules::word_attr(context.app, {"padding"});
  if (word.empty())
    pad = listed(context, {"padding", "pad"}, count, 0);
  if (!strides || !turn || !pad || (!word.empty() && word != "same" && word != "valid"))
    return std::nullopt;
  for (size_t i = 0; i < count; ++i) {
    int64_t reach = (*turn)[i] * (w[geometry.w.spatial[i]] - 1);
    int64_t before = word == "same" ? reach / 2 : (*pad)[i];
    geometry.axes.push_back(transposed ? Axis{(*strides)[i], 1, -(*turn)[i], -before}
                                       : Axis{1, (*strides)[i], (*turn)[i], before});
  }
  return geometry;
}

// All positions that meet: of image, kernel and result within one channel.
struct Meeting {
  int64_t x, w, y;
};
std::vector<Meeting> meetings(const Geometry &geometry, const Dims &x, const Dims &w,
                              const Dims &y) {
  Strides x_steps = strides_of(x), w_steps = strides_of(w), y_steps = strides_of(y);
  std::vector<Meeting> all{{0, 0, 0}};
  for (size_t i = 0; i < geometry.axes.size(); ++i) {
    const Axis &axis = geometry.axes[i];
    unsigned in = geometry.x.spatial[i], kernel = geometry.w.spatial[i],
             out = geometry.y.spatial[i];
    std::vector<Meeting> next;
    for (const Meeting &before : all)
      for (int64_t p = 0; p < y[out]; ++p)
        for (int64_t r = 0; r < w[kernel]; ++r) {
          int64_t at = p * axis.step + r * axis.turn - axis.pad;
          if (at >= 0 && at % axis.base == 0 && at / axis.base < x[in])
            next.push_back({before.x + at / axis.base * x_steps[in], before.w + r * w_steps[kernel],
                            before.y + p * y_steps[out]});
        }
    all = std::move(next);
  }
  return all;
}

// Calls f(x, w, y) with the offsets of every pair of channels of a group and every batch entry.
template <class F>
void each_channel(const Geometry &geometry, const Dims &x, const Dims &w, const Dims &y,
                  const F &f) {
  Strides x_steps = strides_of(x), w_steps = strides_of(w), y_steps = strides_of(y);
  int64_t batch = geometry.x.has_outer ? x[geometry.x.outer] : 1;
  int64_t in = x[geometry.x.channel], out = y[geometry.y.channel];
  // What the kernel has is one group's: its channels tell how many groups there are.
  int64_t groups = geometry.swapped ? out / std::max<int64_t>(w[geometry.w.channel], 1)
                                    : in / std::max<int64_t>(w[geometry.w.channel], 1);
  groups = std::max<int64_t>(groups, 1);
  int64_t ins = in / groups, outs = out / groups;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t o = 0; o < outs; ++o)
        for (int64_t i = 0; i < ins; ++i) {
          int64_t first = geometry.swapped ? g * ins + i : g * outs + o;
          int64_t second = geometry.swapped ? o : i;
          f((geometry.x.has_outer ? b * x_steps[geometry.x.outer] : 0) +
                (g * ins + i) * x_steps[geometry.x.channel],
            first * w_steps[geometry.w.outer] + second * w_steps[geometry.w.channel],
            (geometry.y.has_outer ? b * y_steps[geometry.y.outer] : 0) +
                (g * outs + o) * y_steps[geometry.y.channel]);
        }
}

enum class Asked : uint8_t { Result, Image, Kernel };
template <class T> struct Trio { const T *x = nullptr, *w = nullptr, *y = nullptr; };
// Adds to what is asked for the products of the two others.
template <class T>
void convolve(const Geometry &geometry, Asked asked, const Dims &x, const Dims &w, const Dims &y,
              Trio<T> from, T *to) {
  std::vector<Meeting> all = meetings(geometry, x, w, y);
  each_channel(geometry, x, w, y, [&](int64_t x_at, int64_t w_at, int64_t y_at) {
    for (const Meeting &m : all)
      switch (asked) {
      case Asked::Result:
        to[y_at + m.y] += from.x[x_at + m.x] * from.w[w_at + m.w];
        break;
      case Asked::Image:
        to[x_at + m.x] += from.y[y_at + m.y] * from.w[w_at + m.w];
        break;
      case Asked::Kernel:
        to[w_at + m.w] += from.y[y_at + m.y] * from.x[x_at + m.x];
        break;
      }
  });
}

template <class T> void add_to_bias(const Geometry &geometry, View<const T> g, T *to) {
  int64_t step = strides_of(*g.dims)[geometry.y.channel], channels = g.dim(geometry.y.channel);
  for (int64_t at = 0; at < g.size(); ++at)
    to[at / step % channels] += g[at];
}

Error unknown(const KernelContext &context) {
  return cannot_run(context, "its attributes do not fit its extents");
}

template <class T> Error convolution(const Call<T> &call) {
  View<const T> x = call.operand("x"), w = call.operand("w"), c = call.operand("c");
  View<T> to = call.results[0];
  std::optional<Geometry> geometry = geometry_of(call.context, *x.dims, *w.dims);
  if (!geometry)
    return unknown(call.context);
  int64_t step = strides_of(*to.dims)[geometry->y.channel];
  for (int64_t at = 0; c && at < to.size(); ++at)
    to[at] = c[at / step % c.size()];
  convolve<T>(*geometry, Asked::Result, *x.dims, *w.dims, *to.dims, {x.data, w.data, nullptr},
              to.data);
  return Error::success();
}

Error convolution_vjp(const VjpCall &vjp) {
  const Call<double> &call = vjp.call;
  View<const double> x = call.operand("x"), w = call.operand("w"), g = vjp.gradients[0];
  std::optional<Geometry> geometry = geometry_of(call.context, *x.dims, *w.dims);
  if (!geometry)
    return unknown(call.context);
  std::string_view name = call.context.row.equation.equation.operands[vjp.operand].name;
  if (name == "c")
    add_to_bias(*geometry, g, vjp.result.data);
  else
    convolve<double>(*geometry, name == "x" ? Asked::Image : Asked::Kernel, *x.dims, *w.dims,
                     *g.dims, {x.data, w.data, g.data}, vjp.result.data);
  return Error::success();
}

template <class T> Error convolution_backward(const Call<T> &call) {
  View<const T> g = call.operand("g"), x = call.operand("x"), w = call.operand("w");
  std::optional<Geometry> geometry = geometry_of(call.context, *x.dims, *w.dims);
  if (!geometry)
    return unknown(call.context);
  for (unsigned k = 0; k < call.results.size(); ++k) {
    View<T> to = call.results[k];
    if (!to)
      continue;
    unsigned which = rules::row_result(call.context.app, k); // `output_mask` leaves some out
    if (which == 2)
      add_to_bias(*geometry, g, to.data);
    else
      convolve<T>(*geometry, which == 0 ? Asked::Image : Asked::Kernel, *x.dims, *w.dims, *g.dims,
                  {x.data, w.data, g.data}, to.data);
  }
  return Error::success();
}

constexpr KernelDef kConvolution[] = {
    {.row = "convolution",
     .real = convolution<double>,
     .complex = convolution<Complex>,
     .vjp = convolution_vjp},
    {.row = "convolution_grouped",
     .real = convolution<double>,
     .complex = convolution<Complex>,
     .vjp = convolution_vjp},
    {.row = "convolution_backward",
     .real = convolution_backward<double>,
     .taped = convolution_backward<Var>},
};

} // namespace

llvm::ArrayRef<KernelDef> convolution_kernels() { return kConvolution; }

} // namespace spmd::runtime
