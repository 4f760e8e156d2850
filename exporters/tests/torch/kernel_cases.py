"""Calls of torch whose results and gradients the runtime's kernels must have.

A case is an aten overload, its arguments, and the names that the op table has for its tensors, in
their order; a gradient is compared by each of these that is a float.
"""

import dataclasses

import torch
from torch.nn import functional

aten = torch.ops.aten
_generator = torch.Generator().manual_seed(11)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=_generator)


def between(low: float, high: float, *shape: int) -> torch.Tensor:
    share = torch.rand(shape, dtype=torch.float64, generator=_generator)
    return low + (high - low) * share


def whole(low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=_generator)


def mask(*shape: int) -> torch.Tensor:
    return whole(0, 2, *shape).bool()


@dataclasses.dataclass
class Case:
    op: torch._ops.OpOverload
    args: tuple
    names: str = "a b"
    kwargs: dict = dataclasses.field(default_factory=dict)
    gradient: bool = True  # of all its floats
    values: int | None = None  # how many results are compared; the others are not determined
    rtol: float = 1e-8  # some of torch's kernels hold their constants as floats of 32 bits


@dataclasses.dataclass
class Composed:
    """What torch has no op of its own for: a row by its name, and a function of its tensors."""

    row: str
    function: object
    tensors: tuple
    names: str = "a b"
    attrs: dict = dataclasses.field(default_factory=dict)
    gradient: bool = True


_SINGLE = {"hardsigmoid", "hardsigmoid_backward", "celu", "fake_quantize_per_tensor_affine"}


def case(op, *args, names="a b", gradient=True, values=None, **kwargs) -> Case:
    rtol = 1e-6 if op.overloadpacket.__name__ in _SINGLE else 1e-8
    return Case(op, args, names, kwargs, gradient, values, rtol)


_OF_ALL = """exp exp2 expm1 sin cos tan sinh cosh tanh sigmoid erf erfc atan asinh abs relu gelu
 silu elu selu celu leaky_relu mish softplus hardtanh hardsigmoid hardswish hardshrink softshrink
 relu6 frac angle log_sigmoid sgn special_ndtr sinc nan_to_num square neg positive""".split()
_OF_POSITIVE = """log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma special_entr""".split()
_OF_UNIT = "asin acos atanh erfinv logit".split()
_STEPS = (
    "ceil floor round trunc sign signbit isnan isinf isfinite isneginf isposinf logical_not".split()
)
_TWO = """add.Tensor sub.Tensor mul.Tensor div.Tensor ldexp.Tensor atan2 hypot logaddexp logaddexp2
 maximum minimum fmax fmin copysign.Tensor remainder.Tensor fmod.Tensor""".split()
_COMPARISONS = "eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor isclose".split()
_TRUTH = "logical_and logical_or logical_xor".split()
_BITS = """bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor gcd lcm floor_divide
 remainder.Tensor fmod.Tensor bitwise_left_shift.Tensor bitwise_right_shift.Tensor""".split()
_REDUCTIONS = "amax amin logsumexp".split()


def find(name: str):
    base, _, overload = name.partition(".")
    return getattr(getattr(aten, base), overload or "default")


def pointwise() -> list[Case]:
    odd = torch.tensor([0.0, -0.0, 1.5, -2.5, torch.inf, -torch.inf, torch.nan, 3.0]).double()
    cases = [case(find(n), normal(3, 4)) for n in _OF_ALL]
    cases += [case(find(n), between(0.3, 2.5, 3, 4)) for n in _OF_POSITIVE]
    cases += [case(find(n), between(0.05, 0.95, 3, 4)) for n in _OF_UNIT]
    cases += [case(find(n), odd, gradient=False) for n in _STEPS]
    cases += [case(find(n), normal(3, 4), normal(4)) for n in _TWO]
    cases += [
        case(find(n), whole(0, 3, 5, 6).double(), whole(0, 3, 6).double(), gradient=False)
        for n in _COMPARISONS + _TRUTH
    ]
    cases += [case(find(n), whole(1, 20, 5, 6), whole(1, 5, 6)) for n in _BITS]
    return cases + [
        case(aten.round.decimals, normal(3, 4), decimals=2, gradient=False),
        case(aten.nan_to_num.default, odd, 1.0, 2.0, -3.0, gradient=False),
        case(aten.bitwise_not.default, whole(-9, 9, 12)),
        case(aten.bitwise_not.default, mask(12)),
    ]


def arithmetic() -> list[Case]:
    x, y, z = normal(3, 4), normal(4), normal(3, 1)
    p, q = between(0.3, 2.5, 3, 4), between(0.3, 2.5, 4)
    return [
        case(aten.add.Tensor, x, y, alpha=2.5),
        case(aten.sub.Tensor, x, y, alpha=-0.5),
        case(aten.rsub.Scalar, x, 2.0, 3.0, names="b"),
        case(aten.rsub.Tensor, x, y, alpha=3.0, names="b a"),
        case(aten.div.Tensor_mode, x, y, rounding_mode="floor", gradient=False),
        case(aten.div.Tensor_mode, x, y, rounding_mode="trunc", gradient=False),
        case(aten.floor_divide.default, whole(-9, 9, 12), torch.tensor(4)),
        case(aten.xlogy.Tensor, p, q),
        case(aten.special_xlog1py.default, p, q),
        case(aten.addcmul.default, x, y, z, value=2.0, names="c a b"),
        case(aten.addcdiv.default, x, y, z, value=2.0, names="c a b"),
        case(aten.lerp.Scalar, x, normal(3, 4), 0.3),
        case(aten.lerp.Tensor, x, normal(3, 4), normal(3, 4), names="a b w"),
        case(aten.where.self, mask(3, 4), x, y, names="c x y"),
        case(aten.masked_fill.Scalar, x, mask(4), -2.5, names="a m"),
        case(aten.masked_fill.Tensor, x, mask(4), torch.tensor(1.5).double(), names="a m v"),
        case(
            aten.native_dropout_backward.default, x, mask(3, 4), 1.25, names="a m", gradient=False
        ),
        case(aten.acosh.default, between(1.1, 4, 8)),
        case(aten.polygamma.default, 2, p),
        case(aten.mvlgamma.default, between(2, 4, 8), 3),
        case(aten.logit.default, between(0.05, 0.95, 12), 0.2),
        case(aten.gelu.default, x, approximate="tanh"),
        case(aten.elu.default, x, 0.5, 2.0, 0.7),
        case(aten.celu.default, x, 0.4),
        case(aten.leaky_relu.default, x, 0.2),
        case(aten.softplus.default, x, 2.0, 1.0),
        case(aten.hardtanh.default, x, -0.3, 0.6),
        case(aten.hardshrink.default, x, 0.3),
        case(aten.softshrink.default, x, 0.3),
        case(aten.threshold.default, x, 0.1, 20.0),
        case(aten.pow.Tensor_Tensor, p, q),
        case(aten.pow.Tensor_Scalar, p, 2.5),
        case(aten.pow.Tensor_Scalar, p, 2),
        case(aten.pow.Scalar, 2.5, p, names="b"),
        case(aten.float_power.Tensor_Tensor, p, q),
        case(aten.heaviside.default, whole(-1, 2, 12).double(), normal(12), gradient=False),
        case(aten.nextafter.default, x, y, gradient=False),
        case(aten.clamp.default, x, -0.4, 0.7),
        case(aten.clamp.default, x, None, 0.7),
        case(aten.clamp.Tensor, x, y, z + 2, names="a lo hi"),
        case(aten.clamp_min.default, x, -0.4),
        case(aten.clamp_max.default, x, 0.4),
        case(aten.isclose.default, x, x + 1e-6 * normal(3, 4), 1e-5, 1e-7, gradient=False),
        case(aten._prelu_kernel.default, x, between(0.1, 0.4, 4), names="a w"),
        case(aten.glu.default, normal(3, 4, 2), 1),
        case(aten._to_copy.default, x, dtype=torch.int32),
        case(aten._to_copy.default, whole(-1, 2, 12).double(), dtype=torch.bool),
        case(aten.view.dtype, x.float(), torch.int32),
        case(aten.view.dtype, x.bfloat16().float().to(torch.float16), torch.int16),
        case(aten.detach.default, x, gradient=False),
        case(aten._to_copy.default, x, dtype=torch.float32),
        case(aten.copy.default, x, y, gradient=False),
        case(aten.fake_quantize_per_tensor_affine.default, x, 0.1, 2, -10, 12, gradient=False),
    ]


def complex_numbers() -> list[Case]:
    x, y, p, q = normal(3, 4), normal(4), between(0.3, 2.5, 3, 4), between(0.3, 2.5, 4)
    return [
        case(aten._conj_physical.default, torch.complex(p, q), gradient=False),
        case(aten.real.default, torch.complex(p, q), gradient=False),
        case(aten.imag.default, torch.complex(p, q), gradient=False),
        case(aten.isreal.default, torch.complex(p, q.round()), gradient=False),
        case(aten.complex.default, p, q, gradient=False),
        case(aten.polar.default, p, q, gradient=False),
        case(aten.exp.default, torch.complex(p, q), gradient=False),
        case(aten.log.default, torch.complex(x, y), gradient=False),
        case(aten.abs.default, torch.complex(x, y), gradient=False),
        case(aten.angle.default, torch.complex(x, y), gradient=False),
        case(aten.sgn.default, torch.complex(x, y), gradient=False),
        case(aten.log1p.default, torch.complex(x, y), gradient=False),
        case(aten.expm1.default, torch.complex(x, y), gradient=False),
        case(aten.tanh.default, torch.complex(x, y), gradient=False),
        case(aten.mul.Tensor, torch.complex(x, y), torch.complex(p, q), gradient=False),
        case(aten.div.Tensor, torch.complex(x, y), torch.complex(p, q), gradient=False),
    ]


def backward_forms() -> list[Case]:
    g, x = normal(3, 4), normal(3, 4)
    two = "g x"
    return [
        case(aten.gelu_backward.default, g, x, names=two),
        case(aten.gelu_backward.default, g, x, approximate="tanh", names=two),
        case(aten.silu_backward.default, g, x, names=two, gradient=False),
        case(aten.sigmoid_backward.default, g, between(0.1, 0.9, 3, 4), names=two),
        case(aten.tanh_backward.default, g, between(-0.9, 0.9, 3, 4), names=two),
        case(aten.threshold_backward.default, g, x, 0.1, names=two),
        case(aten.elu_backward.default, g, 0.5, 2.0, 0.7, False, x, names=two),
        case(aten.elu_backward.default, g, 0.5, 2.0, 0.7, True, between(-0.5, 1, 3, 4), names=two),
        case(aten.leaky_relu_backward.default, g, x, 0.2, False, names=two),
        case(aten.hardtanh_backward.default, g, x, -0.3, 0.6, names=two),
        case(aten.hardsigmoid_backward.default, g, x, names=two, gradient=False),
        case(aten.hardswish_backward.default, g, x, names=two, gradient=False),
        case(aten.hardshrink_backward.default, g, x, 0.3, names=two),
        case(aten.softshrink_backward.default, g, x, 0.3, names=two),
        case(aten.softplus_backward.default, g, x, 2.0, 1.0, names=two),
        case(aten.mish_backward.default, g, x, names=two, gradient=False),
        case(
            aten.logit_backward.default, g, between(0.1, 0.9, 3, 4), 0.2, names=two, gradient=False
        ),
        case(
            aten.log_sigmoid_backward.default,
            g,
            x,
            aten.log_sigmoid_forward.default(x)[1],
            names=two,
            gradient=False,
        ),
    ]


def reductions() -> list[Case]:
    x, ties = normal(3, 5, 2), whole(0, 3, 4, 6).double()
    holes = x.clone()
    holes[0, 1, 0] = holes[2, 3, 1] = torch.nan
    cases = [case(find(n), x, [0, 2]) for n in _REDUCTIONS]
    cases += [case(find(n), x, [1], True) for n in _REDUCTIONS]
    return cases + [
        case(aten.sum.dim_IntList, x, [1]),
        case(aten.mean.dim, x, [0, 2], True),
        case(aten.trace.default, normal(3, 5)),
        case(aten.count_nonzero.dim_IntList, ties, [1]),
        case(aten.nansum.default, holes, [1]),
        case(aten.nanmean.default, holes, [0], gradient=False),
        case(aten.prod.default, x),
        case(aten.prod.dim_int, x, 1),
        case(aten.argmax.default, x),
        case(aten.argmax.default, x, 1, True),
        case(aten.argmin.default, x, 0),
        case(aten.var.correction, x, [1]),
        case(aten.var.correction, x, [0, 2], correction=0, keepdim=True),
        case(aten.std.correction, x, None, correction=2),
        case(aten.var.dim, x, [1], False),
        case(aten.var_mean.correction, x, [1], correction=0),
        case(aten.std_mean.correction, x, [2]),
        case(aten.norm.Scalar, x),
        case(aten.norm.ScalarOpt_dim, x, 3.0, [1]),
        case(aten.norm.ScalarOpt_dim, x, 0, [1], gradient=False),
        case(aten.linalg_vector_norm.default, x, 1.0, [0, 1]),
        case(aten.linalg_vector_norm.default, x, torch.inf, [1], True),
        case(aten.linalg_vector_norm.default, x, -torch.inf, [1]),
        case(aten.linalg_norm.default, normal(4, 3), 1),
        case(aten.linalg_norm.default, normal(4, 3), -torch.inf),
        case(aten.linalg_norm.ord_str, normal(4, 3), "fro"),
        case(aten.linalg_matrix_norm.default, normal(2, 4, 3), -1, [2, 0]),
        case(aten.quantile.scalar, normal(3, 5), 0.3, 1),
        case(aten.quantile.scalar, normal(3, 5), 0.3, 0, True, interpolation="midpoint"),
        case(aten.quantile.default, normal(3, 5), between(0, 1, 4), 1, names="a q"),
        case(aten.nanquantile.scalar, holes[:, :, 0], 0.4, 1, gradient=False),
        case(aten.median.dim, normal(4, 5), 1),
        case(aten.median.default, normal(4, 5)),
        case(aten.nanmedian.dim, holes, 1, gradient=False),
        case(aten.all.dim, mask(3, 4), 1),
        case(aten.any.default, mask(3, 4)),
        case(aten.any.dim, mask(3, 4), 0, True),
        case(aten.max.dim, x, 1),
        case(aten.min.dim, x, 2, True),
        case(aten.max.default, x),
        case(aten.min.default, x),
        case(aten.max.other, x, normal(5, 2)),
        case(aten.min.other, x, normal(5, 2)),
        case(aten.cummax.default, ties, 1, gradient=False),
        case(aten.cummin.default, x, 0),
        case(aten.aminmax.default, x, dim=1),
        case(aten.equal.default, x, x.clone(), gradient=False),
        case(aten.allclose.default, x, x + 1e-9, gradient=False),
        case(aten.cumsum.default, x, 1),
        case(aten.cumprod.default, x, 1),
        case(aten.logcumsumexp.default, x, 1),
        case(aten.diff.default, x, 2, 1),
        case(aten.bincount.default, whole(0, 6, 20)),
    ]


def softmax() -> list[Case]:
    x, g = normal(2, 3, 4), normal(2, 3, 4)
    return [
        case(aten._softmax.default, x, 1, False),
        case(aten.softmax.int, x, 2),
        case(aten._log_softmax.default, x, 0, False),
        case(aten._softmax_backward_data.default, g, x.softmax(1), 1, torch.float64, names="g y"),
        case(
            aten._log_softmax_backward_data.default,
            g,
            x.log_softmax(1),
            1,
            torch.float64,
            names="g y",
        ),
    ]


def layer_norm() -> list[Case]:
    x, w, b, g = normal(2, 3, 4), normal(4), normal(4), normal(2, 3, 4)
    mean, spread = x.mean(2, True), (x.var(2, correction=0, keepdim=True) + 1e-5).rsqrt()
    return [
        case(aten.layer_norm.default, x, [4], w, b, names="x w b"),
        case(aten.layer_norm.default, x, [3, 4], None, None, 0.1, names="x"),
        case(aten.native_layer_norm.default, x, [4], w, b, 1e-5, names="x w b"),
        case(
            aten.native_layer_norm_backward.default,
            g,
            x,
            [4],
            mean,
            spread,
            w,
            b,
            [True, True, True],
            names="g x u s w b",
            gradient=False,
        ),
        case(
            aten.native_layer_norm_backward.default,
            g,
            x,
            [4],
            mean,
            spread,
            w,
            b,
            [False, True, False],
            names="g x u s w b",
            gradient=False,
            values=1,
        ),
        case(aten.rms_norm.default, x, [4], w, 1e-5, names="x w"),
        case(aten.rms_norm.default, x, [3, 4], names="x"),
        case(aten._fused_rms_norm.default, x, [4], w, 1e-5, names="x w"),
    ]


def norms_of_channels() -> list[Case]:
    images, scale, shift = normal(3, 4, 5), normal(4), normal(4)
    groups = images.reshape(3, 2, -1)
    group_mean, group_spread = groups.mean(2), (groups.var(2, correction=0) + 1e-5).rsqrt()
    return [
        case(aten.group_norm.default, images, 2, scale, shift, names="x w b"),
        case(aten.native_group_norm.default, images, scale, shift, 3, 4, 5, 2, 1e-5, names="x w b"),
        case(
            aten.native_group_norm_backward.default,
            normal(3, 4, 5),
            images,
            group_mean,
            group_spread,
            scale,
            3,
            4,
            5,
            2,
            [True, True, True],
            names="g x u s w",
            gradient=False,
        ),
        case(aten.cosine_similarity.default, normal(3, 4), normal(3, 4), 1),
        case(aten._weight_norm.default, normal(3, 4, 2), normal(3, 1, 1), 0, names="v g"),
        case(aten._weight_norm.default, normal(3, 4, 2), normal(1, 4, 1), 1, names="v g"),
    ]


def batch_norm() -> list[Case]:
    images, scale, shift = normal(3, 4, 5), normal(4), normal(4)
    running_mean, running_var = normal(4), between(0.5, 2, 4)
    return [
        case(
            aten.native_batch_norm.default,
            images,
            scale,
            shift,
            None,
            None,
            True,
            0.1,
            1e-5,
            names="x w k",
            values=1,
            gradient=False,
        ),
        case(
            aten.native_batch_norm_backward.default,
            normal(3, 4, 5),
            images,
            scale,
            None,
            None,
            images.mean([0, 2]),
            (images.var([0, 2], correction=0) + 1e-5).rsqrt(),
            True,
            1e-5,
            [True, True, True],
            names="g x w",
            gradient=False,
        ),
        case(
            aten._native_batch_norm_legit_no_training.default,
            images,
            scale,
            shift,
            running_mean,
            running_var,
            0.1,
            1e-5,
            names="x w k u v",
            values=1,
            gradient=False,
        ),
        case(
            aten.instance_norm.default,
            images,
            scale,
            shift,
            None,
            None,
            True,
            0.1,
            1e-5,
            False,
            names="x w k",
        ),
    ]


def losses() -> list[Case]:
    x, y = normal(3, 4), normal(3, 4)
    p, q = between(0.1, 0.9, 3, 4), between(0.1, 0.9, 3, 4)
    cases = []
    for way in range(3):
        cases += [
            case(aten.mse_loss.default, x, y, way),
            case(aten.l1_loss.default, x, y, way),
            case(aten.smooth_l1_loss.default, x, y, way, 0.5),
            case(aten.huber_loss.default, x, y, way, 0.5),
            case(aten.soft_margin_loss.default, x, y.sign(), way, gradient=False),
            case(aten.kl_div.default, x, q, way),
            case(aten.kl_div.default, x, y, way, log_target=True),
            case(aten.poisson_nll_loss.default, x, q * 4, True, True, 1e-8, way, gradient=False),
            case(aten.poisson_nll_loss.default, p, q, False, False, 1e-3, way, gradient=False),
            case(aten.binary_cross_entropy.default, p, q, p + 1, way, gradient=False),
            case(
                aten.binary_cross_entropy_with_logits.default,
                x,
                q,
                p + 1,
                q + 1,
                way,
                gradient=False,
            ),
        ]
    return cases


def losses_of_classes() -> list[Case]:
    scores, classes, weight = normal(6, 3), whole(0, 3, 6), between(0.5, 2, 3)
    log = scores.log_softmax(1)
    total = weight[classes].sum()
    cases = []
    for way in range(3):
        cases += [
            case(aten.cross_entropy_loss.default, scores, classes, None, way, names="z"),
            case(
                aten.cross_entropy_loss.default,
                scores,
                classes,
                weight,
                way,
                1,
                0.1,
                names="z t w",
                gradient=False,
            ),
            case(
                aten.cross_entropy_loss.default,
                scores,
                scores.softmax(1),
                weight,
                way,
                label_smoothing=0.1,
                names="z t w",
                gradient=False,
            ),
            case(
                aten.nll_loss_forward.default,
                log,
                classes,
                weight,
                way,
                -100,
                names="z t w",
                values=1 if way == 0 else None,
                gradient=False,
            ),
            case(aten.nll_loss.default, log, classes, None, way, names="z"),
            case(
                aten.nll_loss_backward.default,
                normal() if way else normal(6),
                log,
                classes,
                weight,
                way,
                -100,
                total,
                names="g",
                gradient=False,
            ),
        ]
    return cases


def losses_backward() -> list[Case]:
    x, y = normal(3, 4), normal(3, 4)
    p, q = between(0.1, 0.9, 3, 4), between(0.1, 0.9, 3, 4)
    each, one = normal(3, 4), normal()
    cases = []
    for way in range(3):
        cases += [
            case(
                aten.mse_loss_backward.default, each if way == 0 else one, x, y, way, names="g a b"
            ),
            case(
                aten.smooth_l1_loss_backward.default,
                each if way == 0 else one,
                x,
                y,
                way,
                0.5,
                names="g a b",
                gradient=False,
            ),
            case(
                aten.huber_loss_backward.default,
                each if way == 0 else one,
                x,
                y,
                way,
                0.5,
                names="g a b",
                gradient=False,
            ),
            case(
                aten.soft_margin_loss_backward.default,
                each if way == 0 else one,
                x,
                y,
                way,
                names="g a b",
                gradient=False,
            ),
            case(
                aten.binary_cross_entropy_backward.default,
                each if way == 0 else one,
                p,
                q,
                None,
                way,
                names="g a b",
                gradient=False,
            ),
        ]
    return cases


def _gradients(function, tensors, cotangent):
    """By every tensor that is a float."""
    leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in tensors]
    wanted = [t for t in leaves if t.requires_grad]
    return torch.autograd.grad(function(*leaves), wanted, cotangent)


def composed() -> list[Composed]:
    x, u, g, positive = normal(3, 4), normal(3, 4), normal(3, 4), between(0.5, 2, 3, 4)
    scores, classes, weight = normal(6, 4), whole(0, 3, 6), normal(3, 4)

    def rms(x, w):
        return functional.rms_norm(x, [4], w, 1e-5)

    def swiglu(z, u):
        return functional.silu(z) * u

    def linear_cross_entropy(x, w, t):
        return functional.cross_entropy(x @ w.T, t)

    def cross_entropy_gradient(g, z, t):
        return _gradients(lambda z: functional.cross_entropy(z, t), [z], g)[0]

    return [
        Composed("softsign", functional.softsign, (x,)),
        Composed("tanhshrink", functional.tanhshrink, (x,)),
        Composed("swiglu", swiglu, (x, u), "g u"),
        Composed("geglu", lambda g, u: functional.gelu(g) * u, (x, u), "g u"),
        Composed("reglu", lambda g, u: functional.relu(g) * u, (x, u), "g u"),
        Composed("div_backward_other", lambda g, a, b: -g * a / b**2, (g, x, positive), "g a b"),
        Composed(
            "swiglu_backward",
            lambda g, u, z: _gradients(swiglu, [z, u], g),
            (g, u, x),
            gradient=False,
        ),
        Composed("sum_squares", lambda a: a.square().sum(1), (x,), attrs={"dim": [1]}),
        Composed("softmin", lambda a: functional.softmin(a, 0), (x,), attrs={"dim": 0}),
        Composed(
            "normalize", lambda a: functional.normalize(a, 3.0, 1), (x,), attrs={"dim": 1, "p": 3.0}
        ),
        Composed(
            "fused_rms_norm_backward",
            lambda g, x, s, w: _gradients(rms, [x, w], g),
            (g, x, (x.square().mean(1, True) + 1e-5).rsqrt(), normal(4)),
            gradient=False,
        ),
        Composed(
            "linear_cross_entropy",
            linear_cross_entropy,
            (scores, weight, classes),
            "x w",
            {"reduction": "mean"},
        ),
        Composed(
            "cross_entropy_backward",
            cross_entropy_gradient,
            (normal(), normal(6, 3), classes),
            attrs={"reduction": 1},
            gradient=False,
        ),
        Composed(
            "select_n",
            lambda c, a, b, d: torch.stack([a, b, d]).gather(0, c[None])[0],
            (whole(0, 3, 3, 4), x, u, g),
            "c y",
            gradient=False,
        ),
    ]


_FAMILIES = [pointwise, arithmetic, complex_numbers, backward_forms, reductions, softmax]
_FAMILIES += [layer_norm, norms_of_channels, batch_norm]
_FAMILIES += [losses, losses_of_classes, losses_backward]


def all_cases() -> list[Case]:
    return [one for family in _FAMILIES for one in family()]
