"""Primitives that are one operation for each element, as JAX knows them: a batch of arrays is one
more dimension."""

import functools

from jax._src.interpreters import batching

# These have a rule of their own, for operands of other shapes.
_OTHERS = {"add_any", "clamp", "convert_element_type", "select_n"}


@functools.cache
def _of_jax() -> set[str]:
    of_elements = (batching.broadcast_batcher, batching.vectorized_batcher)
    rules = batching.fancy_primitive_batchers.items()
    return {
        primitive.name for primitive, rule in rules if getattr(rule, "func", None) in of_elements
    }


def is_pointwise(name: str) -> bool:
    return name in _OTHERS or name in _of_jax()
