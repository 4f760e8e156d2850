"""Contractions, convolution, attention and linear algebra."""

from ..samples import case, floats

_CONV = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
_IMAGE, _FILTER = floats(4, 8, 6, 6), floats(16, 8, 3, 3)
_HEADS = floats(4, 8, 16, 4)  # batch, heads, positions, width
_KEYS, _WIDTHS = floats(4, 8, 16, 4), floats(4, 8, 16, 4)
_SQUARES = floats(4, 8, 8)

CASES = [
    case("mm", floats(8, 16), floats(16, 12)),
    case("mm", floats(6, 16), floats(16, 10), note="uneven", uneven=True),
    case("bmm", floats(4, 8, 16), floats(4, 16, 12)),
    case("dot", floats(16), floats(16)),
    case("mv", floats(8, 16), floats(16)),
    case("addmm", floats(12), floats(8, 16), floats(16, 12), note="a row"),
    case("addmm", floats(8, 12), floats(8, 16), floats(16, 12), note="a matrix"),
    case("baddbmm", floats(4, 8, 12), floats(4, 8, 16), floats(4, 16, 12)),
    case("linear", floats(8, 16), floats(12, 16), note="without bias"),
    case("linear", floats(8, 16), floats(12, 16), floats(12)),
    case("matmul", floats(4, 8, 16), floats(16, 12)),
    case("_grouped_mm", floats(4, 8, 16), floats(4, 16, 12), runs=False),
    case("convolution", _IMAGE, _FILTER, None, *_CONV),
    case("convolution", _IMAGE, _FILTER, floats(16), *_CONV, note="with bias"),
    case(
        "convolution_backward",
        floats(4, 16, 6, 6),
        _IMAGE,
        _FILTER,
        [16],
        *_CONV,
        [True, True, True],
    ),
    case("avg_pool2d", _IMAGE, [2, 2]),
    case("max_pool2d_with_indices", _IMAGE, [2, 2]),
    case("_adaptive_avg_pool2d", _IMAGE, [2, 2]),
    case("upsample_nearest2d", _IMAGE, [12, 12]),
    case("_scaled_dot_product_flash_attention", _HEADS, _KEYS, _WIDTHS, runs=False),
    case(
        "_scaled_dot_product_efficient_attention",
        _HEADS,
        _KEYS,
        _WIDTHS,
        None,
        True,
        runs=False,
    ),
    case("linalg_inv_ex", _SQUARES, runs=False),
    case("linalg_cholesky_ex", _SQUARES, runs=False),
    case("_linalg_det", _SQUARES, runs=False),
    case("_linalg_solve_ex", _SQUARES, floats(4, 8, 12), runs=False),
    case("linalg_cross", floats(8, 3), floats(8, 3)),
]
