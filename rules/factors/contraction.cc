// Maps of contractions whose dimensions depend on ranks or attributes: products of vectors, einsum,
// convolutions and pools over any number of dimensions.
#include "rules/factors/factors.h"
#include "rules/factors/shape_rule.h"
#include "rules/shapes/attrs.h"
#include "rules/shapes/checked.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {

using ir::Extent;

namespace {

// The text of an einsum, split into the labels of each operand and of the result. `.` stands for
// `...`.
struct EinsumText {
  llvm::SmallVector<std::string, 4> operands;
  std::string result;
  bool ok = true;

  explicit EinsumText(llvm::StringRef text) {
    auto [left, right] = text.split("->");
    llvm::SmallVector<llvm::StringRef, 4> parts;
    left.split(parts, ',');
    for (llvm::StringRef part : parts)
      operands.push_back(labels(part));
    result = text.contains("->") ? labels(right) : implied();
  }

private:
  std::string labels(llvm::StringRef text) {
    std::string out;
    while (!text.empty()) {
      if (text.consume_front("..."))
        out += '.';
      else if (char c = text.front(); text = text.drop_front(), c != ' ')
        ok &= ((c | 32) >= 'a' && (c | 32) <= 'z'), out += c;
    }
    return out;
  }
  // Without `->`: the labels that occur once, in alphabetical order.
  std::string implied() const {
    std::string all, once;
    for (const std::string &labels : operands)
      all += labels;
    for (char c : all)
      if (c != '.' && llvm::count(all, c) == 1)
        once += c;
    llvm::sort(once);
    return (llvm::is_contained(all, '.') ? "." : "") + once;
  }
};

class Einsum {
public:
  Einsum(FactorSink &sink, const EinsumText &text) : sink_(sink), text_(text) {}

  bool run() {
    if (!text_.ok || text_.operands.size() != sink_.count(0))
      return false;
    for (unsigned i = 0; i < text_.operands.size(); ++i)
      if (!operand(i))
        return false;
    TensorFactors result;
    for (char label : text_.result) {
      if (label == '.')
        for (size_t i = rest_.size(); i-- > 0;)
          result.push_back({rest_[i]});
      else if (by_label_[uint8_t(label)])
        result.push_back({*by_label_[uint8_t(label)]});
      else
        return false;
    }
    sink_.result(std::move(result));
    return true;
  }

private:
  bool operand(unsigned member) {
    const ir::Shape *shape = sink_.shape(0, member);
    const std::string &labels = text_.operands[member];
    bool has_rest = llvm::is_contained(labels, '.');
    if (!shape || shape->dims.size() + has_rest < labels.size() ||
        (!has_rest && shape->dims.size() != labels.size()))
      return false;
    size_t rest = shape->dims.size() + has_rest - labels.size();
    TensorFactors factors;
    for (char label : labels) {
      if (label == '.')
        for (size_t i = rest; i-- > 0;)
          factors.push_back({rest_factor(i)});
      else
        factors.push_back({label_factor(label)});
    }
    for (unsigned d = 0; d < factors.size(); ++d)
      if (!sink_.unify(factors[d][0], shape->dims[d], 0, member, d))
        return false;
    sink_.set(0, member, std::move(factors));
    return true;
  }
  uint8_t rest_factor(size_t from_right) {
    while (rest_.size() <= from_right)
      rest_.push_back(sink_.factor(std::nullopt));
    return rest_[from_right];
  }
  uint8_t label_factor(char label) {
    std::optional<uint8_t> &factor = by_label_[uint8_t(label)];
    if (!factor)
      factor = sink_.factor(std::nullopt);
    return *factor;
  }

  FactorSink &sink_;
  const EinsumText &text_;
  std::array<std::optional<uint8_t>, 256> by_label_{};
  llvm::SmallVector<uint8_t, 4> rest_;
};

// A number per spatial dimension: one stands for all, absent is the default. Empty: not known.
Numbers per_dim(const Application &app, llvm::StringRef name, size_t count, int64_t absent) {
  std::optional<Numbers> numbers = numbers_attr(app, {name});
  if (!numbers && any_attr(app, {name}))
    return {};
  if (!numbers || numbers->empty())
    numbers = Numbers{absent};
  if (numbers->size() == 1)
    numbers = Numbers(count, numbers->front());
  return numbers->size() == count ? *numbers : Numbers();
}

struct Window {
  Numbers stride, padding, dilation, output_padding;
  bool transposed;

  Window(const Application &app, size_t count, bool transposed)
      : stride(per_dim(app, "stride", count, 1)), padding(per_dim(app, "padding", count, 0)),
        dilation(per_dim(app, "dilation", count, 1)),
        output_padding(per_dim(app, "output_padding", count, 0)), transposed(transposed) {}

  std::optional<Extent> extent(Extent in, std::optional<int64_t> kernel, size_t i) const {
    if (stride.empty() || padding.empty() || dilation.empty() || !in.is_number() || !kernel ||
        stride[i] < 1)
      return std::nullopt;
    CheckedInt reach = CheckedInt(dilation[i]) * (CheckedInt(*kernel) - 1), size = in.number();
    CheckedInt padded = CheckedInt(2) * padding[i],
               more = output_padding.empty() ? 0 : output_padding[i];
    CheckedInt out = transposed ? (size - 1) * stride[i] - padded + reach + 1 + more
                                : (size + padded - reach - 1).over(stride[i]) + 1;
    return out.extent();
  }
};

} // namespace

bool matmul_factors(const Application &, FactorSink &sink) {
  const ir::Shape *a = sink.shape(0), *b = sink.shape(1);
  if (!a || !b || a->dims.empty() || b->dims.empty())
    return false;
  if (a->dims.size() > 1 && b->dims.size() > 1)
    return true;
  TensorFactors x = sink.fresh(0), y = sink.fresh(1);
  size_t at = y.size() > 1 ? y.size() - 2 : 0;
  DimFactors &summed = y[at];
  if (!sink.unify(x.back()[0], b->dims[at], 1, 0, static_cast<unsigned>(at)))
    return false;
  summed = x.back();
  sink.set(1, y);
  x.pop_back();
  y.erase(y.begin() + static_cast<ptrdiff_t>(at));
  x.append(y.begin(), y.end());
  sink.result(std::move(x));
  return true;
}

// Both dimensions of the result are one dimension of a, which cannot be sharded as two.
bool symmetric_product_factors(const Application &, FactorSink &sink) {
  const ir::Shape *a = sink.shape(0), *c = sink.shape(1);
  if (!a || !c || a->dims.size() < 2 || a->dims.size() != c->dims.size())
    return false;
  const TensorFactors x = sink.fresh(0);
  TensorFactors result(x.begin(), x.end() - 1);
  result.push_back(result.back());
  sink.whole(result.back());
  for (unsigned d = 0; d < result.size(); ++d)
    if (!sink.unify(result[d][0], c->dims[d], 1, 0, d))
      return false;
  sink.set(1, result);
  sink.result(std::move(result));
  return true;
}

bool ormqr_factors(const Application &app, FactorSink &) {
  return !any_attr(app, {"left"}) || flag_attr(app, "left");
}

bool inner_factors(const Application &, FactorSink &sink) {
  const ir::Shape *a = sink.shape(0), *b = sink.shape(1);
  return a && b && a->dims.size() == 2 && b->dims.size() == 2;
}

bool einsum_factors(const Application &app, FactorSink &sink) {
  llvm::StringRef text = word_attr(app, {"equation", "subscripts", "eq"});
  return !text.empty() && Einsum(sink, EinsumText(text)).run();
}

bool tensordot_factors(const Application &app, FactorSink &sink) {
  std::optional<Numbers> left = numbers_attr(app, {"dims_self"}),
                         right = numbers_attr(app, {"dims_other"});
  const ir::Shape *a = sink.shape(0), *b = sink.shape(1);
  if (!a || !b || !left || !right || left->size() != right->size())
    return false;
  const TensorFactors x = sink.fresh(0);
  TensorFactors y = sink.fresh(1);
  llvm::SmallVector<unsigned, 4> gone_left, gone_right;
  for (auto [l, r] : llvm::zip(*left, *right)) {
    std::optional<unsigned> i = place_of(l, x.size()), j = place_of(r, y.size());
    if (!i || !j || !sink.unify(x[*i][0], b->dims[*j], 1, 0, *j))
      return false;
    y[*j] = x[*i];
    gone_left.push_back(*i), gone_right.push_back(*j);
  }
  TensorFactors result;
  for (unsigned d = 0; d < x.size(); ++d)
    if (!llvm::is_contained(gone_left, d))
      result.push_back(x[d]);
  for (unsigned d = 0; d < y.size(); ++d)
    if (!llvm::is_contained(gone_right, d))
      result.push_back(y[d]);
  sink.set(1, std::move(y));
  sink.result(std::move(result));
  return true;
}

namespace {

// The channels of a convolution, which groups lead where there are several.
struct Channels {
  DimFactors in, out, kernel[2];

  // None if the attributes do not say, or the extents do not fit.
  static std::optional<Channels> read(const Application &app, FactorSink &sink, unsigned image,
                                      unsigned kernel) {
    const ir::Shape *x = sink.shape(image), *w = sink.shape(kernel);
    bool transposed = flag_attr(app, "transposed");
    int64_t groups = any_attr(app, {"groups"}) ? number_attr(app, {"groups"}).value_or(0) : 1;
    if (groups < 1)
      return std::nullopt;
    DimFactors group;
    if (groups > 1)
      group.push_back(sink.factor(Extent(groups)));
    auto grouped = [&](uint8_t factor) {
      DimFactors dim = group;
      dim.push_back(factor);
      return dim;
    };
    // The channels within a group: of the input, and of the output.
    auto within = [&](Extent all) {
      bool even = all.is_number() && all.number() % groups == 0;
      return sink.factor(groups == 1 ? std::optional(all)
                         : even      ? std::optional(Extent(all.number() / groups))
                                     : std::nullopt);
    };
    uint8_t in = transposed ? within(w->dims[0]) : sink.factor(w->dims[1]);
    uint8_t out = transposed ? sink.factor(w->dims[1]) : within(w->dims[0]);
    if (groups == 1 && !sink.unify(in, x->dims[1], image, 0, 1))
      return std::nullopt;
    Channels made{grouped(in), grouped(out), {grouped(out), {in}}};
    if (transposed)
      made.kernel[0] = made.in, made.kernel[1] = {out};
    return made;
  }
};

} // namespace

bool convolution_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *x = sink.shape(0), *w = sink.shape(1);
  if (!x || !w || x->dims.size() != w->dims.size() || x->dims.size() < 3)
    return false;
  std::optional<Channels> channels = Channels::read(app, sink, 0, 1);
  if (!channels)
    return false;
  size_t count = x->dims.size() - 2;
  uint8_t batch = sink.factor(x->dims[0]);
  TensorFactors image{{batch}, channels->in}, result{{batch}, channels->out};
  TensorFactors kernel{channels->kernel[0], channels->kernel[1]};
  Window window(app, count, flag_attr(app, "transposed"));
  for (size_t i = 0; i < count; ++i) {
    Extent extent = x->dims[i + 2], reach = w->dims[i + 2];
    image.push_back({sink.factor(extent, true)});
    kernel.push_back({sink.factor(reach, true)});
    std::optional<int64_t> size = reach.is_number() ? std::optional(reach.number()) : std::nullopt;
    result.push_back({sink.factor(window.extent(extent, size, i), true)});
  }
  sink.set(0, std::move(image));
  sink.set(1, std::move(kernel));
  if (sink.shape(2) && sink.shape(2)->dims.size() == 1)
    sink.set(2, {channels->out});
  sink.result(std::move(result));
  return true;
}

// The gradients of x, w and the bias, whichever are asked for.
bool convolution_backward_factors(const Application &app, FactorSink &sink) {
  unsigned gradient = sink.operand("g"), image = sink.operand("x"), weight = sink.operand("w");
  const ir::Shape *g = sink.shape(gradient), *x = sink.shape(image), *w = sink.shape(weight);
  if (!g || !x || !w || g->dims.size() < 3 || g->dims.size() != x->dims.size() ||
      g->dims.size() != w->dims.size())
    return false;
  std::optional<Channels> channels = Channels::read(app, sink, image, weight);
  uint8_t batch = sink.factor(x->dims[0]);
  if (!channels || !sink.unify(batch, g->dims[0], gradient, 0, 0))
    return false;
  TensorFactors of_x{{batch}, channels->in}, of_g{{batch}, channels->out};
  TensorFactors of_w{channels->kernel[0], channels->kernel[1]};
  for (size_t d = 2; d < g->dims.size(); ++d) {
    of_x.push_back({sink.factor(x->dims[d], true)});
    of_g.push_back({sink.factor(g->dims[d], true)});
    of_w.push_back({sink.factor(w->dims[d], true)});
  }
  const TensorFactors gradients[] = {of_x, of_w, {channels->out}};
  for (unsigned k = 0; k < sink.result_count(); ++k)
    if (unsigned index = row_result(app, k); index < 3)
      sink.result(gradients[index]);
  sink.set(image, std::move(of_x));
  sink.set(gradient, std::move(of_g));
  sink.set(weight, std::move(of_w));
  return true;
}

// The trailing dimensions that `kernel_size` or `output_size` lists; where the spelling states how
// many, one number stands for all.
bool pool_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<Numbers> sizes = numbers_attr(app, {"output_size", "kernel_size"});
  size_t spelled = app.op.alias ? app.op.alias->spatial_dims : 0;
  if (sizes && sizes->size() == 1 && spelled)
    sizes->resize(spelled, sizes->front());
  if (!shape || !sizes || (sizes->size() < 2 && !spelled) || sizes->size() > shape->dims.size())
    return false;
  bool stated = any_attr(app, {"output_size"});
  size_t count = sizes->size(), first = shape->dims.size() - count;
  bool rounds_up = flag_attr(app, "ceil_mode");
  Window window(app, count, false);
  if (numbers_attr(app, {"stride"}).value_or(Numbers()).empty())
    window.stride = *sizes;
  TensorFactors factors = sink.fresh(0);
  for (size_t i = 0; i < count; ++i) {
    sink.whole(factors[first + i]);
    std::optional<Extent> extent;
    if (stated)
      extent = CheckedInt((*sizes)[i]).extent();
    else if (!rounds_up)
      extent = window.extent(shape->dims[first + i], (*sizes)[i], i);
    factors[first + i] = {sink.factor(extent, true)};
  }
  for (unsigned k = 0; k < sink.result_count(); ++k)
    sink.result(factors);
  return true;
}

bool resize_backward_factors(const Application &app, FactorSink &sink) {
  std::optional<WantedExtents> size = extents_attr(app, {"input_size", "input_sizes"});
  std::optional<Numbers> made = numbers_attr(app, {"output_size"});
  const ir::Shape *g = sink.shape(0);
  if (!size || !made || !g || size->size() != g->dims.size() || made->size() > size->size())
    return false;
  TensorFactors result = sink.fresh(0);
  for (size_t d = result.size() - made->size(); d < result.size(); ++d) {
    sink.whole(result[d]);
    result[d] = {sink.factor((*size)[d].extent, true)};
  }
  sink.result(std::move(result));
  return true;
}

namespace {

// An image, the places where it is looked up, and what is found there.
struct Sampled {
  TensorFactors image, grid, found;

  static std::optional<Sampled> read(FactorSink &sink, unsigned image, unsigned grid) {
    const ir::Shape *x = sink.shape(image), *y = sink.shape(grid);
    if (!x || !y || x->dims.size() < 3 || x->dims.size() != y->dims.size())
      return std::nullopt;
    Sampled all{sink.fresh(image), {}, {}};
    if (!sink.unify(all.image[0][0], y->dims[0], grid, 0, 0))
      return std::nullopt;
    all.grid = {all.image[0]};
    all.found = {all.image[0], all.image[1]};
    for (size_t d = 2; d < x->dims.size(); ++d) {
      sink.whole(all.image[d]);
      all.grid.push_back({sink.factor(y->dims[d - 1])});
      all.found.push_back(all.grid.back());
    }
    all.grid.push_back({sink.factor(y->dims.back(), true)});
    sink.set(grid, all.grid);
    return all;
  }
};

} // namespace

bool grid_factors(const Application &, FactorSink &sink) {
  std::optional<Sampled> sampled = Sampled::read(sink, 0, 1);
  if (sampled)
    sink.result(std::move(sampled->found));
  return sampled.has_value();
}

bool grid_backward_factors(const Application &app, FactorSink &sink) {
  std::optional<Sampled> sampled = Sampled::read(sink, sink.operand("x"), sink.operand("g"));
  if (!sampled)
    return false;
  follow(sink, sink.operand("y"), sampled->found);
  const TensorFactors gradients[] = {sampled->image, sampled->grid};
  for (unsigned k = 0; k < sink.result_count(); ++k)
    if (unsigned index = row_result(app, k); index < 2)
      sink.result(gradients[index]);
  return true;
}

bool affine_grid_factors(const Application &app, FactorSink &sink) {
  std::optional<WantedExtents> size = extents_attr(app, {"size"});
  const ir::Shape *t = sink.shape(0);
  if (!size || !t || t->dims.size() != 3 || size->size() < 3)
    return false;
  const TensorFactors maps = sink.fresh(0);
  TensorFactors result{maps[0]};
  for (size_t d = 2; d < size->size(); ++d)
    result.push_back({sink.factor((*size)[d].extent, true)});
  result.push_back(maps[1]);
  sink.whole(maps[1]);
  sink.whole(maps[2]);
  sink.result(std::move(result));
  return true;
}

namespace {

// A layer of a recurrent net: weights and state are whole along all but the batch.
struct Recurrent {
  TensorFactors sequence, state;

  static std::optional<Recurrent> read(FactorSink &sink, unsigned sequence) {
    const ir::Shape *x = sink.shape(sequence);
    if (!x || x->dims.size() != 3)
      return std::nullopt;
    Recurrent all{sink.fresh(sequence), {}};
    sink.whole(all.sequence[0]);
    sink.whole(all.sequence[2]);
    return all;
  }
  // Nothing is stretched over the batch.
  static bool match(FactorSink &sink, unsigned operand, const TensorFactors &dims) {
    const ir::Shape *shape = sink.shape(operand);
    if (!shape)
      return true;
    if (shape->dims.size() != dims.size())
      return false;
    for (unsigned d = 0; d < dims.size(); ++d)
      if (!sink.equal(dims[d][0], shape->dims[d], operand, 0, d))
        return false;
    sink.set(operand, dims);
    return true;
  }
  // A state, or what is as large: its last dimension but one is the batch.
  TensorFactors state_of(FactorSink &sink, const ir::Shape &shape) const {
    TensorFactors dims;
    for (size_t d = 0; d < shape.dims.size(); ++d)
      dims.push_back(d + 2 == shape.dims.size() ? sequence[1]
                                                : DimFactors{sink.factor(shape.dims[d], true)});
    return dims;
  }
};

} // namespace

bool recurrent_factors(const Application &app, FactorSink &sink) {
  std::optional<Recurrent> layer = Recurrent::read(sink, 0);
  const ir::Shape *h = sink.shape(sink.operand("h"));
  if (!layer || !h)
    return false;
  sink.fresh_whole_from(1);
  const TensorFactors state = layer->state_of(sink, *h);
  if (!Recurrent::match(sink, 0, layer->sequence))
    return false;
  for (std::string_view name : {"h", "c"})
    if (!Recurrent::match(sink, sink.operand(name), state))
      return false;
  TensorFactors output = layer->sequence;
  output.back() = {sink.factor(std::nullopt, true)};
  // What the backward needs is of no known order: the batch is taken to stand first.
  const TensorFactors kept{{layer->sequence[1][0], sink.factor(std::nullopt, true)}};
  const TensorFactors results[] = {output, state, state, kept};
  for (unsigned k = 0; k < sink.result_count(); ++k)
    if (unsigned index = row_result(app, k); index < std::size(results))
      sink.result(results[index]);
  return true;
}

bool recurrent_backward_factors(const Application &app, FactorSink &sink) {
  std::optional<Recurrent> layer = Recurrent::read(sink, sink.operand("x"));
  const ir::Shape *h = sink.shape(sink.operand("h"));
  if (!layer || !h)
    return false;
  const TensorFactors state = layer->state_of(sink, *h);
  TensorFactors output = layer->sequence;
  output.back() = {sink.factor(std::nullopt, true)};
  const std::pair<std::string_view, const TensorFactors &> known[] = {
      {"x", layer->sequence}, {"y", output}, {"g", output},
      {"h", state},           {"k", state},  {"l", state}};
  for (const auto &[name, dims] : known)
    if (!Recurrent::match(sink, sink.operand(name), dims))
      return false;
  llvm::SmallVector<TensorFactors, 7> gradients{layer->sequence};
  for (std::string_view name : {"w", "u"}) {
    if (!sink.shape(sink.operand(name)))
      return false;
    gradients.push_back(sink.fresh_whole(sink.operand(name)));
  }
  for (std::string_view name : {"p", "q"})
    if (sink.shape(sink.operand(name)))
      sink.fresh_whole(sink.operand(name));
  const TensorFactors biases{gradients.back()[0]};
  gradients.append({biases, biases, state, state});
  for (unsigned k = 0; k < sink.result_count(); ++k)
    if (unsigned index = row_result(app, k); index < gradients.size())
      sink.result(gradients[index]);
  return true;
}

} // namespace spmd::rules
