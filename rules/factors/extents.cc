// Extents of factors that no operand has, from attributes.
#include "rules/factors/factors.h"
#include "rules/shapes/attrs.h"

namespace spmd::rules {

using ir::Extent;

const uint8_t *ExtentSink::find(std::string_view name) const {
  uint8_t factor = equation_.find_factor(name);
  return factor != kNoFactor && of_row_[factor].size() == 1 ? &of_row_[factor].front() : nullptr;
}

std::optional<int64_t> ExtentSink::number(std::string_view name) const {
  const uint8_t *factor = find(name);
  if (!factor || !map_.factors[*factor].extent || !map_.factors[*factor].extent->is_number())
    return std::nullopt;
  return map_.factors[*factor].extent->number();
}

void ExtentSink::set(std::string_view name, int64_t number) {
  const uint8_t *factor = find(name);
  if (factor && !map_.factors[*factor].extent && number >= 0)
    map_.factors[*factor].extent = Extent(number);
}

static void set_from(const Application &app, ExtentSink &sink, std::string_view factor,
                     std::initializer_list<llvm::StringRef> names) {
  if (std::optional<int64_t> number = number_attr(app, names))
    sink.set(factor, *number);
}

void half_extents(const Application &, ExtentSink &sink) {
  if (std::optional<int64_t> d = sink.number("d"); d && *d % 2 == 0)
    sink.set("e", *d / 2);
}

void difference_extents(const Application &app, ExtentSink &sink) {
  int64_t order = any_attr(app, {"n"}) ? number_attr(app, {"n"}).value_or(-1) : 1;
  if (std::optional<int64_t> d = sink.number("d"); d && order >= 0)
    sink.set("e", std::max<int64_t>(0, *d - order));
}

void repeat_interleave_extents(const Application &app, ExtentSink &sink) {
  set_from(app, sink, "r", {"repeats"});
}

void unfold_extents(const Application &app, ExtentSink &sink) {
  std::optional<int64_t> d = sink.number("d"), size = number_attr(app, {"size"}),
                         step = number_attr(app, {"step"});
  if (size)
    sink.set("r", *size);
  if (d && size && step && *step > 0 && *d >= *size)
    sink.set("p", (*d - *size) / *step + 1);
}

void pixel_extents(const Application &app, ExtentSink &sink) {
  set_from(app, sink, "r", {"upscale_factor", "downscale_factor"});
  set_from(app, sink, "s", {"upscale_factor", "downscale_factor"});
}

void group_extents(const Application &app, ExtentSink &sink) {
  set_from(app, sink, "g", {"num_groups", "group", "groups"});
  set_from(app, sink, "n", {"num_groups", "group", "groups"});
}

void pair_extents(const Application &, ExtentSink &sink) { sink.set("two", 2); }

void weight_count_extents(const Application &app, ExtentSink &sink) {
  set_from(app, sink, "v", {"num_weights", "num_embeddings"});
}

void class_count_extents(const Application &app, ExtentSink &sink) {
  set_from(app, sink, "v", {"num_classes"});
}

void histogram_extents(const Application &app, ExtentSink &sink) {
  sink.set("v", any_attr(app, {"bins"}) ? number_attr(app, {"bins"}).value_or(-1) : 100);
}

void topk_extents(const Application &app, ExtentSink &sink) { set_from(app, sink, "e", {"k"}); }

void permutation_extents(const Application &app, ExtentSink &sink) {
  set_from(app, sink, "m", {"permutation_size"});
}

void sample_count_extents(const Application &app, ExtentSink &sink) {
  set_from(app, sink, "k", {"num_samples"});
}

} // namespace spmd::rules
