"""Imported by test modules that compare with what one version of JAX infers about ranks: under
another version they are skipped.
"""

import pathlib
import re

import jax
import pytest

_LIST = pathlib.Path(__file__).parents[1] / "requirements-jax.txt"
_LISTED = re.search(r"^jax==(\S+)", _LIST.read_text(), re.MULTILINE)[1]

if jax.__version__ != _LISTED:
    pytest.skip(f"it compares with what jax {_LISTED} infers", allow_module_level=True)
