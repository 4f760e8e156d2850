"""Calls of torch that index, contract, attend, decompose and create, for the kernels of these
rows. As kernel_cases.py has them."""

import torch

from kernel_cases import Case, between, case, mask, normal, whole

aten = torch.ops.aten


def reading() -> list[Case]:
    x, index = normal(4, 5), whole(0, 4, 3, 5)
    return [
        case(aten.gather.default, x, 0, index),
        case(aten.gather.default, x, 1, whole(0, 5, 4, 2)),
        case(aten.take_along_dim.default, x, whole(0, 4, 1, 5), 0),
        case(aten.take_along_dim.default, x, whole(0, 20, 7)),
        case(aten.index_select.default, x, 1, whole(0, 5, 7)),
        case(aten.embedding.default, x, whole(0, 4, 2, 3), 1, names="t", gradient=False),
        case(aten.embedding.default, x, whole(0, 4, 2, 3), names="t"),
        case(
            aten.embedding_dense_backward.default,
            normal(2, 3, 5),
            whole(0, 4, 2, 3),
            4,
            1,
            True,
            names="g",
            gradient=False,
        ),
        case(
            aten.embedding_dense_backward.default,
            normal(2, 3, 5),
            whole(0, 4, 2, 3),
            4,
            -1,
            False,
            names="g",
            gradient=False,
        ),
        case(
            aten._embedding_bag.default,
            x,
            whole(0, 4, 7),
            torch.tensor([0, 3, 3]),
            False,
            0,
            names="t",
            values=1,
            gradient=False,
        ),
        case(
            aten._embedding_bag.default,
            x,
            whole(0, 4, 7),
            torch.tensor([0, 3, 3]),
            False,
            1,
            names="t",
            values=1,
            gradient=False,
        ),
        case(
            aten._embedding_bag.default,
            x,
            whole(0, 4, 7),
            torch.tensor([0, 3, 3]),
            False,
            2,
            names="t",
            values=1,
            gradient=False,
        ),
        case(aten.index.Tensor, x, [None, whole(0, 5, 6)]),
        case(aten.index.Tensor, x, [whole(0, 4, 6), whole(0, 5, 6)]),
        case(aten.index.Tensor, x, [whole(-4, 4, 2, 1), whole(0, 5, 3)]),
        case(aten.index.Tensor, normal(3, 4, 5), [whole(0, 3, 6), None, whole(0, 5, 6)]),
        case(aten.index.Tensor, normal(3, 4, 5), [None, whole(0, 4, 2, 3)]),
        case(aten.take.default, x, whole(-20, 20, 6)),
        case(aten.masked_select.default, x, mask(4, 5)),
    ]


def writing() -> list[Case]:
    x, rows = normal(4, 5), whole(0, 4, 3)
    index, source = whole(0, 4, 3, 5), normal(4, 6)
    unique = torch.tensor([[2, 0, 1, 3, 2], [1, 2, 3, 0, 0]])
    one = "a i s"
    return [
        case(aten.masked_scatter.default, x, mask(4, 5), normal(30), names="a m s"),
        case(aten.scatter.src, x, 0, unique, normal(2, 5), names=one),
        case(aten.scatter.value, x, 0, index, 2.5),
        case(aten.scatter.reduce, x, 0, index, source, reduce="add", names=one, gradient=False),
        case(aten.scatter_add.default, x, 0, index, source, names=one, gradient=False),
        case(aten.scatter_add.default, x, 0, index, normal(3, 5), names=one),
        case(aten.index_add.default, x, 0, rows, normal(3, 5), alpha=2.5, names=one),
        case(aten.index_copy.default, x, 0, torch.tensor([3, 1]), normal(2, 5), names=one),
        case(aten.index_fill.int_Scalar, x, 1, torch.tensor([3, 1]), 2.5),
        case(aten.put.default, x, whole(0, 20, 3), normal(3), True, names=one),
        case(
            aten.index_put.default,
            x,
            [whole(0, 4, 6), whole(0, 5, 6)],
            normal(6),
            True,
            names="a s",
        ),
        case(aten.index_put.default, x, [torch.tensor([2, 0])], normal(5), names="a s"),
        case(aten.index_put.default, x, [None, torch.tensor([2, 0])], normal(4, 2), names="a s"),
        *(
            case(
                aten.scatter_reduce.two,
                x,
                0,
                index,
                normal(3, 5),
                how,
                include_self=self,
                names=one,
                gradient=how != "prod",
            )
            for how in ("sum", "prod", "mean", "amax", "amin")
            for self in (True, False)
        ),
        *(
            case(
                aten.index_reduce.default, x, 0, rows, normal(3, 5), how, names=one, gradient=False
            )
            for how in ("prod", "mean", "amax", "amin")
        ),
    ]


def finding() -> list[Case]:
    x = normal(4, 5)
    return [
        case(aten.one_hot.default, whole(0, 4, 3, 2), 4),
        case(aten.nonzero.default, mask(4, 5)),
        case(aten.argwhere.default, mask(4, 5)),
        case(aten.topk.default, x, 3, 1),
        case(aten.topk.default, x, 2, 0, False),
        case(aten.sort.stable, x, stable=True, dim=0, descending=True),
        case(aten.sort.stable, whole(0, 3, 4, 6), stable=True, dim=1),
        case(aten.argsort.stable, x, stable=True, dim=1),
        case(aten.msort.default, x),
        case(aten.searchsorted.Tensor, normal(3, 6).sort(1)[0], normal(3, 4), gradient=False),
        case(
            aten.searchsorted.Tensor, normal(6).sort()[0], normal(3, 4), right=True, gradient=False
        ),
        case(aten.bucketize.Tensor, whole(0, 9, 3, 4), torch.tensor([2, 4, 4, 7]), right=True),
        case(aten.isin.Tensor_Tensor, whole(0, 9, 3, 4), torch.tensor([2, 4]), invert=True),
        case(aten.unique_consecutive.default, torch.tensor([3, 3, 1, 1, 3]), values=1),
        case(aten._unique2.default, whole(0, 4, 12), values=1),
        case(
            aten.value_selecting_reduction_backward.default,
            normal(4),
            1,
            whole(0, 5, 4),
            [4, 5],
            False,
            names="g",
            gradient=False,
        ),
        case(aten.repeat_interleave.self_int, x, 3, 1),
        case(aten.repeat_interleave.self_Tensor, x, torch.tensor([1, 0, 2, 3]), 0),
        case(aten.repeat_interleave.Tensor, torch.tensor([1, 0, 2, 3])),
    ]


def products() -> list[Case]:
    add = "c a b"
    return [
        case(
            aten.addmm.default,
            normal(3, 4),
            normal(3, 2),
            normal(2, 4),
            beta=0.5,
            alpha=2,
            names=add,
        ),
        case(aten.addmm.default, normal(4), normal(3, 2), normal(2, 4), names=add),
        case(aten.addmv.default, normal(3), normal(3, 2), normal(2), alpha=2, names=add),
        case(aten.addr.default, normal(3, 4), normal(3), normal(4), beta=0.5, names=add),
        case(
            aten.baddbmm.default,
            normal(2, 3, 4),
            normal(2, 3, 5),
            normal(2, 5, 4),
            beta=0.0,
            alpha=0.5,
            names="c a d",
        ),
        case(
            aten.addbmm.default,
            normal(3, 4),
            normal(2, 3, 5),
            normal(2, 5, 4),
            alpha=0.5,
            names="c a d",
        ),
        case(aten.kron.default, normal(2, 3), normal(3, 2)),
        case(aten.linalg_cross.default, normal(4, 3), normal(4, 3)),
        case(aten._cdist_forward.default, normal(3, 2), normal(4, 2), 3.0, None, gradient=False),
        case(aten.cdist.default, normal(2, 3, 2), normal(2, 4, 2), 1.0),
        case(aten.pairwise_distance.default, normal(3, 4), normal(3, 4)),
    ]


def convolution() -> list[Case]:
    images, kernel = normal(2, 4, 7, 6), normal(6, 4, 3, 2)
    return [
        case(
            aten.convolution.default,
            images,
            kernel,
            normal(6),
            [2, 1],
            [1, 0],
            [1, 2],
            False,
            [0, 0],
            1,
            names="x w c",
        ),
        case(
            aten.convolution.default,
            images,
            normal(6, 2, 3, 2),
            None,
            [1, 1],
            [1, 1],
            [1, 1],
            False,
            [0, 0],
            2,
            names="x w",
        ),
        case(
            aten.convolution.default,
            images,
            normal(4, 3, 3, 2),
            normal(6),
            [2, 2],
            [1, 0],
            [1, 1],
            True,
            [1, 0],
            2,
            names="x w c",
        ),
        case(
            aten.convolution.default,
            normal(2, 3, 9),
            normal(4, 3, 3),
            None,
            [2],
            [1],
            [1],
            False,
            [0],
            1,
            names="x w",
        ),
        case(
            aten.convolution.default,
            normal(1, 2, 3, 4, 3),
            normal(2, 2, 2, 2, 2),
            None,
            [1, 1, 1],
            [0, 1, 0],
            [1, 1, 1],
            False,
            [0, 0, 0],
            1,
            names="x w",
        ),
    ]


def convolution_backward() -> list[Case]:
    return [
        case(
            aten.convolution_backward.default,
            normal(2, 6, 3, 5),
            normal(2, 4, 7, 6),
            normal(6, 4, 3, 2),
            [6],
            [2, 1],
            [0, 0],
            [1, 1],
            False,
            [0, 0],
            1,
            [of_images, True, True],
            names="g x w",
            gradient=False,
        )
        for of_images in (True, False)
    ]


def pooling() -> list[Case]:
    images = normal(2, 4, 7, 6)
    pooled = aten.max_pool2d_with_indices.default(images, [3, 2], [2, 2], [1, 1])
    return [
        case(aten.avg_pool2d.default, images, [3, 2], [2, 1], [1, 1], names="x"),
        case(aten.avg_pool2d.default, images, [3, 2], [2, 2], [1, 0], True, False, names="x"),
        case(aten.avg_pool2d.default, images, [3, 2], [], [0, 0], False, True, 5, names="x"),
        case(aten._adaptive_avg_pool2d.default, images, [3, 4], names="x"),
        case(aten.max_pool2d_with_indices.default, images, [3, 2], [2, 2], [1, 1], names="x"),
        case(
            aten.max_pool2d_with_indices_backward.default,
            normal(2, 4, 4, 4),
            images,
            [3, 2],
            [2, 2],
            [1, 1],
            [1, 1],
            False,
            pooled[1],
            names="g",
            gradient=False,
        ),
        case(
            aten.avg_pool2d_backward.default,
            normal(2, 4, 3, 3),
            images,
            [3, 2],
            [2, 2],
            [0, 0],
            False,
            True,
            None,
            names="g",
            gradient=False,
        ),
    ]


def resampling() -> list[Case]:
    images, square = normal(2, 4, 7, 6), normal(2, 3, 6, 6)
    return [
        case(aten.upsample_nearest2d.default, square, [9, 4], names="x"),
        case(aten.upsample_bilinear2d.default, square, [9, 4], False, names="x"),
        case(aten.upsample_bilinear2d.default, square, [9, 4], True, names="x"),
        case(aten.upsample_bicubic2d.default, square, [9, 4], False, names="x"),
        case(aten.upsample_linear1d.default, normal(2, 3, 5), [8], False, names="x"),
        case(aten.im2col.default, images, [3, 2], [1, 1], [1, 0], [2, 1], names="x"),
        case(
            aten.col2im.default,
            normal(2, 24, 15),
            [7, 6],
            [3, 2],
            [1, 1],
            [0, 0],
            [2, 1],
            names="x",
            gradient=False,
        ),
        case(
            aten.grid_sampler_2d.default,
            square,
            between(-1.2, 1.2, 2, 4, 3, 2),
            0,
            0,
            False,
            names="x",
        ),
        case(
            aten.grid_sampler_2d.default,
            square,
            between(-1.2, 1.2, 2, 4, 3, 2),
            1,
            1,
            True,
            names="x",
            gradient=False,
        ),
        case(
            aten.grid_sampler_2d.default,
            square,
            between(-1.8, 1.8, 2, 4, 3, 2),
            0,
            2,
            False,
            names="x",
            gradient=False,
        ),
    ]


def attention() -> list[Case]:
    q, k, v = normal(2, 3, 5, 4), normal(2, 3, 6, 4), normal(2, 3, 6, 4)
    names = "q k v"
    sdpa = aten.scaled_dot_product_attention.default
    fused = aten._scaled_dot_product_flash_attention_for_cpu.default
    o, lse = fused(q, k, v)
    many, g = normal(2, 6, 5, 4), normal(2, 6, 5, 4)
    o_many, lse_many = fused(many, k, v)
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    return [
        case(sdpa, q, k, v, names=names),
        case(sdpa, q, k, v, mask(5, 6) | (torch.arange(6) == 0), names=names, gradient=False),
        case(sdpa, q, k, v, normal(2, 1, 5, 6), names=names, gradient=False),
        case(sdpa, q, k[:, :, :5], v[:, :, :5], None, 0.0, True, names=names),
        case(
            sdpa, normal(2, 6, 5, 4), k, v, enable_gqa=True, scale=0.3, names=names, gradient=False
        ),
        case(fused, q, k, v, names=names, gradient=False),
        case(fused, many, k, v, names=names, gradient=False),
        case(
            backward,
            normal(2, 3, 5, 4),
            q,
            k,
            v,
            o,
            lse,
            0.0,
            False,
            names="g q k v o l",
            gradient=False,
        ),
        case(
            backward,
            g,
            many,
            k,
            v,
            o_many,
            lse_many,
            0.0,
            False,
            names="g q k v o l",
            gradient=False,
        ),
    ]


def linear_algebra() -> list[Case]:
    a, b = normal(2, 4, 4) + 2 * torch.eye(4).double(), normal(2, 4, 3)
    positive = a @ a.mT + torch.eye(4).double()
    factor = torch.linalg.cholesky(positive)
    return [
        case(aten.linalg_inv_ex.default, a, values=1, gradient=False),
        case(aten.inverse.default, a),
        case(aten.linalg_cholesky.default, positive),
        case(aten.linalg_cholesky.default, positive, upper=True, gradient=False),
        case(aten.cholesky_inverse.default, factor, gradient=False),
        case(aten.cholesky_solve.default, b, factor, names="b a", gradient=False),
        case(aten.linalg_solve.default, a, b),
        case(aten.linalg_solve.default, a[0], b[0, :, 0]),
        case(aten.linalg_solve.default, a, b.mT, left=False),
        case(aten.linalg_solve_triangular.default, a, b, upper=True, gradient=False),
        case(
            aten.linalg_solve_triangular.default,
            a,
            b.mT,
            upper=False,
            left=False,
            unitriangular=True,
            gradient=False,
        ),
        case(
            aten.triangular_solve.default, b, a, False, True, names="b a", values=1, gradient=False
        ),
        case(aten.linalg_qr.default, normal(2, 5, 3)),
        case(aten.linalg_qr.default, normal(3, 5), gradient=False),
    ]


def creation() -> list[Case]:
    return [
        case(aten.arange.start_step, 2, 11, 3),
        case(aten.linspace.default, -1.0, 2.0, 7, dtype=torch.float64),
        case(aten.logspace.default, -1.0, 2.0, 5, 2.0, dtype=torch.float64),
        case(aten.eye.m, 3, 4, dtype=torch.float64),
        case(aten.full.default, [2, 3], 1.5, dtype=torch.float64),
        case(aten.ones.default, [2, 3]),
        case(aten.scalar_tensor.default, 2.5, dtype=torch.float64),
        case(aten.tril_indices.default, 3, 4, 1),
        case(aten.triu_indices.default, 3, 4, -1),
        case(aten.full_like.default, normal(2, 3), 2.5, gradient=False),
        case(aten.ones_like.default, normal(2, 3), gradient=False),
        case(aten.fill.Scalar, normal(2, 3), 2.5, gradient=False),
        case(aten.new_full.default, normal(2), [3], 4.0, gradient=False),
    ]


def resampling_backward() -> list[Case]:
    line, square, cube = normal(2, 3, 5), normal(2, 3, 5, 6), normal(2, 2, 3, 4, 3)
    again = [
        (aten.upsample_nearest1d_backward, line, [8], ()),
        (aten.upsample_nearest2d_backward, square, [9, 4], ()),
        (aten.upsample_nearest3d_backward, cube, [5, 3, 7], ()),
        (aten._upsample_nearest_exact2d_backward, square, [9, 4], ()),
        (aten.upsample_linear1d_backward, line, [8], (False,)),
        (aten.upsample_bilinear2d_backward, square, [9, 4], (True,)),
        (aten.upsample_bicubic2d_backward, square, [9, 4], (False,)),
        (aten.upsample_trilinear3d_backward, cube, [5, 3, 7], (False,)),
    ]
    made = [
        case(
            op.default,
            normal(*image.shape[:2], *size),
            size,
            list(image.shape),
            *more,
            names="g",
            gradient=False,
        )
        for op, image, size, more in again
    ]
    padded = [(line, [2, 1]), (square, [2, 1, 0, 3]), (cube, [1, 1, 2, 0, 0, 2])]
    for count, (image, pad) in enumerate(padded, 1):
        for way in ("reflection", "replication"):
            forward = getattr(aten, f"{way}_pad{count}d").default
            backward = getattr(aten, f"{way}_pad{count}d_backward").default
            flow = torch.randn_like(forward(image, pad))
            made += [case(backward, flow, image, pad, names="g a", gradient=False)]
    samples, grid = normal(2, 3, 3, 4), between(-1.2, 1.2, 2, 3, 4, 2)
    made += [
        case(
            aten.grid_sampler_2d_backward.default,
            samples,
            square,
            grid,
            0,
            mode,
            False,
            [True, True],
            names="y x g",
            gradient=False,
        )
        for mode in (0, 1)
    ]
    return made + [
        case(aten.reflection_pad3d.default, cube, [1, 1, 2, 0, 0, 2], names="a"),
        case(aten._upsample_nearest_exact2d.default, square, [9, 4], names="x"),
        case(aten.upsample_nearest3d.default, cube, [5, 3, 7], names="x"),
        case(aten.adaptive_max_pool3d.default, cube, [2, 2, 2], names="x", gradient=False),
        case(aten._adaptive_avg_pool3d.default, cube, [2, 2, 2], names="x", gradient=False),
        case(
            aten._adaptive_avg_pool3d_backward.default,
            normal(2, 2, 2, 2, 2),
            cube,
            names="g x",
            gradient=False,
        ),
    ]


def layers_backward() -> list[Case]:
    x, y, g = normal(3, 4), normal(5, 4), normal(3, 5)
    v, length = normal(3, 4, 2), between(0.5, 2.0, 3, 1, 1)
    norms = v.norm(dim=(1, 2), keepdim=True)
    table, rows = normal(4, 5), whole(0, 4, 7)
    bag = torch.tensor([0, 0, 0, 2, 2, 2, 2])
    return [
        case(aten.glu_backward.default, normal(3, 2), x, 1, names="g a"),
        case(aten._prelu_kernel_backward.default, normal(3, 4), x, normal(3, 4), names="g a w"),
        case(
            aten._cdist_backward.default,
            g,
            x,
            y,
            2.0,
            torch.cdist(x, y),
            names="g a b d",
            gradient=False,
        ),
        case(aten.dist.default, x, normal(3, 4), 3.0),
        case(aten.linalg__powsum.default, x, 3.0, [1], names="a", gradient=False),
        case(aten.linalg__powsum.default, x, names="a", gradient=False),
        case(
            aten._weight_norm_interface_backward.default,
            normal(3, 4, 2),
            v,
            length,
            norms,
            0,
            names="y v g",
            gradient=False,
        ),
        case(
            aten._embedding_bag_per_sample_weights_backward.default,
            normal(3, 5),
            table,
            rows,
            torch.tensor([0, 3, 3]),
            bag,
            0,
            names="g t",
            gradient=False,
        ),
    ]


_FAMILIES = [reading, writing, finding, products, convolution]
_FAMILIES += [convolution_backward, pooling, resampling, attention, linear_algebra, creation]
_FAMILIES += [resampling_backward, layers_backward]


def tensor_cases() -> list[Case]:
    return [one for family in _FAMILIES for one in family()]
