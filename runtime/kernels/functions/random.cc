// Random numbers, and what they do to data. A number is a hash of the op and of the element's
// place in the whole; of the state too, where it is an operand. In the field the same positions are
// drawn, and a number of any distribution is some residue.
#include "runtime/kernels/draws.h"
#include "runtime/kernels/rows.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

namespace spmd::runtime {

namespace {

using llvm::Error;

// Parameters of the distribution that a spelling means.
struct Distribution {
  enum class Form : uint8_t {
    Uniform,
    Normal,
    Whole,
    Exponential,
    Geometric,
    Cauchy,
    LogNormal,
    Coin,
    Bits
  } form = Form::Uniform;
  double a = 0, b = 1;

  double draw(Draw &from) const {
    switch (form) {
    case Form::Uniform:
      return a + (b - a) * from.uniform();
    case Form::Normal:
      return a + b * from.normal();
    case Form::Whole:
      return a + std::floor((b - a) * from.uniform());
    case Form::Exponential:
      return from.exponential() / a;
    case Form::Geometric:
      return std::max(1.0, std::ceil(std::log(from.inner()) / std::log1p(-a)));
    case Form::Cauchy:
      return a + b * std::tan(kPi * (from.inner() - 0.5));
    case Form::LogNormal:
      return std::exp(a + b * from.normal());
    case Form::Coin:
      return from.uniform() < a;
    case Form::Bits:
      break;
    }
    return std::floor(std::ldexp(from.uniform(), static_cast<int>(a)));
  }
};

double pick(const KernelContext &context, std::initializer_list<llvm::StringRef> names,
            unsigned position, double absent) {
  return argument(context, names, position).value_or(absent);
}

Distribution distribution_of(const KernelContext &context, ir::DType dtype) {
  using Form = Distribution::Form;
  // A tensor stands before the parameters.
  bool like = context.row.equation.equation.operand_count > 0;
  auto number = [&](std::initializer_list<llvm::StringRef> names, unsigned place, double absent) {
    return pick(context, names, place + like, absent);
  };
  double bits = std::min(53u, ir::info(dtype).bytes * 8);
  switch (context.variant()) {
  case Variant::Normal:
    return {Form::Normal, number({"mean"}, 0, 0), number({"std"}, 1, 1)};
  case Variant::Integer: {
    double low = number({"low", "from"}, 0, 0), high = number({"high", "to"}, 1, kNaN);
    if (std::isnan(high)) // `randint(high)`
      return {Form::Whole, 0, context.app.attr("low") || low == 0 ? std::exp2(bits - 1) : low};
    return {Form::Whole, low, high};
  }
  case Variant::Exponential:
    return {Form::Exponential, number({"lambd"}, 0, 1), 0};
  case Variant::Geometric:
    return {Form::Geometric, number({"p"}, 0, 0.5), 0};
  case Variant::Cauchy:
    return {Form::Cauchy, number({"median"}, 0, 0), number({"sigma"}, 1, 1)};
  case Variant::LogNormal:
    return {Form::LogNormal, number({"mean"}, 0, 1), number({"std"}, 1, 2)};
  case Variant::Coin:
    return {Form::Coin, number({"p"}, 0, 0.5), 0};
  case Variant::Uniform:
  case Variant::UniformBetween:
    return {Form::Uniform, number({"from", "low", "minval"}, 0, 0),
            number({"to", "high", "maxval"}, 1, 1)};
  case Variant::Bits:
    return {Form::Bits, number({"bit_width"}, 0, bits), 0};
  default:
    return {};
  }
}

template <class T> T drawn(const Distribution &distribution, Draw draw) {
  return T(distribution.draw(draw));
}
template <> Complex drawn(const Distribution &distribution, Draw draw) {
  double real = distribution.draw(draw);
  return Complex(real, distribution.draw(draw)) * std::sqrt(0.5);
}
template <> Residue drawn(const Distribution &distribution, Draw draw) {
  using Form = Distribution::Form;
  bool whole = distribution.form == Form::Whole || distribution.form == Form::Coin ||
               distribution.form == Form::Bits || distribution.form == Form::Geometric;
  return whole ? Residue(static_cast<int64_t>(distribution.draw(draw)))
               : Residue::from_bits(draw.bits());
}

template <class T> Error permutation(const Call<T> &call) {
  View<T> to = call.results[0];
  uint64_t key = key_of(call);
  std::vector<std::pair<uint64_t, int64_t>> order;
  for (int64_t i = 0; i < to.size(); ++i)
    order.push_back({Draw(key, static_cast<uint64_t>(i)).bits(), i});
  llvm::sort(order);
  for (int64_t i = 0; i < to.size(); ++i)
    to[i] = constant<T>(static_cast<double>(order[static_cast<size_t>(i)].second));
  return Error::success();
}

template <class T> Error random(const Call<T> &call) {
  if (call.context.variant() == Variant::Permutation)
    return permutation(call);
  if (call.context.variant() == Variant::UniformBetween && call.args.size())
    return cannot_run(call.context, "its bounds are no operands of the row");
  for (unsigned k = 0; k < call.results.size(); ++k) {
    View<T> to = call.results[k];
    if (!to)
      continue;
    uint64_t key = joined(key_of(call), k);
    Distribution distribution = distribution_of(call.context, to.dtype);
    WholePositions whole(to);
    for (int64_t at = 0; at < to.size(); ++at)
      to[at] = drawn<T>(distribution, Draw(key, whole(at)));
  }
  return Error::success();
}

// Twenty rounds on two words: the generator of that name, as its authors have it.
struct Words {
  uint32_t x, y;
};
Words threefry2x32(Words key, Words counter) {
  constexpr int kTurns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t keys[3] = {key.x, key.y, key.x ^ key.y ^ 0x1BD11BDAu};
  Words out{counter.x + keys[0], counter.y + keys[1]};
  for (uint32_t group = 0; group < 5; ++group) {
    for (int turn : kTurns[group % 2]) {
      out.x += out.y;
      out.y = std::rotl(out.y, turn) ^ out.x;
    }
    out.x += keys[(group + 1) % 3];
    out.y += keys[(group + 2) % 3] + group + 1;
  }
  return out;
}

template <class T> uint32_t word32(T number) {
  return static_cast<uint32_t>(static_cast<int64_t>(plain(number)));
}

// Keys made of keys.
template <class T> Error random_key(const Call<T> &call) {
  unsigned k = call.context.operand("k"), members = call.context.members(k);
  if (call.context.variant() == Variant::Threefry && members == 4 && call.results.size() == 2) {
    const Dims &over = *call.results[0].dims;
    auto strides = [&](unsigned m) { return strides_over(*call.operand(k, m).dims, over); };
    int64_t at = 0;
    for (Walk walk(over, {strides(0), strides(1), strides(2), strides(3)}); walk; ++walk, ++at) {
      auto word = [&](unsigned m) { return word32(call.operand(k, m)[walk.offset(m)]); };
      Words made = threefry2x32({word(0), word(1)}, {word(2), word(3)});
      if (call.results[0])
        call.results[0][at] = constant<T>(made.x);
      if (call.results[1])
        call.results[1][at] = constant<T>(made.y);
    }
    return Error::success();
  }
  // Any other generator: a hash of all that it is given.
  uint64_t key = hash_of<T>(0, View<const T>());
  for (unsigned m = 0; m < members; ++m)
    key = hash_of(joined(key, m), call.operand(k, m));
  for (unsigned r = 0; r < call.results.size(); ++r)
    for (int64_t at = 0; call.results[r] && at < call.results[r].size(); ++at)
      call.results[r][at] = constant<T>(
          static_cast<double>(Draw(joined(key, r), static_cast<uint64_t>(at)).bits() >> 32));
  return Error::success();
}

// Numbers and keys that are a function of a key: a rank that has some of the keys draws for these
// what one device does, and the same key gives the same again. `words`: elements of a key; `each`:
// numbers that it gives.
template <class T>
Error from_keys(const Call<T> &call, View<const T> k, int64_t words, int64_t each) {
  View<T> to = call.results[0];
  Distribution distribution = distribution_of(call.context, to.dtype);
  WholePositions whole(to);
  for (int64_t at = 0; at < to.size(); ++at) {
    uint64_t key = scrambled(call.context.seed);
    for (int64_t word = at / each * words, end = word + words; word < end; ++word)
      key = joined(key, word_of(k[word]));
    to[at] = drawn<T>(distribution, Draw(key, whole(at)));
  }
  return Error::success();
}
template <class T> Error drawn_by_keys(const Call<T> &call) {
  View<const T> k = call.operand("k");
  return from_keys(call, k, 1, call.results[0].size() / std::max<int64_t>(1, k.size()));
}
template <class T> Error key_of_words(const Call<T> &call) {
  View<const T> k = call.operand("k");
  return from_keys(call, k, k.dims->back(), 1);
}
template <class T> Error next_key(const Call<T> &call) {
  const KernelContext &context = call.context;
  View<const T> k = call.operand("k"), n = call.operand("n");
  View<T> to = call.results[0];
  Distribution distribution = distribution_of(context, to.dtype);
  T number = constant<T>(context.number(context.operand("n")).value_or(0));
  Strides n_strides = n ? strides_over(*n.dims, *to.dims) : Strides(to.rank(), 0);
  int64_t at = 0;
  for (Walk walk(*to.dims, {strides_over(*k.dims, *to.dims), n_strides}); walk; ++walk, ++at) {
    uint64_t key = joined(scrambled(context.seed), word_of(k[walk.offset(0)]));
    key = joined(key, word_of(n ? n[walk.offset(1)] : number));
    to[at] = drawn<T>(distribution, Draw(key, 0));
  }
  return Error::success();
}

// One draw for each element of a tensor of parameters.
enum class DrawForm : uint8_t { Coin, Poisson, Gamma, Normal };
template <class T> Error by_parameters(const Call<T> &call, DrawForm by) {
  const KernelContext &context = call.context;
  View<const T> p = call.operand("p");
  unsigned second = context.operand("q");
  View<const T> q =
      second < context.row.equation.equation.operand_count ? call.operand("q") : View<const T>();
  View<T> to = call.results[0];
  uint64_t key = key_of(call);
  WholePositions whole(to);
  std::optional<double> given = rules::any_attr(context.app, {"p"})
                                    ? std::optional(context.number_attr("p", 0.5))
                                    : context.number(context.operand("p"));
  double other = pick(context, {"std"}, 1, 1);
  Strides p_strides = p ? strides_over(*p.dims, *to.dims) : Strides(to.rank(), 0),
          q_strides = q ? strides_over(*q.dims, *to.dims) : Strides(to.rank(), 0);
  int64_t at = 0;
  for (Walk walk(*to.dims, {p_strides, q_strides}); walk; ++walk, ++at) {
    Draw draw(key, whole(at));
    T first =
        p && !(by == DrawForm::Coin && given) ? p[walk.offset(0)] : constant<T>(given.value_or(0));
    T then = q ? q[walk.offset(1)] : constant<T>(other);
    if constexpr (std::is_same_v<T, Residue>) {
      uint64_t bits = joined(joined(draw.bits(), first.value()), then.value());
      to[at] =
          by == DrawForm::Coin ? Residue(static_cast<int64_t>(bits & 1)) : Residue::from_bits(bits);
    } else {
      double number = by == DrawForm::Coin      ? draw.uniform() < first
                      : by == DrawForm::Poisson ? draw.poisson(first)
                      : by == DrawForm::Gamma   ? draw.gamma(first)
                                                : first + then * draw.normal();
      to[at] = number;
    }
  }
  return Error::success();
}
template <class T> Error bernoulli(const Call<T> &call) {
  return by_parameters(call, DrawForm::Coin);
}
template <class T> Error normal(const Call<T> &call) {
  return by_parameters(call, DrawForm::Normal);
}
template <class T> Error poisson(const Call<T> &call) {
  bool shares = call.context.variant() == Variant::Dirichlet;
  bool gamma = shares || call.context.variant() == Variant::Gamma;
  Error wrong = by_parameters(call, gamma ? DrawForm::Gamma : DrawForm::Poisson);
  View<T> to = call.results[0];
  if (wrong || !shares || to.rank() == 0)
    return wrong;
  if constexpr (std::is_same_v<T, double>)
    for (int64_t width = to.dims->back(), row = 0; row * width < to.size(); ++row) {
      double *cells = to.data + row * width, sum = std::accumulate(cells, cells + width, 0.0);
      for (int64_t c = 0; c < width; ++c)
        cells[c] /= sum;
    }
  return Error::success();
}

// Categories by weights along the last dimension.
template <class T> Error multinomial(const Call<T> &call) {
  View<const T> p = call.operand("p");
  View<T> to = call.results[0];
  int64_t classes = p.dims->back(), draws = to.dims->back();
  int64_t rows = p.size() / std::max<int64_t>(classes, 1);
  bool again = rules::flag_attr(call.context.app, "replacement");
  if (!again && draws > classes)
    return cannot_run(call.context, "it draws more than there is");
  uint64_t key = key_of(call);
  WholePositions whole(to);
  for (int64_t row = 0; row < rows; ++row) {
    const T *weights = p.data + row * classes;
    auto weight = [&](int64_t c) {
      return std::is_same_v<T, Residue> ? 1.0 : std::max(0.0, plain(weights[c]));
    };
    if (!again) {
      // The first of independent waiting times, which are shorter the larger the weight is.
      std::vector<std::pair<double, int64_t>> waits;
      Draw draw(key, whole(row * draws));
      for (int64_t c = 0; c < classes; ++c)
        waits.push_back({draw.exponential() / weight(c), c});
      llvm::sort(waits);
      for (int64_t n = 0; n < draws; ++n)
        to[row * draws + n] =
            constant<T>(static_cast<double>(waits[static_cast<size_t>(n)].second));
      continue;
    }
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c)
      sum += weight(c);
    for (int64_t n = 0; n < draws; ++n) {
      double left = Draw(key, whole(row * draws + n)).uniform() * sum;
      int64_t chosen = 0;
      while (chosen + 1 < classes && left >= weight(chosen))
        left -= weight(chosen++);
      to[row * draws + n] = constant<T>(static_cast<double>(chosen));
    }
  }
  return Error::success();
}

// Dropout.

double dropped(const KernelContext &context) {
  double p = pick(context, {"p", "rate", "drop_prob"}, 1, 0.5);
  return context.variant() == Variant::KeepProbability ? 1 - p : p; // torch passes what is kept
}
// Whole channels are dropped: of elements that differ only behind the first two dimensions, all.
unsigned leading(const KernelContext &context) {
  return context.variant() == Variant::WholeChannels ? 2 : ~0u;
}

template <class T> Error dropout(const Call<T> &call) {
  View<const T> x = call.operand("x");
  View<T> to = call.results[0];
  View<T> mask = call.results.size() > 1 ? call.results[1] : View<T>();
  double p = dropped(call.context);
  T scale = constant<T>(p < 1 ? 1 / (1 - p) : 0);
  uint64_t key = key_of(call);
  WholePositions whole(x, leading(call.context));
  for (int64_t at = 0; at < x.size(); ++at) {
    bool kept = Draw(key, whole(at)).uniform() >= p;
    if (to && kept)
      to[at] = x[at] * scale;
    if (mask)
      mask[at] = constant<T>(kept);
  }
  return Error::success();
}

template <class T> Error dropout_off(const Call<T> &call) {
  View<const T> x = call.operand("x");
  if (call.results[0])
    std::copy_n(x.data, x.size(), call.results[0].data);
  if (call.results.size() > 1 && call.results[1])
    std::fill_n(call.results[1].data, call.results[1].size(), constant<T>(1));
  return Error::success();
}

constexpr KernelDef kRandom[] = {
    {.row = "random",
     .real = random<double>,
     .complex = random<Complex>,
     .modular = random<Residue>},
    {.row = "random_like",
     .real = random<double>,
     .complex = random<Complex>,
     .modular = random<Residue>},
    {.row = "random_key", .real = random_key<double>, .modular = random_key<Residue>},
    {.row = "drawn_by_keys", .real = drawn_by_keys<double>, .modular = drawn_by_keys<Residue>},
    {.row = "words_of_key", .real = drawn_by_keys<double>, .modular = drawn_by_keys<Residue>},
    {.row = "key_of_words", .real = key_of_words<double>, .modular = key_of_words<Residue>},
    {.row = "next_key", .real = next_key<double>, .modular = next_key<Residue>},
    {.row = "bernoulli", .real = bernoulli<double>, .modular = bernoulli<Residue>},
    {.row = "poisson", .real = poisson<double>, .modular = poisson<Residue>},
    {.row = "normal", .real = normal<double>, .modular = normal<Residue>},
    {.row = "multinomial", .real = multinomial<double>, .modular = multinomial<Residue>},
    {.row = "dropout",
     .real = dropout<double>,
     .complex = dropout<Complex>,
     .modular = dropout<Residue>,
     .taped = dropout<Var>},
    {.row = "dropout_off",
     .real = dropout_off<double>,
     .complex = dropout_off<Complex>,
     .modular = dropout_off<Residue>,
     .taped = dropout_off<Var>},
};

} // namespace

llvm::ArrayRef<KernelDef> random_kernels() { return kRandom; }

} // namespace spmd::runtime
