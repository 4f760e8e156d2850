"""Samples as recordings: with JAX's types, or, where JAX refuses, as they would be written."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp

from ..document import Program, dumps
from ..record import Local, record_local
from ..refused import Unrecordable
from .cases import FLOAT_STATES, Case, Sample

_DUAL = {"I": "I", "V": "V", "P": "Reduced", "Reduced": "P"}


@dataclasses.dataclass
class Recorded:
    """A sample's trace. refusal: JAX's error, then the program has none of its types."""

    name: str
    text: str
    program: Program
    refusal: str | None = None


def forward(sample: Sample) -> Recorded:
    """A sample as JAX types or refuses it."""
    try:
        program = record_local(sample.case.function, *sample.arguments(), mesh=sample.mesh)
        return Recorded(sample.name, dumps(program), program)
    except Unrecordable:
        raise
    except Exception as error:  # JAX has many words for no
        program = _untyped(sample.case, sample.mesh)
        for value, states in zip(program.main.params, sample.states):
            value.type = dict(zip(sample.mesh.axis_names, states))
        return Recorded(sample.name, dumps(program), program, _short(error))


def _short(error: Exception) -> str:
    text = " ".join(str(error).split("\n")[0].split())
    for word in ("Got ", "Please ", ". ", "(Shaped"):
        text = text.split(word)[0]
    return f"{type(error).__name__}: {text}"[:120].strip()


@functools.cache
def _untyped(case: Case, mesh) -> Program:
    """A case as it is written for the first states that JAX accepts, all invariant if it does."""
    last: Exception | None = None
    for state in FLOAT_STATES if case.communicates else ("I",):
        states = [["I"] * (len(mesh.axis_names) - 1) + [state]] * len(case.operands)
        sample = Sample(case, mesh, tuple(map(tuple, states)))
        try:
            program = record_local(case.function, *sample.arguments(), mesh=mesh)
        except Exception as error:
            last = error
            continue
        for body in [program.main, *program.main.bodies()]:
            for value in itertools.chain(body.params, *(op.outs for op in body.ops)):
                value.type = {}
        return program
    raise Unrecordable(f"{case.name}: no state of its operand is accepted") from last


def backward(sample: Sample, recorded: Recorded) -> Recorded | str | None:
    """The same with its gradients; None if there are none, JAX's error if it cannot."""
    case, axes = sample.case, sample.mesh.axis_names
    if not case.gradients or recorded.refusal is not None:
        return None
    arguments = sample.arguments()
    floats = [place for place, one in enumerate(arguments) if _is_float(one.dtype)]
    results = [output["value"] for output in recorded.program.outputs]
    cotangents = [
        Local(
            tuple(one.shape),
            _dtype(one.dtype),
            tuple((axis, _DUAL[one.type[axis]]) for axis in axes),
        )
        for one in results
        if one.floating
    ]
    if not cotangents or any(not one.type for one in results):
        return None

    def pulled(*operands):
        primals, of_results = list(operands[: len(arguments)]), operands[len(arguments) :]

        def by_floats(*values):
            for place, value in zip(floats, values):
                primals[place] = value
            leaves = jax.tree.leaves(case.function(*primals))
            return [leaf for leaf in leaves if _is_float(leaf.dtype)]

        outs, back = jax.vjp(by_floats, *(primals[place] for place in floats))
        return [*outs, *back(list(of_results))]

    gradients = {len(cotangents) + number: place for number, place in enumerate(floats)}
    try:
        program = record_local(
            pulled, *arguments, *cotangents, mesh=sample.mesh, gradients=gradients
        )
    except Unrecordable:
        raise
    except Exception as error:
        return _short(error)
    return Recorded(sample.name + " gradients", dumps(program), program)


def _is_float(dtype) -> bool:
    return jnp.issubdtype(dtype, jnp.floating)


def _dtype(word: str):
    return {"f32": jnp.float32, "bf16": jnp.bfloat16}[word]
