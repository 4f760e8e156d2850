// Constants, random numbers, dropout. Constants are either R or I, zeros of every kind.
#include "rules/factors/factors.h"
#include "rules/ops/choices.h"
#include "rules/ops/families.h"

namespace spmd::rules {

namespace {

constexpr char kLike[] = "#a[...] -> [...]";

constexpr OpDef kCreation[] = {
    {.name = "constant", .equation = "-> r", .dtype = DTypeRule::Attribute,
     .factors = sized_factors, .gradient = false, .constant = OpDef::Constant::Either,
     .own_dims = OpDef::OwnDims::Attribute},
    {.name = "zeros", .equation = "-> r", .dtype = DTypeRule::Attribute, .factors = sized_factors,
     .gradient = false, .constant = OpDef::Constant::Zero, .own_dims = OpDef::OwnDims::Attribute},
    {.name = "constant_like", .equation = kLike, .dtype = DTypeRule::Attribute, .gradient = false,
     .constant = OpDef::Constant::Either},
    {.name = "zeros_like", .equation = kLike, .dtype = DTypeRule::Attribute, .gradient = false,
     .constant = OpDef::Constant::Zero},
    {.name = "fill", .equation = "v[], #a[...] -> [...]", .from_attr = "v value", .mut = "a",
     .own_dims = OpDef::OwnDims::Attribute, .note = "the value, in the extents of a"},
    {.name = "random", .equation = "~ -> r", .dtype = DTypeRule::Attribute,
     .factors = sized_factors, .gradient = false, .own_dims = OpDef::OwnDims::Attribute},
    {.name = "random_key", .equation = "f(*k) -> r*", .factors = unknown_factors,
     .gradient = false, .note = "random bits and keys made of keys: they differ where those do"},
    {.name = "drawn_by_keys", .equation = "f(k) -> r", .dtype = DTypeRule::Attribute,
     .factors = keyed_factors, .gradient = false, .note = "numbers or keys, some for each key"},
    {.name = "next_key", .equation = "f(k[...], n?[...]) -> [...]", .dtype = DTypeRule::Attribute,
     .gradient = false, .note = "one key for each key, and for each number that is folded in"},
    {.name = "key_of_words", .equation = "f(k[... !w]) -> [...]", .dtype = DTypeRule::Attribute,
     .gradient = false},
    {.name = "words_of_key", .equation = "f(k[...]) -> [... !w]", .dtype = DTypeRule::Attribute,
     .gradient = false},
    {.name = "random_like", .equation = "~, #a[...] -> [...]", .dtype = DTypeRule::Attribute,
     .mut = "a", .gradient = false},
    {.name = "bernoulli", .equation = "f(p[...], ~) -> [...]", .mut = "p", .gradient = false,
     .values = {{{"p", Values::Unit}}}},
    {.name = "poisson", .equation = "f(p[...], ~) -> [...]", .mut = "p", .gradient = false,
     .values = {{{"p", Values::Positive}}}},
    {.name = "binomial", .equation = "f(p[...], q?[...], ~) -> [...]", .gradient = false,
     .values = {{{"q", Values::Unit}}}},
    {.name = "normal", .equation = "f(p[...], q?[...], ~) -> [...]", .gradient = false},
    {.name = "multinomial", .equation = "f(p[... !v], ~) -> [... !k]", .dtype = DTypeRule::Index,
     .extents = sample_count_extents, .gradient = false, .values = {{{"p", Values::Positive}}}},
    {.name = "dropout", .equation = "x[...] * ~[...] -> [...]; ~ -> [...]",
     .choose = choose_dropout, .later_dtype = DTypeRule::Boolean, .mut = "x",
     .note = "the second result of the fused form is the mask"},
    {.name = "dropout_off", .equation = "x[...] -> [...]; ~ -> [...]",
     .later_dtype = DTypeRule::Boolean, .mut = "x"},
    {.name = "rrelu", .equation = "f(x[...], ~) -> [...]"},
    {.name = "alpha_dropout", .equation = "f(x[...], ~) -> [...]"},
};

} // namespace

llvm::ArrayRef<OpDef> creation_ops() { return kCreation; }

} // namespace spmd::rules
