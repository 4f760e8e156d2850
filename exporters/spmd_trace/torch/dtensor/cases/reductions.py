"""Reductions, and functions along a dimension."""

from ..samples import booleans, case, floats

_X = floats(8, 16)
_FIRST, _LAST = "dim 0", "dim 1"
_WHOLE = "sum mean amax max min prod any all nansum median argmax argmin linalg_vector_norm".split()

CASES = [
    *(case(name, booleans(8, 16) if name in ("any", "all") else _X) for name in _WHOLE),
    case("sum.dim_IntList", _X, [0], note=_FIRST),
    case("sum.dim_IntList", _X, [1], note=_LAST),
    case("sum.dim_IntList", _X, [1], True, note="kept as 1"),
    case("sum.dim_IntList", floats(6, 16), [0], note="uneven", uneven=True),
    case("mean.dim", _X, [0], note=_FIRST),
    case("mean.dim", _X, [1], True, note="kept as 1"),
    case("mean.dim", floats(6, 16), [0], note="uneven", uneven=True),
    case("amax", _X, [1], note=_LAST),
    case("amin", _X, [0], note=_FIRST),
    case("max.dim", _X, 1),
    case("min.dim", _X, 1),
    case("prod.dim_int", _X, 1),
    case("all.dim", booleans(8, 16), 1),
    case("argmax", _X, 1, note=_LAST),
    case("argmin", _X, 0, note=_FIRST),
    case("var.correction", _X, [1]),
    case("std.correction", _X, [1]),
    case("var_mean.correction", _X, [1]),
    case("linalg_vector_norm", _X, 2, [1], note=_LAST),
    case("linalg_vector_norm", _X, float("inf"), note="the largest"),
    case("norm.Scalar", _X),
    case("logsumexp", _X, [1]),
    case("median.dim", _X, 1),
    case("mode", _X, 1),
    case("kthvalue", _X, 2, 1),
    case("cumsum", _X, 1),
    case("cumprod", _X, 1),
    case("logcumsumexp", _X, 1),
    case("cummax", _X, 1),
    case("sort", _X, 1),
    case("topk", _X, 2, 1),
    case("histc", _X, 4, 0, 8),
    case("_softmax", _X, 1, False),
    case("_softmax", _X, 0, False, note=_FIRST),
    case("_log_softmax", _X, 1, False),
    case("_safe_softmax", _X, 1),
]
