// The rows, finding by finding.
#include "checker/report/differences.h"

namespace spmd::checker {
namespace {

using ir::Dialect;
constexpr Difference::Form Laxer = Difference::Form::Laxer, Stricter = Difference::Form::Stricter;

constexpr Difference kDifferences[] = {
    {"partial-into-nonlinear", Dialect::Jax, Laxer,
     "has no rule for what is unreduced in argmax, clamp, cumprod, integer_pow, reduce_max, sort "
     "and others, and "
     "drops it: the result is called invariant, though each rank has another one",
     R"(
trace { mode = local, dialect = jax }
mesh m { tp = 4 }
%u = input f32[8, 16] {U:tp}
%y = reduce_max %u { dim = [0] }
)"},
    {"partial-into-nonlinear", Dialect::Jax, Stricter,
     "has no rule for what is unreduced in neg, sub, div, mean, dynamic_slice, a product with a "
     "number; all are "
     "linear in the pending sum, which may stay pending",
     R"(
trace { mode = local, dialect = jax }
mesh m { tp = 4 }
%u = input f32[8, 16] {U:tp}
%y = mul %u, 2.0
%z = neg %y
)"},
    {"partial-into-nonlinear", Dialect::DTensor, Laxer,
     "takes nansum for linear: a NaN among the addends is dropped before they are added",
     R"(
trace { dialect = dtensor }
mesh m { tp = 4 }
%p = input f32[8, 16] [Partial(sum)]
%y = nansum %p
)"},
    {"partial-into-nonlinear", Dialect::DTensor, Stricter,
     "reduces first where an op is linear in what is Partial and it has no rule that says so: "
     "where, gather, tril, "
     "mean, dropout, backwards of activations; here the sum stays pending",
     R"(
trace { dialect = dtensor }
mesh m { tp = 4 }
%p = input f32[8, 16] [Partial(sum)]
%y = tril %p
)"},
    {"partial-into-nonlinear", Dialect::LTensor, Laxer,
     "has one word, variant, for what varies and for addends: a function of a pending sum passes",
     R"(
trace { mode = local, dialect = ltensor }
mesh m { tp = 4 }
%p = input f32[8, 16] P@tp
%y = gelu %p
)"},
    {"partial-times-partial", Dialect::Jax, Laxer,
     "has no rule for convolutions: the product of two pending sums is called invariant",
     R"(
trace { mode = local, dialect = jax }
mesh m { tp = 4 }
%a = input f32[8, 16] {U:tp}
%b = input f32[8, 16] {U:tp}
%y = mul %a, %b
)"},
    {"partial-times-partial", Dialect::DTensor, Laxer,
     "multiplies the members of a list by a factor, both Partial (_foreach_mul): the products of "
     "addends are not "
     "the addends of the product",
     R"(
trace { dialect = dtensor }
mesh m { tp = 4 }
%a = input f32[8, 16] [Partial(sum)]
%b = input f32[8, 16] [Partial(sum)]
%y = mul %a, %b
)"},
    {"partial-plus-replicate", Dialect::Jax, Laxer,
     "takes the union of the states in concatenate, scatter, stack and where: what is the same on "
     "all ranks would "
     "be added once per rank when the sum is done",
     R"(
trace { mode = local, dialect = jax }
mesh m { tp = 4 }
%u = input f32[8, 16] {U:tp}
%r = input f32[8, 16] {R:tp}
%y = concatenate %u, %r { dimension = 0 }
)"},
    {"invariant-mixed", Dialect::Jax, Laxer,
     "drops one of two states or takes their union where an invariant operand stands beside a "
     "reduced or unreduced "
     "one in dot_general, concatenate, where: no type of the result gives both the right gradient",
     R"(
trace { mode = local, dialect = jax }
mesh m { tp = 4 }
%r = param f32[8, 16] {R:tp}
%i = param f32[16, 8] {}
%y = matmul %r, %i
)"},
    {"invariant-mixed", Dialect::Jax, Stricter,
     "compares whole sets of axes: its cast of a reduced operand to varying fails unless the axes "
     "on which the "
     "other one varies are those on which it is reduced; here each axis is judged by itself",
     R"(
trace { mode = local, dialect = jax }
mesh m { dp = 2, tp = 4 }
%r = param f32[8, 16] {V:dp, R:tp}
%v = param f32[8, 16] {V:dp, V:tp}
%y = add %r, %v
)"},
    {"invariant-mixed", Dialect::DTensor, Laxer,
     "would call the result Reduced if any operand is (a placement that is proposed for it): "
     "the gradient of an operand that is Replicate lacks the sum then",
     R"(
trace { dialect = dtensor }
mesh m { dp = 2 }
%w = param f32[16, 64] [Reduced()]
%v = param f32[16, 64] [Replicate()]
%y = mul %w, %v
)"},
    {"invariant-mixed", Dialect::LTensor, Laxer,
     "takes the intersection of the reduced sets: a reduced operand beside one in neither set "
     "silently becomes one "
     "in neither, and its gradient counts once per rank",
     R"(
trace { mode = local, dialect = ltensor }
mesh m { dp = 2 }
%a = param f32[8, 16] variant={} reduced={dp}
%b = param f32[8, 16] variant={} reduced={}
%y = mul %a, %b
)"},
    {"reduce-of-replicated", Dialect::Jax, Laxer,
     "multiplies by the number of ranks where psum gets what is the same on all of them, without a "
     "word",
     R"(
trace { mode = local, dialect = jax }
mesh m { tp = 4 }
%i = param f32[8] {}
%y = psum %i { axis = tp }
)"},
    {"reduce-of-replicated", Dialect::LTensor, Laxer,
     "has reduce_scatter take a reduced operand to a variant one: a sum of equal values is the "
     "axis size too large",
     R"(
trace { mode = local, dialect = ltensor }
mesh m { dp = 2 }
%a = param f32[8, 16] variant={} reduced={dp}
%y = reduce_scatter %a { axis = dp, src = P, dst = V }
)"},
    {"varying-choice", Dialect::Jax, Laxer,
     "calls the result of cond, switch and while invariant where the condition varies: ranks that "
     "choose "
     "differently hold different results",
     R"(
trace { mode = local, dialect = jax }
mesh m { tp = 4 }
%c = input bool[] {V:tp}
%i = param f32[8] {}
func @a(%x: f32[8]) {
  %n = neg %x
  return %n
}
func @b(%x: f32[8]) {
  %s = sin %x
  return %s
}
%y = cond %c, %i { then = @a, else = @b }
)"},
    {"carry-mismatch", Dialect::Jax, Stricter,
     "wants a cast where a carry starts as zeros: here zeros are of the kind of what is added to "
     "them",
     R"(
trace { mode = local, dialect = jax }
mesh m { tp = 4 }
func @add(%s: f32[8], %x: f32[8]) {
  %t = add %s, %x
  return %t
}
%u = input f32[5, 8] {U:tp}
%z = zeros { shape = [8], dtype = f32 }
%y = scan %z, %u { carry = 1, body = @add }
)"},
    {"unwhole-dimension", Dialect::DTensor, Laxer,
     "has local maxima, minima, products and norms pending, as Partial(max) and the like, where "
     "the dimension is "
     "cut; here it is reduced on each rank in a local region, then by a collective with that "
     "combiner",
     R"(
trace { dialect = dtensor }
mesh m { tp = 4 }
%x = input f32[8, 16] [Shard(0)]
%y = amax %x { dim = [0] }
)"},
    {"strided-shard", Dialect::DTensor, Laxer,
     "has _StridedShard for a cut inside of a merged dimension; here the axes that cut a dimension "
     "hold consecutive "
     "blocks of it",
     R"(
trace { dialect = dtensor }
mesh m { tp = 4 }
%x = input f32[8, 4] [Shard(1)]
%y = reshape %x { shape = [32] }
)"},
    {"spec-mismatch", Dialect::DTensor, Laxer,
     "redistributes operands inside of dispatch, below autograd, so that the move is not "
     "differentiated; `with { "
     "implicit = true }` and `elaborate` write it above",
     R"(
trace { dialect = dtensor }
mesh m { tp = 4 }
%x = input f32[8, 4] [Shard(1)]
%y = input f32[2, 16] [Shard(0)]
%z = add %x, %y
)"},
    {"unstated-partial", Dialect::DTensor, Laxer,
     "makes a contraction over a cut dimension Partial without a word; `--infer-partial` does the "
     "same",
     R"(
trace { dialect = dtensor }
mesh m { tp = 4 }
%x = input f32[8, 4] [Shard(1)]
%w = param f32[4, 8] [Shard(0)]
%y = matmul %x, %w
)"},
    {"reduced-without-owner", Dialect::DTensor, Laxer,
     "derives Reduced, a placement that is proposed for it, from Replicate, so that one passes "
     "for the other: nothing then sums the gradient",
     R"(
trace { dialect = dtensor }
mesh m { dp = 2 }
%r = param f32[16, 64] [Replicate(grad=Partial)]
%z = redistribute %r { axis = dp, src = R, dst = Reduced }
)"},
    {"reduction-mismatch", Dialect::DTensor, Laxer,
     "went from Partial(max) to Partial(sum) by doing nothing",
     R"(
trace { dialect = dtensor }
mesh m { tp = 4 }
%p = input i32[8] [Partial(max)]
%s = redistribute %p { to = i32[8] [Partial(sum)] }
)"},
    {"non-sum-gradient", Dialect::DTensor, Laxer,
     "gives any Partial the gradient Reduced, a placement that is proposed for it; only a sum has "
     "it",
     R"(
trace { dialect = dtensor }
mesh m { tp = 4 }
%p = param f32[8] [Partial(max)]
%r = redistribute %p { to = f32[8] [Replicate()] }
)"},
    {"expert-transition", Dialect::DTensor, Stricter,
     "refuses Shard to Partial in forward: here it is convert(S(i), P), zeros elsewhere, and from "
     "Replicate to "
     "Partial the first rank keeps the value instead of a division by the number of ranks",
     R"(
trace { dialect = dtensor }
mesh m { tp = 4 }
%x = param f32[2, 4] [Shard(0)]
%p = redistribute %x { to = f32[8, 4] [Partial(sum)] }
)"},
};

} // namespace

llvm::ArrayRef<Difference> differences() { return kDifferences; }

} // namespace spmd::checker
