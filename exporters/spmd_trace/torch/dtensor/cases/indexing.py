"""Gathers, scatters and tables."""

from ..samples import ascending, case, floats, integers

_X = floats(8, 16)

CASES = [
    case("gather", _X, 1, integers(8, 4)),
    case("gather", _X, 0, integers(8, 16), note="dim 0"),
    case("index_select", _X, 0, integers(4)),
    case("index_select", _X, 1, integers(4), note="dim 1"),
    case("index.Tensor", _X, [integers(4)]),
    case("index.Tensor", _X, [None, integers(4)], note="dim 1"),
    case("index.Tensor", _X, [integers(4), integers(4)], note="both"),
    case("index_put", _X, [integers(4)], floats(4, 16)),
    case("index_put", _X, [integers(4)], floats(4, 16), True, note="adding"),
    case("index_fill.int_Scalar", _X, 0, integers(4), 0.0),
    case("scatter.src", _X, 1, integers(8, 4), floats(8, 4)),
    case("scatter.value", _X, 1, integers(8, 4), 0.0),
    case("scatter_add", _X, 1, integers(8, 4), floats(8, 4)),
    case("index_reduce", _X, 0, integers(4), floats(4, 16), "amax"),
    case("embedding", floats(16, 8), integers(4, 12)),
    case("embedding_dense_backward", floats(4, 12, 8), integers(4, 12), 16, -1, False),
    case("bucketize.Tensor", _X, ascending(8)),
]
