// The layers of the step: attention and feed-forward with their backward, and loss. A letter per
// axis in a comment is the kind on (dp, cp, tp).
#include "tests/bench/step.h"

namespace spmd::bench {

using ir::AttrValue;
using ir::DType;

Val Step::reshape(const Val &a, std::vector<int64_t> dims) {
  ir::AttrList list;
  for (int64_t dim : dims)
    list.items.push_back(AttrValue::integer(dim));
  AttrValue shape = AttrValue::list(program_.lists.add(std::move(list)));
  return emit("reshape", {a}, {{"shape", shape}}, dims, a.dtype);
}

// Swaps tokens and heads.
Val Step::swap(const Val &a) {
  return emit("transpose", {a}, {{"dim0", AttrValue::integer(0)}, {"dim1", AttrValue::integer(1)}},
              {a.dims[1], a.dims[0], a.dims[2]}, a.dtype);
}

Val Step::attention(Layer &layer, const Val &x, Saved &saved) {
  int64_t tokens = size_.tokens / size_.cp, heads = size_.heads / size_.tp,
          groups = size_.kv_heads / size_.tp;
  int64_t width = size_.hidden / size_.heads;
  scoped("attention_norm");
  saved.attention_in =
      gather(norm(x, layer.norm, saved.attention_hat, saved.attention_inverse), "tp"); // V,V,R
  at("Attention.forward", 30);
  auto project = [&](const char *scope, const Weight &weight, Val &gathered, int64_t count) {
    scoped(std::string("attention.") + scope);
    gathered = gather(weight.value, "dp"); // R,R,V
    return reshape(linear(saved.attention_in, gathered), {tokens, count, width});
  };
  Val q = project("wq", layer.q, saved.wq, heads), k = project("wk", layer.k, saved.wk, groups);
  Val v = project("wv", layer.v, saved.wv, groups);
  scoped("attention");
  at("Attention.forward", 50);
  saved.q = reshape(swap(rotate(q, false)), {groups, heads / groups * tokens, width});
  saved.k = swap(gather(rotate(k, false), "cp")); // V,R,V
  saved.v = swap(gather(v, "cp"));
  Val scores = binary("mul", matmul(saved.q, transpose(saved.k)), number(0.08838834764831845));
  saved.probabilities = like("softmax", scores, {{"dim", AttrValue::integer(2)}});
  Val heads_out = reshape(matmul(saved.probabilities, saved.v), {heads, tokens, width});
  saved.attention_out = reshape(swap(heads_out), {tokens, heads * width});
  scoped("attention.wo");
  saved.wo = gather(layer.o.value, "dp");
  Val partial = linear(saved.attention_out, saved.wo, {{"partial", axes({"tp"})}}); // V,V,P
  return add(x, scatter(partial, "tp"));
}

Val Step::attention_backward(Layer &layer, const Val &g, Saved &saved) {
  int64_t tokens = size_.tokens / size_.cp, heads = size_.heads / size_.tp,
          groups = size_.kv_heads / size_.tp;
  int64_t width = size_.hidden / size_.heads;
  scoped("attention.wo");
  at("Attention.forward", 80);
  Val whole = gather(g, "tp"); // V,V,R
  Val out = matmul(whole, saved.wo);
  weight_gradient(layer.o, whole, saved.attention_out);
  scoped("attention");
  at("Attention.forward", 60);
  Val grouped = reshape(swap(reshape(out, {tokens, heads, width})), saved.q.dims);
  Val dp = matmul(grouped, transpose(saved.v));
  Val dv = matmul(transpose(saved.probabilities), grouped, {{"partial", axes({"cp"})}}); // V,P,V
  Val weighted = mul(dp, saved.probabilities);
  Val sum = emit("sum", {weighted}, {{"dim", ints({2})}, {"keepdim", AttrValue::boolean(true)}},
                 {groups, dp.dims[1], 1});
  Val scores = binary("mul", binary("sub", weighted, mul(saved.probabilities, sum)),
                      number(0.08838834764831845));
  Val dq = matmul(scores, saved.k);
  Val dk = matmul(transpose(scores), saved.q, {{"partial", axes({"cp"})}});
  Val q = rotate(swap(reshape(dq, {heads, tokens, width})), true);
  Val k = rotate(scatter(swap(dk), "cp"), true), v = scatter(swap(dv), "cp");
  std::vector<Val> parts;
  auto project = [&](const char *scope, Weight &weight, const Val &gathered,
                     const Val &head_gradient) {
    scoped(std::string("attention.") + scope);
    Val flat = reshape(head_gradient, {tokens, gathered.dims[0]});
    parts.push_back(matmul(flat, gathered, {{"partial", axes({"tp"})}})); // V,V,P
    weight_gradient(weight, flat, saved.attention_in);
  };
  at("Attention.forward", 30);
  project("wq", layer.q, saved.wq, q);
  project("wk", layer.k, saved.wk, k);
  project("wv", layer.v, saved.wv, v);
  scoped("attention_norm");
  Val mine = scatter(add(add(parts[0], parts[1]), parts[2]), "tp");
  return add(g, norm_backward(mine, saved.attention_hat, saved.attention_inverse, layer.norm));
}

Val Step::ffn(Layer &layer, const Val &x, Saved &saved) {
  scoped("ffn_norm");
  saved.ffn_in = gather(norm(x, layer.ffn_norm, saved.ffn_hat, saved.ffn_inverse), "tp");
  at("FeedForward.forward", 100);
  scoped("feed_forward.w1");
  saved.wgate = gather(layer.gate.value, "dp");
  saved.gate = linear(saved.ffn_in, saved.wgate);
  scoped("feed_forward.w3");
  saved.wup = gather(layer.up.value, "dp");
  saved.up = linear(saved.ffn_in, saved.wup);
  scoped("feed_forward");
  saved.active = like("silu", saved.gate);
  saved.product = mul(saved.active, saved.up);
  scoped("feed_forward.w2");
  saved.wdown = gather(layer.down.value, "dp");
  Val partial = linear(saved.product, saved.wdown, {{"partial", axes({"tp"})}});
  return add(x, scatter(partial, "tp"));
}

Val Step::ffn_backward(Layer &layer, const Val &g, Saved &saved) {
  scoped("feed_forward.w2");
  at("FeedForward.forward", 110);
  Val whole = gather(g, "tp");
  Val product = matmul(whole, saved.wdown);
  weight_gradient(layer.down, whole, saved.product);
  scoped("feed_forward");
  Val up = mul(product, saved.active), active = mul(product, saved.up);
  Val sigmoid = like("sigmoid", saved.gate);
  Val slope =
      mul(sigmoid, binary("add", mul(saved.gate, binary("add", like("neg", sigmoid), number(1))),
                          number(1)));
  Val gate = mul(active, slope);
  scoped("feed_forward.w1");
  at("FeedForward.forward", 100);
  Val left = matmul(gate, saved.wgate, {{"partial", axes({"tp"})}});
  weight_gradient(layer.gate, gate, saved.ffn_in);
  scoped("feed_forward.w3");
  Val right = matmul(up, saved.wup, {{"partial", axes({"tp"})}});
  weight_gradient(layer.up, up, saved.ffn_in);
  scoped("ffn_norm");
  Val mine = scatter(add(left, right), "tp");
  return add(g, norm_backward(mine, saved.ffn_hat, saved.ffn_inverse, layer.ffn_norm));
}

// Cross-entropy over a vocabulary sharded on tp, and its gradient back to `x` (V,V,V).
Val Step::head(const Val &x, Val &loss) {
  int64_t tokens = size_.tokens / size_.cp, words = size_.vocab / size_.tp;
  within("output");
  at("loss_fn", 130);
  Val in = gather(x, "tp"), wide = gather(head_.value, "dp");
  Val logits = cast(linear(in, wide), DType::F32); // V,V,V
  AttrValue keep = AttrValue::boolean(true), last = ints({1});
  Val top = emit("amax", {like("detach", logits)}, {{"dim", last}, {"keepdim", keep}}, {tokens, 1},
                 DType::F32);
  Val most =
      like("all_reduce", top,
           {{"axis", axes({"tp"})}, {"op", word("max")}, {"src", kind("V")}, {"dst", kind("R")}});
  Val shifted = binary("sub", logits, most), exps = like("exp", shifted);
  Val norm =
      reduce(emit("sum", {exps}, {{"dim", last}, {"partial", axes({"tp"})}}, {tokens}, DType::F32),
             axes({"tp"}), "I");
  Val place = binary("sub", labels_, first_word_);
  Val mine = emit("logical_and",
                  {binary("ge", place, number(0)), binary("lt", place, number(double(words)))}, {},
                  {tokens}, DType::Bool);
  Val index = emit("clamp", {place},
                   {{"min", AttrValue::integer(0)}, {"max", AttrValue::integer(words - 1)}},
                   {tokens}, DType::I64);
  Val column =
      emit("unsqueeze", {index}, {{"dim", AttrValue::integer(1)}}, {tokens, 1}, DType::I64);
  Val picked =
      emit("gather", {shifted, column}, {{"dim", AttrValue::integer(1)}}, {tokens, 1}, DType::F32);
  Val flat = emit("squeeze", {picked}, {{"dim", AttrValue::integer(1)}}, {tokens}, DType::F32);
  Val chosen = emit("where", {mine, flat, number(0)}, {}, {tokens}, DType::F32);
  AttrValue tp = axes({"tp"});
  Val stated = like("reinterpret", chosen, {{"axis", tp}, {"src", kind("V")}, {"dst", kind("P")}});
  Val each = binary("sub", like("log", norm), reduce(stated, tp, "I")); // V,V,I
  loss = emit("sum", {each}, {{"dim", ints({0})}, {"partial", axes({"dp", "cp"})}}, {},
              DType::F32); // P,P,I

  phase_ = ir::Phase::Backward;
  auto to_replicate = [&](const Val &a) {
    return like("reinterpret", a, {{"axis", tp}, {"src", kind("I")}, {"dst", kind("R")}});
  };
  auto as_column = [&](const Val &a) {
    return emit("unsqueeze", {a}, {{"dim", AttrValue::integer(1)}}, {tokens, 1}, a.dtype);
  };
  Val spread = emit("expand", {root_}, {{"size", ints({tokens})}}, {tokens}, DType::F32); // R,R,I
  Val from_norm = mul(exps, as_column(to_replicate(binary("div", spread, norm))));
  Val masked =
      emit("where", {mine, to_replicate(like("neg", spread)), number(0)}, {}, {tokens}, DType::F32);
  Val hot = emit("one_hot", {index}, {{"num_classes", AttrValue::integer(words)}}, {tokens, words},
                 DType::I64);
  Val back = cast(add(from_norm, mul(cast(hot, DType::F32), as_column(masked))), DType::BF16);
  weight_gradient(head_, back, in);
  return scatter(matmul(back, wide, {{"partial", axes({"tp"})}}), "tp");
}

} // namespace spmd::bench
