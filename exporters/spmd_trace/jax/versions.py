"""What differs between versions of JAX."""

import contextlib
import itertools
import os

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


def missing() -> str:
    """What is not known of a program because this version does not say it."""
    if jax.__version_info__ >= (0, 7):
        return ""
    return (f"jax {jax.__version__} does not say which operations are of a backward, so what is "
            "found there may be right: pip install 'jax>=0.7'")  # fmt: skip


def user_frames(source_info):
    """The lines of the program from which an equation comes; before 0.7 by another argument."""
    given = source_info if jax.__version_info__ < (0, 7) else source_info.traceback
    return source_info_util.user_frames(given)


def is_of_backward(eqn) -> bool:
    """Whether an equation beside the backward of a shard_map was made with it; before 0.7 no name
    says so, but the function of JAX does that made it."""
    if "transpose(" in str(eqn.source_info.name_stack):
        return True
    traceback = eqn.source_info.traceback
    codes = traceback.raw_frames()[0][1:2] if traceback is not None else ()
    return any(code.co_filename.endswith(_SHARD_MAP) for code in codes)


def partitions(spec) -> tuple:
    """What cuts each dimension; before 0.10 a spec is a tuple of it."""
    return spec.partitions if hasattr(spec, "partitions") else tuple(spec)


_SHARD_MAP = os.path.join("jax", "_src", "shard_map.py")
_traced = itertools.count(1)


@contextlib.contextmanager
def cached_apart():
    """Within it JAX traces anew what it has traced before. What it keeps goes by a number that only
    compilers of accelerators look at."""
    with config.jax_xla_profile_version(next(_traced)):
        yield
