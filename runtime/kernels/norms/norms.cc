// Layer, RMS, group, batch and instance normalisation, their backward rows, and their gradients:
// which operands and results of a row are what standardise.h computes with.
#include "runtime/kernels/norms/norms.h"

#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/norms/norm_rows.h"
#include "runtime/kernels/norms/standardise.h"

namespace spmd::runtime {

using rules::flag_attr;

namespace {

double eps_of(const KernelContext &context, double absent) {
  return context.number_attr("eps", context.number_attr("epsilon", absent));
}

std::vector<int64_t> counted(int64_t size) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < size; ++i)
    positions.push_back(i);
  return positions;
}

// Samples, channels, and the elements of one channel of one sample.
struct Extents {
  explicit Extents(llvm::ArrayRef<int64_t> dims)
      : samples(dims[0]), channels(dims[1]), inner(count(dims.drop_front(2))) {}
  int64_t samples, channels, inner;
};

constexpr double kUsualEps = 1e-5;

} // namespace

// torch.finfo(dtype).eps where an RMS norm states none.
double norm_eps(const KernelContext &context, bool centred) {
  return eps_of(context,
                centred ? kUsualEps : 2 * unit_roundoff(context.dtype(context.operand("x"))));
}

unsigned norm_spans(const KernelContext &context,
                    llvm::function_ref<std::optional<unsigned>(std::string_view)> rank_of) {
  if (std::optional<rules::Numbers> shape = rules::numbers_attr(context.app, {"normalized_shape"}))
    return static_cast<unsigned>(shape->size());
  for (std::string_view name : {"w", "b"})
    if (std::optional<unsigned> rank = rank_of(name))
      return *rank;
  return 1;
}

NormSpace NormSpace::of_layers(const KernelContext &context, llvm::ArrayRef<int64_t> dims,
                               unsigned spans, bool centred) {
  llvm::SmallVector<unsigned, 4> along;
  for (auto d = static_cast<unsigned>(dims.size()) - spans; d < dims.size(); ++d)
    along.push_back(d);
  Lines lines(dims, along);
  std::vector<int64_t> none(static_cast<size_t>(lines.count()), 0);
  return {lines, none, counted(lines.length()), centred, norm_eps(context, centred)};
}

NormSpace NormSpace::of_groups(const KernelContext &context, llvm::ArrayRef<int64_t> dims,
                               int64_t groups) {
  Extents of(dims);
  int64_t width = of.channels / groups;
  Lines lines({of.samples, groups, width * of.inner}, {2});
  std::vector<int64_t> line, element;
  for (int64_t i = 0; i < of.samples * groups; ++i)
    line.push_back(i % groups * width);
  for (int64_t i = 0; i < width * of.inner; ++i)
    element.push_back(i / of.inner);
  return {lines, line, element, true, eps_of(context, kUsualEps)};
}

NormSpace NormSpace::of_channels(const KernelContext &context, llvm::ArrayRef<int64_t> dims) {
  Extents of(dims);
  Lines lines({of.samples, of.channels, of.inner}, {0, 2});
  std::vector<int64_t> none(static_cast<size_t>(lines.length()), 0);
  return {lines, counted(of.channels), none, true, eps_of(context, kUsualEps)};
}

NormSpace NormSpace::of_instances(const KernelContext &context, llvm::ArrayRef<int64_t> dims) {
  Extents of(dims);
  Lines lines({of.samples, of.channels, of.inner}, {2});
  std::vector<int64_t> line, none(static_cast<size_t>(lines.length()), 0);
  for (int64_t i = 0; i < lines.count(); ++i)
    line.push_back(i % of.channels);
  return {lines, line, none, true, eps_of(context, kUsualEps)};
}

namespace {

// An operand that not every row has.
template <class T> View<const T> optional(const Call<T> &call, std::string_view name) {
  unsigned place = call.context.operand(name);
  return place < call.context.row.equation.equation.operand_count ? call.operand(place)
                                                                  : View<const T>();
}

template <class T> unsigned span_count(const Call<T> &call) {
  return norm_spans(call.context, [&](std::string_view name) {
    View<const T> view = optional(call, name);
    return view ? std::optional(view.rank()) : std::nullopt;
  });
}

template <class T> llvm::Expected<NormSpace> space_of(const Call<T> &call) {
  const KernelContext &context = call.context;
  View<const T> x = call.operand("x");
  const Variant variant = context.row.variant;
  if (variant == Variant::LayerNorm || variant == Variant::RmsNorm)
    return NormSpace::of_layers(context, *x.dims, span_count(call), variant == Variant::LayerNorm);
  if (variant == Variant::InstanceNorm)
    return NormSpace::of_instances(context, *x.dims);
  if (variant != Variant::GroupNorm)
    return NormSpace::of_channels(context, *x.dims);
  View<const T> mean = optional(call, "u");
  std::optional<int64_t> groups =
      rules::number_attr(context.app, {"num_groups", "group", "groups"});
  if (mean)
    groups = mean.dim(1);
  if (!groups || *groups <= 0 || x.dim(1) % *groups != 0)
    return cannot_run(context, "the number of groups does not divide the channels");
  return NormSpace::of_groups(context, *x.dims, *groups);
}

template <class T> NormOperands<T> operands_of(const Call<T> &call) {
  // Batch and instance norms call their bias k; group_norm_backward has none.
  View<const T> bias = optional(call, "b");
  return {call.operand("x"), optional(call, "w"), bias ? bias : optional(call, "k")};
}

// Which positions of the results are the mean and 1 / deviation: after y.
template <class V>
NormResults<V> results_of(const KernelContext &context, llvm::ArrayRef<View<V>> results) {
  auto at = [&](size_t i) { return i < results.size() ? results[i] : View<V>(); };
  if (context.row.variant == Variant::RmsNorm)
    return {at(0), {}, at(1)};
  return {at(0), at(1), at(2)};
}

// By the last dimensions; none for other spaces.
template <class T> std::optional<NormRows> rows_of(const Call<T> &call) {
  const bool centred = call.context.row.variant == Variant::LayerNorm;
  if (!centred && call.context.row.variant != Variant::RmsNorm)
    return std::nullopt;
  View<const T> x = call.operand("x");
  unsigned spans = std::min(span_count(call), x.rank());
  llvm::ArrayRef<int64_t> dims(*x.dims);
  return NormRows{count(dims.drop_back(spans)), count(dims.take_back(spans)), centred,
                  norm_eps(call.context, centred)};
}

llvm::Error norm_forward(const Call<double> &call) {
  if (std::optional<NormRows> rows = rows_of(call)) {
    standardise_rows(*rows, operands_of(call), results_of(call.context, call.results));
    return llvm::Error::success();
  }
  llvm::Expected<NormSpace> space = space_of(call);
  if (!space)
    return space.takeError();
  for (const View<double> &result : call.results)
    if (result)
      std::fill_n(result.data, result.size(), 0.0);
  standardise(*space, operands_of(call), results_of(call.context, call.results));
  return llvm::Error::success();
}

llvm::Error norm_vjp(const VjpCall &vjp) {
  NormGradients<double> asked{vjp.asked("x"), vjp.asked("w"), vjp.asked("b")};
  if (!asked.b) // batch and instance norms call it so
    asked.b = vjp.asked("k");
  for (const View<double> &to : {asked.x, asked.w, asked.b})
    if (to)
      std::fill_n(to.data, to.size(), 0.0);
  NormResults<const double> g = results_of(vjp.call.context, vjp.gradients);
  if (std::optional<NormRows> rows = rows_of(vjp.call)) {
    standardise_rows_gradient(*rows, operands_of(vjp.call), {}, {}, g, asked);
    return llvm::Error::success();
  }
  llvm::Expected<NormSpace> space = space_of(vjp.call);
  if (!space)
    return space.takeError();
  standardise_gradient(*space, operands_of(vjp.call), {}, {}, g, asked);
  return llvm::Error::success();
}

// The declared result that is the i-th of the row; null where `output_mask` leaves it out.
template <class T> View<T> row_result(const Call<T> &call, unsigned i) {
  for (unsigned k = 0; k < call.results.size(); ++k)
    if (rules::row_result(call.context.app, k) == i)
      return call.results[k];
  return {};
}

template <class T> llvm::Error norm_backward(const Call<T> &call) {
  NormResults<const T> g;
  g.y = call.operand("g");
  NormGradients<T> asked = {row_result(call, 0), row_result(call, 1), row_result(call, 2)};
  if constexpr (std::is_same_v<T, double>)
    if (std::optional<NormRows> rows = rows_of(call)) {
      standardise_rows_gradient(*rows, operands_of(call), optional(call, "u"), optional(call, "s"),
                                g, asked);
      return llvm::Error::success();
    }
  llvm::Expected<NormSpace> space = space_of(call);
  if (!space)
    return space.takeError();
  const rules::Application &app = call.context.app;
  if (call.context.row.variant == Variant::BatchNorm &&
      (app.attr("training") || app.attr("train")) && !flag_attr(app, "training") &&
      !flag_attr(app, "train"))
    return cannot_run(call.context, "only statistics of the batch itself have a gradient here");
  standardise_gradient(*space, operands_of(call), optional(call, "u"), optional(call, "s"), g,
                       asked);
  return llvm::Error::success();
}

// With the statistics of other data.
struct Inference {
  explicit Inference(const KernelContext &context) : eps(eps_of(context, kUsualEps)) {}
  template <class T> T operator()(T x, T v, T w, T u, T k) const {
    return (x - u) * rsqrt(v + eps) * w + k;
  }
  double eps;
};
// All operands but x, one number per channel, are aligned with its dimension 1.
template <class T> llvm::Error batch_norm_inference(const Call<T> &call) {
  Inference f(call.context);
  View<const T> x = call.operand("x"), v = call.operand("v"), w = call.operand("w"),
                u = call.operand("u"), k = call.operand("k");
  Extents of(*x.dims);
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t c = i / of.inner % of.channels;
    call.results[0][i] = f(x[i], v[c], w ? w[c] : T(1.0), u[c], k ? k[c] : T(0.0));
  }
  return llvm::Error::success();
}

using Composed = decltype(KernelDef::composed);
constexpr KernelDef forward(std::string_view row, Composed composed = nullptr) {
  return {.row = row,
          .real = norm_forward,
          .vjp = norm_vjp,
          .assigns = true,
          .vjp_assigns = true,
          .together = true,
          .composed = composed};
}
constexpr KernelDef backward(std::string_view row, Composed composed = nullptr) {
  return {
      .row = row, .real = norm_backward<double>, .taped = norm_backward<Var>, .composed = composed};
}

} // namespace

llvm::ArrayRef<KernelDef> norm_kernels() {
  static constexpr KernelDef kernels[] = {
      forward("layer_norm", composed_layer_norm),
      forward("native_layer_norm", composed_layer_norm),
      backward("native_layer_norm_backward", composed_layer_norm_backward),
      forward("rms_norm", composed_layer_norm),
      forward("fused_rms_norm", composed_layer_norm),
      backward("fused_rms_norm_backward", composed_layer_norm_backward),
      forward("group_norm"),
      forward("native_group_norm"),
      backward("group_norm_backward"),
      forward("batch_norm"),
      backward("batch_norm_backward"),
      forward("instance_norm"),
      {.row = "batch_norm_inference",
       .real = batch_norm_inference<double>,
       .taped = batch_norm_inference<Var>},
  };
  return kernels;
}

} // namespace spmd::runtime
