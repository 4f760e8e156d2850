"""The list of programs, and how one is put on a mesh."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec


def mesh(types=AxisType.Explicit) -> AbstractMesh:
    """Two by four ranks."""
    return AbstractMesh((2, 4), ("dp", "tp"), axis_types=(types,) * 2)


@dataclasses.dataclass(frozen=True)
class Array:
    """An argument: its extents, where it is cut, whether the loss is differentiated by it."""

    shape: tuple[int, ...]
    spec: PartitionSpec
    dtype: type
    differentiated: bool


def array(*shape, at=(), dtype=jnp.float32, grad=True, **more) -> Array:
    """An argument that is cut along the axes of `at`; more: `reduced` and `unreduced` axes."""
    spec = PartitionSpec(*at, **more)
    return Array(shape, spec, dtype, grad and jnp.issubdtype(dtype, jnp.floating))


@dataclasses.dataclass(frozen=True)
class Program:
    """A scalar function; mapped: the body of a shard_map over all axes, else a program as it is."""

    function: Callable
    arrays: tuple[Array, ...]
    mapped: bool = True
    auto: bool = False  # whether the axes outside of a shard_map are left to the compiler

    @property
    def mesh(self) -> AbstractMesh:
        return mesh(AxisType.Auto if self.auto else AxisType.Explicit)

    def callable(self) -> Callable:
        if not self.mapped:
            return self.function
        specs = tuple(one.spec for one in self.arrays)
        scalar = PartitionSpec()
        return jax.shard_map(self.function, mesh=self.mesh, in_specs=specs, out_specs=scalar)

    def arguments(self) -> list[jax.ShapeDtypeStruct]:
        def described(one: Array):
            sharding = NamedSharding(self.mesh, PartitionSpec() if self.auto else one.spec)
            return jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=sharding)

        return [described(one) for one in self.arrays]

    def differentiated(self) -> tuple[int, ...]:
        return tuple(place for place, one in enumerate(self.arrays) if one.differentiated)


PROGRAMS: dict[str, Program] = {}


def program(*arrays, **more):
    """Lists a function with its arguments."""

    def listed(function):
        PROGRAMS[function.__name__] = Program(function, arrays, **more)
        return function

    return listed


from . import attention, layers, schedules, whole  # noqa: E402,F401  they list themselves
