// Pools and their backward, interpolation, patches, samples of images.
#include "ir/support/strings.h"
#include "runtime/kernels/indexing/selection.h"
#include "runtime/kernels/rows.h"
#include "runtime/kernels/vjp.h"
#include "runtime/kernels/windows/windows.h"

namespace spmd::runtime {

namespace {

using llvm::Error;

Error unknown(const KernelContext &context) {
  return cannot_run(context, "its attributes do not fit its extents");
}
// XLA's windows are over all dimensions and sum.
bool of_xla(const KernelContext &context) {
  return rules::any_attr(context.app, {"window_dimensions"});
}

// Windows of a pool from an image to its result, with the weights of an average.
std::optional<std::vector<Taps>> pool_taps(const KernelContext &context, const Dims &image,
                                           const Dims &result, bool averages) {
  std::optional<llvm::SmallVector<Window, 4>> windows =
      pool_windows(context, static_cast<unsigned>(image.size()));
  if (!windows)
    return std::nullopt;
  bool adaptive = context.variant() == Variant::Adaptive;
  const ir::AttrValue *include = context.app.attr("count_include_pad");
  bool counts_pad = !include || include->as_bool();
  double divisor = context.number_attr("divisor_override", 0);
  size_t lead = image.size() - windows->size();
  std::vector<Taps> all;
  for (size_t i = 0; i < windows->size(); ++i) {
    std::vector<int64_t> covered;
    Taps taps = adaptive ? adaptive_taps(image[lead + i], result[lead + i])
                         : taps_of((*windows)[i], image[lead + i], result[lead + i],
                                   (*windows)[i].pad, covered);
    for (size_t p = 0; averages && !of_xla(context) && p < taps.size(); ++p)
      for (auto &[place, weight] : taps[p]) {
        bool by_window = adaptive || !counts_pad;
        auto number = static_cast<double>(by_window ? taps[p].size() : size_t(covered[p]));
        weight = divisor != 0 ? (i == 0 ? 1 / divisor : 1) : 1 / number;
      }
    all.push_back(std::move(taps));
  }
  return all;
}

template <class T> void apply(const std::vector<Taps> &taps, View<const T> from, View<T> to) {
  each_tap(*from.dims, *to.dims, taps,
           [&](int64_t at, int64_t source, double weight) { to[at] += from[source] * T(weight); });
}
// The other way.
template <class T> void apply_back(const std::vector<Taps> &taps, View<const T> g, View<T> to) {
  each_tap(*to.dims, *g.dims, taps,
           [&](int64_t at, int64_t source, double weight) { to[source] += g[at] * T(weight); });
}

template <class T> Error avg_pool(const Call<T> &call) {
  View<const T> x = call.operand("x");
  auto taps = pool_taps(call.context, *x.dims, *call.results[0].dims, true);
  if (!taps)
    return unknown(call.context);
  apply(*taps, x, call.results[0]);
  return Error::success();
}
template <class T> Error avg_pool_backward(const Call<T> &call) {
  View<const T> g = call.operand("g");
  auto taps = pool_taps(call.context, *call.results[0].dims, *g.dims, true);
  if (!taps)
    return unknown(call.context);
  apply_back(*taps, g, call.results[0]);
  return Error::success();
}

// Per window the offset of its largest element, the first of equal ones; -1: it has none.
template <class T>
Positions largest(View<const T> x, const Dims &result, const std::vector<Taps> &taps,
                  bool smallest) {
  Positions best(static_cast<size_t>(count(result)), -1);
  each_tap(*x.dims, result, taps, [&](int64_t at, int64_t source, double) {
    int64_t &here = best[static_cast<size_t>(at)];
    if (here < 0) {
      here = source;
      return;
    }
    double value = plain(x[source]), have = plain(x[here]);
    if (!std::isnan(have) && (std::isnan(value) || (smallest ? value < have : value > have)))
      here = source;
  });
  return best;
}
bool takes_smallest(const KernelContext &context) {
  return context.variant() == Variant::Smallest ||
         ir::starts_with(rules::word_attr(context.app, {"select_prim"}), "le");
}
// Elements of one plane of the image that a window slides along.
int64_t plane_of(const Dims &image, size_t dims) {
  int64_t plane = 1;
  for (size_t i = image.size() - std::min(dims, image.size()); i < image.size(); ++i)
    plane *= image[i];
  return std::max<int64_t>(plane, 1);
}

template <class T> Error max_pool(const Call<T> &call) {
  View<const T> x = call.operand("x");
  View<T> to = call.results[0];
  View<T> indices = call.results.size() > 1 ? call.results[1] : View<T>();
  const Dims &result = to ? *to.dims : *indices.dims;
  auto taps = pool_taps(call.context, *x.dims, result, false);
  if (!taps)
    return unknown(call.context);
  bool smallest = takes_smallest(call.context);
  Positions best = largest(x, result, *taps, smallest);
  int64_t plane = plane_of(*x.dims, taps->size());
  for (size_t i = 0; i < best.size(); ++i) {
    if (to)
      to.data[i] = best[i] >= 0 ? x[best[i]] : T(smallest ? kInfinity : -kInfinity);
    if (indices)
      indices.data[i] = T(static_cast<double>(best[i] < 0 ? 0 : best[i] % plane));
  }
  return Error::success();
}

template <class T> Error max_pool_backward(const Call<T> &call) {
  View<const T> g = call.operand("g"), i = call.operand("i");
  View<T> to = call.results[0];
  bool gathers = call.context.variant() == Variant::RegathersAtMaxima;
  if (gathers || call.context.variant() == Variant::RecomputesMaxima) { // by XLA
    const Dims &result = gathers ? *to.dims : *g.dims;
    auto taps = pool_taps(call.context, *i.dims, result, false);
    if (!taps)
      return unknown(call.context);
    Positions best = largest(i, result, *taps, takes_smallest(call.context));
    for (size_t k = 0; k < best.size(); ++k)
      if (best[k] >= 0)
        (gathers ? to.data[k] : to[best[k]]) += gathers ? g[best[k]] : g.data[k];
    return Error::success();
  }
  std::optional<llvm::SmallVector<Window, 4>> windows = pool_windows(call.context, to.rank());
  if (!windows)
    return unknown(call.context);
  int64_t plane = plane_of(*to.dims, windows->size()), own = plane_of(*g.dims, windows->size());
  for (int64_t k = 0; k < g.size(); ++k) {
    std::optional<int64_t> at = position(i[k], plane);
    if (!at)
      return no_position(call.context, plain(i[k]), plane);
    to[k / own * plane + *at] += g[k];
  }
  return Error::success();
}

// Interpolation: along each spatial dimension a few neighbours with weights.

enum class Mode : uint8_t { Nearest, NearestExact, Linear, Cubic, Area };
std::optional<Mode> mode_of(const KernelContext &context) {
  llvm::StringRef word = rules::word_attr(context.app, {"mode"});
  if (word.empty())
    switch (context.variant()) {
    case Variant::LinearWeights:
      return Mode::Linear;
    case Variant::CubicWeights:
      return Mode::Cubic;
    case Variant::NearestExact:
      return Mode::NearestExact;
    case Variant::Antialiased:
      return std::nullopt;
    default:
      return Mode::Nearest;
    }
  if (word.contains("nearest-exact") || word.contains("nearest_exact"))
    return Mode::NearestExact;
  if (word.contains("cubic"))
    return Mode::Cubic;
  if (word.contains("linear"))
    return Mode::Linear;
  if (word.contains("area"))
    return Mode::Area;
  return word.contains("nearest") ? std::optional(Mode::Nearest) : std::nullopt;
}

// The i-th of n stated scales, result over image; none: by the extents.
std::optional<double> stated_scale(const KernelContext &context, size_t i, size_t n) {
  if (const ir::AttrValue *value =
          rules::any_attr(context.app, {"scale_factors", "scale_factor"})) {
    if (value->form != ir::AttrForm::List)
      return number_of(*value);
    llvm::ArrayRef<ir::AttrValue> items =
        context.app.program.lists[value->as<ir::AttrListId>()].items;
    return i < items.size() ? number_of(items[i]) : std::nullopt;
  }
  static constexpr llvm::StringLiteral kNames[] = {"scales_d", "scales_h", "scales_w"};
  const ir::AttrValue *value =
      context.app.attr(n == 1 ? llvm::StringRef("scales") : llvm::StringRef(kNames[3 - n + i]));
  return value ? number_of(*value) : std::nullopt;
}

Taps neighbours(Mode mode, bool corners, double scale, int64_t in, int64_t out) {
  Taps taps(static_cast<size_t>(out));
  for (int64_t p = 0; p < out; ++p) {
    auto &here = taps[static_cast<size_t>(p)];
    auto add = [&](double place, double weight) {
      auto at = static_cast<int64_t>(std::clamp(place, 0.0, static_cast<double>(in - 1)));
      here.push_back({at, weight});
    };
    double source =
        corners ? static_cast<double>(p) * scale : (static_cast<double>(p) + 0.5) * scale - 0.5;
    if (mode == Mode::Nearest) {
      add(std::floor(static_cast<double>(p) * scale), 1);
    } else if (mode == Mode::NearestExact) {
      add(std::floor((static_cast<double>(p) + 0.5) * scale), 1);
    } else if (mode == Mode::Linear) {
      source = corners ? source : std::max(source, 0.0);
      double low = std::floor(source), part = source - low;
      add(low, 1 - part);
      if (part != 0)
        add(low + 1, part);
    } else {
      constexpr double kA = -0.75;
      double low = std::floor(source), t = source - low;
      auto near = [](double x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
      auto far = [](double x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
      add(low - 1, far(t + 1)), add(low, near(t)), add(low + 1, near(1 - t)),
          add(low + 2, far(2 - t));
    }
  }
  return taps;
}

// None: the mode is not known.
std::optional<std::vector<Taps>> interpolation_taps(const KernelContext &context, const Dims &image,
                                                    const Dims &result) {
  std::optional<Mode> mode = mode_of(context);
  if (!mode || image.size() < 3 || rules::flag_attr(context.app, "antialias"))
    return std::nullopt;
  bool corners = rules::flag_attr(context.app, "align_corners");
  size_t dims = image.size() - 2;
  std::vector<Taps> taps;
  for (size_t d = 2; d < image.size(); ++d) {
    int64_t in = image[d], out = result[d];
    if (*mode == Mode::Area) {
      taps.push_back(adaptive_taps(in, out));
      for (auto &window : taps.back())
        for (auto &[place, weight] : window)
          weight = 1 / static_cast<double>(window.size());
      continue;
    }
    bool recomputed = rules::flag_attr(context.app, "recompute_scale_factor");
    std::optional<double> stated = recomputed ? std::nullopt : stated_scale(context, d - 2, dims);
    double scale =
        stated && *stated > 0 ? 1 / *stated : static_cast<double>(in) / static_cast<double>(out);
    bool between = *mode == Mode::Linear || *mode == Mode::Cubic;
    if (corners && between)
      scale = out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
    taps.push_back(neighbours(*mode, corners && between, scale, in, out));
  }
  return taps;
}
template <class T> Error interpolate(const Call<T> &call) {
  View<const T> x = call.operand("x");
  auto taps = interpolation_taps(call.context, *x.dims, *call.results[0].dims);
  if (!taps)
    return unknown(call.context);
  apply(*taps, x, call.results[0]);
  return Error::success();
}
template <class T> Error interpolate_backward(const Call<T> &call) {
  View<const T> g = call.operand("g");
  auto taps = interpolation_taps(call.context, *call.results[0].dims, *g.dims);
  if (!taps)
    return unknown(call.context);
  apply_back(*taps, g, call.results[0]);
  return Error::success();
}

// The gradient of what was padded: each element of the padding goes back to the one that it is.
template <class T, bool Reflected> Error pad_backward(const Call<T> &call) {
  View<const T> g = call.operand("g");
  View<T> to = call.results[0];
  std::optional<rules::Numbers> pad = rules::numbers_attr(call.context.app, {"padding", "pad"});
  if (!pad || pad->size() % 2 || pad->size() / 2 > to.rank())
    return unknown(call.context);
  std::vector<Taps> taps;
  for (size_t i = pad->size() / 2; i-- > 0;) {
    auto d = static_cast<unsigned>(to.rank() - 1 - i);
    Taps along(static_cast<size_t>(g.dim(d)));
    for (int64_t p = 0; p < g.dim(d); ++p) {
      int64_t at = p - (*pad)[2 * i], last = to.dim(d) - 1;
      if (Reflected)
        at = at < 0 ? -at : at > last ? 2 * last - at : at;
      along[static_cast<size_t>(p)].push_back({std::clamp<int64_t>(at, 0, last), 1});
    }
    taps.push_back(std::move(along));
  }
  apply_back(taps, g, to);
  return Error::success();
}

// Patches: for each channel and place of the kernel one row of the positions of the result. Calls
// f(patches, image) for each pair.
template <class F>
std::optional<bool> each_patch(const KernelContext &context, const Dims &image, const Dims &patches,
                               F f) {
  std::optional<llvm::SmallVector<Window, 4>> windows = pool_windows(context, 2);
  if (!windows || image.size() < 3 || context.variant() == Variant::AnyLayout)
    return std::nullopt;
  if (!rules::any_attr(context.app, {"stride"}))
    for (Window &window : *windows)
      window.stride = 1;
  const Window &v = (*windows)[0], &u = (*windows)[1];
  size_t rank = image.size();
  int64_t height = image[rank - 2], width = image[rank - 1], columns = patches.back();
  auto patches_along = [](const Window &window, int64_t extent) {
    return (extent + 2 * window.pad - window.dilation * (window.size - 1) - 1) / window.stride + 1;
  };
  int64_t rows = patches_along(v, height), across = patches_along(u, width);
  if (rows * across != columns)
    return std::nullopt;
  int64_t channels = count(image) / std::max<int64_t>(height * width, 1); // of all batch entries
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t k = 0; k < v.size * u.size; ++k)
      for (int64_t p = 0; p < columns; ++p) {
        int64_t y = p / across * v.stride - v.pad + k / u.size * v.dilation;
        int64_t x = p % across * u.stride - u.pad + k % u.size * u.dilation;
        if (y >= 0 && y < height && x >= 0 && x < width)
          f((c * v.size * u.size + k) * columns + p, (c * height + y) * width + x);
      }
  return true;
}
template <class T> Error im2col(const Call<T> &call) {
  View<const T> x = call.operand("x");
  View<T> to = call.results[0];
  auto done = each_patch(call.context, *x.dims, *to.dims,
                         [&](int64_t patch, int64_t image) { to[patch] = x[image]; });
  return done ? Error::success() : unknown(call.context);
}
template <class T> Error col2im(const Call<T> &call) {
  View<const T> x = call.operand("x");
  View<T> to = call.results[0];
  auto done = each_patch(call.context, *to.dims, *x.dims,
                         [&](int64_t patch, int64_t image) { to[image] = to[image] + x[patch]; });
  return done ? Error::success() : unknown(call.context);
}

// Samples of an image at positions that a grid gives, -1 to 1 along each spatial dimension, the
// last one first.
enum class PaddingMode : uint8_t { Zeros, Border, Reflection };
int64_t choice(const KernelContext &context, std::initializer_list<llvm::StringRef> names,
               std::initializer_list<llvm::StringRef> words) {
  llvm::StringRef word = rules::word_attr(context.app, names);
  int64_t at = 0;
  for (llvm::StringRef each : words) {
    if (word == each)
      return at;
    ++at;
  }
  return rules::number_attr(context.app, names).value_or(0);
}

// The coordinate brought between `low` and `high` by mirrors at both.
template <class T> T reflected(T x, double low, double high) {
  if (low == high)
    return T(0);
  double span = high - low;
  T from = abs(x - T(low));
  double turns = std::floor(plain(from) / span);
  T left = from - T(turns * span);
  return std::fmod(turns, 2) == 0 ? left + T(low) : T(high) - left;
}

template <class T> Error grid_sample(const Call<T> &call) {
  const KernelContext &context = call.context;
  View<const T> x = call.operand("x"), grid = call.operand("g");
  View<T> to = call.results[0];
  unsigned dims = x.rank() - 2;
  int64_t mode =
      choice(context, {"mode", "interpolation_mode"}, {"bilinear", "nearest", "bicubic"});
  auto beyond = static_cast<PaddingMode>(
      choice(context, {"padding_mode"}, {"zeros", "border", "reflection"}));
  bool corners = rules::flag_attr(context.app, "align_corners");
  if (x.rank() < 3 || grid.dims->back() != dims || mode > 1)
    return cannot_run(context, "this interpolation is not known");
  Strides steps = strides_of(*x.dims);
  int64_t samples = grid.size() / dims / std::max<int64_t>(x.dim(0), 1);
  for (int64_t b = 0; b < x.dim(0); ++b)
    for (int64_t n = 0; n < samples; ++n) {
      std::vector<std::pair<int64_t, T>> met{{b * steps[0], T(1)}};
      for (unsigned d = 0; d < dims; ++d) {
        auto extent = static_cast<double>(x.dim(d + 2));
        T at = grid[(b * samples + n) * dims + (dims - 1 - d)];
        at =
            corners ? (at + T(1)) * T((extent - 1) / 2) : ((at + T(1)) * T(extent) - T(1)) * T(0.5);
        if (beyond == PaddingMode::Reflection)
          at = corners ? reflected(at, 0, extent - 1) : reflected(at, -0.5, extent - 0.5);
        if (beyond != PaddingMode::Zeros)
          at = plain(at) < 0 ? T(0) : plain(at) > extent - 1 ? T(extent - 1) : at;
        double low = mode == 1 ? std::nearbyint(plain(at)) : std::floor(plain(at));
        T part = mode == 1 ? T(0) : at - T(low);
        std::vector<std::pair<int64_t, T>> next;
        for (auto &[offset, weight] : met)
          for (int side = 0; side < (mode == 1 ? 1 : 2); ++side)
            if (double place = low + side; place >= 0 && place < extent)
              next.push_back({offset + static_cast<int64_t>(place) * steps[d + 2],
                              weight * (side ? part : T(1) - part)});
        met = std::move(next);
      }
      for (int64_t c = 0; c < x.dim(1); ++c)
        for (auto &[offset, weight] : met)
          to[(b * x.dim(1) + c) * samples + n] += x[offset + c * steps[1]] * weight;
    }
  return Error::success();
}

Error grid_sample_backward(const Call<double> &call) {
  View<const double> gradient = call.operand("y");
  const std::string_view names[] = {"x", "g"};
  for (size_t r = 0; r < call.results.size() && r < std::size(names); ++r)
    if (call.results[r])
      if (Error error =
              run_taped_vjp(grid_sample<Var>,
                            {call, gradient, call.context.operand(names[r]), 0, call.results[r]}))
        return error;
  return Error::success();
}

constexpr KernelDef kPooling[] = {
    {.row = "avg_pool",
     .real = avg_pool<double>,
     .complex = avg_pool<Complex>,
     .taped = avg_pool<Var>},
    {.row = "avg_pool_backward",
     .real = avg_pool_backward<double>,
     .taped = avg_pool_backward<Var>},
    {.row = "max_pool", .real = max_pool<double>, .taped = max_pool<Var>},
    {.row = "max_pool_backward",
     .real = max_pool_backward<double>,
     .taped = max_pool_backward<Var>},
    {.row = "interpolate",
     .real = interpolate<double>,
     .complex = interpolate<Complex>,
     .taped = interpolate<Var>},
    {.row = "interpolate_backward",
     .real = interpolate_backward<double>,
     .taped = interpolate_backward<Var>},
    {.row = "reflection_pad_backward",
     .real = pad_backward<double, true>,
     .taped = pad_backward<Var, true>},
    {.row = "replication_pad_backward",
     .real = pad_backward<double, false>,
     .taped = pad_backward<Var, false>},
    {.row = "im2col",
     .real = im2col<double>,
     .complex = im2col<Complex>,
     .modular = im2col<Residue>,
     .taped = im2col<Var>,
     .moves = true},
    {.row = "col2im",
     .real = col2im<double>,
     .complex = col2im<Complex>,
     .modular = col2im<Residue>,
     .taped = col2im<Var>},
    {.row = "grid_sample", .real = grid_sample<double>, .taped = grid_sample<Var>},
    {.row = "grid_sample_backward", .real = grid_sample_backward},
};

} // namespace

llvm::ArrayRef<KernelDef> pooling_kernels() { return kPooling; }

} // namespace spmd::runtime
