"""What a program asks about sizes while it is traced.

In a shard_map the extents of a block and the sizes of axes are given to code outside of JAX as
numbers that know what they are made of. Python, numpy and JAX take them for whole numbers. Where
one becomes an operand, or a number that is not whole, it is noted: a program in which neither
happens has no number that depends on a size but those that JAX itself makes.
"""

import contextlib
import dataclasses
import functools
import itertools
import operator
import os
import sys

import jax
import numpy as np
from jax._src import core, dtypes, source_info_util
from jax._src.lax import parallel
from jax._src.numpy import array_methods
from jax.sharding import AbstractMesh

from ...locations import is_ours
from ..versions import cached_apart, user_frames

_SHAPES = {"arange", "_arange", "ones", "zeros", "empty", "canonicalize_shape"}
_TRANSPARENT = ("numpy", "opt_einsum")  # which JAX, or the program, asks through


@dataclasses.dataclass
class Asked:
    """What one tracing asked. A source is the name of an axis, or a dimension of a shape."""

    # Operands: by place in the program and value, the powers of their sources; none: more
    # than a product.
    operands: dict[tuple, dict | None] = dataclasses.field(default_factory=dict)
    escaped: set = dataclasses.field(default_factory=set)  # sources of other numbers
    # Of dimensions that are made of what was asked: as of operands.
    extents: dict[tuple, dict | None] = dataclasses.field(default_factory=dict)
    sources: dict[int, set] = dataclasses.field(default_factory=dict)  # the same by extent
    # Of reshapes that say all extents but one: by place and result, the dimension of that one and
    # the sources of the others.
    inferred: dict[tuple, tuple[int, list[set]]] = dataclasses.field(default_factory=dict)
    unseen: bool = False  # something that may tell sizes without a note


_now: list[Asked] = []  # the tracing that is watched


class Number:
    """A whole number that knows the sizes in it: powers of sources, or no more than sources."""

    __slots__ = ("value", "powers", "is_product")
    __class__ = property(lambda self: int)  # for isinstance
    __array_priority__ = 1000

    def __init__(self, value: int, powers: dict, is_product=True):
        self.value, self.powers, self.is_product = value, powers, is_product

    def __index__(self):
        for asked in _now:
            asked.sources.setdefault(self.value, set()).update(self.powers)
            place = (place_of(source_info_util.current()), self.value)
            if asked.extents.setdefault(place, self._known()) != self._known():
                asked.extents[place] = None
        return self.value

    def _known(self) -> dict | None:
        return dict(self.powers) if self.is_product else None

    def __int__(self):
        return self.__index__() if _reader() is None else self.leave()

    def __float__(self):
        return float(self.__index__() if _makes_shape() else self.leave())

    def __array__(self, dtype=None, copy=None):
        if _makes_shape():
            self.__index__()
        elif _reader() is None:
            self.enter()
        else:
            self.leave()
        return np.asarray(self.value, dtype)

    def __jax_array__(self):
        self.enter()
        return self.value

    def leave(self) -> int:
        """It becomes a number that knows nothing."""
        for asked in _now:
            asked.escaped.update(self.powers)
        return self.value

    def enter(self) -> int:
        """It becomes an operand."""
        for asked in _now:
            place = (place_of(source_info_util.current()), self.value)
            powers = self._known()
            if asked.operands.setdefault(place, powers) != powers or powers is None:
                self.leave()
        return self.value

    def __hash__(self):
        return hash(self.value)

    def __bool__(self):
        return bool(self.value)

    def __repr__(self):
        return repr(self.value)

    def __format__(self, how):
        return format(self.value, how)

    def __reduce__(self):
        return int, (self.leave(),)

    def __divmod__(self, other):
        return self // other, self % other

    def __rdivmod__(self, other):
        return other // self, other % self

    def __neg__(self):
        return Number(-self.value, self.powers, self.is_product)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.value, name)


def _plain(one):
    return one.value if type(one) is Number else one


def _made(name: str, left, right):
    """The result of an operation of which one operand is such a number."""
    values = [_plain(one) for one in (left, right)]
    numbers = [one for one in (left, right) if type(one) is Number]
    if not all(isinstance(one, (int, float, complex, np.generic)) for one in values):
        return NotImplemented
    value = getattr(operator, name)(*values)
    if type(value) is not int or any(type(one) not in (int, bool) for one in values):
        for one in numbers:
            one.leave()
        return value
    powers = dict.fromkeys(itertools.chain(*(one.powers for one in numbers)), 0)
    exact = name == "floordiv" and values[1] and not values[0] % values[1]
    is_product = all(one.is_product for one in numbers) and (name == "mul" or exact)
    if name == "pow" and type(left) is Number and type(right) is not Number:
        is_product = left.is_product
        powers = {source: power * right for source, power in left.powers.items()}
    else:
        for one, sign in ((left, 1), (right, -1 if exact else 1)):
            for source, power in one.powers.items() if type(one) is Number else ():
                powers[source] += sign * power
    return Number(value, powers, is_product)


def _define() -> None:
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Number, f"__{name}__", functools.partialmethod(_compared, getattr(operator, name)))
    for name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "lshift", "rshift"):
        setattr(Number, f"__{name}__", functools.partialmethod(_applied, name, False))
        setattr(Number, f"__r{name}__", functools.partialmethod(_applied, name, True))


def _compared(self, compare, other) -> bool:
    return compare(self.value, _plain(other))


def _applied(self, name: str, reflected: bool, other):
    return _made(name, *((other, self) if reflected else (self, other)))


_define()
core.pytype_aval_mappings[Number] = lambda one: core.pytype_aval_mappings[int](one.enter())
dtypes.register_weak_scalar_type(Number)
if hasattr(dtypes, "python_scalar_types"):
    dtypes.python_scalar_types.add(Number)
_WORDS = getattr(dtypes, "python_scalar_types_to_dtypes", None) or dtypes.python_scalar_dtypes
_WORDS[Number] = _WORDS[int]
if hasattr(dtypes, "register_canonicalize_value_handler"):
    dtypes.register_canonicalize_value_handler(
        Number, lambda one: dtypes.canonicalize_value(one.enter())
    )
elif hasattr(dtypes, "canonicalize_value_handlers"):
    _HANDLERS = dtypes.canonicalize_value_handlers
    _HANDLERS[Number] = lambda one: _HANDLERS[int](one.enter())


def place_of(source_info) -> tuple:
    """Where in the program something is computed, with its callers."""
    return tuple(
        (frame.file_name, frame.start_line, frame.start_column, frame.function_name)
        for frame in user_frames(source_info)
        if not is_inside(frame.file_name) and not _is_transparent(frame.file_name)
    )


@functools.cache
def is_inside(file: str) -> bool:
    """Whether a file is of JAX, or ours."""
    return file.startswith(JAX) or is_ours(os.path.abspath(file))


@functools.cache
def _is_transparent(file: str) -> bool:
    return not is_inside(file) and any(f"{os.sep}{name}{os.sep}" in file for name in _TRANSPARENT)


JAX = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep


def _reader():
    """The frame outside of JAX that asks; none: it is JAX."""
    frame = sys._getframe(2)
    while _is_transparent(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return None if is_inside(frame.f_code.co_filename) else frame


def _makes_shape() -> bool:
    """Whether a function of JAX looks at a number that it takes for a shape."""
    frame = sys._getframe(2)
    while _is_transparent(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name in _SHAPES and frame.f_code.co_filename.startswith(JAX)


def _is_in_shard_map() -> bool:
    return bool(core.get_axis_env().axis_sizes)


def _numbers(shape) -> tuple:
    """Extents, each with its dimension as its source."""
    plain = tuple(shape)
    return tuple(Number(one, {(plain, dim): 1}) for dim, one in enumerate(plain))


def _extents(tracer) -> tuple:
    return _numbers(tracer.aval.shape)


def _elements(tracer):
    return functools.reduce(operator.mul, _extents(tracer), 1)


def _shape(self):
    return _extents(self) if _is_in_shard_map() and _reader() is not None else self.aval.shape


def _size(self):
    return _elements(self) if _is_in_shard_map() and _reader() is not None else self.aval.size


def _len(self):
    length = self.aval._len(self)
    if _is_in_shard_map() and _reader() is not None:
        _extents(self)[0].leave()
    return length


_STATED = jax.ShapeDtypeStruct.shape  # where its instances keep it


def _stated_shape(self):
    shape = _STATED.__get__(self)
    is_asked = _is_in_shard_map() and _reader() is not None
    return _numbers(shape) if is_asked else shape


def _of_arrays(function, read):
    """`jnp.shape` and `jnp.size`."""

    @functools.wraps(function)
    def asked(a, *args, **kwargs):
        is_asked = isinstance(a, core.Tracer) and _is_in_shard_map() and _reader() is not None
        return read(a) if is_asked and not args and not kwargs else function(a, *args, **kwargs)

    return asked


def _of_mesh(name: str):
    """A property of a mesh that tells sizes."""
    known = AbstractMesh.__dict__.get(name)

    def asked(self):
        if _is_in_shard_map() and _reader() is not None:
            for one in _now:
                one.unseen = True
        return vars(self)[name] if known is None else known.__get__(self, AbstractMesh)

    return property(asked, lambda self, value: vars(self).update({name: value}))


def _unseen(function):
    @functools.wraps(function)
    def asked(*args, **kwargs):
        if _is_in_shard_map() and _reader() is not None:
            for one in _now:
                one.unseen = True
        return function(*args, **kwargs)

    return asked


def _psum(function):
    """A sum of a number is a number of ranks."""

    @functools.wraps(function)
    def asked(x, axis_name, **kwargs):
        with _seen():
            made = function(x, axis_name, **kwargs)
        if all(isinstance(one, core.Tracer) for one in jax.tree.leaves(x)):
            return made
        if type(made) is not int or x != 1 or kwargs.get("axis_index_groups") is not None:
            for one in _now:
                one.unseen = True
            return made
        frame = sys._getframe(1)
        by_name = frame.f_code.co_name if frame.f_code.co_filename == parallel.__file__ else ""
        if by_name == "_axis_size":
            frame = frame.f_back
            by_name = frame.f_code.co_name
            if by_name == "axis_size":
                frame = frame.f_back
        if by_name != "pmean" and is_inside(frame.f_code.co_filename):
            return made
        axes = axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,)
        return Number(made, dict.fromkeys(axes, 1))

    return asked


def _new_shape(function):
    """The extents of a reshape, of which the program may leave one open."""

    @functools.wraps(function)
    def asked(array, shape):
        made = function(array, shape)
        extents = shape if isinstance(shape, (tuple, list)) else [shape]
        plain = [one if type(one) is int else 0 for one in extents]
        if len(made) == len(extents) and -1 in plain:
            place = (place_of(source_info_util.current()), tuple(made))
            sources = [{*one.powers} if type(one) is Number else set() for one in extents]
            for one in _now:
                one.inferred[place] = (plain.index(-1), sources)
        return made

    return asked


_inside_psum = [0]


@contextlib.contextmanager
def _seen():
    _inside_psum[0] += 1
    try:
        yield
    finally:
        _inside_psum[0] -= 1


def _axis_size(function):
    """How psum knows a number of ranks: it may have been imported before it is watched."""

    @functools.wraps(function)
    def asked(self, axis_name):
        frame = sys._getframe(1)
        if frame.f_code.co_name == "<listcomp>":
            frame = frame.f_back
        if not _inside_psum[0] and frame.f_code.co_name in ("psum", "_psum"):
            for one in _now:
                one.unseen = True
        return function(self, axis_name)

    return asked


def _patches() -> list[tuple]:
    watched_sum = _psum(parallel.psum)
    return [
        (core.Tracer, "shape", property(_shape)),
        (core.Tracer, "size", property(_size)),
        (core.Tracer, "__len__", _len),
        (jax.ShapeDtypeStruct, "shape", property(_stated_shape, _STATED.__set__)),
        (parallel, "psum", watched_sum),
        (jax.lax, "psum", watched_sum),
        (array_methods, "_compute_newshape", _new_shape(array_methods._compute_newshape)),
        (core.AxisEnv, "axis_size", _axis_size(core.AxisEnv.axis_size)),
        (jax.numpy, "shape", _of_arrays(jax.numpy.shape, _extents)),
        (jax.numpy, "size", _of_arrays(jax.numpy.size, _elements)),
        *((where, name, _unseen(getattr(where, name)))
          for where, name in ((jax, "typeof"),) if hasattr(where, name)),
        *((AbstractMesh, name, _of_mesh(name))
          for name in ("axis_sizes", "shape", "shape_tuple", "size")),
    ]  # fmt: skip


def watched(trace) -> tuple:
    """What a tracing makes, and what was asked in it; none: that is not known, since it does not
    work with such numbers."""
    try:
        with watching() as asked:
            made = trace()
        _forget(made.jaxpr)
        return made, asked
    except Exception:  # as the program raises it, if it is one of its own
        return trace(), None


def _forget(jaxpr) -> None:
    """Plain numbers in the parameters of operations, as in the pairs of a permutation."""
    for eqn in jaxpr.eqns:
        for name, value in eqn.params.items():
            if type(value) in (Number, tuple, list):
                eqn.params[name] = _forgotten(value)
        for body in core.jaxprs_in_params(eqn.params):
            _forget(body)


def _forgotten(value):
    if type(value) in (tuple, list):
        return type(value)(map(_forgotten, value))
    return _plain(value)


@contextlib.contextmanager
def watching():
    """Within it what a tracing asks is noted. What JAX keeps of earlier ones is not used: they were
    not watched."""
    asked = Asked()
    patches = _patches()
    before = [(where, name, vars(where).get(name)) for where, name, _ in patches]
    for where, name, other in patches:
        setattr(where, name, other)
    _now.append(asked)
    try:
        with cached_apart():
            yield asked
    finally:
        _now.remove(asked)
        for where, name, other in before:
            if other is None:  # of each instance
                delattr(where, name)
            else:
                setattr(where, name, other)
