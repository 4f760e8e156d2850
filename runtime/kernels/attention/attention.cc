// Attention in all its forms, and rotary embeddings. Which keys a query may look at is what the
// framework's op on this rank's tensors has it look at: positions are those of the block, not of
// the whole.
#include "runtime/kernels/attention/attention.h"
#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/positions.h"
#include "runtime/kernels/rows.h"
#include "runtime/tensor/number.h"
#include "runtime/tensor/scratch.h"

#include <cmath>
#include <limits>

namespace spmd::runtime {

bool sequence_first(const KernelContext &context) {
  switch (context.variant()) {
  case Variant::StatedLayout:
    return rules::number_attr(context.app, {"layout"}).value_or(0) == 0;
  case Variant::Flash:
  case Variant::Efficient:
  case Variant::EfficientBackward:
    return true;
  default:
    return false;
  }
}

Causal causal_of(const KernelContext &context) {
  if (context.row.variant != Variant::Causal)
    return Causal::No;
  return context.variant() == Variant::Flash ? Causal::AlignedLast : Causal::Aligned;
}

double attention_scale(const KernelContext &context, int64_t width) {
  double usual = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(width, 1)));
  return context.number_attr("scale", context.number_attr("softmax_scale", usual));
}

llvm::Error refused_attention(const KernelContext &context) {
  for (llvm::StringRef name : {"dropout_p", "dropout_rate", "p"})
    if (context.number_attr(name, 0) != 0)
      return cannot_run(context, "which weights its dropout drops is not stated");
  for (llvm::StringRef name : {"softcap", "logits_soft_cap", "sliding_window_length"})
    if (context.number_attr(name, 0) != 0)
      return cannot_run(context, "attribute `" + name.str() + "` is not known");
  for (llvm::StringRef name : {"alibi_slopes", "score_mod", "block_mask"})
    if (rules::any_attr(context.app, {name}))
      return cannot_run(context, "attribute `" + name.str() + "` is not known");
  if (rules::word_attr(context.app, {"mask_type"}).contains_insensitive("padding"))
    return cannot_run(context, "lengths of sequences are not known");
  for (int64_t bound : rules::numbers_attr(context.app, {"window_size"}).value_or(rules::Numbers()))
    if (bound >= 0)
      return cannot_run(context, "attribute `window_size` is not known");
  return llvm::Error::success();
}

bool has_unnamed_bias(const KernelContext &context) {
  const Variant variant = context.variant();
  unsigned place = variant == Variant::BiasFifth || variant == Variant::EfficientBackward ? 4
                   : variant == Variant::BiasSeventh                                      ? 6
                                                                                          : ~0u;
  for (const rules::Slot &slot : context.app.slots) {
    llvm::StringRef word = slot.name.valid() ? context.app.program.strings[slot.name] : "";
    bool here = word.empty() ? place-- == 0 : word == "attn_mask" || word == "attn_bias";
    if (here && slot.form == rules::Slot::Form::Tensor)
      return true;
  }
  return false;
}

namespace {

using Real = View<const double>;

// One head of one batch entry: where its matrices begin.
struct Piece {
  int64_t s = 0, t = 0;
  int64_t q = 0, k = 0, v = 0, o = 0, lse = 0;
  Dims lead; // place of the head among batch entries and heads
};

struct Heads {
  Real q, k, v;
  int64_t d = 0, e = 0, q_row = 0, k_row = 0, v_row = 0, o_row = 0;
  double scale = 1;
  Causal causal = Causal::No;
  struct Mask {
    std::string_view name; // of the operand
    Real values;
    Strides strides; // over batch entries, heads, queries, keys
    // f(place in the mask, place in s x t) for what one head sees of it.
    template <class F> void each(const Piece &piece, F f) const {
      size_t lead = piece.lead.size();
      int64_t base = 0;
      for (size_t d = 0; d < lead; ++d)
        base += piece.lead[d] * strides[d];
      for (int64_t i = 0; i < piece.s; ++i)
        for (int64_t j = 0; j < piece.t; ++j)
          f(base + i * strides[lead] + j * strides[lead + 1], static_cast<size_t>(i * piece.t + j));
    }
  };
  llvm::SmallVector<Mask, 2> masks;
  std::vector<Piece> pieces;
};

// A tensor cut into heads.
struct Cut {
  Strides batch; // over the batch entries of the result; 0: broadcast
  int64_t heads = 1, head = 0, row = 0, rows = 0;
};
Cut cut(const Dims &dims, llvm::ArrayRef<int64_t> batch, bool first) {
  unsigned rank = static_cast<unsigned>(dims.size());
  Strides own = strides_of(dims);
  unsigned row = rank - (first ? 3 : 2), head = rank - (first ? 2 : 3);
  Cut out;
  out.heads = dims[head], out.head = own[head];
  out.row = own[row], out.rows = dims[row];
  out.batch.assign(batch.size(), 0);
  for (size_t back = 1; back <= std::min<size_t>(rank - 3, batch.size()); ++back)
    if (dims[rank - 3 - back] != 1)
      out.batch[batch.size() - back] = own[rank - 3 - back];
  return out;
}

void add_pieces(Heads &heads, const Dims &o, bool first) {
  llvm::ArrayRef<int64_t> batch = llvm::ArrayRef<int64_t>(o).drop_back(3);
  Cut q = cut(*heads.q.dims, batch, first), k = cut(*heads.k.dims, batch, first),
      v = cut(*heads.v.dims, batch, first), out = cut(o, batch, first);
  heads.q_row = q.row, heads.k_row = k.row, heads.v_row = v.row, heads.o_row = out.row;
  int64_t number = 0;
  for (Walk walk(batch, {q.batch, k.batch, v.batch, out.batch}); walk; ++walk)
    for (int64_t h = 0; h < out.heads; ++h) {
      auto at = [&](const Cut &of, unsigned tensor) {
        return walk.offset(tensor) + h * of.heads / std::max<int64_t>(out.heads, 1) * of.head;
      };
      Piece piece{q.rows, k.rows, at(q, 0), at(k, 1), at(v, 2), at(out, 3), number++ * q.rows, {}};
      piece.lead.assign(walk.index().begin(), walk.index().end());
      piece.lead.push_back(h);
      heads.pieces.push_back(std::move(piece));
    }
}

// Sequences joined to one, [tokens, heads, width]: entry i of the bounds is where sequence i
// begins.
llvm::Error add_sequences(const KernelContext &context, Heads &heads, Real from, Real to) {
  auto width = [](Real tensor) { return strides_of(*tensor.dims)[1]; };
  int64_t count = heads.q.dim(1);
  heads.q_row = strides_of(*heads.q.dims)[0], heads.k_row = strides_of(*heads.k.dims)[0];
  heads.v_row = strides_of(*heads.v.dims)[0], heads.o_row = count * heads.e;
  if (!from || !to || from.size() != to.size())
    return cannot_run(context, "the bounds of its sequences are not given");
  for (int64_t i = 0; i + 1 < from.size(); ++i) {
    auto s = static_cast<int64_t>(from[i]), t = static_cast<int64_t>(to[i]);
    auto s_end = static_cast<int64_t>(from[i + 1]), t_end = static_cast<int64_t>(to[i + 1]);
    if (s < 0 || s > s_end || s_end > heads.q.dim(0) || t < 0 || t > t_end ||
        t_end > heads.k.dim(0))
      return cannot_run(context, "the bounds of its sequences are not in order");
    for (int64_t h = 0; h < count; ++h)
      heads.pieces.push_back({s_end - s,
                              t_end - t,
                              s * heads.q_row + h * width(heads.q),
                              t * heads.k_row + h * heads.k.dim(1) / count * width(heads.k),
                              t * heads.v_row + h * heads.v.dim(1) / count * width(heads.v),
                              s * heads.o_row + h * heads.e,
                              0,
                              {}});
  }
  return llvm::Error::success();
}

// `o`: extents of the output.
llvm::Expected<Heads> heads_of(const Call<double> &call, const Dims &o) {
  const KernelContext &context = call.context;
  if (llvm::Error wrong = refused_attention(context))
    return wrong;
  Heads heads{call.operand("q"), call.operand("k"), call.operand("v")};
  if (heads.q.rank() < 3 || heads.k.rank() < 3 || heads.v.rank() < 3)
    return cannot_run(context, "its operands have no dimension of heads");
  heads.d = heads.q.dims->back(), heads.e = heads.v.dims->back();
  heads.scale = attention_scale(context, heads.d);
  heads.causal = causal_of(context);
  bool has_masks = context.operand("m") < context.row.equation.equation.operand_count;
  if (context.row.variant == Variant::PackedSequences) {
    if (llvm::Error wrong = add_sequences(context, heads, call.operand("m"), call.operand("n")))
      return wrong;
    return heads;
  }
  add_pieces(heads, o, sequence_first(context));
  if (!has_masks)
    return heads;
  if (call.operand("n") && context.variant() == Variant::MaskOfDropout)
    return cannot_run(context, "a mask of its dropout is not known");
  if (heads.pieces.empty())
    return heads;
  Dims over(o.begin(), o.end() - 3);
  const Piece &any = heads.pieces.front();
  over.append({heads.pieces.back().lead.back() + 1, any.s, any.t});
  for (std::string_view name : {"m", "n"})
    if (Real mask = call.operand(name); mask && mask.size())
      heads.masks.push_back({name, mask, strides_over(*mask.dims, over)});
  return heads;
}

std::vector<double> bias_of(const Heads &heads, const Piece &piece) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  if (heads.causal == Causal::No && heads.masks.empty())
    return {};
  std::vector<double> bias(static_cast<size_t>(piece.s * piece.t));
  int64_t shift = heads.causal == Causal::AlignedLast ? piece.t - piece.s : 0;
  for (int64_t i = 0; heads.causal != Causal::No && i < piece.s; ++i)
    for (int64_t j = std::max<int64_t>(i + shift + 1, 0); j < piece.t; ++j)
      bias[static_cast<size_t>(i * piece.t + j)] = kNever;
  for (const Heads::Mask &mask : heads.masks) {
    bool chooses = mask.values.dtype == ir::DType::Bool;
    mask.each(piece, [&](int64_t at, size_t score) {
      double value = mask.values[at];
      bias[score] += !chooses ? value : value != 0 ? 0 : kNever;
    });
  }
  return bias;
}

Head head_of(const Heads &heads, const Piece &piece) {
  return {piece.s,
          piece.t,
          heads.d,
          heads.e,
          heads.scale,
          {heads.q.data + piece.q, heads.q_row},
          {heads.k.data + piece.k, heads.k_row},
          {heads.v.data + piece.v, heads.v_row},
          bias_of(heads, piece)};
}

llvm::Error attention(const Call<double> &call) {
  View<double> o = call.results[0];
  View<double> lse = call.results.size() > 1 ? call.results[1] : View<double>();
  Dims dims = *o.dims;
  llvm::Expected<Heads> heads = heads_of(call, dims);
  if (!heads)
    return heads.takeError();
  Scratch<double> room;
  std::vector<double> &weights = room.cells, logs;
  for (const Piece &piece : heads->pieces) {
    Head head = head_of(*heads, piece);
    logs.resize(static_cast<size_t>(piece.s));
    attention_weights(head, weights, logs.data());
    if (o)
      gemm<double>(head.s, head.e, head.t, 1, {weights.data(), head.t}, head.v, 0, o.data + piece.o,
                   heads->o_row);
    for (int64_t i = 0; lse && i < piece.s && piece.lse + i < lse.size(); ++i)
      lse[piece.lse + i] = logs[static_cast<size_t>(i)];
  }
  return llvm::Error::success();
}

llvm::Error attention_vjp(const VjpCall &vjp) {
  const Call<double> &call = vjp.call;
  Real g = vjp.gradients[0], g_lse = vjp.gradients.size() > 1 ? vjp.gradients[1] : Real();
  Dims dims = g ? *g.dims : *call.operand("q").dims;
  dims.back() = call.operand("v").dims->back();
  llvm::Expected<Heads> heads = heads_of(call, dims);
  if (!heads)
    return heads.takeError();
  Scratch<double> weights, none;
  none.cells.assign(g ? 0 : static_cast<size_t>(count(dims)), 0);
  auto into = [&](std::string_view name, int64_t at) {
    View<double> to = vjp.asked(name);
    return to ? to.data + at : nullptr;
  };
  std::vector<double> scores;
  bool asks_mask = llvm::any_of(
      heads->masks, [&](const Heads::Mask &mask) { return bool(vjp.asked(mask.name)); });
  for (const Piece &piece : heads->pieces) {
    Head head = head_of(*heads, piece);
    attention_weights(head, weights.cells, nullptr);
    const double *gradient = g ? g.data : none.cells.data();
    attention_gradients(head, weights.cells, {gradient + piece.o, heads->o_row}, nullptr,
                        g_lse ? g_lse.data + piece.lse : nullptr,
                        {into("q", piece.q), into("k", piece.k), into("v", piece.v), heads->q_row,
                         heads->k_row, heads->v_row, asks_mask ? &scores : nullptr});
    for (const Heads::Mask &mask : heads->masks)
      if (View<double> to = vjp.asked(mask.name))
        mask.each(piece, [&](int64_t at, size_t score) { to[at] += scores[score]; });
  }
  return llvm::Error::success();
}

// The sum over keys of weight times gradient of the weight: g . o per query, as o is weights v.
std::vector<double> inner_products(const Head &head, const double *g, const double *o,
                                   int64_t row) {
  std::vector<double> inner(static_cast<size_t>(head.s), 0);
  for (int64_t i = 0; i < head.s; ++i)
    for (int64_t x = 0; x < head.e; ++x)
      inner[static_cast<size_t>(i)] += g[i * row + x] * o[i * row + x];
  return inner;
}

// Queries may look at keys of other ranks: the log of the sum and the output are given.
llvm::Error attention_backward(const Call<double> &call) {
  if (has_unnamed_bias(call.context))
    return cannot_run(call.context, "its mask is no operand of the row");
  Real g = call.operand("g"), o = call.operand("o"), lse = call.operand("l");
  llvm::Expected<Heads> heads = heads_of(call, *g.dims);
  if (!heads)
    return heads.takeError();
  std::vector<double> weights;
  auto into = [&](size_t i, int64_t at) {
    return i < call.results.size() && call.results[i] ? call.results[i].data + at : nullptr;
  };
  for (const Piece &piece : heads->pieces) {
    Head head = head_of(*heads, piece);
    attention_weights_of(head, lse.data + piece.lse, weights);
    std::vector<double> inner =
        inner_products(head, g.data + piece.o, o.data + piece.o, heads->o_row);
    attention_gradients(head, weights, {g.data + piece.o, heads->o_row}, inner.data(), nullptr,
                        {into(0, piece.q), into(1, piece.k), into(2, piece.v), heads->q_row,
                         heads->k_row, heads->v_row});
  }
  return llvm::Error::success();
}

// x c + rotated(x) n, where halves of the last dimension are exchanged and one changes its sign; of
// pairs of neighbours with `interleaved`. Tables of half the width serve both halves.
template <class T> llvm::Error rope(const Call<T> &call) {
  View<const T> x = call.operand("x"), c = call.operand("c"), n = call.operand("n");
  View<T> to = call.results[0];
  int64_t width = x.dims->back(), half = width / 2, heads = x.dim(x.rank() - 2);
  bool pairs = rules::flag_attr(call.context.app, "interleaved");
  int64_t table = c.dims->back();
  if (width % 2 || (table != width && table != half) || n.dims->back() != table)
    return cannot_run(call.context, "its tables do not fit the width");
  int64_t rows = c.size() / std::max<int64_t>(table, 1);
  for (int64_t at = 0; at < x.size(); ++at) {
    int64_t i = at % width, row = at / width / heads % rows;
    bool first = pairs ? i % 2 == 0 : i < half;
    int64_t step = pairs ? 1 : half;
    int64_t angle = table == width ? i : pairs ? i / 2 : i % half;
    T other = first ? -x[at + step] : x[at - step];
    to[at] = x[at] * c[row * table + angle] + other * n[row * table + angle];
  }
  return llvm::Error::success();
}

constexpr KernelDef kAttention[] = {
    {.row = "attention",
     .real = attention,
     .vjp = attention_vjp,
     .together = true,
     .composed = composed_attention},
    {.row = "attention_causal",
     .real = attention,
     .vjp = attention_vjp,
     .together = true,
     .composed = composed_attention},
    {.row = "attention_grouped",
     .real = attention,
     .vjp = attention_vjp,
     .together = true,
     .composed = composed_attention},
    {.row = "attention_grouped_causal",
     .real = attention,
     .vjp = attention_vjp,
     .together = true,
     .composed = composed_attention},
    {.row = "attention_varlen", .real = attention, .vjp = attention_vjp, .together = true},
    {.row = "attention_fused",
     .real = attention,
     .vjp = attention_vjp,
     .together = true,
     .composed = composed_attention},
    {.row = "attention_fused_causal",
     .real = attention,
     .vjp = attention_vjp,
     .together = true,
     .composed = composed_attention},
    {.row = "attention_fused_grouped",
     .real = attention,
     .vjp = attention_vjp,
     .together = true,
     .composed = composed_attention},
    {.row = "attention_fused_grouped_causal",
     .real = attention,
     .vjp = attention_vjp,
     .together = true,
     .composed = composed_attention},
    {.row = "attention_backward",
     .real = attention_backward,
     .composed = composed_attention_backward},
    {.row = "attention_backward_causal",
     .real = attention_backward,
     .composed = composed_attention_backward},
    {.row = "attention_backward_grouped",
     .real = attention_backward,
     .composed = composed_attention_backward},
    {.row = "attention_backward_grouped_causal",
     .real = attention_backward,
     .composed = composed_attention_backward},
    {.row = "rope", .real = rope<double>, .complex = rope<Complex>, .taped = rope<Var>},
};

} // namespace

llvm::ArrayRef<KernelDef> attention_kernels() { return kAttention; }

} // namespace spmd::runtime
