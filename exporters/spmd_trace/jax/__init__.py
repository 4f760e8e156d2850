"""Records JAX programs as traces for a static type checker, with the types that JAX inferred."""

from .document import Program, document, dumps
from .record import Local, record, record_gradients, record_local
from .states import Unrecordable

__all__ = [
    "Local",
    "Program",
    "Unrecordable",
    "document",
    "dumps",
    "record",
    "record_gradients",
    "record_local",
]
