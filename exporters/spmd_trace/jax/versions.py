"""What differs between versions of JAX."""

import contextlib
import itertools

import jax
from jax._src import config, source_info_util


def newly_manual(eqn) -> frozenset[str]:
    """The axes of a shard_map; before 0.10 they have another name."""
    return eqn.params["newly_manual_axes" if "newly_manual_axes" in eqn.params else "manual_axes"]


@contextlib.contextmanager
def use_abstract_mesh(mesh):
    """Within it the mesh is that of the context; before 0.7 this is not public."""
    if hasattr(jax.sharding, "use_abstract_mesh"):
        of_context = jax.sharding.use_abstract_mesh
    else:
        from jax._src.mesh import use_abstract_mesh as of_context
    none = jax.sharding.AbstractMesh((), ())
    # A program may have said `jax.set_mesh`, after which there is none of another size.
    with of_context(none), of_context(mesh):
        yield


def user_frames(source_info):
    """The lines of the program from which an equation comes; before 0.7 by another argument."""
    given = source_info if jax.__version_info__ < (0, 7) else source_info.traceback
    return source_info_util.user_frames(given)


def partitions(spec) -> tuple:
    """What cuts each dimension; before 0.10 a spec is a tuple of it."""
    return spec.partitions if hasattr(spec, "partitions") else tuple(spec)


_traced = itertools.count(1)


@contextlib.contextmanager
def cached_apart():
    """Within it JAX traces anew what it has traced before. What it keeps goes by a number that only
    compilers of accelerators look at."""
    with config.jax_xla_profile_version(next(_traced)):
        yield
