// Maps of backward ops that a loss or a selection leaves behind, and of scalings of a whole tensor:
// the gradient runs along the dimensions of the forward operand, which give it its shards.
#include "rules/factors/factors.h"
#include "rules/shapes/attrs.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {

using ir::Extent;

namespace {

TensorFactors without(const TensorFactors &factors, unsigned place) {
  TensorFactors left = factors;
  left.erase(left.begin() + place);
  return left;
}

// The dimension of classes: the second, or the only one.
unsigned class_dim(const TensorFactors &factors) { return factors.size() > 1 ? 1 : 0; }

// Gradients of a loss of scores z, target t.
bool of_classes(FactorSink &sink, unsigned scores, bool mean) {
  if (!sink.shape(scores) || sink.shape(scores)->dims.empty())
    return false;
  TensorFactors result = sink.fresh(scores);
  unsigned place = class_dim(result);
  sink.whole(result[place]);
  TensorFactors samples = without(result, place);
  if (mean)
    sink.divide(samples);
  for (std::string_view name : {"g", "t"})
    follow(sink, sink.operand(name), samples);
  sink.result(std::move(result));
  return true;
}

} // namespace

void follow(FactorSink &sink, unsigned operand, const TensorFactors &dims) {
  const ir::Shape *shape = sink.shape(operand);
  if (!shape)
    return;
  if (shape->dims.size() > dims.size())
    return void(sink.fresh_whole(operand));
  TensorFactors factors(dims.end() - static_cast<ptrdiff_t>(shape->dims.size()), dims.end());
  for (unsigned d = 0; d < factors.size(); ++d) {
    Extent have = shape->dims[d];
    if (factors[d].size() != 1)
      continue;
    uint8_t factor = factors[d][0];
    std::optional<Extent> known = sink.extent(factor);
    bool fits = !known || *known == have || *known == Extent(1) || have == Extent(1);
    if (fits) {
      sink.unify(factor, have, operand, 0, d);
      continue;
    }
    sink.whole(factor);
    factors[d] = {sink.factor(have, true)};
  }
  sink.set(operand, std::move(factors));
}

bool loss_backward_factors(const Application &app, FactorSink &sink) {
  if (!sink.shape(1))
    return false;
  TensorFactors result = sink.fresh(1);
  if (reduction_of(app) == LossReduction::Mean)
    sink.divide(result);
  for (unsigned operand : {0, 2, 3})
    follow(sink, operand, result);
  sink.result(std::move(result));
  return true;
}

bool class_loss_backward_factors(const Application &app, FactorSink &sink) {
  return of_classes(sink, sink.operand("z"), reduction_of(app) == LossReduction::Mean);
}

bool nll_loss_backward_factors(const Application &app, FactorSink &sink) {
  bool mean = !any_attr(app, {"reduction"}) || reduction_of(app) == LossReduction::Mean;
  if (!of_classes(sink, sink.operand("z"), mean))
    return false;
  for (unsigned operand : {sink.operand("w"), sink.operand("k")})
    if (sink.shape(operand))
      sink.fresh_whole(operand);
  return true;
}

// `dim` of the forward operand was reduced to the entries that i points at; it may be gone.
bool value_selecting_backward_factors(const Application &app, FactorSink &sink) {
  std::optional<WantedExtents> size =
      extents_attr(app, {"input_size", "input_sizes", "sizes", "size", "shape"});
  unsigned gradient = sink.operand("g"), index = sink.operand("i");
  const ir::Shape *shape = sink.shape(gradient);
  if (!size || !shape)
    return false;
  std::optional<unsigned> place =
      place_of(dim_attr(app) ? dim_number(app).value_or(INT64_MAX) : -1, size->size());
  bool gone = shape->dims.size() + 1 == size->size();
  if (!place || (!gone && shape->dims.size() != size->size()))
    return false;
  TensorFactors result, from;
  for (const WantedExtent &wanted : *size)
    result.push_back({sink.factor(wanted.extent)});
  sink.whole(result[*place]);
  from = without(result, *place);
  DimFactors entries;
  if (!gone) {
    entries = {sink.factor(shape->dims[*place])};
    from.insert(from.begin() + *place, entries);
  }
  follow(sink, gradient, from);
  if (const ir::Shape *indices = sink.shape(index))
    follow(sink, index,
           indices->dims.size() == 1 && !gone && size->size() > 1 ? TensorFactors{entries} : from);
  sink.result(std::move(result));
  return true;
}

bool unfold_backward_factors(const Application &app, FactorSink &sink) {
  std::optional<WantedExtents> size = extents_attr(app, {"input_size", "input_sizes", "sizes"});
  const ir::Shape *shape = sink.shape(0);
  std::optional<unsigned> place =
      size ? place_of(dim_number(app).value_or(INT64_MAX), size->size()) : std::nullopt;
  if (!place || !shape || shape->dims.size() != size->size() + 1)
    return false;
  const TensorFactors from = sink.fresh(0);
  sink.whole(from[*place]);
  sink.whole(from.back());
  TensorFactors result(from.begin(), from.end() - 1);
  result[*place] = {sink.factor((*size)[*place].extent, true)};
  sink.result(std::move(result));
  return true;
}

// The trailing dimensions over which a pool ran: two as written, or as many as `kernel_size` lists.
bool pool_backward_factors(const Application &app, FactorSink &sink) {
  std::optional<Numbers> sizes = numbers_attr(app, {"kernel_size", "output_size"});
  size_t count = sizes && sizes->size() > 1 ? sizes->size() : 2;
  unsigned gradient = sink.operand("g"), forward = sink.operand("x");
  if (count == 2)
    return true;
  const ir::Shape *g = sink.shape(gradient), *x = sink.shape(forward);
  if (!g || !x || g->dims.size() != x->dims.size() || x->dims.size() < count)
    return false;
  TensorFactors result = sink.fresh(forward), from = result;
  for (size_t d = result.size() - count; d < result.size(); ++d) {
    sink.whole(result[d]);
    from[d] = {sink.factor(g->dims[d], true)};
  }
  follow(sink, gradient, from);
  follow(sink, sink.operand("i"), from);
  sink.result(std::move(result));
  return true;
}

// A norm along all dimensions but `dim`, whose lengths g states.
bool weight_norm_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *v = sink.shape(0), *g = sink.shape(1);
  std::optional<unsigned> place =
      v ? place_of(any_attr(app, {"dim"}) ? dim_number(app).value_or(INT64_MAX) : 0, v->dims.size())
        : std::nullopt;
  if (!place || !g)
    return false;
  TensorFactors result = sink.fresh(0);
  for (unsigned d = 0; d < result.size(); ++d)
    if (d != *place)
      sink.whole(result[d]);
  TensorFactors lengths(g->dims.size());
  bool same_rank = g->dims.size() == result.size();
  if (same_rank || g->dims.size() == 1) {
    lengths[same_rank ? *place : 0] = result[*place];
    if (!sink.unify(result[*place][0], g->dims[same_rank ? *place : 0], 1, 0,
                    same_rank ? *place : 0))
      return false;
  }
  sink.set(1, std::move(lengths));
  sink.result(std::move(result));
  return true;
}

} // namespace spmd::rules
