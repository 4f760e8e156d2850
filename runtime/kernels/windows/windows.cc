// Attributes of pools, and the positions that their windows cover.
#include "runtime/kernels/windows/windows.h"

namespace spmd::runtime {

using rules::Numbers;

std::optional<llvm::SmallVector<Margin, 4>> margins_of(const KernelContext &context, size_t count) {
  const ir::AttrValue *padding = rules::any_attr(context.app, {"padding"});
  if (!padding)
    return llvm::SmallVector<Margin, 4>(count);
  if (padding->form != ir::AttrForm::List)
    return std::nullopt;
  llvm::SmallVector<Margin, 4> margins;
  for (const ir::AttrValue &item : context.app.program.lists[padding->as<ir::AttrListId>()].items) {
    std::optional<Numbers> pair = rules::numbers_of(context.app, item);
    if (!pair || pair->size() != 2)
      return std::nullopt;
    margins.push_back({(*pair)[0], (*pair)[1]});
  }
  return margins.size() == count ? std::optional(margins) : std::nullopt;
}

Taps taps_of(const Window &window, int64_t in, int64_t out, int64_t high,
             std::vector<int64_t> &covered) {
  Taps taps(static_cast<size_t>(out));
  covered.assign(static_cast<size_t>(out), 0);
  for (int64_t p = 0; p < out; ++p)
    for (int64_t k = 0; k < window.size; ++k) {
      int64_t at = p * window.stride - window.pad + k * window.dilation;
      if (at >= 0 && at < in)
        taps[static_cast<size_t>(p)].push_back({at, 1});
      covered[static_cast<size_t>(p)] += at < in + high;
    }
  return taps;
}

Taps adaptive_taps(int64_t in, int64_t out) {
  Taps taps(static_cast<size_t>(out));
  for (int64_t p = 0; p < out; ++p)
    for (int64_t at = p * in / out; at < ((p + 1) * in + out - 1) / out; ++at)
      taps[static_cast<size_t>(p)].push_back({at, 1});
  return taps;
}

std::optional<llvm::SmallVector<Window, 4>> pool_windows(const KernelContext &context,
                                                         unsigned rank) {
  llvm::SmallVector<Window, 4> windows;
  if (rules::any_attr(context.app, {"window_dimensions"})) {
    std::optional<Numbers> size = rules::numbers_attr(context.app, {"window_dimensions"}),
                           stride = rules::numbers_attr(context.app, {"window_strides"}),
                           dilation = rules::numbers_attr(context.app, {"window_dilation"}),
                           base = rules::numbers_attr(context.app, {"base_dilation"});
    std::optional<llvm::SmallVector<Margin, 4>> margins = margins_of(context, rank);
    for (int64_t spread : base.value_or(Numbers()))
      if (spread != 1)
        return std::nullopt;
    if (!size || size->size() != rank || !margins || (stride && stride->size() != rank) ||
        (dilation && dilation->size() != rank))
      return std::nullopt;
    for (unsigned d = 0; d < rank; ++d)
      windows.push_back({(*size)[d], stride ? (*stride)[d] : 1, (*margins)[d].low,
                         dilation ? (*dilation)[d] : 1});
    return windows;
  }
  std::optional<Numbers> size = rules::numbers_attr(context.app, {"kernel_size"});
  size_t stated = size ? size->size() : 0;
  size_t by_name = context.app.op.alias ? context.app.op.alias->spatial_dims : 0;
  size_t dims = by_name ? by_name : stated ? stated : 2;
  auto numbers = [&](llvm::StringRef key, const Numbers &absent) -> std::optional<Numbers> {
    std::optional<Numbers> found = rules::numbers_attr(context.app, {key});
    if (!found || found->empty())
      return absent;
    if (found->size() == 1)
      found->resize(dims, found->front());
    return found->size() == dims ? found : std::nullopt;
  };
  std::optional<Numbers> sizes = numbers("kernel_size", Numbers(dims, 1));
  std::optional<Numbers> strides = sizes ? numbers("stride", *sizes) : std::nullopt;
  std::optional<Numbers> pads = numbers("padding", Numbers(dims, 0)),
                         dilations = numbers("dilation", Numbers(dims, 1));
  if (!sizes || !strides || !pads || !dilations || dims > rank)
    return std::nullopt;
  for (size_t d = 0; d < dims; ++d)
    windows.push_back({(*sizes)[d], (*strides)[d], (*pads)[d], (*dilations)[d]});
  return windows;
}

} // namespace spmd::runtime
