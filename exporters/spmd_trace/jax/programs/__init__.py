"""Whole programs, as JAX users write them: the parallel layers and schedules of language models.

Each is a scalar loss of arrays on a mesh of two by four ranks; `PROGRAMS` lists them by name.
"""

from .catalog import PROGRAMS, Program, array, mesh

__all__ = ["PROGRAMS", "Program", "array", "mesh"]
