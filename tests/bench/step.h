// A joint training step at the scale of a 405B transformer, built as a program: forward, backward,
// gradient reduction, clipping and Adam, in local mode over three axes. It is well typed:
// parameters state their types, and everything else follows by rules/README.md.
#pragma once

#include "ir/program.h"

#include "llvm/ADT/StringRef.h"

#include <initializer_list>
#include <vector>

namespace spmd::bench {

struct StepSize {
  unsigned layers = 126;
  int64_t dp = 32, cp = 4, tp = 8;
  int64_t hidden = 16384, ffn = 53248, heads = 128, kv_heads = 8, vocab = 128256, tokens = 131072;
};

// One value with its local extents.
struct Val {
  ir::ValueId id;
  std::vector<int64_t> dims;
  ir::DType dtype = ir::DType::BF16;
};

class Step {
public:
  explicit Step(const StepSize &size);
  ir::Program build();

private:
  struct Arg {
    ir::Operand operand;
    Arg(const Val &value) : operand(ir::Operand::value(value.id)) {}
    Arg(ir::Operand made) : operand(made) {}
  };
  using Args = std::initializer_list<Arg>;
  using Attrs = std::initializer_list<std::pair<llvm::StringRef, ir::AttrValue>>;
  // A parameter of the program, its optimizer state and, after backward, its reduced gradient.
  struct Weight {
    Val value, first, second, gradient;
    bool sharded = false; // over dp and tp; else replicated
    ir::StringId scope;
  };
  struct Layer {
    Weight norm, q, k, v, o, ffn_norm, gate, up, down;
  };
  struct Saved {
    Val attention_hat, attention_inverse, attention_in, q, k, v, probabilities, attention_out;
    Val ffn_hat, ffn_inverse, ffn_in, gate, up, active, product;
    Val wq, wk, wv, wo, wgate, wup, wdown; // gathered over dp
  };

  // Ops.
  Val emit(llvm::StringRef op, Args args, Attrs attrs, std::vector<int64_t> dims, ir::DType dtype);
  Val emit(llvm::StringRef op, Args args, Attrs attrs, std::vector<int64_t> dims);
  Val like(llvm::StringRef op, const Val &a, Attrs attrs = {}) {
    return emit(op, {a}, attrs, a.dims, a.dtype);
  }
  Val binary(llvm::StringRef op, const Val &a, Arg b) {
    return emit(op, {a, b}, {}, a.dims, a.dtype);
  }
  Val in_place(llvm::StringRef op, const Val &target, std::initializer_list<Arg> rest,
               Attrs attrs = {});
  Val mul(const Val &a, const Val &b) { return binary("mul", a, b); }
  Val add(const Val &a, const Val &b) { return binary("add", a, b); }
  Val linear(const Val &x, const Val &w, Attrs attrs = {});
  Val matmul(const Val &a, const Val &b, Attrs attrs = {});
  Val transpose(const Val &a);
  Val reshape(const Val &a, std::vector<int64_t> dims);
  Val swap(const Val &a);
  Val cast(const Val &a, ir::DType dtype) {
    return emit("cast", {a}, {{"dtype", word(info(dtype).word)}}, a.dims, dtype);
  }
  Val gather(const Val &a, const char *axis, unsigned dim = 0);
  Val scatter(const Val &a, const char *axis, unsigned dim = 0);
  Val reduce(const Val &a, ir::AttrValue axes, const char *dst);
  Arg number(double value);

  ir::AttrValue axes(std::initializer_list<llvm::StringRef> names);
  ir::AttrValue word(llvm::StringRef text) { return ir::AttrValue::string(builder_.string(text)); }
  ir::AttrValue ints(std::initializer_list<int64_t> numbers);
  ir::AttrValue kind(llvm::StringRef text) { return ir::AttrValue::kind(*ir::parse_kind(text)); }

  // The program.
  void declare_tables();
  void declare_parameters();
  Val declare(ir::Role role, const std::string &name, llvm::StringRef kinds,
              std::vector<int64_t> dims, ir::DType dtype);
  Weight weight(const std::string &name, bool sharded, std::vector<int64_t> dims);
  void at(llvm::StringRef function, unsigned line) {
    line_ = line, function_ = builder_.string(function);
  }
  void within(const std::string &scope) { scope_ = builder_.string(scope); }
  void scoped(const std::string &scope) { within(prefix_ + scope); }

  Val norm(const Val &x, const Weight &weight, Val &hat, Val &inverse);
  Val norm_backward(const Val &g, const Val &hat, const Val &inverse, Weight &weight);
  Val rotate(const Val &x, bool back);
  Val attention(Layer &layer, const Val &x, Saved &saved);
  Val attention_backward(Layer &layer, const Val &g, Saved &saved);
  Val ffn(Layer &layer, const Val &x, Saved &saved);
  Val ffn_backward(Layer &layer, const Val &g, Saved &saved);
  Val head(const Val &x, Val &loss);
  void weight_gradient(Weight &weight, const Val &g, const Val &x);
  void reduce_gradient(Weight &weight, const Val &partial);
  std::vector<Weight *> weights();
  void optimize();
  Val clip_scale();
  void adam(Weight &weight, const Val &scale);

  StepSize size_;
  ir::Program program_;
  ir::Builder builder_;
  ir::FileId file_;
  ir::StringId function_, scope_;
  std::string prefix_;
  unsigned line_ = 1;
  uint32_t names_ = 0;
  ir::Phase phase_ = ir::Phase::Forward;
  ir::ContextId context_;
  std::vector<Layer> layers_;
  Weight embedding_, final_norm_, head_;
  Val tokens_, labels_, first_word_, cosine_, sine_, root_;
};

} // namespace spmd::bench
