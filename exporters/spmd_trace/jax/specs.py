"""Partition specs: which axes cut a dimension."""

from jax.sharding import PartitionSpec


def axes_of(entry) -> list[str]:
    """The axes that cut one dimension, outermost first."""
    if entry is None or entry is PartitionSpec.UNCONSTRAINED:
        return []
    return list(entry) if isinstance(entry, tuple) else [entry]
