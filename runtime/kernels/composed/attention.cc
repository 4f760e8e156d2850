// Attention as products of matrices and a few loop nests between them. Heads stand before the
// sequence here, and queries that share their keys are rows of one matrix. All between operands and
// results is in double, as on the host: bounds of functions allow for the rounding of what comes
// out alone. Scratch memory holds the scores of as many heads as fit.
#include "runtime/kernels/attention/attention.h"
#include "ir/support/arrays.h"
#include "runtime/kernels/composed/composition.h"
#include "runtime/kernels/composed/compositions.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>
#include <optional>

namespace spmd::runtime {

namespace {

using Symbols = llvm::ArrayRef<TracedNumber>;

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr int64_t kScoreBytes = int64_t(256) << 20; // of the scores that are there at a time

// Some of the heads of the keys, with the queries that look at them.
struct Chunk {
  Strides extents;       // batch entries, heads of keys, queries' heads per such one, queries, keys
  int64_t first = 0;     // head of keys, among all batch entries
  int64_t heads = 0;     // of keys
  Strides lead;          // batch entry of the first one
  int64_t lead_head = 0; // head of keys in that entry
};

// [heads, rows, columns] of one chunk, row after row.
struct Stack {
  DeviceArray at;
  int64_t rows = 0, columns = 0, first = 0; // `first`: element
};

class AttentionFormulas {
public:
  explicit AttentionFormulas(Composition &of) : of_(of), context_(of.context) {}

  bool make();
  bool forward();
  bool derivative();
  bool mask_derivative(const DeviceArray &result);
  bool backward();

private:
  bool read_dims();
  DeviceArray heads_first(const DeviceArray &tensor);
  // Where a result is made, and from there to where it belongs.
  DeviceArray made_heads_first(const DeviceArray &result);
  bool put_back(const DeviceArray &made, const DeviceArray &result);
  std::vector<Chunk> chunks() const;
  void make_room();

  Stack part(const DeviceArray &whole, const Chunk &chunk, int64_t rows, int64_t columns) const {
    return {whole, rows, columns, chunk.first * rows * columns};
  }
  void multiply(const Chunk &chunk, const Stack &a, bool turn_a, const Stack &b, bool turn_b,
                const Stack &out, double factor);
  Strided seen(const Chunk &chunk, const Stack &stack, bool by_key) const;
  Strided rows_of(const Chunk &chunk, const DeviceArray &whole) const;
  bool nest(const Chunk &chunk, const Strided &out, llvm::ArrayRef<Strided> inputs,
            Composition::Formula formula, SpmdCombiner combiner = kSpmdSum) {
    return of_.make_along(chunk.extents, out, inputs, formula, combiner);
  }
  bool make_scores(const Chunk &chunk);
  bool hide_later(const Chunk &chunk);
  std::optional<Strided> seen_mask(const Chunk &chunk, const DeviceArray &mask) const;
  bool add_mask(const Chunk &chunk, const DeviceArray &mask);
  bool make_mask_gradient(const Chunk &chunk);
  bool make_weights(const Chunk &chunk, const DeviceArray *lse);
  bool make_gradients(const Chunk &chunk, const Strided *inner);

  Composition &of_;
  const KernelContext &context_;
  bool first_ = false; // the sequence stands before the heads
  Dims lead_;
  int64_t entries_ = 0, heads_ = 0, group_ = 1, s_ = 0, t_ = 0, d_ = 0, e_ = 0;
  double scale_ = 1;
  DeviceArray q_, k_, v_, g_;
  Stack scores_, weights_; // of the chunk at hand
  DeviceArray most_, sum_; // of its rows
  DeviceArray to_q_, to_k_, to_v_, to_mask_;
  DeviceArray mask_part_; // what one chunk adds to it
  bool asks_q_ = false, asks_k_ = false, asks_v_ = false, asks_mask_ = false;
};

bool AttentionFormulas::read_dims() {
  const DeviceArray *q = of_.operand("q"), *k = of_.operand("k"), *v = of_.operand("v");
  if (llvm::Error wrong = refused_attention(context_)) {
    llvm::consumeError(std::move(wrong));
    return false;
  }
  const bool drops = of_.operand("n") && context_.variant() == Variant::MaskOfDropout;
  if (drops || !q || !k || !v || q->dims->size() < 3 || k->dims->size() != q->dims->size() ||
      v->dims->size() != q->dims->size())
    return false;
  first_ = sequence_first(context_);
  const size_t rank = q->dims->size(), head = rank - (first_ ? 2 : 3),
               row = rank - (first_ ? 3 : 2);
  auto lead = [&](const DeviceArray *of) { return ir::as_array(*of->dims).take_front(rank - 3); };
  lead_.assign(lead(q).begin(), lead(q).end());
  entries_ = count(lead_);
  heads_ = (*k->dims)[head], s_ = (*q->dims)[row], t_ = (*k->dims)[row];
  d_ = q->dims->back(), e_ = v->dims->back();
  if (lead(q) != lead(k) || lead(q) != lead(v) || (*v->dims)[head] != heads_ ||
      (*v->dims)[row] != t_ || k->dims->back() != d_ || heads_ == 0 ||
      (*q->dims)[head] % heads_ != 0)
    return false;
  group_ = (*q->dims)[head] / heads_;
  const bool is_real = !q->is_complex() && !k->is_complex() && !v->is_complex();
  scale_ = attention_scale(context_, d_);
  return is_real && group_ * entries_ > 0 && s_ * t_ * d_ * e_ > 0;
}

// [.., s, h, d] and [.., h, s, d].
Dims turned(llvm::ArrayRef<int64_t> dims) {
  Dims made(dims.begin(), dims.end());
  std::swap(made[made.size() - 3], made[made.size() - 2]);
  return made;
}
Strides turned_strides(llvm::ArrayRef<int64_t> dims) {
  Strides made = strides_of(dims);
  std::swap(made[made.size() - 3], made[made.size() - 2]);
  return made;
}

DeviceArray AttentionFormulas::heads_first(const DeviceArray &tensor) {
  if (!first_ && tensor.dtype == ir::DType::F64)
    return tensor;
  const Dims dims = first_ ? turned(*tensor.dims) : *tensor.dims;
  const DeviceArray made = of_.temporary(dims);
  of_.copy(dims, {tensor, first_ ? turned_strides(*tensor.dims) : strides_of(dims)},
           {made, strides_of(dims)});
  return made;
}

DeviceArray AttentionFormulas::made_heads_first(const DeviceArray &result) {
  if (!first_ && result.dtype == ir::DType::F64)
    return result;
  return of_.temporary(first_ ? turned(*result.dims) : *result.dims);
}

bool AttentionFormulas::put_back(const DeviceArray &made, const DeviceArray &result) {
  if (made.data == result.data)
    return true;
  const Strides dense = strides_of(*made.dims);
  return of_.copy(*made.dims, {made, dense},
                  {result, first_ ? turned_strides(*result.dims) : dense});
}

// All heads at once, or pieces of one batch entry.
std::vector<Chunk> AttentionFormulas::chunks() const {
  const int64_t bytes = group_ * s_ * t_ * static_cast<int64_t>(sizeof(double));
  const int64_t fit = std::max<int64_t>(kScoreBytes / bytes, 1);
  auto chunk = [&](const Strides &lead, int64_t head, int64_t heads, bool all) {
    Chunk made;
    made.extents = all ? Strides(lead_.begin(), lead_.end()) : Strides(lead_.size(), 1);
    made.extents.append({heads, group_, s_, t_});
    made.lead = lead, made.lead_head = head;
    const Strides strides = strides_of(lead_);
    for (size_t i = 0; i < lead.size(); ++i)
      made.first += lead[i] * strides[i];
    made.first = made.first * heads_ + head;
    made.heads = all ? entries_ * heads : heads;
    return made;
  };
  if (entries_ * heads_ <= fit)
    return {chunk(Strides(lead_.size(), 0), 0, heads_, true)};
  std::vector<Chunk> made;
  for (Walk walk(lead_); walk; ++walk)
    for (int64_t head = 0; head < heads_; head += fit)
      made.push_back(chunk({walk.index().begin(), walk.index().end()}, head,
                           std::min(fit, heads_ - head), false));
  return made;
}

void AttentionFormulas::make_room() {
  int64_t most = 0;
  for (const Chunk &chunk : chunks())
    most = std::max(most, chunk.heads);
  auto stack = [&] { return Stack{of_.temporary({most, group_ * s_, t_}), group_ * s_, t_, 0}; };
  scores_ = stack(), weights_ = stack();
  most_ = of_.temporary({most, group_ * s_}), sum_ = of_.temporary({most, group_ * s_});
}

// out = factor a b, either of which is turned before.
void AttentionFormulas::multiply(const Chunk &chunk, const Stack &a, bool turn_a, const Stack &b,
                                 bool turn_b, const Stack &out, double factor) {
  SpmdMatrices made{};
  made.element = element_of(a.at.dtype), made.out_element = element_of(out.at.dtype);
  made.batch = chunk.heads, made.rows = out.rows, made.columns = out.columns;
  made.inner = turn_a ? a.rows : a.columns;
  made.a = after(a.at.data, a.at.dtype, a.first);
  made.b = after(b.at.data, b.at.dtype, b.first);
  made.out = after(out.at.data, out.at.dtype, out.first);
  made.a_row = turn_a ? 1 : a.columns, made.a_inner = turn_a ? a.columns : 1;
  made.b_inner = turn_b ? 1 : b.columns, made.b_column = turn_b ? b.columns : 1;
  made.out_row = out.columns, made.out_column = 1;
  made.a_batch = a.rows * a.columns, made.b_batch = b.rows * b.columns;
  made.out_batch = out.rows * out.columns;
  made.factor = factor;
  of_.add(made);
}

// By key: columns are keys. Else they are combined, in place of the keys.
Strided AttentionFormulas::seen(const Chunk &chunk, const Stack &stack, bool by_key) const {
  const size_t loops = chunk.extents.size();
  Strided made{stack.at, Strides(loops, 0), stack.first};
  int64_t stride = by_key ? 1 : stack.columns;
  if (by_key)
    made.strides[loops - 1] = 1, stride = chunk.extents[loops - 1];
  for (size_t l = loops - 1; l-- > 0; stride *= chunk.extents[l])
    made.strides[l] = stride;
  return made;
}

// One number for each query.
Strided AttentionFormulas::rows_of(const Chunk &chunk, const DeviceArray &whole) const {
  return seen(chunk, {whole, group_ * s_, 1, 0}, false);
}

bool AttentionFormulas::make_scores(const Chunk &chunk) {
  multiply(chunk, part(q_, chunk, group_ * s_, d_), false, part(k_, chunk, t_, d_), true, scores_,
           scale_);
  if (causal_of(context_) != Causal::No && !hide_later(chunk))
    return false;
  for (std::string_view name : {"m", "n"})
    if (const DeviceArray *mask = of_.operand(name);
        mask && mask->size() && !add_mask(chunk, *mask))
      return false;
  return true;
}

bool AttentionFormulas::hide_later(const Chunk &chunk) {
  const int64_t shift = causal_of(context_) == Causal::AlignedLast ? t_ - s_ : 0;
  const size_t loops = chunk.extents.size();
  Strided ahead{of_.positions(1, 0, t_), Strides(loops, 0)}; // key less query
  ahead.strides[loops - 1] = 1, ahead.strides[loops - 2] = -1;
  const Strided scores = seen(chunk, scores_, true);
  return nest(chunk, scores, {scores, ahead}, [&](Symbols s) {
    return s[1] > static_cast<double>(shift) ? TracedNumber(kNever) : s[0];
  });
}

// A mask from the loops of a chunk; none if it has more dimensions than the scores.
std::optional<Strided> AttentionFormulas::seen_mask(const Chunk &chunk,
                                                    const DeviceArray &mask) const {
  Dims over(lead_.begin(), lead_.end());
  over.append({heads_ * group_, s_, t_});
  if (mask.dims->size() > over.size())
    return std::nullopt;
  const Strides strides = strides_over(*mask.dims, over);
  const size_t lead = lead_.size();
  Strided made{mask, Strides(strides.begin(), strides.begin() + static_cast<ptrdiff_t>(lead))};
  for (size_t i = 0; i < lead; ++i)
    made.offset += chunk.lead[i] * strides[i];
  made.offset += chunk.lead_head * group_ * strides[lead];
  made.strides.append(
      {strides[lead] * group_, strides[lead], strides[lead + 1], strides[lead + 2]});
  return made;
}

bool AttentionFormulas::add_mask(const Chunk &chunk, const DeviceArray &mask) {
  const std::optional<Strided> from = seen_mask(chunk, mask);
  if (!from)
    return false;
  const Strided scores = seen(chunk, scores_, true);
  const bool chooses = mask.dtype == ir::DType::Bool;
  return nest(chunk, scores, {scores, *from}, [&](Symbols s) {
    if (chooses)
      return s[1] == 0.0 ? TracedNumber(kNever) : s[0];
    return s[0] == kNever || s[1] == kNever ? TracedNumber(kNever) : s[0] + s[1];
  });
}

// exp(score - log of the sum); 0 for what is not looked at.
bool AttentionFormulas::make_weights(const Chunk &chunk, const DeviceArray *lse) {
  const Strided scores = seen(chunk, scores_, true), weights = seen(chunk, weights_, true);
  auto power = [](TracedNumber score, TracedNumber less) {
    return score == kNever ? TracedNumber(0.0) : exp(score - less);
  };
  if (lse)
    return nest(chunk, weights, {scores, seen(chunk, part(*lse, chunk, group_ * s_, 1), false)},
                [&](Symbols s) { return power(s[0], s[1]); });
  const Strided most = rows_of(chunk, most_), sum = rows_of(chunk, sum_);
  return nest(
             chunk, most, scores, [](Symbols s) { return s[0]; }, kSpmdMax) &&
         nest(chunk, sum, {scores, most}, [&](Symbols s) { return power(s[0], s[1]); }) &&
         nest(chunk, weights, {scores, most, sum}, [&](Symbols s) {
           return s[2] == 0.0 ? TracedNumber(0.0) : power(s[0], s[1]) / s[2];
         });
}

// The gradients of scores, which stand in the place of the weights, added up where several scores
// saw one element.
bool AttentionFormulas::make_mask_gradient(const Chunk &chunk) {
  const std::optional<Strided> part = seen_mask(chunk, mask_part_),
                               sum = seen_mask(chunk, to_mask_);
  if (!part || !sum ||
      !nest(chunk, *part, seen(chunk, weights_, true), [](Symbols s) { return s[0]; }))
    return false;
  Chunk once = chunk;
  for (size_t l = 0; l < once.extents.size(); ++l)
    if (part->strides[l] == 0)
      once.extents[l] = 1;
  return nest(once, *sum, {*sum, *part}, [](Symbols s) { return s[0] + s[1]; });
}

// `inner`: the sum over all keys of weight times its gradient; null: these are all keys.
bool AttentionFormulas::make_gradients(const Chunk &chunk, const Strided *inner) {
  const Stack g = part(g_, chunk, group_ * s_, e_);
  if (asks_v_)
    multiply(chunk, weights_, true, g, false, part(to_v_, chunk, t_, e_), 1);
  if (!asks_q_ && !asks_k_ && !asks_mask_)
    return true;
  const Stack v = part(v_, chunk, t_, e_);
  multiply(chunk, g, false, v, true, scores_, 1); // gradients of weights from now on
  const Strided slopes = seen(chunk, scores_, true), weights = seen(chunk, weights_, true);
  Strided sum = rows_of(chunk, sum_);
  if (inner)
    sum = *inner;
  else if (!nest(chunk, sum, {weights, slopes}, [](Symbols s) { return s[0] * s[1]; }))
    return false;
  if (!nest(chunk, weights, {weights, slopes, sum}, [](Symbols s) { return s[0] * (s[1] - s[2]); }))
    return false;
  if (asks_q_)
    multiply(chunk, weights_, false, part(k_, chunk, t_, d_), false,
             part(to_q_, chunk, group_ * s_, d_), scale_);
  if (asks_k_)
    multiply(chunk, weights_, true, part(q_, chunk, group_ * s_, d_), false,
             part(to_k_, chunk, t_, d_), scale_);
  return !asks_mask_ || make_mask_gradient(chunk);
}

bool AttentionFormulas::make() {
  if (!read_dims())
    return false;
  q_ = heads_first(*of_.operand("q")), k_ = heads_first(*of_.operand("k")),
  v_ = heads_first(*of_.operand("v"));
  make_room();
  return true;
}

bool AttentionFormulas::forward() {
  const DeviceArray &result = *of_.result(0);
  if (!make())
    return false;
  const DeviceArray made = made_heads_first(result), *lse = of_.result(1);
  const int64_t queries = entries_ * heads_ * group_ * s_;
  if (lse && lse->size() != queries)
    return false;
  for (const Chunk &chunk : chunks()) {
    if (!make_scores(chunk) || !make_weights(chunk, nullptr))
      return false;
    multiply(chunk, weights_, false, part(v_, chunk, t_, e_), false,
             part(made, chunk, group_ * s_, e_), 1);
    Chunk queries_alone = chunk;
    queries_alone.extents.back() = 1;
    auto logarithm = [](Symbols s) {
      return s[0] == kNever ? TracedNumber(kNever) : s[0] + log(s[1]);
    };
    if (lse && !nest(queries_alone, seen(queries_alone, part(*lse, chunk, group_ * s_, 1), false),
                     {rows_of(queries_alone, most_), rows_of(queries_alone, sum_)}, logarithm))
      return false;
  }
  return put_back(made, result);
}

bool AttentionFormulas::derivative() {
  const DeviceArray *g = of_.only_gradient(0), &result = *of_.result(0);
  if (!g || !make())
    return false;
  g_ = heads_first(*g);
  asks_q_ = of_.is_by("q"), asks_k_ = of_.is_by("k"), asks_v_ = of_.is_by("v");
  asks_mask_ = of_.is_by("m") || of_.is_by("n");
  if (!asks_q_ && !asks_k_ && !asks_v_ && !asks_mask_)
    return false;
  if (asks_mask_)
    return mask_derivative(result);
  const DeviceArray made = made_heads_first(result);
  to_q_ = to_k_ = to_v_ = made;
  for (const Chunk &chunk : chunks())
    if (!make_scores(chunk) || !make_weights(chunk, nullptr) || !make_gradients(chunk, nullptr))
      return false;
  return put_back(made, result);
}

bool AttentionFormulas::mask_derivative(const DeviceArray &result) {
  to_mask_ = result.dtype == ir::DType::F64 ? result : of_.temporary(*result.dims);
  mask_part_ = of_.temporary(*result.dims);
  if (!of_.fill(to_mask_, 0))
    return false;
  for (const Chunk &chunk : chunks())
    if (!make_scores(chunk) || !make_weights(chunk, nullptr) || !make_gradients(chunk, nullptr))
      return false;
  const Strides dense = strides_of(*result.dims);
  return to_mask_.data == result.data || of_.copy(*result.dims, {to_mask_, dense}, {result, dense});
}

// Queries may look at keys of other ranks: the log of the sum and the output are given.
bool AttentionFormulas::backward() {
  const DeviceArray *g = of_.operand("g"), *o = of_.operand("o"), *lse = of_.operand("l");
  if (has_unnamed_bias(context_) || !g || !o || !lse || !make() ||
      lse->size() != entries_ * heads_ * group_ * s_)
    return false;
  g_ = heads_first(*g);
  const DeviceArray out = heads_first(*o);
  std::optional<DeviceArray> made[3];
  for (unsigned i = 0; of_.result(i); ++i) {
    const unsigned place = rules::row_result(context_.app, i);
    if (place > 2)
      return false;
    made[place] = made_heads_first(*of_.result(i));
    (place == 0 ? to_q_ : place == 1 ? to_k_ : to_v_) = *made[place];
    (place == 0 ? asks_q_ : place == 1 ? asks_k_ : asks_v_) = true;
  }
  for (const Chunk &chunk : chunks()) {
    Chunk by_width = chunk;
    by_width.extents.back() = e_;
    const Strided inner = rows_of(chunk, most_);
    if (!make_scores(chunk) || !make_weights(chunk, lse) ||
        !nest(by_width, inner,
              {seen(by_width, part(g_, chunk, group_ * s_, e_), true),
               seen(by_width, part(out, chunk, group_ * s_, e_), true)},
              [](Symbols s) { return s[0] * s[1]; }) ||
        !make_gradients(chunk, &inner))
      return false;
  }
  for (unsigned i = 0; of_.result(i); ++i)
    if (!put_back(*made[rules::row_result(context_.app, i)], *of_.result(i)))
      return false;
  return true;
}

} // namespace

bool composed_attention(Composition &of) {
  AttentionFormulas formulas(of);
  return of.by ? formulas.derivative() : formulas.forward();
}

bool composed_attention_backward(Composition &of) {
  return !of.by && AttentionFormulas(of).backward();
}

} // namespace spmd::runtime
