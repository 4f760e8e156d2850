"""Records JAX programs as traces for a static type checker, with the types that JAX inferred."""

from ..recording import unfit

if reason := unfit("jax"):
    raise ImportError(reason)

from .document import Program, document, dumps
from .record import Local, lint, record, record_gradients, record_local
from .refused import Unrecordable

__all__ = [
    "Local",
    "Program",
    "Unrecordable",
    "document",
    "dumps",
    "lint",
    "record",
    "record_gradients",
    "record_local",
]
