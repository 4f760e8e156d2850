"""What JAX inferred, in the words of the format: states by mesh axis, and shards by dimension.

An axis is varying, unreduced, reduced or none of these, which is invariant, where it is manual; the
sharding of a value says the same, and which dimension is cut, where it is explicit. Of an axis
that is left to the compiler nothing is known.
"""

import functools

import jax
import numpy as np
from jax._src import core
from jax.sharding import AxisType, PartitionSpec

from .document import Value
from .refused import Unrecordable
from .specs import axes_of
from .versions import partitions

_DTYPES = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8",
    "uint16": "u16", "uint32": "u32", "uint64": "u64", "float16": "f16", "bfloat16": "bf16",
    "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip


@functools.cache
def dtype_word(dtype) -> str:
    """`f32` for float32; random keys are the words of their state, `u32`."""
    if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        return "u32"
    if dtype == jax.dtypes.float0:  # what an integer has for a gradient
        return "bool"
    name = np.dtype(dtype).name
    if name not in _DTYPES:
        raise Unrecordable(f"a value of {name}, which the format has no word for")
    return _DTYPES[name]


def spec_kinds(spec: PartitionSpec, axes) -> dict[str, str]:
    """The kind on each of these axes that a partition spec says."""
    cut = {axis for entry in partitions(spec) for axis in axes_of(entry)}
    kinds = {}
    for axis in axes:
        reduced = "Reduced" if axis in spec.reduced else "I"
        kinds[axis] = "V" if axis in cut else "P" if axis in spec.unreduced else reduced
    return kinds


def spec_entries(spec: PartitionSpec, rank: int, axes) -> list:
    """The format's spec: one entry per dimension, of these axes."""
    entries = []
    for entry in [*partitions(spec), *[None] * (rank - len(partitions(spec)))]:
        names = [axis for axis in axes_of(entry) if axis in axes]
        entries.append(None if not names else names[0] if len(names) == 1 else names)
    return entries


def local_shape(shape, spec: PartitionSpec, sizes: dict[str, int]) -> list[int]:
    """The extents of the block that one rank holds."""
    local = list(shape)
    for dim, entry in enumerate(partitions(spec)):
        for axis in axes_of(entry):
            if axis in sizes:
                local[dim] //= sizes[axis]
    return local


class Region:
    """Where operations stand: which axes are manual, explicit, or the compiler's."""

    def __init__(self, sizes: dict[str, int], types: dict[str, AxisType], untyped: bool = False):
        self.sizes = sizes
        self.untyped = untyped  # JAX says nothing of what ranks hold
        self.manual = tuple(axis for axis in sizes if types[axis] == AxisType.Manual)
        self.explicit = tuple(axis for axis in sizes if types[axis] == AxisType.Explicit)
        self.auto = tuple(axis for axis in sizes if types[axis] == AxisType.Auto)

    @classmethod
    def of_mesh(cls, mesh) -> "Region":
        return cls(dict(mesh.shape), dict(zip(mesh.axis_names, mesh.axis_types)))

    @classmethod
    def untyped_of(cls, sizes: dict[str, int]) -> "Region":
        """Inside of shard_maps over all axes that JAX does not check."""
        return cls(sizes, {axis: AxisType.Manual for axis in sizes}, untyped=True)

    def inside(self, manual) -> "Region":
        """The region inside a shard_map over these axes."""
        types = {axis: AxisType.Manual for axis in (*self.manual, *manual)}
        types |= {axis: AxisType.Explicit for axis in self.explicit if axis not in types}
        return Region(self.sizes, {axis: AxisType.Auto for axis in self.sizes} | types)

    def value(self, aval, derived: bool = True) -> Value:
        """A value as one rank holds it, with what JAX inferred about it."""
        if not isinstance(aval, core.ShapedArray):
            raise Unrecordable(f"a value of {aval}: neither an array nor a random key")
        if self.untyped:
            made = Value(dtype_word(aval.dtype), list(aval.shape), {})
            made.derived = derived and made.floating
            return made
        spec = aval.sharding.spec
        kinds = spec_kinds(spec, self.explicit)
        states = aval.manual_axis_type
        for axis in self.manual:
            kinds[axis] = (
                "V" if axis in states.varying
                else "P" if axis in states.unreduced
                else "Reduced" if axis in states.reduced
                else "I"
            )  # fmt: skip
        for axis in self.manual:
            if axis in states.unreduced and axis in states.reduced:
                kinds[axis] = "P"  # both at once: a concatenation of the two
        explicit = {axis: self.sizes[axis] for axis in self.explicit}
        shape = local_shape(aval.shape, spec, explicit)
        entries = spec_entries(spec, len(shape), self.explicit) if self.explicit else None
        at = {axis: kinds[axis] for axis in self.sizes if axis in kinds}
        made = Value(
            dtype_word(aval.dtype), shape, at, entries if entries and any(entries) else None
        )
        made.derived = derived and made.floating
        return made

    def boundary(self, aval, spec: PartitionSpec, manual) -> Value:
        """A value outside a shard_map over these axes, as a spec of the boundary says."""
        outer = self.value(aval)
        inner = local_shape(aval.shape, spec, {axis: self.sizes[axis] for axis in manual})
        if set(self.explicit) & set(manual):  # then the value says it itself
            return outer
        kinds = outer.type | spec_kinds(spec, manual)
        entries = spec_entries(spec, len(inner), tuple(self.sizes))
        return Value(outer.dtype, inner, kinds, entries if any(entries) else None)
