"""Steps of optimisers, on lists of tensors."""

from ..samples import Case, case, floats, overload

_P, _Q = floats(8, 16), floats(16)
_LIST, _OTHER, _THIRD = [_P, _Q], [floats(8, 16), floats(16)], [floats(8, 16), floats(16)]
_UNARY = "_foreach_neg _foreach_sqrt _foreach_reciprocal _foreach_zero_".split()
_BINARY = "_foreach_add.List _foreach_sub.List _foreach_mul.List _foreach_div.List".split()
_HYPER = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}


def _fused(name: str) -> Case:
    state = ([floats(8, 16)], [floats(8, 16)], [floats(8, 16)], [floats(8, 16)], [], [floats()])
    flags = _HYPER | {"amsgrad": False, "maximize": False}
    return Case(name, overload(name), state, flags)


CASES = [
    *(case(name, _LIST) for name in _UNARY),
    *(case(name, _LIST, _OTHER) for name in _BINARY),
    case("_foreach_add_.List", _LIST, _OTHER),
    case("_foreach_mul_.Scalar", _LIST, 0.5),
    case("_foreach_mul.Tensor", _LIST, floats()),
    case("_foreach_add.Scalar", _LIST, 1.0),
    case("_foreach_lerp.Scalar", _LIST, _OTHER, 0.5),
    case("_foreach_addcmul_.Scalar", _LIST, _OTHER, _THIRD, 1.0),
    case("_foreach_addcdiv_.Scalar", _LIST, _OTHER, _THIRD, 1.0),
    case("_foreach_norm.Scalar", _LIST),
    case("_foreach_maximum.List", _LIST, _OTHER),
    _fused("_fused_adamw_"),
    _fused("_fused_adam_"),
]
