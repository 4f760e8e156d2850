"""Pointwise operations."""

import torch

from ..samples import booleans, case, complexes, floats, integers

_X, _Y, _Z = floats(8, 16), floats(8, 16), floats(8, 16)

_LINEAR = "neg clone alias detach zeros_like ones_like rand_like".split()
_NONLINEAR = (
    "abs exp expm1 log log1p sqrt rsqrt reciprocal sin cos tanh erf sigmoid relu gelu silu mish "
    "elu leaky_relu hardtanh hardsigmoid softplus sign sgn floor round trunc isnan isfinite square "
    "nan_to_num sinh atan"
).split()
_BINARY = (
    "add.Tensor sub.Tensor mul.Tensor div.Tensor maximum minimum fmax atan2 hypot copysign.Tensor "
    "pow.Tensor_Tensor fmod.Tensor remainder.Tensor eq.Tensor lt.Tensor xlogy.Tensor logaddexp"
).split()
_BACKWARD = "gelu silu tanh sigmoid".split()

CASES = [
    *(case(name, _X) for name in _LINEAR + _NONLINEAR),
    *(case(name, _X, _Y) for name in _BINARY),
    *(case(f"{name}_backward", _X, _Y) for name in _BACKWARD),
    case("threshold_backward", _X, _Y, 0),
    case("relu", floats(6, 16), note="uneven", uneven=True),
    case("add.Tensor", floats(6, 16), floats(6, 16), note="uneven", uneven=True),
    case("_to_copy", _X, dtype=torch.bfloat16, note="to a smaller float"),
    case("_to_copy", _X, dtype=torch.int64, note="to an integer"),
    case("full_like", _X, 2.0),
    case("add.Tensor", _X, 1.0, note="a number"),
    case("add.Tensor", _X, 0.0, note="zero"),
    case("add.Tensor", _X, _Y, alpha=2, note="alpha"),
    case("add.Tensor", _X, floats(16), note="a row"),
    case("mul.Tensor", _X, floats(8, 1), note="a column"),
    case("mul.Tensor", _X, 2.0, note="a number"),
    case("div.Tensor", _X, 2.0, note="a number"),
    case("div.Tensor_mode", _X, 2.0, rounding_mode="floor"),
    case("rsub.Scalar", _X, 1.0),
    case("pow.Tensor_Scalar", _X, 1, note="one"),
    case("pow.Tensor_Scalar", _X, 2, note="two"),
    case("pow.Tensor_Scalar", _X, 3, note="three"),
    case("clamp", _X, 0.0, 1.0),
    case("clamp.Tensor", _X, _Y, _Z),
    case("clamp_min", _X, 0.5),
    case("lt.Scalar", _X, 1.0),
    case("logical_not", booleans(8, 16)),
    case("logical_and", booleans(8, 16), booleans(8, 16)),
    case("bitwise_and.Tensor", integers(8, 16), integers(8, 16)),
    case("bitwise_not", integers(8, 16)),
    case("add_.Tensor", _X, _Y),
    case("mul_.Tensor", _X, _Y),
    case("mul_.Tensor", _X, 2.0, note="a number"),
    case("relu_", _X),
    case("copy_", _X, _Y),
    case("zero_", _X),
    case("addcmul", _X, _Y, _Z, value=0.5),
    case("addcdiv", _X, _Y, _Z),
    case("lerp.Scalar", _X, _Y, 0.5),
    case("lerp.Tensor", _X, _Y, _Z),
    case("where.self", booleans(8, 16), _X, _Y),
    case("masked_fill.Scalar", _X, booleans(8, 16), 0, note="zero"),
    case("masked_fill.Scalar", _X, booleans(8, 16), -1.0, note="another number"),
    case("view_as_real", complexes(8, 16)),
    case("view_as_complex", floats(8, 16, 2)),
    case("_conj", complexes(8, 16)),
]
