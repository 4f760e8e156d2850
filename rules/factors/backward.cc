// Maps of backward ops that a loss or a selection leaves behind, and of scalings of a whole tensor:
// the gradient runs along the dimensions of the forward operand, which give it its shards.
#include "rules/factors/factors.h"
#include "rules/factors/shape_rule.h"
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
  if (!of_classes(sink, sink.operand("z"), reduction_of(app) == LossReduction::Mean))
    return false;
  if (unsigned weights = sink.operand("w"); sink.shape(weights))
    sink.fresh_whole(weights);
  return true;
}

bool nll_loss_factors(const Application &app, FactorSink &sink) {
  if (!sink.shape(0) || sink.shape(0)->dims.size() < 2)
    return false;
  const TensorFactors scores = sink.fresh(0);
  sink.whole(scores[1]);
  TensorFactors samples = without(scores, 1);
  follow(sink, sink.operand("t"), samples);
  follow(sink, sink.operand("w"), {scores[1]});
  const std::optional<LossReduction> reduction = reduction_of(app);
  if (!reduction)
    return false;
  if (*reduction == LossReduction::Mean)
    sink.divide(samples);
  sink.result(*reduction == LossReduction::None ? std::move(samples) : TensorFactors());
  if (sink.result_count() > 1)
    sink.result({});
  return true;
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

// Targets, and which of the classes they are, have the dimensions of the scores.
bool multilabel_loss_backward_factors(const Application &app, FactorSink &sink) {
  unsigned scores = sink.operand("z");
  if (!sink.shape(scores) || sink.shape(scores)->dims.empty())
    return false;
  TensorFactors result = sink.fresh(scores);
  sink.whole(result.back());
  const TensorFactors samples = without(result, static_cast<unsigned>(result.size()) - 1);
  if (reduction_of(app) == LossReduction::Mean)
    sink.divide(samples);
  follow(sink, sink.operand("g"), samples);
  for (std::string_view name : {"t", "m"})
    follow(sink, sink.operand(name), result);
  sink.result(std::move(result));
  return true;
}

namespace {

// Scores of labels per step of each sequence, and the labels that it should have: a row for each
// sequence, or all of them one after another.
struct Alignment {
  TensorFactors scores, sequences, paths;

  static std::optional<Alignment> read(FactorSink &sink) {
    const ir::Shape *x = sink.shape(sink.operand("x"));
    if (!x || x->dims.size() != 3)
      return std::nullopt;
    Alignment all{sink.fresh(sink.operand("x")), {}, {}};
    sink.whole(all.scores[0]);
    sink.whole(all.scores[2]);
    all.sequences = {all.scores[1]};
    all.paths = {all.scores[1], all.scores[0], {sink.factor(std::nullopt, true)}};
    unsigned labels = sink.operand("y");
    if (const ir::Shape *y = sink.shape(labels); y && y->dims.size() == 2) {
      sink.set(labels, {all.scores[1], {sink.factor(y->dims[1], true)}});
    } else if (y && y->dims.size() == 1) {
      sink.fresh_whole(labels);
      sink.whole(all.scores[1]);
    }
    for (std::string_view name : {"l", "m"})
      follow(sink, sink.operand(name), all.sequences);
    return all;
  }
};

} // namespace

bool ctc_factors(const Application &app, FactorSink &sink) {
  std::optional<Alignment> all = Alignment::read(sink);
  for (unsigned k = 0; all && k < sink.result_count(); ++k)
    sink.result(row_result(app, k) == 0 ? all->sequences : all->paths);
  return all.has_value();
}

bool ctc_backward_factors(const Application &, FactorSink &sink) {
  std::optional<Alignment> all = Alignment::read(sink);
  if (!all)
    return false;
  for (std::string_view name : {"g", "u"})
    follow(sink, sink.operand(name), all->sequences);
  if (const ir::Shape *paths = sink.shape(sink.operand("a")); paths && paths->dims.size() == 3)
    sink.set(sink.operand("a"), all->paths);
  sink.result(std::move(all->scores));
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

// The trailing dimensions over which a pool ran: two as written, or as many as the spelling states
// or `kernel_size` lists.
bool pool_backward_factors(const Application &app, FactorSink &sink) {
  std::optional<Numbers> sizes = numbers_attr(app, {"kernel_size", "output_size"});
  size_t spelled = app.op.alias ? app.op.alias->spatial_dims : 0;
  size_t count = spelled ? spelled : sizes && sizes->size() > 1 ? sizes->size() : 2;
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

namespace {

// A norm along all dimensions but `dim`, whose lengths another operand states.
struct Lengths {
  TensorFactors vectors, lengths;

  // None if the attributes do not say, or the extents do not fit. `others`: as many lengths.
  static std::optional<Lengths> read(const Application &app, FactorSink &sink, unsigned vectors,
                                     llvm::ArrayRef<unsigned> others) {
    const ir::Shape *v = sink.shape(vectors);
    std::optional<unsigned> place =
        v ? place_of(any_attr(app, {"dim"}) ? dim_number(app).value_or(INT64_MAX) : 0,
                     v->dims.size())
          : std::nullopt;
    if (!place || !sink.shape(others[0]))
      return std::nullopt;
    Lengths all{sink.fresh(vectors), {}};
    for (unsigned d = 0; d < all.vectors.size(); ++d)
      if (d != *place)
        sink.whole(all.vectors[d]);
    for (unsigned operand : others) {
      const ir::Shape *g = sink.shape(operand);
      if (!g)
        continue;
      TensorFactors lengths(g->dims.size());
      unsigned at = g->dims.size() == all.vectors.size() ? *place : 0;
      if (g->dims.size() == all.vectors.size() || g->dims.size() == 1) {
        lengths[at] = all.vectors[*place];
        if (!sink.unify(all.vectors[*place][0], g->dims[at], operand, 0, at))
          return std::nullopt;
      }
      sink.set(operand, lengths);
      if (operand == others[0])
        all.lengths = std::move(lengths);
    }
    return all;
  }
};

} // namespace

bool weight_norm_factors(const Application &app, FactorSink &sink) {
  std::optional<Lengths> all = Lengths::read(app, sink, 0, {1u});
  if (all)
    sink.result(std::move(all->vectors));
  return all.has_value();
}

bool weight_norm_backward_factors(const Application &app, FactorSink &sink) {
  std::optional<Lengths> all =
      Lengths::read(app, sink, sink.operand("v"), {sink.operand("g"), sink.operand("s")});
  if (!all)
    return false;
  follow(sink, sink.operand("y"), all->vectors);
  for (unsigned k = 0; k < sink.result_count(); ++k)
    sink.result(row_result(app, k) == 0 ? all->vectors : all->lengths);
  return true;
}

} // namespace spmd::rules
