// The whole step, and its last part: clipping by the norm of all gradients, and Adam in place.
#include "tests/bench/step.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::bench {

using ir::AttrValue;
using ir::DType;
using ir::Role;

void Step::declare_parameters() {
  int64_t tokens = size_.tokens / size_.cp, mine = tokens / size_.tp,
          width = size_.hidden / size_.heads;
  tokens_ = declare(Role::Input, "tokens", "VVV", {mine}, DType::I64);
  labels_ = declare(Role::Input, "labels", "VVR", {tokens}, DType::I64);
  first_word_ = declare(Role::Const, "first_word", "RRV", {}, DType::I64);
  cosine_ = declare(Role::Const, "cosine", "RVR", {tokens, 1, width}, DType::BF16);
  sine_ = declare(Role::Const, "sine", "RVR", {tokens, 1, width}, DType::BF16);
  root_ = declare(Role::Const, "root", "RRI", {}, DType::F32);
  int64_t hidden = size_.hidden, row = hidden / size_.dp, key = size_.kv_heads * width / size_.tp;
  int64_t query = hidden / size_.tp, ffn = size_.ffn / size_.tp;
  for (unsigned i = 0; i < size_.layers; ++i) {
    std::string name = "layers." + std::to_string(i);
    auto matrix = [&](const char *part, int64_t out, int64_t in) {
      return weight(name + part, true, {out, in});
    };
    layers_.push_back({weight(name + ".attention_norm.weight", false, {hidden}),
                       matrix(".attention.wq.weight", query / size_.dp, hidden),
                       matrix(".attention.wk.weight", key / size_.dp, hidden),
                       matrix(".attention.wv.weight", key / size_.dp, hidden),
                       matrix(".attention.wo.weight", row, query),
                       weight(name + ".ffn_norm.weight", false, {hidden}),
                       matrix(".feed_forward.w1.weight", ffn / size_.dp, hidden),
                       matrix(".feed_forward.w3.weight", ffn / size_.dp, hidden),
                       matrix(".feed_forward.w2.weight", row, ffn)});
  }
  final_norm_ = weight("norm.weight", false, {hidden});
  head_ = weight("output.weight", true, {size_.vocab / size_.tp / size_.dp, hidden});
}

// The input embedding is not trained here: `embed` is what the tokens have looked up.
ir::Program Step::build() {
  declare_tables();
  declare_parameters();
  Val table = declare(Role::Buffer, "tok_embeddings.weight", "VRR",
                      {size_.vocab / size_.dp, size_.hidden}, DType::BF16);
  within("tok_embeddings");
  at("Transformer.forward", 1);
  Val x = emit("embedding", {gather(table, "dp"), tokens_}, {}, {tokens_.dims[0], size_.hidden});
  std::vector<Saved> saved(size_.layers);
  for (unsigned i = 0; i < size_.layers; ++i) {
    prefix_ = "layers." + std::to_string(i) + ".";
    x = ffn(layers_[i], attention(layers_[i], x, saved[i]), saved[i]);
  }
  within("norm");
  Val hat, inverse, loss;
  Val g = head(norm(x, final_norm_, hat, inverse), loss);
  within("norm");
  g = norm_backward(g, hat, inverse, final_norm_);
  for (unsigned i = size_.layers; i-- > 0;) {
    prefix_ = "layers." + std::to_string(i) + ".";
    g = attention_backward(layers_[i], ffn_backward(layers_[i], g, saved[i]), saved[i]);
  }
  optimize();
  program_.outputs.push_back(
      {.value = loss.id, .role = ir::OutputRole::Loss, .of = {}, .name = {}, .declared = {}});
  builder_.finish();
  return std::move(program_);
}

std::vector<Step::Weight *> Step::weights() {
  std::vector<Weight *> all;
  for (Layer &l : layers_)
    all.insert(all.end(), {&l.norm, &l.q, &l.k, &l.v, &l.o, &l.ffn_norm, &l.gate, &l.up, &l.down});
  all.insert(all.end(), {&final_norm_, &head_});
  return all;
}

void Step::optimize() {
  phase_ = ir::Phase::Optimizer;
  context_ = program_.contexts.add({.mesh = ir::MeshId{0}, .local = {}, .grad = false});
  Val scale = clip_scale();
  for (Weight *weight : weights())
    adam(*weight, scale);
}

// min(1, 1 / norm); the parts of a sharded gradient are summed over the ranks, once.
Val Step::clip_scale() {
  within("optimizer.clip");
  at("clip_grad_norm_", 200);
  std::optional<Val> sums[2];
  for (Weight *weight : weights()) {
    at("clip_grad_norm_", 201);
    const Val &g = weight->gradient;
    Val sum = weight->sharded ? emit("sum_squares", {g}, {{"partial", axes({"dp", "tp"})}}, {},
                                     DType::F32) // P,R,P
                              : emit("sum_squares", {g}, {}, {}, DType::F32);
    std::optional<Val> &total = sums[weight->sharded];
    total = total ? add(*total, sum) : sum;
  }
  at("clip_grad_norm_", 210);
  Val norm = like("sqrt", add(*sums[0], reduce(*sums[1], axes({"dp", "tp"}), "R")));
  Val inverse = like("reciprocal", binary("add", norm, number(1e-6)));
  return like("clamp", inverse, {{"max", AttrValue::number(1)}});
}

void Step::adam(Weight &weight, const Val &scale) {
  scope_ = weight.scope;
  at("Adam.step", 230);
  Val g = mul(cast(weight.gradient, DType::F32), scale);
  Val first = in_place("mul_", weight.first, {number(0.9)});
  first = in_place("add_", first, {g}, {{"alpha", AttrValue::number(0.1)}});
  Val second = in_place("mul_", weight.second, {number(0.95)});
  second = in_place("addcmul_", second, {g, g}, {{"value", AttrValue::number(0.05)}});
  Val root = binary("add", like("sqrt", second), number(1e-8));
  Val all = cast(binary("mul", binary("div", first, root), number(3e-4)), DType::BF16);
  Val updated = in_place("sub_", weight.value, {all});
  program_.outputs.push_back({.value = updated.id,
                              .role = ir::OutputRole::State,
                              .of = weight.value.id,
                              .name = {},
                              .declared = {}});
}

} // namespace spmd::bench
