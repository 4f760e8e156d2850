"""Operations of StableHLO, CHLO and Shardy as primitives of JAX."""

import numpy as np
from jax import lax
from jax._src import core
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from ..refused import Unrecordable

RETURNS = {"func.return", "stablehlo.return", "sdy.return"}

# The same operands in the same order, and no parameters that matter.
_RENAMED = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "maximum": "max", "minimum": "min",
    "power": "pow", "remainder": "rem", "negate": "neg", "round_nearest_even": "round",
    "round_nearest_afz": "round", "exponential": "exp", "exponential_minus_one": "expm1",
    "log_plus_one": "log1p", "sine": "sin", "cosine": "cos", "shift_right_logical":
    "shift_right_logical", "popcnt": "population_count", "count_leading_zeros": "clz",
    "bitcast_convert": "bitcast_convert_type", "rng_bit_generator": "random_bits",
}  # fmt: skip


def read(block, name: str, operation) -> None:
    """Adds the equations of one operation to a block."""
    dialect, _, word = name.partition(".")
    if (reader := _READ.get(word)) is not None and dialect != "chlo":
        reader(block, operation)
    else:
        _plain(block, operation, _RENAMED.get(word, word))


def _plain(block, operation, name: str, **params) -> None:
    ins = [block.atom(one) for one in operation.operands]
    block.emit(name, ins, [block.result(one) for one in operation.results], **params)


def _ints(operation, name: str, default=()) -> tuple[int, ...]:
    attributes = operation.attributes
    return tuple(int(one) for one in attributes[name]) if name in attributes else tuple(default)


def _int(operation, name: str) -> int:
    return ir.IntegerAttr(operation.attributes[name]).value


def _array(attribute, aval) -> np.ndarray:
    if attribute.is_splat:
        return np.full(aval.shape, _number(attribute.get_splat_value()), aval.dtype)
    if isinstance(attribute, (ir.DenseFPElementsAttr, ir.DenseIntElementsAttr)):
        return (
            np.array([attribute[place] for place in range(len(attribute))])
            .astype(aval.dtype)
            .reshape(aval.shape)
        )
    return np.asarray(attribute).astype(aval.dtype)


def _number(attribute):
    value = getattr(attribute, "value", None)
    if value is None:  # a complex number
        raise Unrecordable(f"a constant {attribute}")
    return value


def _constant(block, operation) -> None:
    (result,) = operation.results
    attribute, aval = operation.attributes["value"], block.aval(result)
    if not attribute.is_splat:
        block.env[result] = block.constant(_array(attribute, aval), aval)
        return
    scalar = core.ShapedArray((), aval.dtype)
    number = core.Literal(np.asarray(_number(attribute.get_splat_value()), aval.dtype), scalar)
    if aval.shape:
        _spread(block, number, result)
    else:
        block.env[result] = number


def _spread(block, atom, result, dimensions=()) -> None:
    shape = block.aval(result).shape
    block.emit(
        "broadcast_in_dim",
        [atom],
        [block.result(result)],
        shape=shape,
        sharding=None,
        broadcast_dimensions=tuple(dimensions),
    )


def _broadcast(block, operation) -> None:
    dimensions = _ints(operation, "broadcast_dimensions")
    atom = block.atom(operation.operands[0])
    if atom.aval.shape == block.aval(operation.results[0]).shape:
        block.env[operation.results[0]] = atom
    else:
        _spread(block, atom, operation.results[0], dimensions)


def _compare(block, operation) -> None:
    word = stablehlo.ComparisonDirectionAttr(operation.attributes["comparison_direction"]).value
    _plain(block, operation, word.lower())


def _convert(block, operation) -> None:
    operand, (result,) = block.atom(operation.operands[0]), operation.results
    if operand.aval.dtype == block.aval(result).dtype:
        block.env[result] = operand
    else:
        _plain(
            block,
            operation,
            "convert_element_type",
            new_dtype=block.aval(result).dtype,
            weak_type=False,
            sharding=None,
        )


def _select(block, operation) -> None:
    which, yes, no = map(block.atom, operation.operands)
    block.emit("select_n", [which, no, yes], [block.result(operation.results[0])])


def _reshape(block, operation) -> None:
    shape = block.aval(operation.results[0]).shape
    if block.atom(operation.operands[0]).aval.shape == shape:
        block.env[operation.results[0]] = block.atom(operation.operands[0])
    else:
        _plain(block, operation, "reshape", new_sizes=shape, dimensions=None, sharding=None)


def _iota(block, operation) -> None:
    aval = block.aval(operation.results[0])
    _plain(
        block,
        operation,
        "iota",
        dtype=aval.dtype,
        shape=aval.shape,
        sharding=None,
        dimension=_int(operation, "iota_dimension"),
    )


def _slice(block, operation) -> None:
    strides = _ints(operation, "strides")
    _plain(
        block,
        operation,
        "slice",
        start_indices=_ints(operation, "start_indices"),
        limit_indices=_ints(operation, "limit_indices"),
        strides=None if set(strides) <= {1} else strides,
    )


def _pad(block, operation) -> None:
    each = ("edge_padding_low", "edge_padding_high", "interior_padding")
    _plain(
        block, operation, "pad", padding_config=tuple(zip(*(_ints(operation, one) for one in each)))
    )


def _dot(block, operation) -> None:
    numbers = stablehlo.DotDimensionNumbers(operation.attributes["dot_dimension_numbers"])
    summed = (tuple(numbers.lhs_contracting_dimensions), tuple(numbers.rhs_contracting_dimensions))
    batch = (tuple(numbers.lhs_batching_dimensions), tuple(numbers.rhs_batching_dimensions))
    _plain(
        block,
        operation,
        "dot_general",
        dimension_numbers=(summed, batch),
        precision=None,
        preferred_element_type=block.aval(operation.results[0]).dtype,
        out_sharding=None,
    )


def _convolution(block, operation) -> None:
    numbers = stablehlo.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
    sides = []
    for side, batch, feature in (
        ("input", "batch", "feature"),
        ("output", "batch", "feature"),
        ("kernel", "output_feature", "input_feature"),
    ):
        first, second = (getattr(numbers, f"{side}_{one}_dimension") for one in (batch, feature))
        sides.append((first, second, *getattr(numbers, f"{side}_spatial_dimensions")))
    ones = [1] * (len(sides[0]) - 2)
    padding = operation.attributes["padding"] if "padding" in operation.attributes else None
    around = np.array(padding).tolist() if padding is not None else [[0, 0] for _ in ones]
    _plain(
        block,
        operation,
        "conv_general_dilated",
        dimension_numbers=lax.ConvDimensionNumbers(sides[0], sides[2], sides[1]),
        window_strides=_ints(operation, "window_strides", ones),
        padding=tuple(map(tuple, around)),
        lhs_dilation=_ints(operation, "lhs_dilation", ones),
        rhs_dilation=_ints(operation, "rhs_dilation", ones),
        feature_group_count=_int(operation, "feature_group_count"),
        batch_group_count=_int(operation, "batch_group_count"),
        precision=None,
    )


def _gather(block, operation) -> None:
    n = stablehlo.GatherDimensionNumbers(operation.attributes["dimension_numbers"])
    numbers = lax.GatherDimensionNumbers(
        tuple(n.offset_dims),
        tuple(n.collapsed_slice_dims),
        tuple(n.start_index_map),
        tuple(n.operand_batching_dims),
        tuple(n.start_indices_batching_dims),
    )
    table, indices = map(block.atom, operation.operands)
    indices = _with_vectors(block, indices, n.index_vector_dim)
    block.emit(
        "gather",
        [table, indices],
        [block.result(operation.results[0])],
        dimension_numbers=numbers,
        slice_sizes=_ints(operation, "slice_sizes"),
    )


def _with_vectors(block, indices, dim: int):
    """JAX has the vectors of indices in the last dimension."""
    if dim == indices.aval.ndim - 1:
        return indices
    if dim != indices.aval.ndim:
        raise Unrecordable("indices whose vectors are not the last dimension")
    aval = core.ShapedArray((*indices.aval.shape, 1), indices.aval.dtype)
    return block.made(
        "broadcast_in_dim",
        [indices],
        aval,
        shape=aval.shape,
        sharding=None,
        broadcast_dimensions=tuple(range(dim)),
    )


def _scatter(block, operation) -> None:
    n = stablehlo.ScatterDimensionNumbers(operation.attributes["scatter_dimension_numbers"])
    numbers = lax.ScatterDimensionNumbers(
        tuple(n.update_window_dims),
        tuple(n.inserted_window_dims),
        tuple(n.scattered_dims_to_operand_dims),
        tuple(n.input_batching_dims),
        tuple(n.scatter_indices_batching_dims),
    )
    if len(operation.operands) != 3:
        raise Unrecordable("`scatter` of more than one array")
    into, indices, updates = map(block.atom, operation.operands)
    name = {
        None: "scatter",
        "add": "scatter-add",
        "multiply": "scatter-mul",
        "maximum": "scatter-max",
        "minimum": "scatter-min",
        "subtract": "scatter-sub",
    }[_combination(operation)]
    indices = _with_vectors(block, indices, n.index_vector_dim)
    block.emit(
        name,
        [into, indices, updates],
        [block.result(operation.results[0])],
        dimension_numbers=numbers,
    )


_COMBINING = {"add", "multiply", "maximum", "minimum", "and", "or", "subtract"}


def _combination(operation) -> str | None:
    """What a region makes of two numbers; none: it takes the second one."""
    (body,) = operation.regions[0].blocks
    inner = [one.operation.name.partition(".")[2] for one in body.operations]
    inner = [one for one in inner if one not in ("return", "sharding_constraint")]
    if not inner:
        return None
    if len(inner) != 1 or inner[0] not in _COMBINING:
        return "function"
    return inner[0]


_REDUCED = {
    "add": "reduce_sum",
    "multiply": "reduce_prod",
    "maximum": "reduce_max",
    "minimum": "reduce_min",
    "and": "reduce_and",
    "or": "reduce_or",
}


def _reduce(block, operation) -> None:
    dims, operands = _ints(operation, "dimensions"), list(operation.operands)
    (body,) = operation.regions[0].blocks
    compared = [one for one in body.operations if one.operation.name == "stablehlo.compare"]
    word = _combination(operation)
    if len(operands) == 4 and compared:  # an extreme and where it is
        first = stablehlo.ComparisonDirectionAttr(
            compared[0].attributes["comparison_direction"]
        ).value
        kind, atom = ("max" if first in ("GT", "GE") else "min"), block.atom(operands[0])
        top, place = map(block.result, operation.results)
        block.emit(f"reduce_{kind}", [atom], [top], axes=dims, out_sharding=None)
        block.emit(f"arg{kind}", [atom], [place], axes=dims, index_dtype=place.aval.dtype)
    elif len(operands) == 2 and word in _REDUCED:
        block.emit(
            _REDUCED[word],
            [block.atom(operands[0])],
            [block.result(operation.results[0])],
            axes=dims,
            out_sharding=None,
        )
    else:
        _plain(block, operation, "reduce", dimensions=dims)


def _windows(block, operation) -> None:
    word, ones = _combination(operation), [1] * block.aval(operation.results[0]).ndim
    window, strides = (
        _ints(operation, "window_dimensions"),
        _ints(operation, "window_strides", ones),
    )
    names = {
        "add": "reduce_window_sum",
        "maximum": "reduce_window_max",
        "minimum": "reduce_window_min",
    }
    padding = operation.attributes["padding"] if "padding" in operation.attributes else None
    around = np.array(padding).tolist() if padding is not None else [[0, 0] for _ in ones]
    aval = block.aval(operation.results[0])
    whole = [dim for dim, extent in enumerate(window) if extent == aval.shape[dim] > 1]
    of_all = [dim for dim, extent in enumerate(window) if extent > 1]
    if (
        word == "add"
        and whole == of_all
        and len(whole) == 1
        and around[whole[0]] == [window[whole[0]] - 1, 0]
    ):
        block.emit(
            "cumsum",
            [block.atom(operation.operands[0])],
            [block.result(operation.results[0])],
            axis=whole[0],
            reverse=False,
        )
    elif word in names:
        block.emit(
            names[word],
            [block.atom(operation.operands[0])],
            [block.result(operation.results[0])],
            window_dimensions=window,
            window_strides=strides,
            padding=tuple(map(tuple, around)),
            base_dilation=_ints(operation, "base_dilations", ones),
            window_dilation=_ints(operation, "window_dilations", ones),
        )
    else:
        _plain(block, operation, "reduce_window")


def _sort(block, operation) -> None:
    _plain(
        block, operation, "sort", dimension=_int(operation, "dimension"), is_stable=True, num_keys=1
    )


def _case(block, operation) -> None:
    branches = [block.region(one.blocks[0]) for one in operation.regions]
    index = block.atom(operation.operands[0])
    if operation.operation.name.endswith("if"):
        branches.reverse()
        whole = core.ShapedArray((), np.dtype("int32"))
        index = block.made(
            "convert_element_type",
            [index],
            whole,
            new_dtype=whole.dtype,
            weak_type=False,
            sharding=None,
        )
    _, taken = zip(*branches)
    operands = [atom for one in taken for atom in one]
    bodies, before = [], 0
    for closed, own in branches:  # each takes what any of them takes from around
        spare = [core.Var(atom.aval) for atom in operands]
        spare[before : before + len(own)] = closed.jaxpr.invars
        before += len(own)
        bodies.append(core.ClosedJaxpr(closed.jaxpr.replace(invars=spare), []))
    block.emit(
        "cond",
        [index, *operands],
        [block.result(one) for one in operation.results],
        branches=tuple(bodies),
    )


def _while(block, operation) -> None:
    (test, of_test), (step, of_step) = (block.region(one.blocks[0]) for one in operation.regions)
    ins = [block.atom(one) for one in operation.operands]
    block.emit(
        "while",
        [*of_test, *of_step, *ins],
        [block.result(one) for one in operation.results],
        cond_jaxpr=test,
        body_jaxpr=step,
        cond_nconsts=len(of_test),
        body_nconsts=len(of_step),
    )


def _call(block, operation) -> None:
    name = ir.FlatSymbolRefAttr(operation.attributes["callee"]).value
    _plain(block, operation, "jit", jaxpr=block.module.function(name))


def _custom_call(block, operation) -> None:
    name = ir.StringAttr(operation.attributes["call_target_name"]).value
    if name in ("Sharding", "annotate_device_placement"):
        block.env[operation.results[0]] = block.atom(operation.operands[0])
    elif "python" in name and "callback" in name:
        _plain(block, operation, "pure_callback")
    else:
        _plain(block, operation, name)


def _kept(block, operation) -> None:
    for operand, result in zip(operation.operands, operation.results):
        block.env[result] = block.atom(operand)


# --- communication --------------------------------------------------------------------------------


def _over(block, operation, name="axis_name") -> dict:
    groups = np.array(operation.attributes["replica_groups"]).tolist()
    axes, within = block.module.ranks.axes(groups, operation.operation.name)
    return {name: axes, "axis_index_groups": within}


def _all_reduce(block, operation) -> None:
    names = {"add": "psum", "maximum": "pmax", "minimum": "pmin"}
    word = _combination(operation)
    if word not in names:
        raise Unrecordable(f"`all_reduce` by {word}")
    _plain(block, operation, names[word], **_over(block, operation, "axes"))


def _all_gather(block, operation) -> None:
    _plain(
        block,
        operation,
        "all_gather",
        all_gather_dimension=_int(operation, "all_gather_dim"),
        tiled=True,
        **_over(block, operation),
    )


def _reduce_scatter(block, operation) -> None:
    if _combination(operation) != "add":
        raise Unrecordable(f"`reduce_scatter` by {_combination(operation)}")
    _plain(
        block,
        operation,
        "reduce_scatter",
        scatter_dimension=_int(operation, "scatter_dimension"),
        tiled=True,
        **_over(block, operation),
    )


def _all_to_all(block, operation) -> None:
    _plain(
        block,
        operation,
        "all_to_all",
        split_axis=_int(operation, "split_dimension"),
        concat_axis=_int(operation, "concat_dimension"),
        tiled=True,
        **_over(block, operation),
    )


def _permute(block, operation) -> None:
    pairs = [tuple(one) for one in np.array(operation.attributes["source_target_pairs"]).tolist()]
    axes, perm = block.module.ranks.permutation(pairs, "collective_permute")
    _plain(block, operation, "ppermute", axis_name=axes, perm=tuple(perm))


def _number_of_rank(block, operation) -> None:
    block.result(operation.results[0])
    block.numbers[operation.results[0]] = 1


def _literal(block, value) -> int | None:
    atom = block.atom(value)
    return int(atom.val) if isinstance(atom, core.Literal) else None


def _divide(block, operation) -> None:
    """JAX writes the index on an axis as `partition_id / stride % size`."""
    over, by = operation.operands
    if over in block.numbers and (stride := _literal(block, by)):
        block.numbers[operation.results[0]] = block.numbers[over] * stride
        block.result(operation.results[0])
    else:
        _plain(block, operation, "div")


def _remainder(block, operation) -> None:
    over, by = operation.operands
    size = _literal(block, by) if over in block.numbers else None
    axis = block.module.ranks.axis(block.numbers[over], size) if size else None
    if axis is None:
        _plain(block, operation, "rem")
    else:
        block.emit("axis_index", [], [block.result(operation.results[0])], axis_name=axis)


_READ = {
    "constant": _constant,
    "broadcast_in_dim": _broadcast,
    "compare": _compare,
    "convert": _convert,
    "select": _select,
    "reshape": _reshape,
    "iota": _iota,
    "slice": _slice,
    "pad": _pad,
    "dot_general": _dot,
    "convolution": _convolution,
    "gather": _gather,
    "scatter": _scatter,
    "reduce": _reduce,
    "reduce_window": _windows,
    "sort": _sort,
    "case": _case,
    "if": _case,
    "while": _while,
    "call": _call,
    "custom_call": _custom_call,
    "optimization_barrier": _kept,
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "collective_permute": _permute,
    "partition_id": _number_of_rank,
    "divide": _divide,
    "remainder": _remainder,
    "transpose": lambda block, one: _plain(
        block, one, "transpose", permutation=_ints(one, "permutation")
    ),
    "reverse": lambda block, one: _plain(block, one, "rev", dimensions=_ints(one, "dimensions")),
    "concatenate": lambda block, one: _plain(
        block, one, "concatenate", dimension=_int(one, "dimension")
    ),
    "dynamic_slice": lambda block, one: _plain(
        block, one, "dynamic_slice", slice_sizes=_ints(one, "slice_sizes")
    ),
    "manual_computation": lambda block, one: block.manual(one),
    "sharding_constraint": lambda block, one: block.constraint(one),
}
