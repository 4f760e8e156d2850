"""Normalisation, dropout, losses, and what their backward passes run."""

import torch

from ..samples import booleans, case, floats, integers

_X, _G = floats(8, 16), floats(8, 16)
_TOKENS = floats(4, 8, 16)  # batch, positions, width
_W = floats(16)
_STATISTIC = floats(4, 8, 1)
_IMAGE = floats(4, 8, 6, 6)
_CHANNELS = floats(8)
_TARGET = integers(8)

CASES = [
    case("native_layer_norm", _TOKENS, [16], _W, floats(16), 1e-5),
    case("native_layer_norm", _TOKENS, [16], None, None, 1e-5, note="without weight"),
    case(
        "native_layer_norm_backward",
        _TOKENS,
        floats(4, 8, 16),
        [16],
        _STATISTIC,
        floats(4, 8, 1),
        _W,
        floats(16),
        [True, True, True],
    ),
    case("_fused_rms_norm", _TOKENS, [16], _W, 1e-5),
    case(
        "_fused_rms_norm_backward",
        _TOKENS,
        floats(4, 8, 16),
        [16],
        _STATISTIC,
        _W,
        [True, True],
        runs=False,
    ),
    case("native_group_norm", _IMAGE, _CHANNELS, floats(8), 4, 8, 36, 4, 1e-5),
    case("native_batch_norm", _IMAGE, _CHANNELS, floats(8), None, None, True, 0.1, 1e-5),
    case("_softmax_backward_data", _G, _X, 1, torch.float32),
    case("_log_softmax_backward_data", _G, _X, 1, torch.float32),
    case("nll_loss_forward", _X, _TARGET, None, 1, -100, note="mean"),
    case("nll_loss_forward", _X, _TARGET, None, 2, -100, note="sum"),
    case("nll_loss_forward", _X, _TARGET, None, 0, -100, note="each"),
    case("nll_loss_backward", floats(), _X, _TARGET, None, 1, -100, floats(), note="mean"),
    case("nll_loss_backward", floats(), _X, _TARGET, None, 2, -100, floats(), note="sum"),
    case("cross_entropy_loss", _X, _TARGET),
    case("mse_loss", _X, _G),
    case("binary_cross_entropy_with_logits", _X, _G, reduction=0),
    case("native_dropout", _X, 0.5, True),
    case("native_dropout_backward", _G, booleans(8, 16), 2.0),
    case("bernoulli", _X),
]
